"""The thread that drives a wheel: it sleeps, wakes, survives what it calls, and ends."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from stratalog.index import SystemClock, TimersClosed, TimerThread, TimingWheel

from ..store.helpers import until

PATIENCE_S = 60


class HandClock:
    """A clock that a test moves. Whoever moves it wakes the thread."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return self.now_s


class Waits:
    """Calls that a test waits for."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self._more = threading.Condition()

    def call(self, name: str) -> Callable[[], None]:
        def called() -> None:
            with self._more:
                self.made.append(name)
                self._more.notify_all()

        return called

    def until(self, count: int) -> list[str]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.made) >= count, PATIENCE_S)
            return list(self.made)


def settle(clock: HandClock) -> None:
    """Wait until the thread sleeps: it has looked at the clock, and looks no more."""
    looks = -1
    while looks != clock.looks:
        looks = clock.looks
        time.sleep(0.05)  # nothing tells from outside that a thread sleeps; it has looked by now, if it does


def test_payloads_are_called_when_they_are_due_and_never_early() -> None:
    clock, waits = SystemClock(), Waits()
    lateness: list[float] = []

    def note(due_s: float) -> None:
        lateness.append(clock.monotonic_s() - due_s)

    with TimerThread(TimingWheel(), clock) as timers:
        for number in range(200):
            due_s = clock.monotonic_s() + number % 30 / 1000
            timers.add_after(number % 30, partial(note, due_s))
            timers.add_after(number % 30, waits.call("x"))
        waits.until(200)
    assert len(lateness) == 200
    assert min(lateness) >= 0


def test_idle_thread_sleeps() -> None:
    """Neither an empty wheel nor one far timer has it look at the clock."""
    clock = HandClock()

    def comes_to_rest() -> bool:
        looks = clock.looks
        time.sleep(0.3)  # a thread that polls looks meanwhile, each time
        return clock.looks == looks

    with TimerThread(TimingWheel(), clock) as timers:
        assert any(comes_to_rest() for _ in range(20))
        timers.add_after(3_600_000, lambda: None)
        assert any(comes_to_rest() for _ in range(20))


def test_sooner_timer_wakes_the_thread() -> None:
    waits = Waits()
    with TimerThread(TimingWheel()) as timers:
        timers.add_after(3_600_000, waits.call("late"))
        timers.add_after(5, waits.call("soon"))
        assert waits.until(1) == ["soon"]


def test_clock_that_jumps_by_an_hour_loses_nothing_and_fires_nothing_early() -> None:
    clock, waits = HandClock(), Waits()
    with TimerThread(TimingWheel(), clock) as timers:
        for minutes in (1, 59, 61, 120):
            timers.add_after(minutes * 60_000, waits.call(f"{minutes}"))
        clock.now_s += 3600
        timers.wake()
        assert waits.until(2) == ["1", "59"]
        clock.now_s -= 3600  # which a monotonic clock does not do
        timers.wake()
        settle(clock)
        assert waits.made == ["1", "59"]
        clock.now_s += 2 * 3600
        timers.wake()
        assert waits.until(4) == ["1", "59", "61", "120"]


def test_payload_that_raises_stops_neither_the_thread_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, waits = HandClock(), Waits()

    def leave() -> None:
        raise SystemExit

    with TimerThread(TimingWheel(), clock) as timers:
        for payload in (lambda: 1 / 0, waits.call("a"), leave, waits.call("b")):
            timers.add_after(5, payload)
        clock.now_s += 1
        timers.wake()
        waits.until(2)
        timers.add_after(0, waits.call("c"))
        clock.now_s += 1
        timers.wake()
        assert waits.until(3) == ["a", "b", "c"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_clock_that_raises_for_a_while_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    waits, broken = Waits(), threading.Event()

    class Clock(SystemClock):
        def monotonic_s(self) -> float:
            if broken.is_set() and threading.current_thread().name == "stratalog-timers":
                raise OSError("no time")
            return super().monotonic_s()

    with TimerThread(TimingWheel(), Clock()) as timers:
        broken.set()
        timers.add_after(1, waits.call("x"))
        until(lambda: bool(caplog.records))
        broken.clear()
        assert waits.until(1) == ["x"]


def test_wheel_has_one_thread_at_a_time() -> None:
    wheel = TimingWheel()
    with TimerThread(wheel), pytest.raises(ValueError, match="thread already"):
        TimerThread(wheel)
    TimerThread(wheel).close()


def test_close_waits_for_the_thread_and_refuses_what_comes_later() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        go_on.wait(PATIENCE_S)
        ended.set()

    timers = TimerThread(TimingWheel())
    timers.add_after(0, slow)
    timers.add_after(50, lambda: pytest.fail("it fires after the close"))
    assert began.wait(PATIENCE_S)
    closer = threading.Thread(target=timers.close)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive()
    go_on.set()
    closer.join(PATIENCE_S)
    assert ended.is_set() and not closer.is_alive() and not timers._engine.thread.is_alive()
    timers.close()
    with pytest.raises(TimersClosed, match="closed"):
        timers.add_after(5, lambda: None)


def test_payload_may_close_its_own_thread() -> None:
    timers, closed = TimerThread(TimingWheel()), threading.Event()
    thread = timers._engine.thread

    def close() -> None:
        timers.close()
        closed.set()

    timers.add_after(0, close)
    assert closed.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_thread_ends_when_nobody_has_it_any_more() -> None:
    timers = TimerThread(TimingWheel())
    thread, end = timers._engine.thread, weakref.ref(timers)
    del timers
    gc.collect()
    assert end() is None
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_payloads_that_were_called_are_let_go_of_at_once() -> None:
    came = threading.Event()

    class Payload:
        def __call__(self) -> None:
            came.set()

    with TimerThread(TimingWheel()) as timers:
        payload = Payload()
        end = weakref.ref(payload)
        timers.add_after(0, payload)
        assert came.wait(PATIENCE_S)
        del payload
        until(lambda: end() is None)


def run_program(code: str) -> str:
    """The output of a program of its own; it has to end by itself, without an error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_program_ends_with_timers_that_were_not_closed() -> None:
    assert (
        run_program("""
import time
from stratalog.index import *
timers = TimerThread(TimingWheel())
for delay in range(50):
    timers.add_after(delay, lambda: sum(range(1000)))
timers.add_after(3_600_000, print)
purgatory = Purgatory(timers)
purgatory.try_complete_else_watch(DelayedOperation(3_600_000), ["key"])
print("done")
""")
        == "done\n"
    )


def test_forked_child_is_told_at_once_and_the_parent_goes_on() -> None:
    assert (
        run_program("""
import os, signal, threading
from stratalog.index import *
timers = TimerThread(TimingWheel())
purgatory = Purgatory(timers)
stop = threading.Event()
def busy():  # so that locks are held at the moment of the fork
    while not stop.is_set():
        operation = DelayedOperation(1)
        purgatory.try_complete_else_watch(operation, ["key"])
        operation.force_complete()
threads = [threading.Thread(target=busy) for _ in range(4)]
for thread in threads:
    thread.start()
kept = DelayedOperation(3_600_000)
purgatory.try_complete_else_watch(kept, ["kept"])
def child():
    signal.alarm(30)  # a child that hangs is a child that was not told
    for call in (lambda: timers.add_after(5, print),
                 lambda: purgatory.try_complete_else_watch(DelayedOperation(5), ["key"])):
        try:
            call()
            return 1
        except TimersClosed as error:
            if "fork" not in str(error):
                return 2
    if purgatory.check_and_complete("key") or purgatory.check_and_complete("kept") or len(timers.wheel) < 0:
        return 3
    kept.force_complete()
    purgatory.close()
    timers.close()
    came = threading.Event()
    with TimerThread(TimingWheel()) as own:  # the child has its own
        own.add_after(1, came.set)
        return 0 if came.wait(100) else 4
ended = []
for _ in range(10):
    pid = os.fork()
    if not pid:
        code = 9
        try:
            code = child()
        finally:
            os._exit(code)
    ended.append(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join()
came = threading.Event()
timers.add_after(1, came.set)
print(sum(ended), came.wait(100), kept.is_completed)
""")
        == "0 True False\n"
    )
