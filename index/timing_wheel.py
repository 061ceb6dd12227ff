"""The hierarchical timing wheel: timers one by one, each with its payload.

Source: G. Varghese, A. Lauck, "Hashed and Hierarchical Timing Wheels", IEEE/ACM Transactions on Networking 5 (6), 1997.
A bucket is an array, and a timer knows its index in it: a cancel moves the array's last timer into the gap. That
takes constant time, as with the paper's linked cells, and half of their memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter, index
from typing import Any

from .levels import DelayQueue, Levels, check_geometry
from .locks import let_pass

MOST_BUCKETS = 1 << 20
_BY_DEADLINE = attrgetter("deadline_ms")
_BY_SEQUENCE = attrgetter("sequence")


class Bucket:
    """The timers of `width` ticks, in no order."""

    __slots__ = ("queued", "timers", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.timers: list[TimerEntry] = []
        self.queued = False

    def __len__(self) -> int:
        return len(self.timers)


class TimerEntry:
    """A wheel's part of a timer. An object with a time-out is one itself, and needs no timer beside it.

    Attributes:
        payload: `advance` returns it; None once the timer is over.
        bucket: None unless the timer is pending.
        place: its index in the bucket's array.
        sequence: its number among all that were added to the wheel.
    """

    __slots__ = ("bucket", "deadline_ms", "payload", "place", "sequence")

    bucket: Bucket | None
    deadline_ms: int
    payload: Any
    place: int
    sequence: int


class Timer(TimerEntry):
    """One timer of a wheel: a handle to cancel it."""

    __slots__ = ("_wheel",)

    def __init__(self, wheel: TimingWheel, payload: Any) -> None:
        self.bucket = None
        self.payload = payload
        self._wheel = wheel

    @property
    def is_pending(self) -> bool:
        """False once it has fired or was cancelled."""
        return self.bucket is not None

    def cancel(self) -> bool:
        """Remove it from its wheel; True if it was pending, and so never fires. In constant time; from any thread."""
        wheel = self._wheel
        lock = wheel.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if not wheel.take_out(self):
                return False
        self.payload = None  # outside of the lock: its end may run the program's code
        return True


class TimingWheel:
    """Timers in a hierarchy of wheels. Adding or cancelling one takes constant time, however many are pending.

    The wheel has no clock: `advance` gets the time. A timer fires at the first tick at or after its deadline,
    so never early, and with `tick_ms=1` exactly at it. All methods may be called from any thread.

    Attributes:
        tick_ms: the resolution.
        pending: the number of timers that have neither fired nor been cancelled; equal to `len(wheel)`.
        on_earlier: called after an `add` that made `next_deadline_ms` earlier, in the thread that has added. It
            wakes a `TimerThread`.
        lock: held for each change; replaced after a fork.
    """

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        check_geometry(tick_ms, wheel_size, start_ms, MOST_BUCKETS)
        self.tick_ms = tick_ms
        self.pending = 0
        self.on_earlier: Callable[[], object] | None = None
        self.lock = threading.Lock()
        self._now_ms = start_ms
        self._levels = Levels(wheel_size, start_ms // tick_ms, Bucket)
        self._queue: DelayQueue[Bucket] = DelayQueue()
        self._overdue = Bucket(1)  # for timers whose deadline was over when they were added
        self._added = 0

    def __len__(self) -> int:
        return self.pending

    @property
    def now_ms(self) -> int:
        """The latest time that `advance` got."""
        return self._now_ms

    @property
    def levels(self) -> int:
        """The current number of wheels."""
        return len(self._levels.wheels)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `advance` has work to do next: no timer fires before. None if no timer is pending.

        It can be earlier than the first deadline: at that time a bucket moves down to a finer wheel.
        """
        with self.lock:
            tick = self._queue.next_tick()
        return None if tick is None else tick * self.tick_ms

    def add(self, deadline_ms: int, payload: Any) -> Timer:
        """Add a timer. One whose deadline is over fires at the next `advance`."""
        if type(deadline_ms) is not int:
            deadline_ms = index(deadline_ms)
        timer = Timer(self, payload)
        lock = self.lock
        if lock.locked():
            let_pass(lock)
        try:
            with lock:
                is_first = self.put(timer, deadline_ms)
            if is_first:
                self.tell_earlier()
        except BaseException:  # an interrupt: the bucket may be the next one by now, and the thread has to know
            self.tell_earlier()
            raise
        return timer

    def add_after(self, delay_ms: int, payload: Any) -> Timer:
        """Add a timer that is due `delay_ms` after the wheel's present time."""
        return self.add(self._now_ms + delay_ms, payload)

    def put(self, one: TimerEntry, deadline_ms: int) -> bool:
        """Add an entry that is not pending; True if `tell_earlier` has to follow, unlocked. The lock is held."""
        one.deadline_ms = deadline_ms
        one.sequence = self._added
        self._added += 1
        return self._place(one)

    def take_out(self, one: TimerEntry) -> bool:
        """Remove an entry; False if it is not pending. The lock is held.

        There is no call between two of the steps, so an interrupt finds all done, or nothing.
        """
        bucket = one.bucket
        if bucket is None:
            return False
        timers, place = bucket.timers, one.place
        timers[place] = last = timers[-1]
        last.place = place
        del timers[-1]
        one.bucket = None
        self.pending -= 1
        return True

    def tell_earlier(self) -> None:
        """Call `on_earlier`, if it is set."""
        tell = self.on_earlier
        if tell is not None:
            tell()

    @property
    def wheel(self) -> TimingWheel:
        """The wheel itself, for a purgatory."""
        return self

    def deadline_after(self, delay_ms: int) -> int:
        """The time `delay_ms` after the wheel's present one."""
        return self._now_ms + delay_ms

    def advance(self, now_ms: int) -> list[Any]:
        """The payloads of all due timers, by deadline; those of one deadline in the order in which they were added.

        A time before the present one changes nothing.
        """
        due: list[TimerEntry] = []
        lock = self.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if now_ms > self._now_ms:
                self._now_ms = now_ms
                self._levels.move_to(now_ms // self.tick_ms)
            while (bucket := self._queue.pop_due(self._levels.tick)) is not None:
                self._empty(bucket, due)
        due.sort(key=_BY_SEQUENCE)  # by one number: pairs take longer to make and to compare
        due.sort(key=_BY_DEADLINE)
        payloads = [timer.payload for timer in due]
        for timer in due:
            timer.payload = None
        return payloads

    def _empty(self, bucket: Bucket, due: list[TimerEntry]) -> None:
        """The bucket's time has come: its timers are due or move down."""
        timers, bucket.timers = bucket.timers, []
        self.pending -= len(timers)
        last_ms = self._levels.tick * self.tick_ms
        for timer in timers:
            if timer.deadline_ms <= last_ms:
                timer.bucket = None
                due.append(timer)
            else:
                self._place(timer)

    def _place(self, timer: TimerEntry) -> bool:
        """Put a timer into its bucket; True if that bucket has become the next one."""
        tick = timer.deadline_ms if self.tick_ms == 1 else -(-timer.deadline_ms // self.tick_ms)
        levels = self._levels
        if tick <= levels.tick:
            bucket, first_tick = self._overdue, levels.tick
        else:
            for wheel in levels.wheels:
                if tick < wheel.end:
                    break
            else:
                wheel = levels.wheels[levels.level_of(tick)]
            number = tick // wheel.width
            bucket, first_tick = wheel.buckets[number % wheel.size], number * wheel.width
        timers = bucket.timers
        timer.place = len(timers)
        timers.append(timer)
        timer.bucket = bucket  # after the last call: an interrupt finds it in its place, or not pending
        self.pending += 1
        return not bucket.queued and self._queue.push(first_tick, bucket)
