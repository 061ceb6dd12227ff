"""How much a call may still give out."""

from __future__ import annotations

from collections.abc import Sequence

from ..read.message import MessageBatch


class Room:
    """Room for so many messages and payload bytes; the first message always fits.

    Attributes:
        messages, size_bytes: what is left.
        is_empty: nothing was taken yet.
    """

    def __init__(self, messages: int, size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.is_empty = True

    @property
    def is_open(self) -> bool:
        """Whether there may be room for a message more."""
        return self.messages > 0 and self.size_bytes > 0

    def take(self, batches: Sequence[MessageBatch]) -> None:
        """These messages go out."""
        for batch in batches:
            self.messages -= len(batch)
            self.size_bytes -= int(batch.lengths.sum())
            self.is_empty = False

    def close(self) -> None:
        """The next message does not fit."""
        self.messages = 0
