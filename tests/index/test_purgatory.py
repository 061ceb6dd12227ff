"""Waiting operations: completed once, whoever comes first; lists that are purged; nothing left at the end."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from stratalog.index import DelayedOperation, Purgatory, TimersClosed, TimerThread, TimingWheel

from .operations import Counted, Doing, in_thread

PATIENCE_S = 60


@pytest.fixture
def wheel() -> TimingWheel:
    return TimingWheel()


@pytest.fixture
def purgatory(wheel: TimingWheel) -> Purgatory:
    return Purgatory(wheel)


def drive(wheel: TimingWheel, now_ms: int) -> None:
    """What a `TimerThread` does, on a virtual clock."""
    for payload in wheel.advance(now_ms):
        payload()


def check_nothing_is_left(purgatory: Purgatory, wheel: TimingWheel) -> None:
    assert (purgatory.pending, purgatory.watched, purgatory.estimate, len(wheel)) == (0, 0, 0, 0)
    assert wheel.next_deadline_ms is None


def test_condition_that_holds_completes_at_once_without_a_timer(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operation = Counted(ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.ends == (1, 0) and operation.is_completed
    check_nothing_is_left(purgatory, wheel)


def test_change_of_a_key_completes_those_whose_condition_holds(purgatory: Purgatory, wheel: TimingWheel) -> None:
    first, second, other = Counted(), Counted(), Counted()
    for operation, key in ((first, "a"), (second, "a"), (other, "b")):
        assert not purgatory.try_complete_else_watch(operation, [key])
    first.ready = other.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert [one.ends for one in (first, second, other)] == [(1, 0), (0, 0), (0, 0)]
    assert (purgatory.pending, purgatory.watched, len(wheel)) == (2, 2, 2)
    assert purgatory.check_and_complete("b") == 1
    second.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.check_and_complete("a") == purgatory.check_and_complete("never") == 0
    check_nothing_is_left(purgatory, wheel)


def test_one_of_a_group_is_asked_for_all_of_it(purgatory: Purgatory) -> None:
    group, asked = object(), list[int]()

    class Grouped(Counted):
        def __init__(self, number: int, group: object) -> None:
            super().__init__()
            self.number, self.group = number, group

        def try_complete(self) -> bool:
            asked.append(self.number)
            return False

    waiting = [Grouped(at, of) for at, of in enumerate([group, group, group, None, None, object()])]
    for operation in waiting:
        purgatory.try_complete_else_watch(operation, ["a"])
    asked.clear()
    purgatory.check_and_complete("a")
    assert asked == [0, 1, 2, 3, 4, 5]
    asked.clear()
    purgatory.check_and_complete("a", one_a_group=True)
    assert asked == [0, 3, 4, 5]
    waiting[0].force_complete()
    asked.clear()
    purgatory.check_and_complete("a", one_a_group=True)
    assert asked == [1, 3, 4, 5]


def test_one_of_a_group_that_raises_answers_for_none(purgatory: Purgatory) -> None:
    group, asked = object(), list[Counted]()

    class Grouped(Counted):
        def try_complete(self) -> bool:
            asked.append(self)
            if len(asked) == 1:
                raise RuntimeError("it does not know")
            return False

    for _ in range(3):
        operation = Grouped()
        operation.group = group
        asked.append(operation)
        purgatory.try_complete_else_watch(operation, ["a"])
    asked.clear()
    purgatory.check_and_complete("a", one_a_group=True)
    assert len(asked) == 2


def test_time_out_completes_and_expires(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operation = Counted(200)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    drive(wheel, 199)
    assert operation.ends == (0, 0)
    drive(wheel, 200)
    assert operation.ends == (1, 1)
    check_nothing_is_left(purgatory, wheel)


def test_completed_operation_leaves_the_timer_at_once(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operation = Counted(200)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.force_complete() and not operation.force_complete()
    assert len(wheel) == 0
    drive(wheel, 1_000)
    assert operation.ends == (1, 0)
    check_nothing_is_left(purgatory, wheel)


def test_operation_of_many_keys_is_completed_by_whichever_comes_first(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operation, stays = Counted(), Counted()
    purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    purgatory.try_complete_else_watch(stays, ["b"])
    operation.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == purgatory.check_and_complete("c") == 0
    assert operation.completions == 1
    assert purgatory.watched == 1
    stays.force_complete()
    check_nothing_is_left(purgatory, wheel)


def test_change_between_the_first_look_and_the_watch_is_not_missed(purgatory: Purgatory, wheel: TimingWheel) -> None:
    answers = iter([False, True])
    operation = Doing(look=lambda: next(answers))
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.completions == 1
    check_nothing_is_left(purgatory, wheel)


def test_change_during_a_look_of_another_thread_is_not_missed(purgatory: Purgatory) -> None:
    """The second thread does not wait for the first one, which looks again."""
    looking, go_on = threading.Event(), threading.Event()

    def look() -> bool:
        seen = operation.ready
        if operation.looks == 3:
            looking.set()
            go_on.wait(PATIENCE_S)
        return seen

    operation = Doing(look)
    purgatory.try_complete_else_watch(operation, ["a"])
    thread = in_thread(lambda: purgatory.check_and_complete("a"))
    assert looking.wait(PATIENCE_S)
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    go_on.set()
    thread.join(PATIENCE_S)
    assert operation.ends == (1, 0)


def test_change_during_a_look_that_raises_is_not_missed(purgatory: Purgatory) -> None:
    def look() -> bool:
        if operation.looks == 3:
            operation.ready = True
            other = in_thread(lambda: purgatory.check_and_complete("a"))
            other.join(PATIENCE_S)
            raise OSError("a look that fails")
        return operation.ready

    operation = Doing(look)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert purgatory.check_and_complete("a") == 1
    assert operation.ends == (1, 0)


def test_change_while_the_operation_is_taken_in_is_not_missed(purgatory: Purgatory) -> None:
    def look() -> bool:
        seen = operation.ready
        if operation.looks == 2:
            operation.ready = True
            other = in_thread(lambda: purgatory.check_and_complete("a"))
            other.join(PATIENCE_S)
            assert not other.is_alive()
        return seen

    operation = Doing(look)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.ends == (1, 0)


def test_look_that_checks_its_own_key_comes_to_an_end(purgatory: Purgatory) -> None:
    operation = Doing(look=lambda: bool(purgatory.check_and_complete("a")))
    purgatory.try_complete_else_watch(operation, ["a"])
    assert purgatory.check_and_complete("a") == 0
    assert not operation.is_completed


def test_word_of_another_thread_outlasts_a_check_within_the_same_look(purgatory: Purgatory) -> None:
    is_so = False

    class Looking(DelayedOperation):
        looks = 0

        def try_complete(self) -> bool:
            nonlocal is_so
            self.looks += 1
            if self.looks != 3:
                return is_so
            seen, is_so = is_so, True
            in_thread(lambda: purgatory.check_and_complete("a")).join()
            purgatory.check_and_complete("a")
            return seen

    operation = Looking(100)
    assert not purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.check_and_complete("a")
    assert operation.is_completed


def test_interrupt_while_an_operation_is_taken_in_leaves_none_pending(
    purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = purgatory._watch

    def interrupted(*given: Any) -> None:
        watch(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(purgatory, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        purgatory.try_complete_else_watch(Counted(), ["a"])
    assert (purgatory.pending, purgatory.watched) == (0, 0)


@pytest.mark.parametrize("when", ["the first look", "the second look"])
def test_look_that_raises_is_passed_on_to_the_owner_and_leaves_nothing(
    purgatory: Purgatory, wheel: TimingWheel, when: str
) -> None:
    def look() -> bool:
        if operation.looks == (1 if when == "the first look" else 2):
            raise OSError("a look that fails")
        return False

    operation = Doing(look)
    with pytest.raises(OSError):
        purgatory.try_complete_else_watch(operation, ["a"])
    drive(wheel, 10**9)
    assert operation.ends == (0, 0)
    check_nothing_is_left(purgatory, wheel)


def test_look_that_raises_harms_no_other_operation_of_the_key(
    purgatory: Purgatory, wheel: TimingWheel, caplog: pytest.LogCaptureFixture
) -> None:
    def look() -> bool:
        if bad.looks == 3:
            raise OSError("a look that fails")
        return bad.ready

    bad, good = Doing(look), Counted()
    purgatory.try_complete_else_watch(bad, ["a"])
    purgatory.try_complete_else_watch(good, ["a"])
    bad.ready = good.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (bad.ends, good.ends) == ((0, 0), (1, 0))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert purgatory.check_and_complete("a") == 1  # it is watched still
    check_nothing_is_left(purgatory, wheel)


def test_end_that_raises_is_logged_and_harms_nobody(
    purgatory: Purgatory, wheel: TimingWheel, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [Doing(complete=lambda: 1 / 0, expire=lambda: 1 / 0, timeout_ms=5) for _ in range(2)]
    good = Counted(5)
    for operation in (*bad, good):
        purgatory.try_complete_else_watch(operation, ["a"])
    assert bad[0].force_complete()
    drive(wheel, 5)
    assert [one.ends for one in (*bad, good)] == [(1, 0), (1, 1), (1, 1)]
    assert len(caplog.records) == 3
    check_nothing_is_left(purgatory, wheel)


def test_end_that_calls_the_purgatory_is_served(purgatory: Purgatory, wheel: TimingWheel) -> None:
    """Each end checks the key, watches a new operation and asks for the counts: no lock is held around it."""
    seen: list[int] = []
    follower = Counted(50)

    def end() -> None:
        purgatory.check_and_complete("a")
        purgatory.try_complete_else_watch(follower, ["a"])
        purgatory.purge()
        seen.extend((purgatory.pending, purgatory.watched))

    operation, neighbour = Doing(complete=end), Counted()
    purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.try_complete_else_watch(neighbour, ["a"])
    operation.ready = neighbour.ready = True
    assert purgatory.check_and_complete("a") == 1  # the neighbour's end belongs to the inner call
    assert neighbour.ends == (1, 0)
    assert seen == [1, 1]
    drive(wheel, 50)
    assert follower.ends == (1, 1)
    check_nothing_is_left(purgatory, wheel)


def test_end_that_blocks_blocks_nobody_else(purgatory: Purgatory, wheel: TimingWheel) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def block() -> None:
        inside.set()
        go_on.wait(PATIENCE_S)

    slow, quick = Doing(complete=block), Counted(5)
    purgatory.try_complete_else_watch(slow, ["a"])
    slow.ready = True
    thread = in_thread(lambda: purgatory.check_and_complete("a"))
    assert inside.wait(PATIENCE_S)
    purgatory.try_complete_else_watch(quick, ["a"])
    drive(wheel, 5)
    assert quick.ends == (1, 1)
    assert purgatory.check_and_complete("a") == 0 and not slow.force_complete()
    check_nothing_is_left(purgatory, wheel)
    go_on.set()
    thread.join(PATIENCE_S)
    assert slow.ends == (1, 0)


def test_lists_are_purged_once_more_is_completed_than_pending(wheel: TimingWheel) -> None:
    purgatory = Purgatory(wheel, purge_interval=100)
    waiting = [Counted() for _ in range(10)]
    for operation in waiting:
        purgatory.try_complete_else_watch(operation, ["w"])
    for number in range(1_000):
        operation = Counted()
        purgatory.try_complete_else_watch(operation, ["a", "b", number % 7])
        operation.force_complete()
        assert purgatory.watched <= 10 + 3 * 101
    assert purgatory.purges == 1_000 // 101  # not once an operation, nor never
    for operation in waiting:
        operation.force_complete()
    check_nothing_is_left(purgatory, wheel)


def test_long_lists_of_pending_operations_are_not_searched_in_vain(wheel: TimingWheel) -> None:
    """A purge has to find at least as many completed operations as there are pending ones."""
    purgatory = Purgatory(wheel, purge_interval=10)
    for _ in range(500):
        purgatory.try_complete_else_watch(Counted(), ["a"])
    done = [Counted() for _ in range(1_000)]
    for operation in done:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.force_complete()
    assert purgatory.purges == 1
    assert 500 <= purgatory.watched <= 1_000


def test_estimate_is_set_to_what_is_pending_by_a_purge(wheel: TimingWheel) -> None:
    purgatory = Purgatory(wheel, purge_interval=10)
    stays = Counted()
    purgatory.try_complete_else_watch(stays, ["s"])
    for _ in range(8):
        operation = Counted()
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.force_complete()
    assert (purgatory.estimate, purgatory.pending, purgatory.watched) == (9, 1, 9)
    purgatory.purge()
    assert (purgatory.estimate, purgatory.pending, purgatory.watched) == (1, 1, 1)


def test_memory_of_operations_is_let_go_of_when_the_last_one_ends(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operations = [Counted(200) for _ in range(50)]
    ends = [weakref.ref(operation) for operation in operations]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [number, "all"])
    gc.disable()  # no cycle may keep them
    try:
        for operation in operations[:25]:
            operation.force_complete()
        del operations, operation
        drive(wheel, 200)
        assert [end() for end in ends] == [None] * 50
    finally:
        gc.enable()
    check_nothing_is_left(purgatory, wheel)


def test_operation_is_watched_under_a_key_and_once(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operation = Counted()
    with pytest.raises(ValueError, match="at least one key"):
        purgatory.try_complete_else_watch(operation, [])
    purgatory.try_complete_else_watch(operation, (key for key in "a"))
    with pytest.raises(ValueError, match="waits already"):
        purgatory.try_complete_else_watch(operation, ["b"])
    assert (purgatory.pending, purgatory.watched) == (1, 1)
    operation.force_complete()
    assert purgatory.try_complete_else_watch(operation, ["a"])  # over and done with
    assert operation.ends == (1, 0)
    check_nothing_is_left(purgatory, wheel)


def test_close_expires_what_waits_and_refuses_what_comes(purgatory: Purgatory, wheel: TimingWheel) -> None:
    operations = [Counted() for _ in range(3)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    operations[0].force_complete()
    assert purgatory.close() == 2
    assert [one.ends for one in operations] == [(1, 0), (1, 1), (1, 1)]
    check_nothing_is_left(purgatory, wheel)
    late = Counted()
    with pytest.raises(TimersClosed):
        purgatory.try_complete_else_watch(late, ["a"])
    assert late.ends == (0, 0)
    assert purgatory.close() == 0
    check_nothing_is_left(purgatory, wheel)


def test_timer_that_was_closed_leaves_nothing_watched() -> None:
    timers = TimerThread(wheel := TimingWheel())
    purgatory = Purgatory(timers)
    timers.close()
    operation = Counted()
    with pytest.raises(TimersClosed):
        purgatory.try_complete_else_watch(operation, ["a"])
    check_nothing_is_left(purgatory, wheel)


def test_two_purgatories_share_a_timer(wheel: TimingWheel) -> None:
    first, second = Purgatory(wheel), Purgatory(wheel)
    operations = [Counted(5), Counted(9)]
    first.try_complete_else_watch(operations[0], ["a"])
    second.try_complete_else_watch(operations[1], ["a"])
    drive(wheel, 5)
    assert (first.pending, second.pending) == (0, 1)
    drive(wheel, 9)
    assert [one.ends for one in operations] == [(1, 1)] * 2
    check_nothing_is_left(first, wheel)
    check_nothing_is_left(second, wheel)
