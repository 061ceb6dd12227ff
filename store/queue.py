"""The request queue of a lane, capped in bytes, and the sizer that says when a batch is ready (R1, R2, R19)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .errors import PublishBufferFull, StoreError, again
from .format import MAX_FRAME_MESSAGES
from .request import Ticket, cost_bytes

WRITES_IN_FLIGHT = 2


class Batch(NamedTuple):
    """What the builder takes: requests, what they count for, and what else it must know."""

    requests: list[Ticket]
    cost_bytes: int
    barrier: bool  # a flush, or the end: nothing may be held back
    closing: bool  # nothing will come any more


class Sizer:
    """When is a batch ready, and will another follow? (R2)

    With no write in flight there is nothing to wait for: a batch is ready as soon as there is a message, so
    the last slow producers never stall. While a write is in flight, messages gather; they become a second
    write beside the first only when they are worth one. So the size of a batch follows from how many
    producers come back in the time of one write, whatever the number of threads.

    `active` is a slowly falling maximum of the requests under way at once: the producers really active.
    """

    def __init__(self, overlap_bytes: int) -> None:
        self.overlap_bytes = overlap_bytes
        self.active = 1.0

    def observe(self, under_way: int) -> None:
        """Note how many requests are accepted and not answered, at the moment a batch is taken."""
        self.active = max(under_way, self.active * 0.98, 1.0)

    def ready(self, requests: int, size_bytes: int, writes_in_flight: int) -> bool:
        """May the builder take what is queued?"""
        return requests > 0 and (writes_in_flight == 0 or size_bytes >= self.overlap_bytes)


class RequestQueue:
    """Requests on their way to a lane.

    Invariants:
        * `used_bytes` is the cost of all requests that were accepted and not yet released, and is over
          the cap only by a single request that is larger than the cap itself; what of it is not queued any
          more is `_taken_bytes`;
        * requests leave in the order they came;
        * whenever a batch is ready, a builder is looking, or one has been woken to look.
    """

    def __init__(
        self,
        cap_bytes: int,
        frame_bytes: int,
        timeout_ms: int,
        sizer: Sizer,
        builders: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.sizer = sizer
        self._frame_bytes = frame_bytes
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._items: deque[Ticket] = deque()
        self._overflow: deque[Ticket] = deque()  # of coroutines, which cannot wait in `put`
        self._taken_bytes = 0
        self._more = 0  # queued messages beyond one a request: groups have more, barriers none
        self._under_way = 0
        self._barriers = 0
        self._in_flight = 0  # writes with the device, or behind one that is: not accounted for in log order
        self._closing = False
        self._refuses = False
        self._refusal: StoreError | None = None
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._waiting_for_space = 0
        self.taken: Sequence[Ticket] = ()  # what a builder took and the lane may not have yet
        self._left: list[Ticket] = []  # of the overflow, when the queue was closed
        self._sleepers: list[threading.Lock] = []
        self._looking = builders  # those who are awake and not with the device

    # -- producers ------------------------------------------------------------------------------------

    def put(self, request: Ticket, *, wait: bool = True) -> bool:
        """Accept a request. At the cap, wait; or, if `wait` is False, line it up for later and say False.

        Raises:
            PublishBufferFull: the cap was not left within the time-out.
            StoreError: the queue refuses (closed or poisoned).
        """
        cost = request.size_bytes
        if request.extras is not None:
            cost += request.extras.size_bytes
        with self._lock:
            unusual = self._refusal is not None or self._overflow or self.used_bytes + cost > self.cap_bytes
            if unusual and not self._admit(request, cost, wait):
                return False
            self._accept(request, cost)
        return True

    def _admit(self, request: Ticket, cost: int, wait: bool) -> bool:
        """What the rules say when not all is plain: True to accept, False if it was lined up. May wait."""
        if self._refusal is not None:
            raise again(self._refusal)
        if self.used_bytes + cost > self.cap_bytes and self.used_bytes and request.count:
            if wait:
                self._wait_for_space(cost)
                return True
        elif not self._overflow or (wait and request.count):  # a barrier is for all that came before it: it lines up
            return True
        self._overflow.append(request)
        return False

    def _accept(self, request: Ticket, cost: int) -> None:
        # First the builder is woken, who then waits for our lock: an interrupt finds it looking and nothing queued, or
        # all done. Woken for nothing it goes back to sleep.
        if self._sleepers and not self._looking:
            queued = self.used_bytes - self._taken_bytes + cost
            if not self._in_flight or queued >= self.sizer.overlap_bytes or not request.count:
                self._wake_builder()
        self.used_bytes += cost
        if request.count != 1:
            self._more += request.count - 1
            self._barriers += request.count == 0
        self._items.append(request)

    def _wait_for_space(self, cost: int) -> None:
        deadline = self._clock() + self._timeout_ms / 1000
        self._waiting_for_space += 1
        try:
            while self.used_bytes + cost > self.cap_bytes and self.used_bytes:
                left = deadline - self._clock()
                if left <= 0:
                    raise self._full()
                self._space.wait(left)
                if self._refusal is not None:
                    raise again(self._refusal)
        finally:
            self._waiting_for_space -= 1

    def release(self, cost: int, requests: int) -> None:
        """Give back the cost of requests that were answered."""
        with self._lock:
            self._release(cost, requests)

    def _release(self, cost: int, requests: int) -> None:
        self.used_bytes -= cost
        self._taken_bytes -= cost
        self._under_way -= requests
        while self._overflow:
            following = cost_bytes(self._overflow[0])
            if self.used_bytes + following > self.cap_bytes and self.used_bytes:
                break
            self._accept(self._overflow.popleft(), following)
        if self._waiting_for_space:
            self._space.notify_all()

    def refuse(self, error: StoreError) -> list[Ticket]:
        """Accept nothing more and let the builders end; the requests that were not taken yet."""
        with self._lock:
            left = [*self._items, *self._overflow]
            self._items.clear()
            self._overflow.clear()
            self.used_bytes = self._taken_bytes
            self._more = self._barriers = 0
            self._refusal = error
            self._refuses = True
            self._close()
        return left

    def after_fork(self, error: StoreError) -> list[Ticket]:
        """In a child process: refuse everything. The lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._refusal = error
        return [*self._items, *self._overflow, *self.taken]

    def close(self, error: StoreError) -> list[Ticket]:
        """Accept nothing more; builders take what is there, and are then told that it was the last.

        Returns the requests that were still waiting to be accepted: the same ones again when it is called again.
        """
        with self._lock:
            self._refusal = self._refusal or error
            self._left.extend(self._overflow)
            self._overflow.clear()
            self._close()
        return self._left

    def withdraw(self, request: Ticket) -> PublishBufferFull | None:
        """Take a request out of the line at the cap: the error for it, or None if it was accepted since."""
        with self._lock:
            if request not in self._overflow:
                return None
            self._overflow.remove(request)
            return self._full()

    def _full(self) -> PublishBufferFull:
        return PublishBufferFull(
            f"{self.used_bytes} bytes wait to become durable and the cap is {self.cap_bytes}; the device did "
            f"not make room in {self._timeout_ms} ms. Append slower, or raise publish_buffer_bytes."
        )

    def _close(self) -> None:
        self._closing = True
        self._space.notify_all()
        while self._sleepers:
            self._wake_builder()

    def _wake_builder(self) -> None:
        # The interpreter takes signals after calls alone: an interrupt finds this done, or not begun.
        sleeper = self._sleepers[-1]
        del self._sleepers[-1]
        self._looking += 1
        sleeper.release()

    # -- builders -------------------------------------------------------------------------------------

    def wait(self, patience_s: float | None) -> bool:
        """Sleep until a batch is ready; False after `patience_s` (None: no limit) without one."""
        with self._lock:
            if self._is_ready():
                return True
            sleeper = threading.Lock()
            sleeper.acquire()
            self._sleepers.append(sleeper)
            self._looking -= 1
        if sleeper.acquire(timeout=-1 if patience_s is None else patience_s):
            return True
        with self._lock:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                self._looking += 1
                return False
        return True  # woken at the last moment

    def _is_ready(self) -> bool:
        if self._refuses:
            return True  # to find out, and end
        if self._in_flight >= WRITES_IN_FLIGHT:
            return False  # the ring has room for so many: one slow write must not be overtaken for ever
        if self._barriers or self._closing:
            return True
        return self.sizer.ready(len(self._items), self.used_bytes - self._taken_bytes, self._in_flight)

    def take(self) -> Batch:
        """What is queued, up to a frame's size, if it is ready; an empty batch otherwise."""
        with self._lock:
            return self._pop() if self._is_ready() else Batch([], 0, False, False)

    def _pop(self) -> Batch:
        items = self._items
        taken: list[Ticket] = []
        self.taken = taken
        self.sizer.observe(self._under_way + len(items))
        size, count = self.used_bytes - self._taken_bytes, len(items) + self._more
        if size <= self._frame_bytes and count <= MAX_FRAME_MESSAGES:
            taken.extend(items)
            items.clear()
        else:
            size = count = 0
            while items and (not taken or size + cost_bytes(items[0]) <= self._frame_bytes):
                if taken and count + items[0].count > MAX_FRAME_MESSAGES:
                    break
                request = items[0]
                taken.append(request)
                items.popleft()  # now: a forked child must find each request somewhere
                size += cost_bytes(request)
                count += request.count
        self._taken_bytes += size
        self._more -= count - len(taken)
        self._under_way += len(taken)
        barrier = self._closing
        if self._barriers:
            found = sum(request.count == 0 for request in taken)
            self._barriers -= found
            barrier = barrier or found > 0
        return Batch(taken, size, barrier, self._closing and not items)

    def write_begins(self) -> None:
        """A builder goes to the device; another one must look after the queue meanwhile."""
        with self._lock:
            self._in_flight += 1
            self._looking -= 1
            if self._sleepers and not self._looking and self._is_ready():
                self._wake_builder()

    def write_ends(self, cost: int, requests: int, writes: int) -> None:
        """A builder is back from the device and has answered what became durable by it: `writes` in log order.

        None if an earlier one is still out, several when that one ends. The builder looks at the queue next,
        so nobody is woken, but at the end. After a failed write this is not called: the queue refuses then.
        """
        with self._lock:
            self._in_flight -= writes
            self._looking += 1
            self._release(cost, requests)
            while self._closing and self._sleepers:
                self._wake_builder()
