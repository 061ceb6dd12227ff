"""The request queue of a lane, capped in bytes, and the sizer that says when a batch is ready (R1, R2, R19)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .errors import PublishBufferFull, StoreError
from .format import MAX_FRAME_MESSAGES
from .request import Barrier, Ticket


def cost_bytes(request: Ticket) -> int:
    """What a request counts for at the cap."""
    return request.size_bytes if request.extras is None else request.size_bytes + request.extras.size_bytes


class Batch(NamedTuple):
    """What the builder takes: requests, and why it woke."""

    requests: list[Ticket]
    barrier: bool  # a flush, or the end: nothing may be held back
    closing: bool  # nothing will come any more
    idle: bool  # nothing came in the time to wait


class Sizer:
    """When is a batch ready? (R2)

    Producers that wait for their answers come in waves: while one batch is written, the producers of the
    one before wake up and append again. The sizer keeps a slowly falling maximum of the messages that are
    under way at once; that is the number of producers really active, whatever the number of threads. With a
    write in flight, a batch is ready when half of them are queued (the other half is in the write), or when
    it is large enough to be worth a second write beside it. With no write in flight there is nothing to
    wait for: a batch is ready as soon as there is a message, so the last slow producers never stall.
    """

    def __init__(self, overlap_bytes: int) -> None:
        self.overlap_bytes = overlap_bytes
        self.active = 1.0

    def observe(self, under_way: int) -> None:
        """Note how many messages are accepted and not answered, at the moment a batch is taken."""
        self.active = max(under_way, self.active * 0.98, 1.0)

    def ready(self, count: int, size_bytes: int, writes_in_flight: int) -> bool:
        """May the builder take what is queued?"""
        if count == 0:
            return False
        return writes_in_flight == 0 or size_bytes >= self.overlap_bytes


class RequestQueue:
    """Requests on their way to a lane.

    Invariants:
        * `used_bytes` is the cost of all requests that were accepted and not yet released, and is over
          the cap only by a single request that is larger than the cap itself;
        * requests leave in the order they came.
    """

    def __init__(
        self,
        cap_bytes: int,
        frame_bytes: int,
        timeout_ms: int,
        sizer: Sizer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.sizer = sizer
        self._frame_bytes = frame_bytes
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._items: deque[Ticket] = deque()
        self._count = 0
        self._bytes = 0
        self._answering = 0
        self._barriers = 0
        self._in_flight = 0
        self._closing = False
        self._refusal: StoreError | None = None
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._kick = threading.Lock()
        self._kick.acquire()
        self._sleeping = False

    # -- producers ------------------------------------------------------------------------------------

    def put(self, request: Ticket, *, wait: bool = True) -> bool:
        """Accept a request. At the cap, wait; False at once if `wait` is False.

        Raises:
            PublishBufferFull: the cap was not left within the time-out.
            StoreError: the queue refuses (closed or poisoned).
        """
        cost = cost_bytes(request)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if self.used_bytes + cost > self.cap_bytes and self.used_bytes:
                if not wait:
                    return False
                self._wait_for_space(cost)
            self.used_bytes += cost
            self._bytes += cost
            self._count += request.count
            self._items.append(request)
            if type(request) is Barrier:
                self._barriers += 1
            wake = self._sleeping and self._is_ready()
            if wake:
                self._sleeping = False
        if wake:
            self._kick.release()
        return True

    def _wait_for_space(self, cost: int) -> None:
        deadline = self._clock() + self._timeout_ms / 1000
        while self.used_bytes + cost > self.cap_bytes and self.used_bytes:
            left = deadline - self._clock()
            if left <= 0:
                raise PublishBufferFull(
                    f"{self.used_bytes} bytes wait to become durable and the cap is {self.cap_bytes}; the "
                    f"device did not make room in {self._timeout_ms} ms. Append slower, or raise "
                    f"publish_buffer_bytes."
                )
            self._space.wait(left)
            if self._refusal is not None:
                raise self._refusal

    def release(self, cost: int, messages: int) -> None:
        """Give back the cost of requests that were answered."""
        with self._lock:
            self.used_bytes -= cost
            self._answering -= messages
            self._space.notify_all()

    def refuse(self, error: StoreError) -> list[Ticket]:
        """Accept nothing more and let the builder end; the requests that were not taken yet."""
        with self._lock:
            self._refusal = error
            self._closing = True
            left = list(self._items)
            self._items.clear()
            self.used_bytes -= self._bytes
            self._bytes = self._count = self._barriers = 0
            self._space.notify_all()
            wake, self._sleeping = self._sleeping, False
        if wake:
            self._kick.release()
        return left

    def close(self, error: StoreError) -> None:
        """Accept nothing more, hand out what is there, then report `closing`."""
        with self._lock:
            self._refusal = self._refusal or error
            self._closing = True
            self._space.notify_all()
            wake, self._sleeping = self._sleeping, False
        if wake:
            self._kick.release()

    # -- the builder ----------------------------------------------------------------------------------

    def take(self, patience_s: float | None) -> Batch:
        """Wait for a batch that is ready; an empty one after `patience_s` (None: no limit)."""
        deadline = None if patience_s is None else self._clock() + patience_s
        while True:
            with self._lock:
                if self._is_ready():
                    return self._pop()
                self._sleeping = True
            left = -1.0 if deadline is None else max(0.0, deadline - self._clock())
            if not self._kick.acquire(timeout=left):
                with self._lock:
                    if self._sleeping:
                        self._sleeping = False
                        return self._pop(idle=True)
                self._kick.acquire()  # a wake-up was on its way

    def _is_ready(self) -> bool:
        if self._barriers or self._closing:
            return True
        return self.sizer.ready(self._count, self._bytes, self._in_flight)

    def _pop(self, *, idle: bool = False) -> Batch:
        """Take requests up to a frame's size. The lock is held."""
        items = self._items
        taken: list[Ticket] = []
        if self._bytes <= self._frame_bytes and self._count <= MAX_FRAME_MESSAGES:
            taken.extend(items)
            items.clear()
            size, count = self._bytes, self._count
        else:
            size = count = 0
            while items and (not taken or size + items[0].size_bytes <= self._frame_bytes):
                if taken and count + items[0].count > MAX_FRAME_MESSAGES:
                    break
                request = items.popleft()
                taken.append(request)
                size += cost_bytes(request)
                count += request.count
        self._bytes -= size
        self._count -= count
        self._answering += count
        self.sizer.observe(self._answering + self._count)
        barrier = self._closing
        if self._barriers:
            found = sum(type(request) is Barrier for request in taken)
            self._barriers -= found
            barrier = barrier or found > 0
        return Batch(taken, barrier, self._closing and not items, idle and not taken)

    def write_begins(self) -> None:
        """A write was handed to the device."""
        with self._lock:
            self._in_flight += 1

    def write_ends(self) -> None:
        """A write came back: what is queued may be ready now."""
        with self._lock:
            self._in_flight -= 1
            wake = self._sleeping and self._is_ready()
            if wake:
                self._sleeping = False
        if wake:
            self._kick.release()
