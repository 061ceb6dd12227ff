"""Reads for coroutines: one that waits is a watched operation, not a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ..device.background import NoThread
from ..errors import of_system
from ..log.streams import Stream
from .message import Message
from .waiting import Missing, Name, Sealed, WaitingReaders, sealed_of

T = TypeVar("T")
READ_THREADS = 4
LOOP_BYTES = 1 << 20  # a read of more is for a thread, wherever the messages are
LOOP_MESSAGES = 1024


class Where(Enum):
    """Where the message at an offset is, as far as memory can tell."""

    NOWHERE = "it has not come"
    RING = "in the ring of recent frames"
    ELSEWHERE = "on the device, in a cache, or out of bounds"


def where(stream: Stream | None, offset: int) -> Where:
    """Where a queue's message is. Never touches the device."""
    if stream is None or stream.number < 0:
        return Where.NOWHERE if offset == 0 else Where.ELSEWHERE
    opened, ring = stream.lane.view.open, stream.lane.ring
    if opened:
        segment, table = opened[-1]
        row = table.row(stream.number)
        if row is not None and offset >= row[0]:
            entries, index = row[1], offset - row[0]
            if index == len(entries):
                return Where.NOWHERE
            if index < len(entries) and segment.base is not None:
                begin = segment.base + table.flat[3 * entries[index]]  # later messages lie after it
                return Where.RING if begin >= ring.low else Where.ELSEWHERE
    # Counts also what is not durable, so what it has not given yet nobody can see.
    return Where.NOWHERE if stream.lane.offsets[stream.number] == offset else Where.ELSEWHERE


class Wanted(NamedTuple):
    """The arguments of a read, checked."""

    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    min_messages: int = 1
    min_bytes: int = 0

    @property
    def name(self) -> Name:
        """Of the queue."""
        return self.topic, self.queue_id

    @property
    def is_small(self) -> bool:
        """True if a loop may be stopped for as long as it takes to copy these messages out of the ring."""
        return self.max_bytes <= LOOP_BYTES and self.max_messages <= LOOP_MESSAGES

    @property
    def is_choosy(self) -> bool:
        """True if one message may not be enough."""
        return self.min_messages != 1 or self.min_bytes > 0

    def missing(self, looked: Looked) -> Missing | None:
        """What has to come before what was found is enough; None if it is."""
        found, following, sealed, is_all = looked
        wanted = min(self.min_messages, self.max_messages)
        if not found:
            if not wanted and not self.min_bytes:
                return None
            size = min(self.min_bytes, self.max_bytes)
            return Missing(max(self.offset, following), wanted, size, self.max_bytes, sealed, self.offset)
        if len(found) >= wanted and not self.min_bytes:
            return None
        end = found[-1].offset + 1
        if end < following:
            if not is_all:  # a limit has ended the read there, or damage
                return None
            end = following  # in between are messages that a repair gave up
        size = sum(len(message.data) for message in found)
        size_missing = min(self.min_bytes, self.max_bytes) - size
        missing = Missing(end, wanted - len(found), size_missing, self.max_bytes - size, sealed, self.offset)
        return None if missing.is_nothing else missing


class Looked(NamedTuple):
    """The messages that a read has found.

    Attributes:
        following, sealed: from before it looked, the queue's next offset and its lane's sealed segments.
        is_all: no message lies between the last one that was found and `following`.
    """

    found: list[Message]
    following: int
    sealed: Sealed
    is_all: bool = False


class Source(Protocol):
    """The part of a store that reads."""

    def _readable(self, topic: str, queue_id: int) -> Stream | None:
        """The stream of a name. Raises StoreClosed."""

    def look(self, wanted: Wanted) -> Looked:
        """The messages that are there; does not wait."""


class AsyncReads:
    """The reads of all event loops that use a store.

    Invariants:
        * the store is known only while it is read: one that its program drops must be noticed;
        * no loop waits for a device: it reads what is in the ring, and a thread of the store's reads everything else;
        * a coroutine that waits for a message has no thread, and is watched only as long as it waits.
    """

    def __init__(self, waiting: WaitingReaders) -> None:
        self._waiting = waiting
        self._pool: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()

    async def read(self, source: Source, wanted: Wanted, wait_ms: int) -> list[Message]:
        """The messages, as soon as there are enough; those that there are after `wait_ms`."""
        deadline_ms = self._waiting.deadline_after(wait_ms)
        while True:
            looked = await self._look(source, wanted)
            missing = wanted.missing(looked) if wait_ms and wanted.max_messages else None
            if missing is None or self._waiting.is_over(deadline_ms):
                return looked.found
            del looked  # not kept through the sleep
            waits = self._waiting.begin(wanted.name, missing, deadline_ms)
            try:
                await waits.rung
            finally:
                self._waiting.end(waits)

    async def _look(self, source: Source, wanted: Wanted) -> Looked:
        stream = source._readable(*wanted.name)
        sealed = sealed_of(stream)
        place = where(stream, wanted.offset)
        if place is Where.NOWHERE:
            return Looked([], wanted.offset, sealed)
        if place is Where.RING and wanted.is_small:
            return source.look(wanted)
        return await self.aside(partial(source.look, wanted), lambda: source._readable(*wanted.name))

    async def aside(self, work: Callable[[], T], check_open: Callable[[], object]) -> T:
        """Have a thread of the store's do something that may wait for the device. `check_open` raises StoreClosed."""
        check_open()
        try:
            doing = asyncio.get_running_loop().run_in_executor(self._threads(), work)
        except RuntimeError:
            check_open()  # raises StoreClosed if that is why the threads take nothing more
            raise of_system(NoThread(), "a call for a coroutine") from None
        return await doing

    def _threads(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(READ_THREADS, "stratalog-read")
            return self._pool

    def close(self) -> None:
        """Wait for the reads under way, and end the threads. The store takes no more reads; twice is fine."""
        with self._starting:
            if self._pool is not None:
                self._pool.shutdown()

    def after_fork(self) -> None:
        """In a child process: the threads are not here, and a lost one may hold a lock."""
        self._starting, self._pool = threading.Lock(), None
