"""The design before the purgatory, as the source describes it: a heap of timers, and scanned lists.

A completed request stays in the heap and in the lists. The thread that expires requests also looks how many there are:
if the heap, or the lists, hold at least `purge_interval` of them, pending or completed, it scans all and takes out
those that are completed. It does so once each time it wakes; the source's code did it for each expired request.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Hashable, Sequence

from ...index import SYSTEM_CLOCK, Clock, DelayedOperation

LONGEST_POLL_S = 0.2


class NoPurgatory:
    """Watches nothing: the rest is the cost of the run itself."""

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Do nothing."""
        return False


class OldPurgatory:
    """A heap of timers, lists by key, and a reaper thread."""

    def __init__(self, purge_interval: int, clock: Clock = SYSTEM_CLOCK, *, has_thread: bool = True) -> None:
        """Without a thread the caller makes the `step` of the reaper, on its own clock."""
        self.purge_interval = purge_interval
        self._clock = clock
        self._heap: list[tuple[float, int, DelayedOperation]] = []
        self._lists: dict[Hashable, list[DelayedOperation]] = {}
        self._watched = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._news = threading.Lock()  # held while the reaper need not look
        self._news.acquire()
        self._over = False
        self._thread = threading.Thread(target=self._reap, daemon=True)
        if has_thread:
            self._thread.start()

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Complete an operation or watch it, like the new design."""
        if operation.try_complete() and operation.force_complete():
            return True
        deadline_s = self._clock.monotonic_s() + operation.timeout_ms / 1000
        with self._lock:
            for key in keys:
                self._lists.setdefault(key, []).append(operation)
            self._watched += len(keys)
        if operation.try_complete() and operation.force_complete():
            return True
        with self._lock:
            heapq.heappush(self._heap, (deadline_s, next(self._numbers), operation))
            is_first = self._heap[0][2] is operation
        if is_first:
            self._ring()
        return operation.is_completed

    def _ring(self) -> None:
        if self._news.locked():
            self._news.release()

    def _reap(self) -> None:
        while not self._over:
            self._news.acquire(timeout=self.step())

    def step(self) -> float:
        """The reaper's work at each wake. Returns how long to sleep then."""
        if self._watched >= self.purge_interval:
            self._purge_lists()
        if len(self._heap) >= self.purge_interval:
            self._purge_heap()
        return self._expire()

    def _expire(self) -> float:
        """End due operations. Returns how long to sleep then."""
        due = []
        with self._lock:
            now_s = self._clock.monotonic_s()
            while self._heap and self._heap[0][0] <= now_s:
                due.append(heapq.heappop(self._heap)[2])
            wait_s = self._heap[0][0] - now_s if self._heap else LONGEST_POLL_S
        for operation in due:
            operation()
        return min(wait_s, LONGEST_POLL_S)

    def _purge_lists(self) -> None:
        with self._lock:
            for key, watched in self._lists.items():
                self._lists[key] = [one for one in watched if not one.is_completed]
            self._watched = sum(map(len, self._lists.values()))

    def _purge_heap(self) -> None:
        with self._lock:
            self._heap = [item for item in self._heap if not item[2].is_completed]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """End the thread."""
        self._over = True
        self._ring()
        self._thread.join()
