"""The request queue of a lane, capped in bytes (R1, R19).

Producers `put`. Builders, the lane's flushers, `wait`, `dequeue` a batch, and say when its write begins and ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice, repeat, starmap
from typing import Generic, NamedTuple, TypeVar

from ..device.clock import SYSTEM_CLOCK, Clock
from ..errors import PublishBufferFull, StoreError, copy_of
from ..format.layout import MAX_FRAME_MESSAGES
from .listeners import Listeners
from .sizer import Queued, Sizer, cost_bytes

WRITES_IN_FLIGHT = 2

RequestT = TypeVar("RequestT", bound=Queued)


class Batch(NamedTuple, Generic[RequestT]):
    """The requests that the builder takes, with their cost."""

    requests: list[RequestT]
    cost_bytes: int
    barrier: bool  # a flush, or the end: nothing may be held back
    closing: bool  # the queue is closed, and this batch is its last


class LineTurn:
    """A request's place in the line at the cap.

    `bell`: the producer's thread sleeps on it; None for a coroutine's request and for a barrier, which are answered.
    `error`: why the line was dissolved, if it was.
    """

    __slots__ = ("bell", "error")

    def __init__(self, bell: threading.Lock | None) -> None:
        self.bell = bell
        self.error: StoreError | None = None

    def ring(self) -> None:
        """Wake the producer to look. Under the queue's lock; twice is fine."""
        if self.bell is not None and self.bell.locked():  # nobody else lets go of it, so it stays locked until we do
            self.bell.release()


class RequestQueue(Generic[RequestT]):
    """Requests on their way to a lane.

    Invariants:
        * `used_bytes` is the cost of all requests that were accepted and not yet released; `_taken_bytes` is the
          part of it that builders have taken. Only a single request that is larger than the cap itself passes the cap;
        * one line for all at the cap, first come, first served: while a request waits there, every later one
          joins the line's end, also one that would fit, a coroutine's, or a flush. So a large message is not starved
          by small ones, and the wait is bounded by the requests before it;
        * requests are accepted and leave in the order in which they were put, of whatever kind they are: the
          appends of one thread to one queue get offsets in the order of the calls. A request that leaves the line
          (its time is up, it was cancelled or interrupted) changes nothing in the order of the others;
        * while the line is not empty, `used_bytes` is not 0: a `release` is to come, and lets the first ones in;
        * a request is in the line, or accepted, or neither: never two of these, wherever its thread is interrupted;
        * whenever a batch is ready, a builder is looking, or one has been woken to look.

    Interrupts (KeyboardInterrupt, or what a signal's handler raises): the interpreter takes them after calls, at the
    beginning of a function and at the end of a loop's turn, and nowhere else. So the last step of every change is a
    row of statements without a call, or with one at its end; `with` lets a lock go wherever an interrupt comes. Nothing
    waits on a `Condition`: its wait is not safe against interrupts. A sleeper has a lock of its own instead, its bell.
    """

    def __init__(
        self,
        cap_bytes: int,
        frame_bytes: int,
        timeout_ms: int,
        sizer: Sizer,
        builders: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.cap_bytes = cap_bytes
        self.used_bytes = 0
        self.sizer = sizer
        self.frame_messages = MAX_FRAME_MESSAGES
        self.has_ids = False  # some requests may have message ids
        self.listeners = Listeners()  # for the callbacks of its tickets; a store has one for all of its queues
        self._frame_bytes = frame_bytes
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._items: deque[RequestT] = deque()
        self._line: OrderedDict[RequestT, LineTurn] = OrderedDict()  # at the cap; all places cost the same to leave
        self._taken_bytes = 0
        self._more = 0  # queued messages beyond one a request: groups have more, barriers none
        self._under_way = 0
        self._barriers = 0
        self._in_flight = 0  # writes that have begun and are not accounted for yet, which goes in log order
        self._closing = False
        self._refuses = False
        self.refusal: StoreError | None = None  # it was closed, or the store has failed
        self._lock = threading.Lock()
        self.taken: Sequence[RequestT] = ()  # what a builder took and the lane may not have yet
        self._left: dict[RequestT, None] = {}  # stood in the line when the queue was closed
        self._sleepers: list[threading.Lock] = []
        self._looking = builders  # builders that are awake, and not at the device

    # -- producers ------------------------------------------------------------------------------------

    def put(self, request: RequestT, *, wait: bool = True) -> bool:
        """Accept a request: True. At the cap it joins the line; the call waits there, or returns False if not `wait`.

        A barrier's call never waits. A request that is left in the line is accepted later, or `close` returns it.

        An interrupt is raised: the request is then out of the line, or was accepted.

        Raises:
            PublishBufferFull: its turn did not come within the time-out.
            StoreError: the queue refuses (closed or poisoned).
        """
        cost = request.size_bytes
        if request.extras is not None:
            cost += request.extras.size_bytes
        with self._lock:
            if self.refusal is None and not self._line and self.used_bytes + cost <= self.cap_bytes:
                if request.count == 1 and (self._looking or not self._sleepers):
                    self.used_bytes += cost  # as `_accept` does it: each message comes here, and a call saved shows
                    self._items.append(request)
                else:
                    self._accept(request, cost)
                return True
        return self._line_up(request, cost, wait and request.count > 0)

    def _line_up(self, request: RequestT, cost: int, wait: bool) -> bool:
        place = LineTurn(None)
        if wait:
            place.bell = threading.Lock()
            place.bell.acquire()
        try:
            with self._lock:
                if self.refusal is not None:
                    raise copy_of(self.refusal)
                if not self._line and (self._has_room(cost) or not request.count):
                    self._accept(request, cost)
                    return True
                self._line[request] = place
            if place.bell is None:
                return False
            self._wait_in_line(request, place, place.bell)
        except BaseException:  # also an interrupt
            self.withdraw(request)  # interrupted: nobody is left to ask for it
            raise
        return True

    def wake(self) -> None:
        """Have the threads in line look at the clock."""
        with self._lock:
            for place in self._line.values():
                place.ring()

    def _has_room(self, cost: int) -> bool:
        return self.used_bytes + cost <= self.cap_bytes or not self.used_bytes

    def _wait_in_line(self, request: RequestT, place: LineTurn, bell: threading.Lock) -> None:
        """Sleep until the request is accepted; raises where it is not."""
        deadline_ms = self._clock.monotonic_s() * 1000 + self._timeout_ms
        while True:
            bell.acquire(timeout=max(deadline_ms / 1000 - self._clock.monotonic_s(), 0.0))
            with self._lock:
                if request not in self._line:
                    break
                if self.refusal is not None:  # a close was interrupted
                    del self._line[request]
                    raise copy_of(self.refusal)
                if self._clock.monotonic_s() * 1000 >= deadline_ms:
                    raise self._take_out(request)
        if place.error is not None:
            raise copy_of(place.error)

    def _accept(self, request: RequestT, cost: int, lined_up: bool = False) -> None:
        # Wake the builder first; it then waits for our lock. So an interrupt leaves a builder that looks at an empty
        # queue, or everything done. A builder that was woken for nothing sleeps again.
        if self._sleepers and not self._looking:
            queued = self.used_bytes - self._taken_bytes + cost
            if not self._in_flight or queued >= self.sizer.overlap_bytes or not request.count:
                self._wake_builder()
        # From here on there is one call, the last: no interrupt and no other thread can come in between.
        if lined_up:
            del self._line[request]
        self.used_bytes += cost
        if request.count != 1:
            self._more += request.count - 1
            self._barriers += request.count == 0
        self._items.append(request)

    def _let_in(self) -> None:
        """Accept those at the front of the line for whom there is room now."""
        while self._line and self.refusal is None:
            request = next(iter(self._line))
            cost = cost_bytes(request)
            if request.count and not self._has_room(cost):
                break
            self._line[request].ring()  # first, so that an interrupt leaves none asleep; it needs our lock to go on
            self._accept(request, cost, lined_up=True)

    def release(self, cost: int, requests: int) -> None:
        """Give back the cost of requests that were answered."""
        with self._lock:
            self._release(cost, requests)

    def _release(self, cost: int, requests: int) -> None:
        self.used_bytes -= cost
        self._taken_bytes -= cost
        self._under_way -= requests
        if self._line:
            self._let_in()

    def refuse(self, error: StoreError) -> list[RequestT]:
        """Accept nothing more and let the builders end. Returns the requests that were not taken yet.

        Those whose threads wait in `put` are left out: they raise the error there.
        """
        left: dict[RequestT, None] = {}
        with self._lock:
            self.refusal = error
            left.update(dict.fromkeys(self._items))
            self._items.clear()
            self.used_bytes = self._taken_bytes
            self._more = self._barriers = 0
            self._dissolve_line(error, left)
            self._refuses = True
            self._close()
        return list(left)

    def _dissolve_line(self, error: StoreError, left: dict[RequestT, None]) -> None:
        """Empty the line: threads that wait in `put` raise the error there, all other requests go into `left`.

        After an interrupt it can be called again, and goes on where it was.
        """
        for request, place in dict(self._line).items():
            place.error = error
            place.ring()
            if place.bell is None:
                left[request] = None
            del self._line[request]

    def after_fork(self, error: StoreError) -> list[RequestT]:
        """In a child process: refuse everything. The lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self.refusal = error
        return [*list(self._items), *list(self._line), *self.taken]

    def close(self, error: StoreError) -> list[RequestT]:
        """Accept nothing more; builders take what is there, and are then told that it was the last.

        Returns the requests that waited in line. Those whose threads wait in `put` are left out: they raise the error
        there. Another call returns the same ones.
        """
        with self._lock:
            self.refusal = self.refusal or error
            self._dissolve_line(error, self._left)
            self._close()
        return list(self._left)

    @property
    def is_closed(self) -> bool:
        """Was it closed, and does every builder know?"""
        return self._closing and not self._sleepers

    @property
    def requests(self) -> list[RequestT]:
        """All requests that are not in the log yet: with the builder, queued, and in line."""
        with self._lock:
            return [*self.taken, *self._items, *self._line]

    @property
    def waiting(self) -> int:
        """How many requests are queued; those at the cap do not count."""
        return len(self._items)

    def is_in_line(self, request: RequestT) -> bool:
        """Does it still wait at the cap?"""
        return request in self._line

    def withdraw(self, request: RequestT) -> PublishBufferFull | None:
        """Take a request out of the line at the cap: the error for it, or None if it is not there (any more)."""
        with self._lock:
            return self._take_out(request) if request in self._line else None

    def _take_out(self, request: RequestT) -> PublishBufferFull:
        error = self._full()
        del self._line[request]
        self._let_in()  # it may have been the one that the others waited for
        return error

    def _full(self) -> PublishBufferFull:
        return PublishBufferFull(
            f"{self.used_bytes} bytes wait to become durable and the cap is {self.cap_bytes}; the device did "
            f"not make room in {self._timeout_ms} ms. Append slower, or raise publish_buffer_bytes."
        )

    def _close(self) -> None:
        self._closing = True
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
            return True  # for the builder to see it, and end
        if self._in_flight >= WRITES_IN_FLIGHT:
            return False  # the ring has room for no more: one slow write must not be overtaken for ever
        if self._barriers or self._closing:
            return True
        return self.sizer.ready(len(self._items), self.used_bytes - self._taken_bytes, self._in_flight)

    def dequeue(self) -> Batch[RequestT]:
        """The queued requests, up to a frame's size, if they are ready to be taken; an empty batch otherwise."""
        with self._lock:
            return self._pop() if self._is_ready() else Batch([], 0, False, False)

    def _pop(self) -> Batch[RequestT]:
        items = self._items
        taken: list[RequestT] = []
        self.taken = taken
        self.sizer.observe(self._under_way + len(items))
        size, count = self.used_bytes - self._taken_bytes, len(items) + self._more
        if size <= self._frame_bytes and count <= self.frame_messages:
            taken.extend(items)
            items.clear()
        else:
            size = count = number = 0
            for request in items:
                cost = request.size_bytes if request.extras is None else cost_bytes(request)
                if number and (size + cost > self._frame_bytes or count + request.count > self.frame_messages):
                    break
                size += cost
                count += request.count
                number += 1
            taken.extend(islice(items, number))  # first: a forked child must find each request somewhere
            deque(starmap(items.popleft, repeat((), number)), maxlen=0)
        self._taken_bytes += size
        self._more -= count - len(taken)
        self._under_way += len(taken)
        barrier = self._closing
        if self._barriers:
            found = sum(request.count == 0 for request in taken)
            self._barriers -= found
            barrier = barrier or found > 0
        return Batch(taken, size, barrier, self._closing and not items)

    def write_begins(self, *, by_builder: bool = True) -> None:
        """A builder goes to the device; another one must look after the queue meanwhile."""
        with self._lock:
            self._in_flight += 1
            self._looking -= by_builder
            if self._sleepers and not self._looking and self._is_ready():
                self._wake_builder()

    def write_ends(self, cost: int, requests: int, writes: int, *, by_builder: bool = True) -> None:
        """A builder is back from the device, and has answered the requests that became durable by its write.

        `writes`: how many are accounted for now, in log order: 0 while an earlier one is still out, several when that
        one ends. The builder looks at the queue next, so it wakes no other one unless the queue closes. After a failed
        write this is not called: the queue refuses then.
        """
        with self._lock:
            self._in_flight -= writes
            self._looking += by_builder
            self._release(cost, requests)
            while self._sleepers and (self._closing or (not self._looking and self._is_ready())):
                self._wake_builder()
