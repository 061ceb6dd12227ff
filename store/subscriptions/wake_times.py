"""When the members of a subscription of several topics are to be looked at without news."""

from __future__ import annotations

import threading
from heapq import heapify, heappop, heappush

from .in_flight import NEVER

LEAST_TIMES = 64  # so many times that count no more are kept


class WakeTimes:
    """One time a topic, the earliest that was added. Any number of threads may use it.

    Invariant: `next_ms` is at most the earliest time.
    """

    def __init__(self) -> None:
        self.next_ms = NEVER
        self._lock = threading.Lock()
        self._heap: list[tuple[int, str]] = []
        self._of: dict[str, int] = {}

    def add(self, topic: str, time_ms: int) -> None:
        """Look at a topic at this time, or before."""
        with self._lock:
            if time_ms >= self._of.get(topic, NEVER):
                return
            heappush(self._heap, (time_ms, topic))  # first: after an interrupt it is one too many
            self._of[topic] = time_ms
            self.next_ms = min(self.next_ms, time_ms)
            if len(self._heap) > 2 * len(self._of) + LEAST_TIMES:  # most of them were replaced by an earlier one
                left = [(at, one) for one, at in self._of.items()]
                heapify(left)
                self._heap = left

    def take(self, now_ms: int) -> list[str]:
        """The topics whose time has come, each once."""
        found: list[str] = []
        if now_ms < self.next_ms:
            return found
        with self._lock:
            while self._heap and self._heap[0][0] <= now_ms:
                at, topic = heappop(self._heap)
                if self._of.get(topic) == at:
                    del self._of[topic]
                    found.append(topic)
            self.next_ms = self._heap[0][0] if self._heap else NEVER
        return found
