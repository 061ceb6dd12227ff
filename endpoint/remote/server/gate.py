"""What one connection may have at once: threads of the store's blocking calls, and reads whose answers may be large."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
MOST_THREADS = 4  # of the threads that all connections share
MOST_READS = 4
READ_BYTES = 64 << 20  # the most that a read asks the store for, which is its own default
WAITING_BYTES = 4 << 20  # of a call that waits for messages: many of them may have an answer at one moment


class FewThreads:
    """Makes the blocking calls of one connection, few at a time: others keep theirs, however many it sends.

    Invariant: a call that was cancelled counts until its thread is free.
    """

    def __init__(self, begin: Callable[[Callable[[], Any]], asyncio.Future[Any]]) -> None:
        """`begin` makes a call in a thread; a Future of its result."""
        self._begin = begin
        self._free = asyncio.Semaphore(MOST_THREADS)

    def __call__(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Its result, or its error, comes."""
        return asyncio.ensure_future(self._call(work))

    async def _call(self, work: Callable[[], T]) -> T:
        await self._free.acquire()
        try:
            made = self._begin(work)
        except RuntimeError:  # the service has ended
            self._free.release()
            raise
        made.add_done_callback(lambda _: self._free.release())
        found: T = await asyncio.shield(made)
        return found


class Gate:
    """Lets few reads through at a time, and none while many bytes of answers wait to be sent.

    So a client that asks for much and takes nothing has at most `MOST_READS` answers in memory beyond that limit.
    """

    def __init__(self, has_room: Callable[[], Awaitable[None]]) -> None:
        """`has_room` waits until answers may be made."""
        self._has_room = has_room
        self._reads = asyncio.Semaphore(MOST_READS)

    async def read(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make a call that does not wait for messages."""
        async with self._reads:
            await self._has_room()
            return await make()


def waits(arguments: Mapping[str, Any]) -> bool:
    """Whether a call waits for messages. What is no number of milliseconds does not: the store refuses it."""
    wait_ms = arguments.get("wait_ms")
    return type(wait_ms) is int and wait_ms > 0


def capped(arguments: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
    """The arguments of a call that gives up to `max_bytes`: of no more than these."""
    asked = arguments.get("max_bytes")
    return {**arguments, "max_bytes": most_bytes} if type(asked) is int and asked > most_bytes else dict(arguments)
