"""The names of some streams as a footer has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class NamedStream(Protocol):
    """A stream, as far as footers name it."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue_id(self) -> int:
        """Its queue in that."""


def names_of(
    streams: Sequence[NamedStream],
) -> tuple[list[str], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The topics of some streams, each once, and of each stream the topic's index and the queue id."""
    topics: dict[str, int] = {}
    index = [topics.setdefault(stream.topic, len(topics)) for stream in streams]
    return list(topics), np.array(index, np.uint32), np.array([stream.queue_id for stream in streams], np.uint32)
