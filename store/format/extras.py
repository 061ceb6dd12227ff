"""The optional columns of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..errors import StoreError


class IdsUnderWay(Protocol):
    """Ids of messages that are on their way to the log; see `log.message_ids`."""

    @property
    def size_bytes(self) -> int:
        """What they add to the frame of their messages."""

    def fail(self, error: StoreError | None) -> None:
        """They did not get to the log; with None, nothing of them was ever queued. Again is fine."""


class Extras(NamedTuple):
    """The optional columns of one message: delivery time (ms since the epoch), key, properties as JSON; or None."""

    due_ms: int | None
    key: bytes | None
    properties: bytes | None  # JSON

    @property
    def size_bytes(self) -> int:
        """Bytes of key and properties."""
        return len(self.key or b"") + len(self.properties or b"")

    @property
    def ids(self) -> Sequence[IdsUnderWay]:
        """The ids that the request has: no column of the message, they go to a record beside it (`message_ids`)."""
        return ()


NO_EXTRAS: Final = Extras(None, None, None)


class ExtrasWithIds(Extras):
    """The optional columns of one message, or none, in a request whose messages have ids.

    `size_bytes` counts the record of the ids, too.
    """

    ids: Sequence[IdsUnderWay] = ()
    size_bytes: int = 0

    @classmethod
    def of(cls, extras: Extras | None, ids: Sequence[IdsUnderWay]) -> ExtrasWithIds:
        """The columns of a message, or None, with ids."""
        found = tuple.__new__(cls, NO_EXTRAS if extras is None else extras)
        found.ids = ids
        found.size_bytes = sum([one.size_bytes for one in ids], 0 if extras is None else extras.size_bytes)
        return found
