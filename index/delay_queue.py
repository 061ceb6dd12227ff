"""The delay queue of buckets: which bucket is due next. It is what drives a wheel, in place of one step a tick.

A bucket enters the queue when its first timer comes, and leaves it when it is emptied. So the queue has at most as many
items as there are buckets, however many timers there are, and an empty tick is never looked at.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A bucket, as the queue knows it."""

    queued: bool

    def __len__(self) -> int:
        """How many timers it has."""


Bucket = TypeVar("Bucket", bound=Queued)


class DelayQueue(Generic[Bucket]):
    """Buckets by their first tick. No two buckets in it have the same one (see levels.py)."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, Bucket]] = []

    def push(self, first_tick: int, bucket: Bucket) -> bool:
        """Take in a bucket that is not in the queue; True if it is the next one now."""
        bucket.queued = True
        heappush(self._heap, (first_tick, bucket))
        return self._heap[0][1] is bucket

    def pop_due(self, tick: int) -> Bucket | None:
        """The next bucket if it begins at `tick` or before; None if nothing is due."""
        if not self._heap or self._heap[0][0] > tick:
            return None
        bucket = heappop(self._heap)[1]
        bucket.queued = False
        return bucket

    def next_tick(self) -> int | None:
        """The first tick of the next bucket that holds something; None without one."""
        heap = self._heap
        while heap and not len(heap[0][1]):
            heappop(heap)[1].queued = False
        return heap[0][0] if heap else None

    def buckets(self) -> list[Bucket]:
        """All buckets that are in the queue, in no order."""
        return [bucket for _, bucket in self._heap]
