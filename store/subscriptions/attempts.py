"""Attempts: how often the messages of a queue were given out."""

from __future__ import annotations

from array import array

import numpy as np
from pyroaring import BitMap64

from ..format.arrays import Int64s
from ..format.cursors import Group, bitmap_of

MOST = 1 << 63  # larger than any offset


class Attempts:
    """How often the messages of one queue were given out. One thread at a time.

    Most were given out once: a bitmap has those. Only the others have a number each.

    Attributes:
        era: how often a seek has moved the queue.
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

    def used_up(self, begin: int, end: int, most: int) -> Int64s:
        """The offsets begin .. end - 1 of messages that were given out `most` times or more, ascending."""
        more = self._more
        if end - begin < len(more):
            found = [offset for offset in range(begin, end) if more.get(offset, 0) >= most]
        else:
            found = [offset for offset, count in dict(more).items() if begin <= offset < end and count >= most]
        if most == 1 and self._once:
            once = BitMap64()
            once.add_range(begin, end)
            found += (once & self._once).to_array().tolist()
        return np.unique(np.array(found, np.int64))

    def note(self, offsets: Int64s, counts: Int64s) -> None:
        """Note that messages were given out: `counts` has the number of attempts of each, the newest included."""
        first = counts == 1
        self._once.update(array("Q", offsets[first].tobytes()))
        for offset, count in zip(offsets[~first].tolist(), counts[~first].tolist(), strict=True):
            if count > self._more.get(offset, 1):
                self._more[offset] = count
                self._once.discard(offset)

    def undo(self, offset: int, count: int) -> None:
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

    def forget(self, mark: int, above: BitMap64) -> None:
        """Forget the attempts of acknowledged messages: those below `mark`, and those in `above`."""
        self._once.remove_range(0, mark)
        self._once -= above
        more = self._more.items()
        self._more = {offset: count for offset, count in more if offset >= mark and offset not in above}

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
