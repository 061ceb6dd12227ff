"""The newest times of a lane's sealed segments, searched by bisection."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .sealed import SealedSegment

NOTHING = -1 << 63
LEAST_LEAVES = 16
FEW = 16  # more leaves than this are put in together


class NewestTimes:
    """The maxima of these times, as a binary tree. Any number of threads may use it.

    Times may go back from a segment to the next: a clock was set back, or a commit waited. So a bisection of the times
    themselves would pass over some.

    Invariants:
        * node n is the maximum of the nodes 2 n and 2 n + 1; the last half of the nodes are the leaves, one a number of
          a segment from `_base` on;
        * from `_base` to `_end`, a leaf is what the segment's seal record says, NOTHING where a number was given up.
    """

    def __init__(self) -> None:
        self._base = 0  # the number of the segment that the first leaf stands for
        self._end = 0  # the number after the last one
        self._tree = array("q", [NOTHING, NOTHING])
        self._lock = threading.Lock()

    def first_since(self, sealed: Sequence[SealedSegment], index: int, time_ms: int) -> int:
        """Index of the first segment from `index` on that may have a message of `time_ms` or later, or their number."""
        if index >= len(sealed):
            return len(sealed)
        with self._lock:
            self._cover(sealed)
            found = self._search(sealed[index].segment.sequence, time_ms)
        return bisect_left(sealed, found, index, key=lambda one: one.segment.sequence)

    def _search(self, begin: int, time_ms: int) -> int:
        """The first number from `begin` on with such a leaf, or one that is higher than all."""
        tree, leaves = self._tree, len(self._tree) // 2
        node = leaves + begin - self._base
        while tree[node] < time_ms:
            while node & 1:  # the second of its pair: what is above it comes next
                node >>= 1
            if not node:
                return self._end
            node += 1
        while node < leaves:
            node *= 2
            node += tree[node] < time_ms
        return self._base + node - leaves

    def _cover(self, sealed: Sequence[SealedSegment]) -> None:
        """Have a leaf for each of these segments, and at most four times as many."""
        begin, end = sealed[0].segment.sequence, sealed[-1].segment.sequence + 1
        leaves = len(self._tree) // 2
        is_room = self._base <= begin <= self._base + leaves // 2 and end <= self._base + leaves
        if not is_room or begin > self._end or end > self._end + FEW:
            self._rebuild(sealed, begin, end)
        elif end > self._end:
            new = bisect_left(sealed, self._end, key=lambda one: one.segment.sequence)
            for one in sealed[new:]:
                self._set(one.segment.sequence, one.record.newest_ms)
            self._end = end

    def _set(self, sequence: int, time_ms: int) -> None:
        tree = self._tree
        node = len(tree) // 2 + sequence - self._base
        tree[node] = time_ms
        while node > 1:
            node >>= 1
            tree[node] = max(tree[2 * node], tree[2 * node + 1])

    def _rebuild(self, sealed: Sequence[SealedSegment], begin: int, end: int) -> None:
        """Make the tree anew for these, with room for as many more: so it is seldom done."""
        leaves = max(LEAST_LEAVES, 1 << (2 * (end - begin) - 1).bit_length())
        tree = np.full(2 * leaves, NOTHING, np.int64)
        places = np.array([one.segment.sequence for one in sealed], np.int64) + (leaves - begin)
        tree[places] = [one.record.newest_ms for one in sealed]
        level = leaves
        while level > 1:
            tree[level // 2 : level] = np.maximum(tree[level : 2 * level : 2], tree[level + 1 : 2 * level : 2])
            level //= 2
        self._base, self._end, self._tree = begin, end, array("q", tree.tobytes())
