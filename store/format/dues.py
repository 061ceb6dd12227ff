"""The range of delivery times that frames and footers keep: whether a look at their messages is worth it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from .layout import HAS_DUE, NO_TIME, WIDE_LENGTHS, WIDE_NUMBERS


class DueRange(NamedTuple):
    """The least and the largest of some delivery times, in ms; NO_TIME twice if there are none."""

    least: int = NO_TIME
    most: int = NO_TIME

    def joined(self, other: DueRange) -> DueRange:
        """The range of both."""
        if NO_TIME in (self.least, other.least):
            return max(self, other)
        return DueRange(min(self.least, other.least), max(self.most, other.most))


NO_DUES: Final = DueRange()


def required_bytes(flags: int, count: int) -> int:
    """Length of the columns that each frame has; the optional ones follow them."""
    return (10 + (2 if flags & WIDE_NUMBERS else 0) + (2 if flags & WIDE_LENGTHS else 0)) * count


def due_range(flags: int, count: int, columns: bytes) -> DueRange:
    """The range of a frame's delivery times, of its packed columns."""
    if not flags & HAS_DUE:
        return NO_DUES
    times = np.frombuffer(columns, "<i8", count, required_bytes(flags, count))
    times = times[times != NO_TIME]
    return DueRange(int(times.min()), int(times.max())) if len(times) else NO_DUES
