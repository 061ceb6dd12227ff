"""Requests: what producers hand to a lane, and how their answers reach them (R1).

Four kinds share one shape, so that a frame is built from any mix of them: `Ticket` (submit, and the base
of the next two), `BlockingRequest` (append), `AsyncRequest` (append_async) and `Group` (append_batch, many
messages in one request).
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import StoreError
from .streams import Stream


NOBODY: Stream = Stream.__new__(Stream)  # the stream of requests that carry no message


class Extras(NamedTuple):
    """The optional columns of one message."""

    due_ms: int | None
    key: bytes | None
    properties: bytes | None  # JSON

    @property
    def size_bytes(self) -> int:
        """Bytes of key and properties."""
        return len(self.key or b"") + len(self.properties or b"")


class Ticket:
    """The receipt of a submitted message.

    `result` gives the offset once the message is durable. Invariant: `_done` is set before waiters are
    looked at, and a waiter is listed before `_done` is read again; so no wake-up is missed without a lock.
    """

    __slots__ = ("_done", "_error", "_waiters", "data", "extras", "offset", "size_bytes", "stream")
    count = 1

    def __init__(self, stream: Stream, data: bytes, size_bytes: int, extras: Extras | None = None) -> None:
        self.stream = stream
        self.data = data
        self.size_bytes = size_bytes
        self.extras = extras
        self.offset = -1
        self._done = False
        self._error: StoreError | None = None
        self._waiters: list[threading.Lock] | None = None

    def done(self) -> bool:
        """True once the message is durable or has failed."""
        return self._done

    def result(self, timeout: float | None = None) -> int:
        """The message's offset, when it is durable.

        Args:
            timeout: seconds to wait; None waits without end.

        Raises:
            TimeoutError: the time is up; the message may still become durable, call again.
            StoreError: the message was not stored, or (`StorePoisoned`) may not have been.
        """
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self.offset

    def _wait(self, timeout: float | None) -> None:
        lock = threading.Lock()
        lock.acquire()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(lock)
        if self._done:
            return
        if not lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)) and not self._done:
            raise TimeoutError("the message is not durable yet; it stays queued, ask again")

    def answer(self, error: StoreError | None = None) -> None:
        """Set the outcome and wake who waits."""
        self._error = error
        self._done = True
        self.data = b""  # the ring has it now
        if self._waiters is not None:
            for lock in self._waiters[:]:
                lock.release()


class BlockingRequest(Ticket):
    """One message whose producer sleeps on `lock` until it is durable.

    Answers travel along a chain: the flusher wakes the first producer of a batch, and each wakes the next
    before it returns to its caller. The flusher is spared the wake-ups, and producers come to the
    interpreter lock one by one in place of all at once.
    """

    __slots__ = ("abandoned", "lock", "successor")

    def __init__(
        self, stream: Stream, data: bytes, size_bytes: int, extras: Extras | None, lock: threading.Lock
    ) -> None:
        super().__init__(stream, data, size_bytes, extras)
        self.lock = lock
        self.successor: list[BlockingRequest] = []
        self.abandoned = False

    def wait(self) -> int:
        """Sleep until the answer; the offset. An interrupted wait still passes the chain on."""
        try:
            self.lock.acquire()
        except BaseException:
            self.abandoned = True
            if self._done:
                wake(self.successor)
            raise
        if self.successor:
            wake(self.successor)
        if self._error is not None:
            raise self._error
        return self.offset

    def answer(self, error: StoreError | None = None) -> None:
        self._error = error
        self._done = True
        self.data = b""


def wake(successor: list[BlockingRequest]) -> None:
    """Wake the producer in `successor`; go on behind those who left. `pop` makes each wake-up happen once."""
    while successor:
        try:
            request = successor.pop()
        except IndexError:
            return
        request.lock.release()
        if not request.abandoned:
            return
        successor = request.successor


class AsyncRequest(Ticket):
    """One message whose coroutine awaits `future`, answered by one call into the loop a batch."""

    __slots__ = ("future", "loop")

    def __init__(
        self,
        stream: Stream,
        data: bytes,
        size_bytes: int,
        extras: Extras | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(stream, data, size_bytes, extras)
        self.loop = loop
        self.future: asyncio.Future[int] = loop.create_future()

    def answer(self, error: StoreError | None = None) -> None:
        self._error = error
        self._done = True
        self.data = b""

    def resolve(self) -> None:
        """Give the future its outcome; runs in the loop."""
        if self.future.done():
            return  # its task was cancelled
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self.offset)


class Group(Ticket):
    """Many messages of one `append_batch` call, cut to a frame's size, answered together.

    `offsets` is int64, one a message, valid once answered.
    """

    __slots__ = ("count", "datas", "offsets", "streams")

    def __init__(self, streams: Sequence[Stream], datas: Sequence[bytes], size_bytes: int) -> None:
        super().__init__(streams[0], datas[0] if len(datas) == 1 else b"", size_bytes)
        self.count = len(streams)  # type: ignore[misc]  # a slot here, a class constant for single messages
        self.streams = streams
        self.datas = datas
        self.offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def answer(self, error: StoreError | None = None) -> None:
        self.datas = ()
        self.streams = ()
        super().answer(error)


class Barrier(Ticket):
    """No message at all: answered when everything handed over before it is durable and forced."""

    __slots__ = ()
    count = 0

    def __init__(self) -> None:
        super().__init__(NOBODY, b"", 0)


def answer_all(requests: Sequence[Ticket], error: StoreError | None = None) -> None:
    """Answer a batch: outcomes first, then one wake-up for each kind of waiter."""
    blocked: list[BlockingRequest] = []
    loops: defaultdict[asyncio.AbstractEventLoop, list[AsyncRequest]] = defaultdict(list)
    for request in requests:
        request.answer(error)
        kind = type(request)
        if kind is BlockingRequest:
            blocked.append(request)  # type: ignore[arg-type]  # narrowed by its exact type, for speed
        elif kind is AsyncRequest:
            loops[request.loop].append(request)  # type: ignore[attr-defined,arg-type]
    for loop, batch in loops.items():
        _call_into(loop, batch)
    if blocked:
        for request, successor in zip(blocked, blocked[1:], strict=False):
            request.successor.append(successor)
        wake(blocked[:1])


def _call_into(loop: asyncio.AbstractEventLoop, batch: list[AsyncRequest]) -> None:
    def resolve_all() -> None:
        for request in batch:
            request.resolve()

    try:
        loop.call_soon_threadsafe(resolve_all)
    except RuntimeError:
        # The loop was closed with appends in flight: nobody is left to be told; the messages are durable.
        for request in batch:
            request.future.cancel()
