"""A thread that drives a wheel with a clock. It sleeps until the next bucket is due; with an empty wheel, until woken.

The clock is handed in: tests and the simulation pass their own.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from types import TracebackType
from typing import Final, Protocol, Self

from .errors import TimersClosed, report
from .locks import tell_after_fork
from .timing_wheel import Timer, TimingWheel

AFTER_ERROR_S = 0.1
LONGEST_SLEEP_S = 1e6  # a lock takes no time-out of more than some hundred years
AT_EXIT_S = 1.0


class Clock(Protocol):
    """A time that never jumps. Timers do not use the time of day."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""


class SystemClock:
    """The monotonic time of the machine."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""
        return time.monotonic()


SYSTEM_CLOCK: Final = SystemClock()


def whole_ms(clock: Clock) -> int:
    """The whole milliseconds that have passed: a timer of this deadline is due."""
    return math.floor(clock.monotonic_s() * 1000)


def call_each(payloads: Sequence[Callable[[], object]]) -> None:
    """Call the payloads in turn. An error is logged, and the others are called."""
    for payload in payloads:
        try:
            payload()
        except BaseException as error:  # also SystemExit: it would end the thread
            report("a timer has raised", error)


class _Engine:
    """The thread's state. It never references its `TimerThread`: so a dropped one is noticed, and its thread ends."""

    def __init__(self, wheel: TimingWheel, clock: Clock) -> None:
        self.wheel = wheel
        self.clock = clock
        self.why_closed = ""
        self.bell = threading.Lock()  # locked while there is no news
        self.bell.acquire()
        self.is_told = hasattr(clock, "watch")  # of each move of the clock: only that lets its time pass
        self.thread = threading.Thread(target=self.run, name="stratalog-timers", daemon=True)

    def run(self) -> None:
        while not self.why_closed:
            patience_s = AFTER_ERROR_S
            try:
                patience_s = self.step()
            except BaseException as error:  # the thread goes on: without it no timer would expire
                report("the clock or the wheel of a timer thread has raised", error)
            if patience_s > 0:
                self.bell.acquire(timeout=patience_s)

    def step(self) -> float:
        """Call the due payloads. Returns the time until the next step."""
        call_each(
            self.wheel.advance(whole_ms(self.clock))
        )  # no variable holds them: the last ones are not kept alive through the sleep
        deadline_ms = self.wheel.next_deadline_ms
        if deadline_ms is None or self.is_told:
            return LONGEST_SLEEP_S
        return min(deadline_ms / 1000 - self.clock.monotonic_s(), LONGEST_SLEEP_S)

    def ring(self) -> None:
        """There is news: wake the thread, or keep it from falling asleep. A second call does no harm."""
        with suppress(RuntimeError):  # it was rung, and the thread has not noticed yet
            self.bell.release()

    def close(self, why: str, within_s: float | None = None) -> None:
        self.why_closed = self.why_closed or why
        self.wheel.on_earlier = None
        self.ring()
        if self.thread.ident not in (None, threading.get_ident()):
            self.thread.join(within_s)

    def after_fork(self) -> None:
        """In a child process: the thread stayed with the parent."""
        self.why_closed = "the timers were made before a fork; make new ones in the process that uses them"
        self.wheel.lock = threading.Lock()  # a lost thread may hold the other one
        self.wheel.on_earlier = None
        self.bell = threading.Lock()


class TimerThread:
    """Drives a wheel: calls the payloads of timers that are due.

    All of it runs in one thread. A payload that blocks makes later timers late, so hand long work on. The time is the
    clock's monotonic one: the time of day may jump. Use it as a context manager, or call `close`; without, its thread
    ends with the last reference to it, or with the program.

    With the machine's own clock the thread sleeps until the next timer. Another clock has to run at the same
    speed, or its owner calls `wake` when it has jumped. A clock that has the methods `watch` and `forget`, as
    `stratalog.testing.VirtualClock` has, does that itself.
    """

    def __init__(self, wheel: TimingWheel, clock: Clock = SYSTEM_CLOCK) -> None:
        if wheel.on_earlier is not None:
            raise ValueError("the wheel has a thread already; each takes its own wheel")
        self.wheel = wheel
        self.clock = clock
        self._monotonic_s = clock.monotonic_s
        self._add = wheel.add
        self._engine = engine = _Engine(wheel, clock)
        wheel.on_earlier = engine.ring
        self._finalizer = weakref.finalize(self, engine.close, "the timers were closed", AT_EXIT_S)
        tell_after_fork(engine)
        if engine.is_told:
            clock.watch(self)  # type: ignore[attr-defined]  # only a clock that can be moved has it: `is_told`
        try:
            engine.thread.start()
        except BaseException:  # no more threads can be started
            self.close()
            raise

    @property
    def now_ms(self) -> int:
        """The time of deadlines, in ms."""
        return whole_ms(self.clock)

    def add(self, deadline_ms: int, payload: Callable[[], object]) -> Timer:
        """Call the payload at this time, by `now_ms`. Raises TimersClosed."""
        if self._engine.why_closed:
            raise TimersClosed(self._engine.why_closed)
        return self._add(deadline_ms, payload)

    def add_after(self, delay_ms: int, payload: Callable[[], object]) -> Timer:
        """Call the payload after `delay_ms`, never earlier."""
        return self._add(self.deadline_after(delay_ms), payload)

    def deadline_after(self, delay_ms: int) -> int:
        """The first whole millisecond after this delay. Raises TimersClosed."""
        if self._engine.why_closed:
            raise TimersClosed(self._engine.why_closed)
        return ceil(self._monotonic_s() * 1000 + delay_ms)

    def wake(self) -> None:
        """Look at the clock now."""
        self._engine.ring()

    def close(self) -> None:
        """End the thread and wait for it, unless this is the thread itself. Timers that are pending never fire."""
        self._finalizer.detach()
        if self._engine.is_told:
            self.clock.forget(self)  # type: ignore[attr-defined]  # as above
        self._engine.close("the timers were closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
