"""The end of a waiting operation where threads meet: it comes once, and no thread is in another's way."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from stratalog.index import Purgatory, TimerThread, TimingWheel
from stratalog.index import operation as operations
from stratalog.index.locks import MOMENT_S, MOMENTS, let_pass

from .operations import Counted, Doing, in_thread

PATIENCE_S = 60
THREADS = 4


def ends_by(operation: Counted, lock: threading.Lock) -> list[bool]:
    """What threads are told that all have found the operation pending, before the first one gets the lock."""
    told: list[bool] = []
    with lock:
        threads = [in_thread(lambda: told.append(operation.force_complete())) for _ in range(THREADS)]
        time.sleep(2 * MOMENT_S * MOMENTS)  # they look at the operation, and come to the lock
    for thread in threads:
        thread.join(PATIENCE_S)
    return told


def test_one_of_many_threads_completes_a_watched_operation() -> None:
    purgatory, operation = Purgatory(wheel := TimingWheel()), Counted()
    purgatory.try_complete_else_watch(operation, ["a"])
    assert sorted(ends_by(operation, wheel.lock)) == [False] * (THREADS - 1) + [True]
    assert (operation.ends, purgatory.pending, len(wheel)) == ((1, 0), 0, 0)


def test_one_of_many_threads_completes_an_operation_that_nobody_watches() -> None:
    operation = Counted()
    assert sorted(ends_by(operation, operations._unwatched)) == [False] * (THREADS - 1) + [True]
    assert operation.ends == (1, 0)


def test_operation_that_is_completed_before_it_is_watched_leaves_nothing() -> None:
    purgatory = Purgatory(wheel := TimingWheel())

    class Impatient(Counted):
        def try_complete(self) -> bool:
            in_thread(self.force_complete).join(PATIENCE_S)
            return super().try_complete()

    operation = Impatient()
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.ends == (1, 0)
    assert (purgatory.pending, purgatory.watched, purgatory.estimate, len(wheel)) == (0, 0, 0, 0)


def test_operation_that_is_completed_as_its_time_comes_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """`advance` has taken it out of the wheel, and has not given its payload yet."""

    class Racing(Counted):
        @property
        def deadline_ms(self) -> int:  # which `advance` asks for behind the lock, too
            if self.is_counted and not wheel.lock.locked():
                assert self.force_complete()
            return self._deadline_ms

        @deadline_ms.setter
        def deadline_ms(self, value: int) -> None:
            self._deadline_ms = value

    purgatory, operation = Purgatory(wheel := TimingWheel()), Racing(5)
    purgatory.try_complete_else_watch(operation, ["a"])
    (payload,) = wheel.advance(5)
    payload()
    assert operation.ends == (1, 0)
    assert (purgatory.pending, purgatory.watched, len(wheel)) == (0, 0, 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_operation_whose_time_out_is_sooner_than_all_others_wakes_the_thread() -> None:
    with TimerThread(TimingWheel()) as timers:
        purgatory, ended = Purgatory(timers), threading.Event()
        purgatory.try_complete_else_watch(Counted(), ["a"])  # for an hour
        purgatory.try_complete_else_watch(Doing(expire=ended.set, timeout_ms=1), ["a"])
        assert ended.wait(PATIENCE_S)


def test_thread_lets_others_pass_until_the_lock_is_free() -> None:
    lock, passed = threading.Lock(), threading.Event()

    def wait() -> None:
        while lock.locked():
            let_pass(lock)
        passed.set()

    with lock:
        thread = in_thread(wait)
        assert not passed.wait(0.05)
    assert passed.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


def test_thread_waits_as_usual_for_a_lock_that_is_held_for_long() -> None:
    lock = threading.Lock()
    with lock:
        let_pass(lock)  # comes back, though nobody releases the lock
