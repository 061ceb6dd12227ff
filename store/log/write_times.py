"""How long the writes of a lane took, counted by powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LEVELS: Final = 64  # more than a time can have
SHOWN_LEVELS: Final = 28  # the last one has all that took longer than the one before it can say


class WriteTimes:
    """The times of writes, each with its force. Plain numbers, added by one thread at a time, read without a lock.

    Attributes:
        total_ns: their sum.
    """

    __slots__ = ("_counts", "total_ns")

    def __init__(self) -> None:
        self._counts = [0] * _LEVELS
        self.total_ns = 0

    def add(self, took_ns: int) -> None:
        """Count one write; some 0.1 us."""
        self._counts[(took_ns // 1000).bit_length()] += 1
        self.total_ns += took_ns

    def counts(self) -> list[int]:
        """(SHOWN_LEVELS,) at n the writes that took less than 2**n us, not less than half of it. The rest is last."""
        return [*self._counts[: SHOWN_LEVELS - 1], sum(self._counts[SHOWN_LEVELS - 1 :])]


def counts_of(lanes: Sequence[WriteTimes]) -> list[int]:
    """(SHOWN_LEVELS,) the counts of several lanes together."""
    return [sum(of_level) for of_level in zip(*[times.counts() for times in lanes], strict=True)]
