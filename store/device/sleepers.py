"""The parts of one store that sleep by its clock. A clock that is moved (`MovedClock`) wakes them all.

A sleeper that is woken looks at the clock again, and sleeps on if its time has not come. So a wake-up too many does no
harm, and no sleep ends by the machine's time. With the machine's clock nothing here does anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .background import report
from .clock import Clock, MovedClock


class Cancels(Protocol):
    """A call to come, of an event loop."""

    def cancel(self) -> None:
        """Let it not come."""


class Sleepers:
    """One list for each store. The clock knows it weakly, so a store that its program drops leaves nothing there.

    The thread of timers is not in the list: it watches the clock itself, see `TimerThread`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock if isinstance(clock, MovedClock) else None
        self._wakes: list[Callable[[], object]] = []
        self._calls: dict[LoopCall, None] = {}  # each access is one step of the interpreter
        if self._clock is not None:
            self._clock.watch(self)

    def add(self, *wakes: Callable[[], object]) -> None:
        """Call these after each move of the clock. They are short, and wait for nothing."""
        if self._clock is not None:
            self._wakes += wakes

    def wake(self) -> None:
        """The clock was moved. One that raises stops no other."""
        for wake in [*self._wakes, *[call.look for call in list(self._calls)]]:
            try:
                wake()
            except Exception as error:
                report("a sleeper could not be told that its clock was moved", error)

    def call_later(self, loop: asyncio.AbstractEventLoop, delay_ms: int, call: Callable[[], object]) -> Cancels:
        """As `loop.call_later`, by the store's clock. Called within the loop."""
        if self._clock is None:
            return loop.call_later(delay_ms / 1000, call)
        return LoopCall(self._calls, self._clock, loop, delay_ms, call)

    def close(self) -> None:
        """Wake nobody any more. Again is fine."""
        if self._clock is not None:
            self._clock.forget(self)
            self._wakes.clear()

    def after_fork(self) -> None:
        """In a child process: the threads are not here, and a lost one may hold a lock."""
        self._wakes.clear()
        self._calls.clear()


class LoopCall:
    """A call that an event loop makes when a moved clock says that its time has come."""

    def __init__(
        self, calls: dict[LoopCall, None], clock: Clock, loop: asyncio.AbstractEventLoop, delay_ms: int,
        call: Callable[[], object],
    ) -> None:  # fmt: skip
        self._calls = calls
        self._clock = clock
        self._loop = loop
        self._deadline_ms = clock.monotonic_s() * 1000 + delay_ms
        self._call = call
        self._is_cancelled = False
        calls[self] = None
        self.look()  # the clock may have been moved since it was read

    def look(self) -> None:
        """Look at the clock. From any thread."""
        if self._clock.monotonic_s() * 1000 >= self._deadline_ms and self._calls.pop(self, self) is None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        if not self._is_cancelled:
            self._call()

    def cancel(self) -> None:
        """Let it not come."""
        self._is_cancelled = True
        self._calls.pop(self, None)
