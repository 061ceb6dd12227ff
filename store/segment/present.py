"""In which segments of a group streams have messages: kept in memory until the next full footer has it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.footer import Footer, FooterData, Presence

Numbers = npt.NDArray[np.uint32]

NUMBER_BITS = np.uint64(32)
LOW_BITS = (1 << 32) - 1
LEVEL_RATIO = 4  # each level has more than so many times what the next one has: there are a few of them
MOST_STEPS = (1 << 16) - 1  # from a full footer back to a segment of its group
NOWHERE: Sequence[int] = ()


class Present(NamedTuple):
    """In which segments after a full footer, up to another one, streams have messages.

    A row is 8 bytes: stream number, then how many segments after the first. Rows are sorted, in levels: each has the
    rows of some neighbouring segments, later ones than the level before. So one more segment costs a few steps a row.

    Attributes:
        begin: the segment of the full footer.
        end: the newest segment that it covers.
        levels: the rows.
        unknown: segments that may have messages of any stream, ascending.
        rows: how many the footers of all have.
    """

    begin: int
    end: int
    levels: tuple[memoryview, ...] = ()
    unknown: tuple[int, ...] = ()
    rows: int = 0

    @classmethod
    def since(cls, sequence: int) -> Present:
        """Of no segment yet, after the full footer of the segment `sequence`."""
        return cls(sequence, sequence)

    def with_segment(self, sequence: int, numbers: Numbers | None) -> Present:
        """This and one more segment, with messages of the streams `numbers`, ascending; None: perhaps of any."""
        if numbers is None:
            return self._replace(end=sequence, unknown=(*self.unknown, sequence))
        if not len(numbers):
            return self._replace(end=sequence)
        newest = numbers.astype(np.uint64) << NUMBER_BITS | np.uint64(sequence - self.begin)
        levels = list(self.levels)
        while levels and len(levels[-1]) <= LEVEL_RATIO * len(newest):
            newest = np.concatenate([np.asarray(levels.pop()), newest])
            newest.sort(kind="stable")  # two runs: merged
        return self._replace(
            end=sequence, levels=(*levels, memoryview(newest.data)), rows=self.rows + len(numbers)
        )  # fmt: skip

    def segments_of(self, number: int) -> Sequence[int]:
        """The segments that may have messages of a stream, ascending. Made as it is looked at: they may be many."""
        parts = []
        for level in self.levels:
            low = bisect_left(level, number << 32)
            high = low
            if low < len(level) and level[low] >> 32 == number:
                high = bisect_left(level, (number + 1) << 32, low)
                parts.append((level, low, high))
        found: Sequence[int] = _Joined(parts, self.begin) if parts else NOWHERE
        return sorted({*found, *self.unknown}) if self.unknown else found

    def columns(self, streams: int, sequence: int) -> Presence | None:
        """Its columns in the full footer of the segment `sequence`, of so many streams; None if it does not fit."""
        if sequence - min([self.begin + 1, *self.unknown]) > MOST_STEPS:
            return None
        rows = np.sort(np.concatenate([*map(np.asarray, self.levels), np.empty(0, np.uint64)]), kind="stable")
        start = np.empty(streams + 2, np.uint32)
        start[:-1] = rows.searchsorted(np.arange(streams + 1, dtype=np.uint64) << NUMBER_BITS)
        start[-1] = start[-2] + len(self.unknown)
        rows = rows[: int(start[-2])]
        back = np.uint64(sequence - self.begin) - (rows & np.uint64(LOW_BITS))
        unknown = np.array([sequence - one for one in self.unknown], np.uint16)
        return Presence(start, np.concatenate([back.astype(np.uint16), unknown]))


class _Joined(Sequence[int]):
    """Parts of levels, one after the other, as the numbers of segments."""

    def __init__(self, parts: list[tuple[memoryview, int, int]], begin: int) -> None:
        self._parts = parts
        self._begin = begin
        self._count = sum([high - low for _, low, high in parts])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        """A single one."""
        for level, low, high in self._parts:
            if at < high - low:
                return self._begin + (level[low + at] & LOW_BITS)
            at -= high - low
        raise IndexError(at)


class Backwards(Sequence[int]):
    """The numbers of segments, by how many steps each lies before `end`."""

    def __init__(self, end: int, steps: Sequence[int]) -> None:
        self._end = end
        self._steps = steps

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, at: Any) -> Any:
        """A single one."""
        return self._end - self._steps[at]


def streams_in(footer: Footer | FooterData) -> Numbers:
    """The streams with messages in a footer's segment, ascending."""
    return np.asarray(footer.numbers[footer.counts > 0], np.uint32)


def last_at_most(count: int, offset: int, first_of: Callable[[int], int | None]) -> int:
    """Which of `count` items in a row is the last that begins at `offset` or before; -1 if none does.

    `first_of` gives where an item begins; None if that is not known: then the item is passed over.
    """
    low, high = 0, count
    while low < high:
        middle = at = (low + high) // 2
        first = None
        while first is None and at < high:
            first = first_of(at)
            at += 1
        if first is not None and first <= offset:
            low = at
        else:  # those in between are not known, and lie before one that begins later
            high = middle
    return low - 1
