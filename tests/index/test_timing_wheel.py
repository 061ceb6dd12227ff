"""The wheel of single timers: payloads, handles, memory."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from stratalog.index import Timer, TimingWheel


class Payload:
    """Something that can be watched for its end."""


def test_payloads_come_back_as_they_were_given() -> None:
    wheel, payloads = TimingWheel(), [Payload() for _ in range(3)]
    for payload in payloads:
        wheel.add(7, payload)
    assert wheel.advance(7) == payloads


def test_handle_says_whether_its_timer_is_pending() -> None:
    wheel = TimingWheel()
    fired, cancelled, waiting = wheel.add(5, "a"), wheel.add(5, "b"), wheel.add(6, "c")
    assert [one.is_pending for one in (fired, cancelled, waiting)] == [True] * 3
    assert cancelled.cancel()
    wheel.advance(5)
    assert [one.is_pending for one in (fired, cancelled, waiting)] == [False, False, True]
    assert [fired.cancel(), cancelled.cancel(), waiting.cancel()] == [False, False, True]
    assert (fired.deadline_ms, waiting.deadline_ms) == (5, 6)


def test_delay_counts_from_the_time_of_the_last_advance() -> None:
    wheel = TimingWheel(start_ms=100)
    wheel.advance(140)
    assert wheel.now_ms == 140
    assert wheel.add_after(20, "x").deadline_ms == 160


def test_wheel_lets_go_of_payloads_that_fired_or_were_cancelled() -> None:
    wheel, payloads = TimingWheel(), [Payload(), Payload()]
    ends = [weakref.ref(one) for one in payloads]
    handles = [wheel.add(5, one) for one in payloads]
    del payloads
    gc.disable()  # no cycle may keep them
    try:
        handles[0].cancel()
        assert ends[0]() is None
        assert ends[1]() is not None
        wheel.advance(5)
        assert ends[1]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("deadline", [1.5, "5", None])
def test_deadline_that_is_no_integer_is_refused(deadline: object) -> None:
    wheel = TimingWheel()
    with pytest.raises(TypeError):
        wheel.add(deadline, "x")  # type: ignore[arg-type]  # what is refused
    assert len(wheel) == 0 and wheel.next_deadline_ms is None


def test_queue_of_buckets_stays_small_however_many_timers_come_and_go() -> None:
    """The delay queue has buckets in it, not timers (R37)."""
    wheel = TimingWheel(1, 20)
    for number in range(20_000):
        timer = wheel.add(number // 10 + 200 + number % 5_000, number)
        if number % 3:
            timer.cancel()
        if number % 10 == 0:
            wheel.advance(number // 10)
        assert len(wheel._queue.buckets()) <= 20 * wheel.levels + 1


def test_timers_of_many_threads_fire_once_or_are_cancelled_once() -> None:
    wheel, fired, cancelled = TimingWheel(1, 4), [], []
    over = threading.Event()

    def add(thread: int) -> None:
        handles = []
        for number in range(2_000):
            handles.append((wheel.add(number // 20 + number % 50, (thread, number)), (thread, number)))
            if number % 2:
                handle, name = handles.pop(number * 7 % len(handles))
                if handle.cancel():
                    cancelled.append(name)

    def drive() -> None:
        now_ms = 0
        while not over.is_set():
            fired.extend(wheel.advance(now_ms := now_ms + 1))

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    adders = [threading.Thread(target=add, args=(thread,)) for thread in range(4)]
    for thread in drivers + adders:
        thread.start()
    for thread in adders:
        thread.join()
    over.set()
    for thread in drivers:
        thread.join()
    fired.extend(wheel.advance(10**6))
    assert sorted(fired + cancelled) == [(thread, number) for thread in range(4) for number in range(2_000)]
    assert len(wheel) == 0


def test_thread_is_told_of_a_timer_whose_adding_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bucket may be the next one, and later timers of that bucket tell nobody."""
    wheel, told = TimingWheel(), list[str]()
    wheel.on_earlier = lambda: told.append("earlier")
    place = wheel._place

    def interrupted(timer: Timer) -> bool:
        place(timer)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wheel, "_place", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wheel.add(7, "a")
    assert told == ["earlier"]
    wheel.add(7, "b")
    assert wheel.next_deadline_ms == 7
