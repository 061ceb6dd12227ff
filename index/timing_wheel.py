"""The hierarchical timing wheel (R36, R37): timers one by one, each with its payload.

Source: G. Varghese, A. Lauck, "Hashed and Hierarchical Timing Wheels", IEEE/ACM Transactions on Networking 5 (6), 1997.
A bucket is an array, and a timer knows its place in it: to cancel is to move the array's last timer into the gap. That
is as constant in time as the paper's linked cells, at half of their memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter, index
from typing import Any

from .delay_queue import DelayQueue
from .levels import Levels, check_geometry

MOST_BUCKETS = 1 << 20
_BY_DEADLINE = attrgetter("deadline_ms", "_sequence")


class Timer:
    """One timer of a wheel: a handle to cancel it."""

    __slots__ = ("_bucket", "_index", "_sequence", "_wheel", "deadline_ms", "payload")

    def __init__(self, wheel: TimingWheel, deadline_ms: int, payload: Any) -> None:
        self.deadline_ms = deadline_ms
        self.payload = payload  # None once the timer has fired or was cancelled
        self._wheel = wheel
        self._bucket: _Bucket | None = None
        self._index: int
        self._sequence: int

    @property
    def is_pending(self) -> bool:
        """False once it has fired or was cancelled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Take it out of its wheel; True if it was pending, and so never fires. In constant time; from any thread."""
        wheel = self._wheel
        with wheel.lock:
            bucket = self._bucket
            if bucket is None:
                return False
            self._bucket = None
            last = bucket.timers.pop()
            if last is not self:
                bucket.timers[self._index] = last
                last._index = self._index
            wheel.pending -= 1
        self.payload = None  # outside of the lock: its end may run code of the program's
        return True


class _Bucket:
    """The timers of `width` ticks, in no order."""

    __slots__ = ("queued", "timers", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.timers: list[Timer] = []
        self.queued = False

    def __len__(self) -> int:
        return len(self.timers)


class TimingWheel:
    """Timers in a hierarchy of wheels. To add or to cancel one takes constant time, however many are pending.

    The wheel has no clock: time is what `advance` is given. A timer fires at the first tick at or after its deadline,
    so never early, and with `tick_ms=1` exactly at it. All methods may be called from any thread.

    Attributes:
        tick_ms: the resolution.
        pending: timers that have neither fired nor been cancelled; `len(wheel)` is the same.
        on_earlier: called after an `add` that made `next_deadline_ms` earlier, in the thread that has added. A
            `TimerThread` is woken by it.
        lock: held for each change; reset after a fork.
    """

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        check_geometry(tick_ms, wheel_size, start_ms, MOST_BUCKETS)
        self.tick_ms = tick_ms
        self.pending = 0
        self.on_earlier: Callable[[], object] | None = None
        self.lock = threading.Lock()
        self._now_ms = start_ms
        self._levels = Levels(wheel_size, start_ms // tick_ms, _Bucket)
        self._queue: DelayQueue[_Bucket] = DelayQueue()
        self._overdue = _Bucket(1)  # added with a deadline that was over
        self._added = 0

    def __len__(self) -> int:
        return self.pending

    @property
    def now_ms(self) -> int:
        """The latest time that `advance` was given."""
        return self._now_ms

    @property
    def levels(self) -> int:
        """How many wheels there are by now."""
        return len(self._levels.wheels)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `advance` has something to do next: no timer fires before. None if no timer is pending.

        It can be earlier than the first deadline: at that time a bucket moves down to a finer wheel.
        """
        with self.lock:
            tick = self._queue.next_tick()
        return None if tick is None else tick * self.tick_ms

    def add(self, deadline_ms: int, payload: Any) -> Timer:
        """A new timer. One whose deadline is over fires at the next `advance`."""
        if type(deadline_ms) is not int:
            deadline_ms = index(deadline_ms)
        timer = Timer(self, deadline_ms, payload)
        try:
            with self.lock:
                timer._sequence = self._added
                self._added += 1
                is_first = self._place(timer)
                self.pending += 1
            if is_first and (tell := self.on_earlier) is not None:
                tell()
        except BaseException:  # interrupted: the bucket may be the next one by now, and its thread has to know
            if (tell := self.on_earlier) is not None:
                tell()
            raise
        return timer

    def add_after(self, delay_ms: int, payload: Any) -> Timer:
        """A new timer, so many milliseconds after the wheel's present time."""
        return self.add(self._now_ms + delay_ms, payload)

    def advance(self, now_ms: int) -> list[Any]:
        """The payloads of all timers that are due, by deadline, and those of one deadline as they were added.

        A time before the present one changes nothing.
        """
        due: list[Timer] = []
        with self.lock:
            if now_ms > self._now_ms:
                self._now_ms = now_ms
                self._levels.move_to(now_ms // self.tick_ms)
            while (bucket := self._queue.pop_due(self._levels.tick)) is not None:
                self._empty(bucket, due)
            self.pending -= len(due)
        due.sort(key=_BY_DEADLINE)
        payloads = [timer.payload for timer in due]
        for timer in due:
            timer.payload = None
        return payloads

    def _empty(self, bucket: _Bucket, due: list[Timer]) -> None:
        """The bucket's time has come: its timers are due or move down."""
        timers, bucket.timers = bucket.timers, []
        last_ms = self._levels.tick * self.tick_ms
        for timer in timers:
            if timer.deadline_ms <= last_ms:
                timer._bucket = None
                due.append(timer)
            else:
                self._place(timer)

    def _place(self, timer: Timer) -> bool:
        """Put a timer into its bucket; True if that bucket has become the next one."""
        tick = timer.deadline_ms if self.tick_ms == 1 else -(-timer.deadline_ms // self.tick_ms)
        levels = self._levels
        if tick <= levels.tick:
            bucket, first_tick = self._overdue, levels.tick
        else:
            for wheel in levels.wheels:
                if tick // wheel.span == wheel.turn:
                    break
            else:
                wheel = levels.wheels[levels.level_of(tick)]
            number = tick // wheel.width
            bucket, first_tick = wheel.buckets[number % len(wheel.buckets)], number * wheel.width
        timers = bucket.timers
        timer._bucket = bucket
        timer._index = len(timers)
        timers.append(timer)
        return not bucket.queued and self._queue.push(first_tick, bucket)
