"""Readers that wait for a message, each woken for its own queue and no other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..device.clock import Clock
from ..log.lane import Lane
from ..log.streams import Stream, StreamMap
from ..log.write import Shown

Name = tuple[str, int]  # (topic, queue)


class LoopBell:
    """The bell of a coroutine."""

    __slots__ = ("loop", "rung")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.rung: asyncio.Future[None] = loop.create_future()

    async def wait(self, patience_s: float) -> None:
        """Sleep until it is rung, and no longer than `patience_s`."""
        timer = self.loop.call_later(patience_s, self.ring)
        try:
            await self.rung
        finally:
            timer.cancel()

    def ring(self) -> None:
        """Wake the coroutine; within its loop. Twice is fine."""
        if not self.rung.done():  # nor was its task cancelled
            self.rung.set_result(None)


Bell: TypeAlias = "threading.Lock | LoopBell"


class WaitingReaders:
    """Sleeping readers by the queue that they wait for, which need not exist yet.

    Each has a *bell*: a thread a lock that it sleeps on, a coroutine a future. Invariants:
        * a bell hangs before its reader looks whether there is a message: what is shown after the look rings it;
        * a bell is taken down by its reader, or after it was rung. So no reader is forgotten, wherever the thread that
          rings is interrupted: the bells still hang then, and are rung again.

    An interrupt in an unlucky place leaves a bell hanging: it is rung for nobody, once.
    """

    def __init__(self, streams: StreamMap, clock: Clock) -> None:
        self._clock = clock
        self._streams = streams
        self._bells: dict[Name, dict[Bell, None]] = {}  # in the order in which they were hung
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, list(self._bells.values())))

    def wait(self, name: Name, deadline: float, has_come: Callable[[], bool]) -> bool:
        """Sleep until `has_come` says yes; False when it is later than `deadline` (of the monotonic time)."""
        while True:
            bell = threading.Lock()
            bell.acquire()
            try:
                self.hang(name, bell)
                if has_come():
                    return True
                left = deadline - self._clock.monotonic_s()
                if left <= 0:
                    return False
                bell.acquire(timeout=left)
            finally:
                self.take_down(name, bell)

    def hang(self, name: Name, bell: Bell) -> None:
        """Ring this bell when there is a message in the queue, once."""
        with self._lock:
            self._bells.setdefault(name, {})[bell] = None

    def take_down(self, name: Name, bell: Bell) -> None:
        """The reader waits no longer."""
        with self._lock:
            bells = self._bells.get(name)
            if bells is not None and bell in bells:
                del bells[bell]
                if not bells:
                    del self._bells[name]

    def tell(self, lane: Lane, shown: Sequence[Shown]) -> None:
        """Readers may see more of a lane now: wake those who wait for a message of these queues.

        A flusher does this after each write, so nothing is looked up unless somebody waits, and then no row is made:
        that is for the reader to do.
        """
        if self._bells:
            came = {number for table, begin, end in shown for number in table.few_numbers(begin, end)}
            with self._lock:
                self._ring(self._due(lane, came))

    def wake_all(self) -> None:
        """Something else has happened that they have to know."""
        with self._lock:
            self._ring(list(self._bells))

    def _due(self, lane: Lane, numbers: set[int]) -> list[Name]:
        """The queues that are waited for and have one of these numbers, by whichever are fewer."""
        bells, streams = self._bells, self._streams
        if len(bells) < len(numbers):
            return [name for name in bells if _is_among(streams.get(*name), lane, numbers)]
        named = [lane.streams[number] for number in numbers]
        return [name for stream in named if (name := (stream.topic, stream.queue_id)) in bells]

    def _ring(self, names: list[Name]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[LoopBell]] = {}
        for name in names:
            for bell in self._bells[name]:
                if isinstance(bell, LoopBell):
                    loops.setdefault(bell.loop, []).append(bell)
                elif bell.locked():  # not rung already, before an interrupt
                    bell.release()
        for loop, rung in loops.items():
            with contextlib.suppress(Exception):  # it was closed, and nobody waits there any more; or it is broken
                loop.call_soon_threadsafe(_ring_all, rung)
        for name in names:
            del self._bells[name]

    def after_fork(self) -> None:
        """In a child process, where a lost thread may hold the lock: wake the coroutines, to find out."""
        self._lock = threading.Lock()
        for bell in [bell for bells in self._bells.values() for bell in bells if isinstance(bell, LoopBell)]:
            with contextlib.suppress(Exception):
                bell.ring()  # not by `call_soon_threadsafe`, which wakes the parent's loop
        self._bells.clear()


def _ring_all(bells: Sequence[LoopBell]) -> None:
    for bell in bells:
        bell.ring()


def _is_among(stream: Stream | None, lane: Lane, numbers: set[int]) -> bool:
    return stream is not None and stream.lane is lane and stream.number in numbers
