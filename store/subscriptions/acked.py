"""What is kept of the messages of one queue: which are acknowledged, and how often the others were given out.

What is acknowledged is a mark-delete position, and a bitmap of those above it.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..format.arrays import Int64s
from ..format.cursors import Group, bitmap_of, ranges_of

MOST = 1 << 63  # larger than any offset
FEW = 8  # offsets of a stretch at least, on average, to add stretches in place of offsets


class AckedOffsets:
    """A set of offsets.

    Attributes:
        era: how often a seek has moved the queue.

    Invariants:
        * all offsets below `mark` are in the set, and `mark` is not;
        * `above` has those that are larger than `mark`, and no others.
    """

    __slots__ = ("above", "era", "mark")

    def __init__(self, mark: int = 0, era: int = 0) -> None:
        self.era = era
        self.mark = mark
        self.above = BitMap64()

    def copy(self) -> AckedOffsets:
        """Another one that has the same."""
        twin = AckedOffsets(self.mark, self.era)
        if self.above:
            twin.above = self.above.copy()
        return twin

    def __contains__(self, offset: int) -> bool:
        return offset < self.mark or offset in self.above

    def add(self, offset: int) -> None:
        """Add one offset."""
        if offset == self.mark:
            self.mark = offset + 1
            self._settle()
        elif offset > self.mark:
            self.above.add(offset)

    def add_range(self, begin: int, end: int) -> None:
        """Add the offsets begin .. end - 1."""
        if begin <= self.mark:
            self.raise_mark(end)
        elif begin < end:
            self.above.add_range(begin, end)

    def add_all(self, ascending: Int64s) -> None:
        """Add offsets (n,), which ascend."""
        if not len(ascending):
            return
        ranges = ranges_of(ascending)
        if len(ranges) * FEW <= len(ascending) or len(ranges) <= FEW:
            self.add_ranges(ranges)
        else:
            self._add_places(ascending[ascending >= self.mark])

    def add_ranges(self, ranges: Int64s) -> None:
        """Add ranges (n, 2) of begin and end."""
        for begin, end in ranges.tolist():
            self.add_range(begin, end)

    def add_bitmap(self, bitmap: BitMap64) -> None:
        """Add all that a bitmap has."""
        self.above |= bitmap
        self.above.remove_range(0, self.mark)
        self._settle()

    def raise_mark(self, mark: int) -> None:
        """Add all offsets below a mark."""
        if mark > self.mark:
            self.mark = mark  # first: behind an interrupt all is in the set that was there
            if self.above:
                self.above.remove_range(0, mark)
            self._settle()

    def _add_places(self, ascending: Int64s) -> None:
        self.above.update(array("Q", ascending.tobytes()))  # three times as fast as from a numpy array
        self._settle()

    def _settle(self) -> None:
        """Move the mark over what follows it. Behind an interrupt `above` may have what is below the mark, too."""
        if self.above and self.above.min() <= self.mark:
            self.mark = self.first_missing(self.mark)
            self.above.remove_range(0, self.mark)

    def first_missing(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set."""
        offset = max(offset, self.mark)
        above = self.above
        if offset not in above:
            return offset
        # The offsets offset .. x are all there if they are x - offset + 1: doubled while that holds, then halved.
        good, step = offset, 1
        while above.contains_range(offset, good + step + 1):
            good += step
            step *= 2
        bad = good + step
        while bad - good > 1:
            middle = (good + bad) // 2
            if above.contains_range(good, middle + 1):
                good = middle
            else:
                bad = middle
        return bad

    def are_in(self, ascending: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) for each offset of an ascending array whether the set has it."""
        found = ascending < self.mark
        if self.above and len(ascending) and self.above.max() >= int(ascending[0]):
            if ascending[-1] - ascending[0] < FEW * len(ascending):
                part = BitMap64()
                part.add_range(int(ascending[0]), int(ascending[-1]) + 1)
            else:  # between places far apart there may be many more that are acknowledged
                part = bitmap_of(ascending)
            part &= self.above
            if part:
                there = np.frombuffer(part.to_array(), np.int64)
                at = np.minimum(there.searchsorted(ascending), len(there) - 1)
                found |= there[at] == ascending
        return found

    @property
    def end(self) -> int:
        """No offset from here on is in the set."""
        return int(self.above.max()) + 1 if self.above else self.mark

    def cut(self, end: int) -> None:
        """Take all offsets from `end` on out of the set."""
        self.above.remove_range(end, MOST)
        self.mark = min(self.mark, end)

    def remove_all(self, ascending: Int64s) -> None:
        """Take offsets (n,), which ascend, out of the set again."""
        if not len(ascending):
            return
        lowest = int(ascending[0])
        if lowest < self.mark:
            self.above.add_range(lowest, self.mark)
            self.mark = lowest
        self.above -= BitMap64(array("Q", ascending.tobytes()))


class Attempts:
    """Most were given out once: those are a bitmap, and only the others have a number each. One thread at a time.

    Attributes:
        era: of the queue, see `AckedOffsets`.
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

    def forget(self, acked: AckedOffsets) -> None:
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
