"""Hierarchical timing wheels: which bucket of which wheel a tick belongs to, and which bucket is due next.

Ticks are numbered 0, 1, 2 ... A wheel has `size` buckets of `width` ticks each; one *turn* of it spans `size * width`
ticks and begins at a multiple of that. The next wheel's buckets are as wide as a whole turn of this one:

    size 4    wheel 0    one tick a bucket      turn  8 .. 11
              wheel 1    4 ticks a bucket       turn  0 .. 15
              wheel 2    16 ticks a bucket      turn  0 .. 63

A tick belongs to the lowest wheel whose *current* turn has it. At tick 9, tick 11 is in wheel 0; 13 in wheel 1, in the
bucket 12 .. 15; 40 in wheel 2, in the bucket 32 .. 47. When the time comes to a bucket's first tick, the bucket is
emptied and its timers move to lower wheels.

Invariants, which the rest of the folder relies on:
    * All pending timers of one tick are in one bucket, since wheel and bucket follow from the tick and the time alone.
      So timers of one deadline keep the order in which they were added, through all moves.
    * The buckets with timers cover ranges of ticks that do not overlap. So no two of them begin with the same tick, and
      emptying them by their first tick gives the timers in the order of their ticks.
    * A bucket begins after the present tick, or is due.

The queue of a wheel's buckets drives it, instead of one step for each tick. A bucket enters the queue when its first
timer comes, and leaves it when it is emptied. So the queue has at most as many items as there are buckets, however many
timers there are, and an empty tick is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar


class QueuedBucket(Protocol):
    """A bucket, as the queue sees it."""

    queued: bool

    def __len__(self) -> int:
        """The number of its timers."""


Bucket = TypeVar("Bucket", bound=QueuedBucket)


class Wheel(Generic[Bucket]):
    """One wheel of the hierarchy. `turn` is the number of its current turn, `end` the first tick after that."""

    __slots__ = ("buckets", "end", "size", "span", "turn", "width")

    def __init__(self, width: int, buckets: list[Bucket], tick: int) -> None:
        self.width = width
        self.size = len(buckets)
        self.span = width * self.size
        self.buckets = buckets
        self.move_to(tick)

    def move_to(self, tick: int) -> None:
        """Set the present tick."""
        self.turn = tick // self.span
        self.end = (self.turn + 1) * self.span


class Levels(Generic[Bucket]):
    """The wheels, the finest first. Coarser ones are made on demand."""

    def __init__(self, size: int, tick: int, make_bucket: Callable[[int], Bucket]) -> None:
        self.tick = tick
        self._size = size
        self._make_bucket = make_bucket  # by width
        self.wheels: list[Wheel[Bucket]] = []
        self._make_wheel(1)

    def _make_wheel(self, width: int) -> Wheel[Bucket]:
        wheel = Wheel(width, [self._make_bucket(width) for _ in range(self._size)], self.tick)
        self.wheels.append(wheel)
        return wheel

    def level_of(self, tick: int) -> int:
        """The number of the wheel that a later tick belongs to; makes the wheel if it does not exist."""
        for level, wheel in enumerate(self.wheels):
            if tick < wheel.end:
                return level
        while True:
            wheel = self._make_wheel(self.wheels[-1].span)
            if tick < wheel.end:
                return len(self.wheels) - 1

    def move_to(self, tick: int) -> None:
        """Set the present tick, which is a later one. The caller empties the buckets that have become due."""
        self.tick = tick
        for wheel in self.wheels:
            wheel.move_to(tick)


def check_geometry(tick_ms: int, wheel_size: int, start_ms: int, most_buckets: int) -> None:
    """Raise TypeError or ValueError for settings that make no wheel."""
    for name, value in (("tick_ms", tick_ms), ("wheel_size", wheel_size), ("start_ms", start_ms)):
        if type(value) is not int:
            raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if tick_ms < 1:
        raise ValueError(f"a tick has at least one millisecond, not {tick_ms}")
    if not 2 <= wheel_size <= most_buckets:
        raise ValueError(f"a wheel has 2 to {most_buckets:,} buckets, not {wheel_size:,}")
    if start_ms < 0:
        raise ValueError(f"the time of a wheel begins at 0 or later, not at {start_ms}")


class DelayQueue(Generic[Bucket]):
    """Buckets by their first tick. No two buckets in it have the same one (see above)."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, Bucket]] = []

    def push(self, first_tick: int, bucket: Bucket) -> bool:
        """Add a bucket that is not in the queue; True if it is the next one now."""
        bucket.queued = True
        heappush(self._heap, (first_tick, bucket))
        return self._heap[0][1] is bucket

    def pop_due(self, tick: int) -> Bucket | None:
        """Take the next bucket if it begins at `tick` or before; None if none is due."""
        if not self._heap or self._heap[0][0] > tick:
            return None
        bucket = heappop(self._heap)[1]
        bucket.queued = False
        return bucket

    def next_tick(self) -> int | None:
        """The first tick of the next bucket with timers; None without one."""
        heap = self._heap
        while heap and not len(heap[0][1]):
            heappop(heap)[1].queued = False
        return heap[0][0] if heap else None

    def buckets(self) -> list[Bucket]:
        """All buckets that are in the queue, in no order."""
        return [bucket for _, bucket in self._heap]
