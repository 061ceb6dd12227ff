"""The newest time of each sealed segment of a lane, in memory once it was asked for, and searched by bisection."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sealed import SealedSegment

UNKNOWN = (1 << 63) - 1  # later than all times: a search finds it, and its footer is asked
NOTHING = -1 << 63
LEAST_LEAVES = 16


class NewestTimes:
    """The maxima of these times, as a binary tree. Any number of threads may use it.

    Times may go back from a segment to the next: a clock was set back, or a commit waited. So a bisection of the times
    themselves would pass over some.

    Invariants:
        * node n is the maximum of the nodes 2 n and 2 n + 1; the last half of the nodes are the leaves, one a number of
          a segment from `_base` on;
        * a segment whose time was not noted is UNKNOWN: no search passes over it.
    """

    def __init__(self) -> None:
        self._base = 0  # the number of the segment that the first leaf stands for
        self._end = 0  # behind the last one
        self._tree = array("q", [NOTHING, NOTHING])
        self._lock = threading.Lock()

    def note(self, sequence: int, time_ms: int) -> None:
        """The newest time of a segment."""
        with self._lock:
            if self._base <= sequence < self._end:
                self._set(sequence, time_ms)

    def first_since(self, sealed: Sequence[SealedSegment], index: int, time_ms: int) -> int:
        """Index of the first segment from `index` on that may have a message of `time_ms` or later, or their number."""
        if index >= len(sealed):
            return len(sealed)
        begin = sealed[index].segment.sequence
        with self._lock:
            self._cover(sealed[0].segment.sequence, sealed[-1].segment.sequence + 1)
            while True:
                found = self._search(begin, time_ms)
                at = bisect_left(sealed, found, index, key=lambda one: one.segment.sequence)
                if at == len(sealed) or sealed[at].segment.sequence == found:
                    return at
                self._set(found, NOTHING)  # a number that was given up

    def _search(self, begin: int, time_ms: int) -> int:
        """The first number from `begin` on with such a leaf, `_end` if there is none."""
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

    def _set(self, sequence: int, time_ms: int) -> None:
        tree = self._tree
        node = len(tree) // 2 + sequence - self._base
        tree[node] = time_ms
        while node > 1:
            node >>= 1
            tree[node] = max(tree[2 * node], tree[2 * node + 1])

    def _cover(self, begin: int, end: int) -> None:
        """Have a leaf for each of these numbers, and at most four times as many."""
        leaves = len(self._tree) // 2
        if not self._base <= begin <= self._base + leaves // 2 or end > self._base + leaves:
            self._rebuild(begin, max(end, self._end))
        for sequence in range(self._end, end):
            self._end = sequence + 1
            self._set(sequence, UNKNOWN)

    def _rebuild(self, begin: int, end: int) -> None:
        """For these numbers, with room for as many more: so it is seldom done."""
        before, origin = self._tree, len(self._tree) // 2 - self._base
        known = range(max(begin, self._base), min(end, self._end))
        leaves = max(LEAST_LEAVES, 1 << (2 * (end - begin) - 1).bit_length())
        tree = array("q", [NOTHING]) * (2 * leaves)
        for sequence in range(begin, end):
            tree[leaves + sequence - begin] = before[origin + sequence] if sequence in known else UNKNOWN
        for node in range(leaves - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
        self._base, self._end, self._tree = begin, end, tree
