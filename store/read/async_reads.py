"""Reads for coroutines: a coroutine that waits is a bell, not a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple, Protocol

from ..log.streams import Stream
from .message import Message
from .waiting import LoopBell, Name, WaitingReaders

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
                begin = segment.base + table.flat[3 * entries[index]]  # what follows lies behind it
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

    @property
    def name(self) -> Name:
        """Of the queue."""
        return self.topic, self.queue_id

    @property
    def is_small(self) -> bool:
        """True if a loop may be stopped for as long as it takes to copy these messages out of the ring."""
        return self.max_bytes <= LOOP_BYTES and self.max_messages <= LOOP_MESSAGES


class Source(Protocol):
    """The part of a store that reads."""

    def _readable(self, topic: str, queue_id: int) -> Stream | None:
        """The stream of a name. Raises StoreClosed."""

    def read(self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int) -> list[Message]:
        """The messages that are there; does not wait."""


class AsyncReads:
    """The reads of all event loops that use a store.

    Invariants:
        * the store is known only while it is read: one that its program drops must be noticed;
        * no loop waits for a device: it reads what is in the ring, and a thread of the store's reads everything else;
        * a coroutine that waits for a message has no thread, and its bell hangs only as long as it waits.
    """

    def __init__(self, waiting: WaitingReaders) -> None:
        self._waiting = waiting
        self._pool: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()

    async def read(self, source: Source, wanted: Wanted, wait_s: float) -> list[Message]:
        """The messages, as soon as there is one; none after `wait_s` without one."""
        if not wait_s or not wanted.max_messages:
            return await self._look(source, wanted)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            bell = LoopBell(loop)
            try:
                self._waiting.hang(wanted.name, bell)
                found = await self._look(source, wanted)
                left = deadline - loop.time()
                if found or left <= 0:
                    return found
                await bell.wait(left)
            finally:
                self._waiting.take_down(wanted.name, bell)

    async def _look(self, source: Source, wanted: Wanted) -> list[Message]:
        place = where(source._readable(*wanted.name), wanted.offset)
        if place is Where.NOWHERE:
            return []
        if place is Where.RING and wanted.is_small:
            return source.read(*wanted)
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._threads(), source.read, *wanted)
        except RuntimeError:
            source._readable(*wanted.name)  # raises StoreClosed if that is why the threads take nothing more
            raise
        return await reading

    async def run(self, work: Callable[[], None]) -> None:
        """Have a thread of the store's do something that may wait for the device."""
        await asyncio.get_running_loop().run_in_executor(self._threads(), work)

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
