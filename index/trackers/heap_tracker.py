"""The heap of delayed entries: the reference that the other trackers are tested against."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from .tracker import Tracker

ENTRY_BYTES = 300  # of a tuple, its numbers, and its places in the heap and in the dict
DEAD_LEAST = 1024


class HeapTracker(Tracker):
    """A binary heap of (time, place), and a dict of the pending entries. Exact to the millisecond, simple, large.

    A cancelled entry stays in the heap until its time comes, or until half of the heap is cancelled.
    """

    def __init__(self, *, memory_limit_bytes: int | None = None) -> None:
        super().__init__(0, memory_limit_bytes)
        self._heap: list[tuple[int, int]] = []
        self._pending: dict[int, int] = {}  # place -> time
        self._peeked: list[tuple[int, int]] = []  # taken off the heap, and pending until they are dropped

    def _add_one(self, place: int, time_ms: int) -> bool:
        if place in self._pending:
            return False
        self._pending[place] = time_ms
        heappush(self._heap, (time_ms, place))
        return True

    def _add_rows(self, times: Int64s, places: Int64s) -> int:
        return sum(map(self._add_one, places.tolist(), times.tolist()))

    def _next_ms(self) -> int | None:
        self._unpeek()
        return self._head_ms()

    def _unpeek(self) -> None:
        while self._peeked:
            heappush(self._heap, self._peeked[-1])
            del self._peeked[-1]

    def _head_ms(self) -> int | None:
        heap, pending = self._heap, self._pending
        while heap and pending.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _peek(self, now_ms: int, count: int) -> Int64s:
        self._unpeek()
        peeked = self._peeked
        while len(peeked) < count and (next_ms := self._head_ms()) is not None and next_ms <= now_ms:
            row = heappop(self._heap)
            if not peeked or peeked[-1] != row:  # an entry that was cancelled and added again is there twice
                peeked.append(row)
        return np.array([place for _, place in peeked], np.int64)

    def _drop(self, count: int) -> None:
        for _, place in self._peeked[:count]:
            del self._pending[place]
        self._peeked = []

    def _cancel(self, place: int) -> bool:
        found = self._pending.pop(place, None) is not None
        self._drop_dead()
        return found

    def _drop_dead(self) -> None:
        self._unpeek()
        if len(self._heap) > 2 * len(self._pending) + DEAD_LEAST:
            self._heap = [(time_ms, place) for place, time_ms in self._pending.items()]
            heapify(self._heap)

    def _discard(self, first_place: int, before_place: int) -> BitMap64:
        gone = BitMap64([place for place in self._pending if first_place <= place < before_place])
        for place in gone:
            del self._pending[place]
        self._drop_dead()
        return gone

    def _are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]:
        return np.fromiter(map(self._pending.__contains__, places.tolist()), np.bool_, len(places))

    def _pending_places(self) -> BitMap64:
        return BitMap64(self._pending)

    def _count(self) -> int:
        return len(self._pending)

    def _memory_bytes(self) -> int:
        return ENTRY_BYTES * len(self._heap)

    def _stats(self) -> dict[str, Any]:
        return {"heap_rows": len(self._heap), "memory_bytes": self._memory_bytes()}

    def _clear(self) -> None:
        self._heap, self._pending, self._peeked = [], {}, []

    def _close(self) -> None:
        self._clear()
