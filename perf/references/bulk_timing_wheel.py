"""The hierarchical timing wheel in columns: timers are added, cancelled and expired as arrays.

The store does not use it: its timers are added and cancelled one by one. It is here for comparison.

The geometry and the contract are those of `TimingWheel`. A timer is a row of a bucket, a deadline and an id, and four
bytes in a table that says whether it is pending. A cancel clears that entry; the row stays until its bucket is
emptied, or until dead rows are a fifth of all. So a timer takes 20 to 24 bytes once there are many.

New rows wait in an inbox until it is full or its first deadline comes. So the sorting into buckets costs small calls
no more than large ones. All rows go through it in order; what is in a bucket is older than what is in the inbox.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...index.columns import Int64s, as_int64, stable_order
from ...index.levels import DelayQueue, Levels, check_geometry
from .bulk_timers import Rows, TimerIds

MOST_BUCKETS = 8192  # of a wheel: so that all buckets of all wheels have numbers of 16 bits
BLOCK_ROWS = 1 << 16  # so many are sorted into buckets at a time: they stay in the processor's cache
DEAD_PART = 4  # rows of cancelled timers, at most one for so many pending ones ..
DEAD_LEAST = 4096  # .. or so many
OVERDUE = 0
NEVER = 1 << 64


class BulkTimingWheel:
    """Timers without a payload, by the million. The caller keeps its own data of a timer by the timer's id.

    Attributes:
        tick_ms: the resolution. A timer fires at the first tick at or after its deadline.
        on_earlier: called after an `add` that made `next_deadline_ms` earlier, in the thread that has added.
        lock: held for each change; reset after a fork.
    """

    def __init__(self, tick_ms: int = 1, wheel_size: int = 256, start_ms: int = 0) -> None:
        check_geometry(tick_ms, wheel_size, start_ms, MOST_BUCKETS)
        self.tick_ms = tick_ms
        self.on_earlier: Callable[[], object] | None = None
        self.lock = threading.Lock()
        self._size = wheel_size
        self._now_ms = start_ms
        self._levels = Levels(wheel_size, start_ms // tick_ms, Rows)
        self._queue: DelayQueue[Rows] = DelayQueue()
        self._overdue = Rows(1)
        self._inbox = Rows(1)
        self._inbox_tick = NEVER  # of its first deadline
        self._ids = TimerIds()
        self._rows = 0  # with those of cancelled timers

    def __len__(self) -> int:
        return self._ids.live

    @property
    def pending(self) -> int:
        """Timers that have neither fired nor been cancelled; `len(wheel)` is the same."""
        return self._ids.live

    @property
    def now_ms(self) -> int:
        """The latest time that `advance` was given."""
        return self._now_ms

    @property
    def levels(self) -> int:
        """The number of wheels now."""
        return len(self._levels.wheels)

    @property
    def memory_bytes(self) -> int:
        """The bytes of the columns."""
        with self.lock:
            held = [*self._queue.buckets(), self._inbox]
            return self._ids.memory_bytes + sum(bucket.memory_bytes for bucket in held)

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time at which `advance` has work: no timer fires before. None if no timer is pending."""
        with self.lock:
            tick = self._next_tick()
        return None if tick == NEVER else tick * self.tick_ms

    def _next_tick(self) -> int:
        tick = self._queue.next_tick()
        return self._inbox_tick if tick is None else min(tick, self._inbox_tick)

    def add(self, deadlines_ms: npt.ArrayLike) -> Int64s:
        """Add a timer for each deadline. Returns their ids, which ascend from call to call and are not given again."""
        deadlines = as_int64(deadlines_ms, "deadlines")
        if not len(deadlines):
            return deadlines
        tell = self.on_earlier
        with self.lock:
            before = self._next_tick() if tell is not None else NEVER
            ids = self._ids.give(len(deadlines))
            self._rows += len(ids)
            if self._inbox.rows + len(ids) > BLOCK_ROWS:
                self._sort_inbox()
            if len(ids) >= BLOCK_ROWS:
                for begin in range(0, len(ids), BLOCK_ROWS):
                    block = slice(begin, begin + BLOCK_ROWS)
                    self._place_block(np.stack((deadlines[block], ids[block])))
            else:
                self._inbox.append(np.stack((deadlines, ids)))
                first_tick = -(-int(deadlines.min()) // self.tick_ms)
                self._inbox_tick = min(self._inbox_tick, max(first_tick, self._levels.tick))
            is_earlier = tell is not None and self._next_tick() < before
        if is_earlier and tell is not None:
            tell()
        return ids

    def cancel(self, ids: npt.ArrayLike) -> int:
        """Cancel timers. Returns how many were pending. Unknown ids, and an id's second time, count 0."""
        given = as_int64(ids, "ids")
        with self.lock:
            cancelled = self._ids.cancel(given)
            self._drop_dead_rows()
        return cancelled

    def advance(self, now_ms: int) -> Int64s:
        """The ids of all due timers, by (deadline, id). A time before the present one changes nothing."""
        due: list[Int64s] = []
        with self.lock:
            self._now_ms = max(self._now_ms, now_ms)
            tick = self._now_ms // self.tick_ms
            if self._inbox_tick <= tick:
                self._sort_inbox()  # by the time until now, at which its rows were not overdue
            self._levels.move_to(tick)
            while (bucket := self._queue.pop_due(self._levels.tick)) is not None:
                due.append(self._empty(bucket))
            if len(due) != 1:
                due = [np.concatenate([np.empty(0, np.int64), *due])]
            self._ids.release(due[0])
            self._rows -= len(due[0])
            self._drop_dead_rows()
        return due[0]

    def _empty(self, bucket: Rows) -> Int64s:
        """Empty a bucket at its time. Returns the due ids; the other rows move down."""
        rows = self._take(bucket)
        if bucket.width > 1:
            later = rows[0] > self._levels.tick * self.tick_ms
            if later.any():
                self._place(rows.take(np.flatnonzero(later), axis=1))
                rows = rows.take(np.flatnonzero(~later), axis=1)
        has_one_deadline = bucket.width == self.tick_ms == 1 and bucket is not self._overdue
        order = None if has_one_deadline else stable_order(rows[0])
        ids: Int64s = rows[1].copy() if order is None else rows[1].take(order)
        return ids  # a copy in any case: a few ids could keep a large array alive

    def _take(self, bucket: Rows) -> Int64s:
        """Take the bucket's rows without those of cancelled timers."""
        rows = bucket.take()
        if self._rows == self._ids.live:
            return rows
        live = self._ids.are_live(rows[1])
        dead = len(live) - int(np.count_nonzero(live))
        self._rows -= dead
        return rows[:, live] if dead else rows

    def _drop_dead_rows(self) -> None:
        """Drop dead rows when they are too many: that is a few rows for each cancelled timer."""
        live, dead = self._ids.live, self._rows - self._ids.live
        if dead > max(DEAD_LEAST, live // DEAD_PART) or (dead and not live):
            for bucket in [*self._queue.buckets(), self._inbox]:
                rows = self._take(bucket)
                if rows.shape[1]:
                    bucket.append(rows)
        if not live:
            self._inbox_tick = NEVER
            self._ids.shrink()

    def _sort_inbox(self) -> None:
        self._inbox_tick = NEVER
        rows = self._take(self._inbox)
        if rows.shape[1]:
            self._place(rows)

    def _place(self, rows: Int64s) -> None:
        """Sort rows into their buckets."""
        for begin in range(0, rows.shape[1], BLOCK_ROWS):
            self._place_block(rows[:, begin : begin + BLOCK_ROWS])

    def _place_block(self, rows: Int64s) -> None:
        levels = self._levels
        numbers = self._bucket_numbers(rows[0])
        order = np.argsort(numbers, kind="stable")  # by radix, and it leaves equal ones as they are
        numbers, rows = numbers[order], rows.take(order, axis=1)
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(order)]
        # Rows that fire within this turn of the finest wheel need no copy: the array is gone soon.
        is_soon = numbers[0] > OVERDUE and numbers[-1] <= self._size
        for number, begin, end in zip(numbers[cuts[:-1]].tolist(), cuts[:-1], cuts[1:], strict=True):
            if number == OVERDUE:
                bucket, first_tick = self._overdue, levels.tick
            else:
                level, slot = divmod(number - 1, self._size)
                wheel = levels.wheels[level]
                bucket, first_tick = wheel.buckets[slot], wheel.turn * wheel.span + slot * wheel.width
            if is_soon:
                bucket.lend(rows[:, begin:end])
            else:
                bucket.append(rows[:, begin:end])
            if not bucket.queued:
                self._queue.push(first_tick, bucket)

    def _bucket_numbers(self, deadlines: Int64s) -> npt.NDArray[np.uint16]:
        """For each deadline OVERDUE, or 1 + level * size + slot.

        From the coarsest wheel down: most timers are in it, and few are left for the next one.
        """
        ticks = deadlines
        if self.tick_ms > 1:
            ticks = deadlines // self.tick_ms
            ticks += deadlines % self.tick_ms != 0
        now = self._levels.tick
        numbers = np.full(len(ticks), OVERDUE, np.uint16)
        rows: slice | npt.NDArray[np.intp] = slice(None)
        if int(ticks.min()) <= now:
            rows = np.flatnonzero(ticks > now)
            ticks = ticks[rows]
        level = self._levels.level_of(int(ticks.max())) if len(ticks) else 0
        while len(ticks):
            wheel = self._levels.wheels[level]
            buckets = ticks // wheel.width if level else ticks
            numbers[rows] = buckets - (wheel.turn * self._size - 1 - level * self._size)
            if not level:
                break
            lower = np.flatnonzero(buckets == now // wheel.width)
            rows, ticks = (lower if isinstance(rows, slice) else rows[lower]), ticks[lower]
            level -= 1
        return numbers
