"""Requests: what producers hand to a lane, and how their answers reach them (R1).

Six kinds share one shape, `Request`, so that a frame is built from any mix of them: `SubmitRequest` (see `ticket`),
`BlockingRequest` and `AsyncRequest` have one message; `RowGroup`, `AtomicGroup` and `ColumnGroup` have many. `Barrier`
and `NotedBarrier` have none. Records of the store's own are requests too: `TrimRequest`, `RecordTicket`, `AckRecord`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import numbers
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..device.background import report
from ..device.steps import for_each
from ..errors import InvalidMessage, StoreError, copy_of
from ..format.extras import Extras, IdsUnderWay
from ..format.layout import MAX_FRAME_MESSAGES
from .streams import Stream

if TYPE_CHECKING:
    from .queue import RequestQueue

SleeperT = TypeVar("SleeperT", bound="Sleeper")
NO_STREAM: Stream = Stream.__new__(Stream)  # the stream of requests that carry no message, or are not in use


class Request:
    """The base of all requests. `result` gives the offset once the message is durable.

    Attributes:
        count: how many messages it has.
        is_chained: a thread sleeps on its lock, and is woken along a chain: see `BlockingRequest`.
        stream, data, size_bytes, extras: of the message. `extras` is None without delivery time, key and properties.
        offset: -1 until the message is in a frame (`LaneMachine.build`); it counts once there is an answer without an
            error.

    Invariant: `_done` is set before waiters are looked at, and a waiter is listed before `_done` is read again; so no
    wake-up is missed without a lock. A waiter is the lock of a sleeping thread, or a call in a list of one: the thread
    that takes it out of that list makes it, so it is made once.

    This relies on the interpreter lock: two threads see each other's assignments in the order in which they were
    made; the list of waiters is made by one thread alone, as no other runs between the look at `_waiters` and the
    assignment (there is no call in between); a list's `append`, `remove`, `pop` and copy are each one step for the
    others.
    """

    __slots__ = ("_done", "_error", "_waiters", "data", "extras", "offset", "size_bytes", "stream")
    count = 1
    is_chained = False

    def __init__(self, stream: Stream, data: bytes, size_bytes: int, extras: Extras | None = None) -> None:
        self.stream = stream
        self.data = data
        self.size_bytes = size_bytes
        self.extras = extras
        self.offset = -1
        self._done = False
        self._error: StoreError | None = None
        self._waiters: list[threading.Lock | list[Callable[[], object]]] | None = None

    @property
    def queue(self) -> RequestQueue[Request]:
        """The queue that it is put into."""
        return self.stream.lane.queue

    @property
    def ids(self) -> Sequence[IdsUnderWay]:
        """The message ids that it has on their way, by topic: see `message_ids`."""
        return () if self.extras is None else self.extras.ids

    def done(self) -> bool:
        """True once the message is durable or has failed."""
        return self._done

    def result(self, timeout: float | None = None) -> int:
        """The offset, when it is durable. Raises TimeoutError, InvalidMessage or the error of the message."""
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            raise copy_of(self._error)
        return self.offset

    def exception(self, timeout: float | None = None) -> StoreError | None:
        """The error that `result` would raise, or None. Waits as `result` does."""
        if not self._done:
            self._wait(timeout)
        return None if self._error is None else copy_of(self._error)

    def _wait(self, timeout: float | None) -> None:
        patience_s = -1.0 if timeout is None else seconds_of(timeout)
        lock = threading.Lock()
        lock.acquire()
        waiters = self._listed(lock)
        if self._done:
            return
        if not lock.acquire(timeout=patience_s) and not self._done:
            waiters.remove(lock)
            raise TimeoutError("the message is not durable yet; it stays queued, ask again")

    def then(self, call: Callable[[], object]) -> None:
        """Make a call as soon as there is an answer, in the thread that answers: it must be short."""
        entry = [call]
        self._listed(entry)
        if self._done:
            _call_once(entry)

    def _listed(
        self, waiter: threading.Lock | list[Callable[[], object]]
    ) -> list[threading.Lock | list[Callable[[], object]]]:
        fresh: list[threading.Lock | list[Callable[[], object]]] = []
        if self._waiters is None:
            self._waiters = fresh
        waiters = self._waiters
        waiters.append(waiter)
        return waiters

    def answer(self, error: StoreError | None = None) -> None:
        """Set the outcome and wake all waiters."""
        self._error = error
        self._done = True
        self.data, self.extras = b"", None  # the ring has it now
        if self._waiters is not None:
            for_each(self._waiters[:], _wake)

    def forget_waiters(self) -> None:
        """In a forked child: wake no waiter, since all of them are threads of the parent."""
        self._waiters = None


def _wake(waiter: threading.Lock | list[Callable[[], object]]) -> None:
    if isinstance(waiter, list):
        _call_once(waiter)
    else:
        waiter.release()


def _call_once(entry: list[Callable[[], object]]) -> None:
    try:
        call = entry.pop()
    except IndexError:  # another thread makes the call
        return
    try:
        call()
    except Exception as error:  # its failure must not stop the log
        report("an answer could not be passed on", error)


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Have a loop make a call, unless it was closed: then nothing waits for the call any more."""
    with contextlib.suppress(Exception):
        loop.call_soon_threadsafe(call)


class BlockingRequest(Request):
    """One message whose producer sleeps on `lock` until it is durable.

    The producers of a batch are woken along a *chain*: the flusher wakes the first, and each wakes the next
    before it returns to its caller. The flusher is spared the wake-ups, and producers come to the
    interpreter lock one by one in place of all at once.

    Attributes:
        lock: taken, until the answer.
        chain: the producers of the batch that are still asleep, the next one last; set by the answer.
        abandoned: the thread was interrupted. A wake-up that meets this goes on to the next producer.
        failure: the error of the message. `append` raises it; the `result` of other requests is not used here.
    """

    __slots__ = ("abandoned", "chain", "failure", "lock")
    is_chained = True

    def __init__(self) -> None:
        """Of one thread, for all its messages: the thread sets stream, data, size_bytes and extras."""
        self.stream = NO_STREAM  # as long as it is not in use
        self.lock = threading.Lock()
        self.lock.acquire()
        self.chain: list[Sleeper] | None = None
        self.abandoned = False
        self.failure: StoreError | None = None

    def leave(self) -> None:
        """Leave the chain after an interrupt: pass the wake-up on. This request is not used again."""
        self.abandoned = True
        if self.chain is not None:
            pass_on(self.chain)


class Sleeper(Protocol):
    """A request that is woken along a chain: its thread sleeps on `lock`, or has `abandoned` it."""

    lock: threading.Lock
    abandoned: bool


class ChainedRequest(Sleeper, Protocol):
    """A request of a thread that sleeps; its answer gives it the `chain` of its batch."""

    chain: list[Sleeper] | None


def pass_on(chain: list[SleeperT]) -> None:
    """Wake the next producer of a batch, and pass over those that left.

    This relies on the interpreter lock: several threads may pass a chain on at once (each that left does), and each
    takes another request, as no thread and no signal comes between the look at the last one and its removal. One
    that leaves sets `abandoned` before it passes on, and is woken before that is read: so the chain does not end at it.
    """
    while chain:
        try:
            request = chain[-1]
            del chain[-1]  # no call in between, so neither a signal nor another thread can come
        except IndexError:
            return
        request.lock.release()
        if not request.abandoned:
            return


class AsyncRequest(Request):
    """One message whose coroutine awaits `future`, answered by one call into the loop a batch."""

    __slots__ = ("future", "loop")

    def __init__(
        self, stream: Stream, data: bytes, size_bytes: int, extras: Extras | None, loop: asyncio.AbstractEventLoop
    ) -> None:  # fmt: skip
        self.stream = stream
        self.data = data
        self.size_bytes = size_bytes
        self.extras = extras
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()

    def done(self) -> bool:
        return self.future.done()


class Group(Request):
    """Many messages of one call, cut to a frame's size, answered together.

    `offsets` is int64, one a message, valid once answered.
    """

    __slots__ = ("count", "offsets")

    def __init__(self, stream: Stream, count: int, size_bytes: int) -> None:
        super().__init__(stream, b"", size_bytes)
        self.count = count  # a slot here, a class constant for single messages
        self.offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)


class RowGroup(Group):
    """Messages of `append_batch`: an object a message."""

    __slots__ = ("datas", "sizes", "streams")

    def __init__(self, streams: list[Stream], datas: list[bytes], sizes: list[int], size_bytes: int) -> None:
        super().__init__(streams[0], len(streams), size_bytes)
        self.streams = streams
        self.datas = datas
        self.sizes = sizes

    def answer(self, error: StoreError | None = None) -> None:
        if error is not None:
            fail_ids([self], error)
        self.datas, self.streams, self.sizes = [], [], []  # the ring has it all now
        super().answer(error)


def cut(
    streams: list[Stream], datas: list[bytes], sizes: list[int], limit_bytes: int, most: int = MAX_FRAME_MESSAGES
) -> list[RowGroup]:
    """The messages of one lane, in groups that fit into a frame: of at most so many."""
    total = sum(sizes)
    if total <= limit_bytes and len(streams) <= most:
        return [RowGroup(streams, datas, sizes, total)]
    groups: list[RowGroup] = []
    begin = size = 0
    for index, length in enumerate([*sizes, limit_bytes + 1]):
        if index > begin and (size + length > limit_bytes or index - begin >= most):
            groups.append(RowGroup(streams[begin:index], datas[begin:index], sizes[begin:index], size))
            begin, size = index, 0
        size += length
    return groups


class Barrier(Request):
    """No message at all: answered when everything handed over before it is durable and forced."""

    __slots__ = ()
    count = 0

    def __init__(self) -> None:
        super().__init__(NO_STREAM, b"", 0)


class NotedBarrier(Barrier):
    """A barrier that also has the lane note on disk how far it is durable."""

    __slots__ = ()


def seconds_of(timeout: float) -> float:
    """A time-out as a lock takes it. Raises InvalidMessage."""
    if isinstance(timeout, numbers.Real):
        seconds = float(min(max(timeout, 0.0), threading.TIMEOUT_MAX))
        if not math.isnan(seconds):
            return seconds
    raise InvalidMessage(f"timeout is a number of seconds or None, not {timeout!r}")


def answer_all(requests: Sequence[Request], error: StoreError | None = None) -> None:
    """Answer a batch: one wake-up for all its blocked producers, one call for each event loop.

    If an answer raises, the others are still given, and the error is raised at the end.
    """
    if error is not None:
        fail_ids(requests, error)  # first: the answers drop them
    kinds = set(map(type, requests))
    if kinds == {BlockingRequest}:
        _answer_blocked(cast("Sequence[ChainedRequest]", requests), error)
        return
    chained = [request for request in requests if request.is_chained]
    try:
        if AsyncRequest in kinds:
            waiting = [request for request in requests if type(request) is AsyncRequest]
            for loop in {request.loop for request in waiting}:
                _answer_loop(loop, [request for request in waiting if request.loop is loop], error)
        if kinds - {AsyncRequest, BlockingRequest}:
            _answer_each(requests, error)
    finally:
        if chained:
            _answer_blocked(cast("Sequence[ChainedRequest]", chained), error)


def fail_ids(requests: Iterable[Request], error: StoreError | None) -> None:
    """Some requests get an error for an answer: so do the appends that wait for one of their message ids.

    With None, nothing of them was ever queued: then these appends try by themselves. Again is fine.
    """
    for request in requests:
        if request.extras is not None:
            for ids in request.ids:
                ids.fail(error)


def _answer_each(requests: Sequence[Request], error: StoreError | None) -> None:
    """Answer all but blocked producers and coroutines. If one raises, the others are still answered.

    This is `for_each` written out, because each submitted message comes this way.
    """
    left, failed = iter(requests), None
    while True:
        try:
            for request in left:
                if type(request) is not BlockingRequest and type(request) is not AsyncRequest:
                    request.answer(error)
            break
        except BaseException as raised:
            failed = failed or raised
    if failed is not None:
        raise failed


def _answer_blocked(requests: Sequence[ChainedRequest], error: StoreError | None) -> None:
    chain: list[Sleeper] = list(reversed(requests))
    for request in requests:
        request.chain = chain
        if error is not None and type(request) is BlockingRequest:
            request.failure = error
    pass_on(chain)


def _answer_loop(loop: asyncio.AbstractEventLoop, requests: list[AsyncRequest], error: StoreError | None) -> None:
    try:
        loop.call_soon_threadsafe(_resolve, requests, error)
    except Exception:  # the user's loop is broken, or was closed with appends in flight
        # Nobody is left to be told of what is durable now. The others of the batch must be told.
        for request in requests:
            with contextlib.suppress(Exception):  # nor can its callbacks be called
                request.future.cancel()


def _resolve(requests: list[AsyncRequest], error: StoreError | None) -> None:
    """Give the futures of a batch their outcomes; runs in their loop."""
    for request in requests:
        future = request.future
        if future.done():
            continue  # its task was cancelled
        if error is not None:
            future.set_exception(copy_of(error))
        else:
            future.set_result(request.offset)
