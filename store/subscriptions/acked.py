"""The acknowledged offsets of a queue, and the attempts of its other messages.

Acknowledged offsets are a mark-delete position, and a bitmap of those above it.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..format.arrays import Int64s
from ..format.cursors import Group, bitmap_of, ranges_of

MOST = 1 << 63  # larger than any offset
FEW = 8  # with fewer offsets a stretch on average, offsets are added one by one


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
        """A copy with the same offsets."""
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
        """Add all offsets of a bitmap."""
        self.above |= bitmap
        self.above.remove_range(0, self.mark)
        self._settle()

    def raise_mark(self, mark: int) -> None:
        """Add all offsets below a mark."""
        if mark > self.mark:
            self.mark = mark  # first: after an interrupt no offset is missing
            if self.above:
                self.above.remove_range(0, mark)
            self._settle()

    def _add_places(self, ascending: Int64s) -> None:
        self.above.update(array("Q", ascending.tobytes()))  # three times as fast as from a numpy array
        self._settle()

    def _settle(self) -> None:
        """Move the mark over the offsets that follow it. After an interrupt `above` may have some below it, too."""
        if self.above and self.above.min() <= self.mark:
            self.mark = self.first_missing(self.mark)
            self.above.remove_range(0, self.mark)

    def first_missing(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set."""
        offset = max(offset, self.mark)
        above = self.above
        if offset not in above:
            return offset
        # Doubles, then halves the step: offset .. x are all in the set if it has x - offset + 1 of them.
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
        """(n,) whether the set has each offset of an ascending array."""
        found = ascending < self.mark
        if self.above and len(ascending) and self.above.max() >= int(ascending[0]):
            if ascending[-1] - ascending[0] < FEW * len(ascending):
                part = BitMap64()
                part.add_range(int(ascending[0]), int(ascending[-1]) + 1)
            else:  # between offsets far apart there may be many more acknowledged ones
                part = bitmap_of(ascending)
            part &= self.above
            if part:
                there = np.frombuffer(part.to_array(), np.int64)
                at = np.minimum(there.searchsorted(ascending), len(there) - 1)
                found |= there[at] == ascending
        return found

    @property
    def end(self) -> int:
        """The end of the set: it has no offset from here on."""
        return int(self.above.max()) + 1 if self.above else self.mark

    def cut(self, end: int) -> None:
        """Remove all offsets from `end` on."""
        self.above.remove_range(end, MOST)
        self.mark = min(self.mark, end)

    def remove_all(self, ascending: Int64s) -> None:
        """Remove offsets (n,), which ascend."""
        if not len(ascending):
            return
        lowest = int(ascending[0])
        if lowest < self.mark:
            self.above.add_range(lowest, self.mark)
            self.mark = lowest
        self.above -= BitMap64(array("Q", ascending.tobytes()))


class Attempts:
    """How often the messages of one queue were given out. One thread at a time.

    Most were given out once: a bitmap has those. Only the others have a number each.

    Attributes:
        era: of the queue, see `AckedOffsets`.
    """

    __slots__ = ("_more", "_once", "era")

    def __init__(self, era: int) -> None:
        self.era = era
        self._once = BitMap64()
        self._more: dict[int, int] = {}

    def copy(self) -> Attempts:
        """A copy with the same attempts."""
        twin = Attempts(self.era)
        twin._once, twin._more = self._once.copy(), dict(self._more)
        return twin

    @property
    def end(self) -> int:
        """The end: no offset from here on was given out."""
        return max(self._once.max() + 1 if self._once else 0, max(self._more, default=-1) + 1)

    def of(self, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out. Their offsets ascend."""
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
        """Note that messages were given out: `counts` has the number of attempts of each, the newest included."""
        first = counts == 1
        self._once.update(array("Q", offsets[first].tobytes()))
        for offset, count in zip(offsets[~first].tolist(), counts[~first].tolist(), strict=True):
            if count > self._more.get(offset, 1):
                self._more[offset] = count
                self._once.discard(offset)

    def take_back(self, offset: int, count: int) -> None:
        """Undo the newest attempt of a message, which was number `count`."""
        self._once.discard(offset)
        self._more.pop(offset, None)
        if count > 1:
            self.note(np.array([offset]), np.array([count - 1]))

    def add(self, group: Group) -> None:
        """Add the attempts that a record has."""
        if group.bitmap is not None:
            self._once |= group.bitmap
        for begin, end in group.ranges.tolist() if group.ranges is not None else ():
            self._once.add_range(begin, end)
        if group.counts is not None:
            self.note(group.counts[:, 0], group.counts[:, 1])
        for offset in self._more:
            self._once.discard(offset)

    def forget(self, acked: AckedOffsets) -> None:
        """Forget the attempts of acknowledged messages."""
        self._once.remove_range(0, acked.mark)
        self._once -= acked.above
        self._more = {offset: count for offset, count in self._more.items() if offset not in acked}

    def cut(self, end: int) -> None:
        """Forget the attempts of messages from `end` on."""
        self._once.remove_range(end, MOST)
        self._more = {offset: count for offset, count in self._more.items() if offset < end}

    def rows(self) -> tuple[Int64s, Int64s]:
        """All offsets (n,), ascending, and how often each was given out."""
        once = np.frombuffer(self._once.to_array(), np.int64)
        more = np.array(list(dict(self._more).items()), np.int64).reshape(-1, 2)
        offsets, counts = np.concatenate([once, more[:, 0]]), np.concatenate([np.ones(len(once), np.int64), more[:, 1]])
        order = offsets.argsort(kind="stable")
        return offsets[order], counts[order]
