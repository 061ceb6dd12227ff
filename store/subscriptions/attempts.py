"""How often messages of one queue were given out and are not acknowledged, as a restart is to find it."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..format.cursors import Group, bitmap_of
from .acked import MOST, Acked

Int64s = npt.NDArray[np.int64]


class Attempts:
    """Most were given out once: those are a bitmap, and only the others have a number each. One thread at a time.

    Attributes:
        era: of the queue, see `Acked`.
    """

    __slots__ = ("_more", "_once", "era")

    def __init__(self, era: int) -> None:
        self.era = era
        self._once = BitMap64()
        self._more: dict[int, int] = {}

    def copy(self) -> Attempts:
        """Another one that has the same."""
        twin = Attempts(self.era)
        twin._once, twin._more = self._once.copy(), dict(self._more)
        return twin

    @property
    def end(self) -> int:
        """No offset from here on was given out."""
        return max(self._once.max() + 1 if self._once else 0, max(self._more, default=-1) + 1)

    def of(self, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out; their offsets ascend."""
        counts = np.zeros(len(offsets), np.int64)
        if self._once and len(offsets):
            there = np.frombuffer((bitmap_of(offsets) & self._once).to_array(), np.int64)
            counts[offsets.searchsorted(there)] = 1
        if self._more:
            more = self._more
            numbers = [more.get(offset, 0) for offset in offsets.tolist()]
            counts = np.maximum(counts, np.array(numbers, np.int64))
        return counts

    def note(self, offsets: Int64s, counts: Int64s) -> None:
        """Messages were given out, the newest of so many times."""
        first = counts == 1
        self._once.update(array("Q", offsets[first].tobytes()))
        for offset, count in zip(offsets[~first].tolist(), counts[~first].tolist(), strict=True):
            if count > self._more.get(offset, 1):
                self._more[offset] = count
                self._once.discard(offset)

    def take_back(self, offset: int, count: int) -> None:
        """The newest time does not count, which was this one."""
        self._once.discard(offset)
        self._more.pop(offset, None)
        if count > 1:
            self.note(np.array([offset]), np.array([count - 1]))

    def add(self, group: Group) -> None:
        """Take what a record says."""
        if group.bitmap is not None:
            self._once |= group.bitmap
        for begin, end in group.ranges.tolist() if group.ranges is not None else ():
            self._once.add_range(begin, end)
        if group.counts is not None:
            self.note(group.counts[:, 0], group.counts[:, 1])
        for offset in self._more:
            self._once.discard(offset)

    def forget(self, acked: Acked) -> None:
        """Acknowledged messages have no number."""
        self._once.remove_range(0, acked.mark)
        self._once -= acked.above
        self._more = {offset: count for offset, count in self._more.items() if offset not in acked}

    def cut(self, end: int) -> None:
        """No message from `end` on has a number."""
        self._once.remove_range(end, MOST)
        self._more = {offset: count for offset, count in self._more.items() if offset < end}

    def rows(self) -> tuple[Int64s, Int64s]:
        """All offsets (n,), ascending, and how often each was given out."""
        once = np.frombuffer(self._once.to_array(), np.int64)
        more = np.array(list(dict(self._more).items()), np.int64).reshape(-1, 2)
        offsets, counts = np.concatenate([once, more[:, 0]]), np.concatenate([np.ones(len(once), np.int64), more[:, 1]])
        order = offsets.argsort(kind="stable")
        return offsets[order], counts[order]
