"""The contract of a wheel, held against a model."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import draw_seed

from .wheels import Model, Numbered


def test_timer_fires_at_its_deadline_and_not_before() -> None:
    for deadline_ms in (1, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 160_000, 3_200_017):
        wheel = Numbered(1, 20)
        wheel.add([deadline_ms])
        assert wheel.advance(deadline_ms - 1) == []
        assert wheel.advance(deadline_ms) == [0]
        assert len(wheel) == 0 and wheel.next_deadline_ms is None


def test_timer_fires_once() -> None:
    wheel = Numbered()
    wheel.add([5])
    assert [wheel.advance(now) for now in (5, 5, 6, 10_000)] == [[0], [], [], []]


def test_timer_between_two_ticks_fires_at_the_later_one() -> None:
    wheel = Numbered(10, 20)
    wheel.add([41])
    assert wheel.advance(49) == []
    assert wheel.next_deadline_ms == 50
    assert wheel.advance(50) == [0]


def test_timers_come_by_deadline_and_then_as_they_were_added() -> None:
    wheel = Numbered(10, 4)
    numbers = wheel.add([705, 33, 705, 33, 38, 700])
    assert [numbers[i] for i in (1, 3, 4, 5, 0, 2)] == wheel.advance(5_000)


def test_order_within_a_deadline_survives_moves_and_cancels() -> None:
    """Timers of one deadline, added when it belongs to another wheel each time, and some taken out between."""
    wheel = Numbered(1, 4)
    numbers: list[int] = []
    for now in (0, 15, 16, 50, 60, 61, 63):
        wheel.advance(now)
        numbers += wheel.add([64, 64, 64])
        assert wheel.cancel([numbers.pop(-2)]) == 1
    assert wheel.advance(64) == numbers


def test_deadline_that_is_over_fires_at_the_next_advance() -> None:
    wheel = Numbered(1, 20, 1_000)
    wheel.add([1_001, 999, -7, 1_000])
    assert wheel.next_deadline_ms == 1_000
    assert wheel.advance(1_000) == [2, 1, 3]
    assert wheel.advance(1_001) == [0]


def test_cancelled_timer_never_fires() -> None:
    wheel = Numbered()
    wheel.add([10, 10, 5_000, 5_000])
    assert wheel.cancel([0, 2]) == 2
    assert len(wheel) == 2
    assert wheel.advance(10_000) == [1, 3]


def test_cancel_counts_only_what_was_pending() -> None:
    wheel = Numbered()
    wheel.add([10, 20, 30])
    wheel.advance(10)
    assert wheel.cancel([0, 1, 1, 1]) == 1
    assert wheel.cancel([0, 1]) == 0
    assert wheel.advance(100) == [2]


def test_wheel_whose_timers_were_all_cancelled_is_idle() -> None:
    wheel = Numbered()
    wheel.add([10, 4_000, 10**9])
    assert wheel.cancel([0, 1, 2]) == 3
    assert wheel.next_deadline_ms is None
    assert wheel.advance(10**10) == []


def test_time_that_goes_back_changes_nothing() -> None:
    hour_ms = 3_600_000
    wheel = Numbered(1, 20, hour_ms)
    wheel.add([hour_ms + 5])
    assert wheel.advance(0) == wheel.advance(-hour_ms) == []
    wheel.add([hour_ms + 4])
    assert wheel.advance(hour_ms + 5) == [1, 0]


def test_time_that_jumps_by_an_hour_loses_nothing() -> None:
    wheel = Numbered()
    deadlines = [1, 50, 3_599_999, 3_600_000, 3_600_001, 7_200_000]
    wheel.add(deadlines)
    assert wheel.advance(3_600_000) == [0, 1, 2, 3]
    assert wheel.run_out() == [(3_600_001, 4), (7_200_000, 5)]


def test_next_deadline_leads_to_every_timer_in_few_steps() -> None:
    """No empty tick is visited: one far timer takes as many steps as there are wheels."""
    wheel = Numbered(1, 20)
    wheel.add([123_456_789])
    steps = 0
    while wheel.next_deadline_ms is not None:
        assert wheel.next_deadline_ms <= 123_456_789
        fired = wheel.advance(wheel.next_deadline_ms)
        steps += 1
    assert fired == [0]
    assert steps <= wheel.wheel.levels == 7


def test_wheels_are_made_on_demand() -> None:
    wheel = Numbered(1, 20)
    assert wheel.wheel.levels == 1
    wheel.add([19])
    wheel.advance(1)
    assert wheel.wheel.levels == 1
    wheel.add([20 * 20])
    wheel.advance(2)
    assert wheel.wheel.levels <= 3
    wheel.advance(wheel.next_deadline_ms or 0)
    assert wheel.wheel.levels == 3


def test_a_sooner_timer_is_told_of_and_a_later_one_is_not() -> None:
    wheel = Numbered()
    told: list[int | None] = []
    wheel.wheel.on_earlier = lambda: told.append(wheel.next_deadline_ms)
    wheel.add([5_000])
    first = len(told)
    assert first == 1
    wheel.add([90_000])
    assert len(told) == first
    wheel.add([10])
    assert told[first:] == [10]
    wheel.add([-3])
    assert told[first:] == [10, 0]


@pytest.mark.parametrize(
    ("settings_", "error"),
    [((0, 20, 0), ValueError), ((1, 1, 0), ValueError), ((1, 20, -1), ValueError), ((1.0, 20, 0), TypeError),
     ((1, 1 << 40, 0), ValueError), ((True, 20, 0), TypeError)],
)  # fmt: skip
def test_settings_that_make_no_wheel_are_refused(settings_: tuple[int, int, int], error: type) -> None:
    with pytest.raises(error):
        Numbered(*settings_)


STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(-50, 2_000), max_size=40)),
    st.tuples(st.just("far"), st.lists(st.integers(-50, 10**7), max_size=40)),
    st.tuples(st.just("very far"), st.lists(st.integers(0, 10**15), max_size=3)),
    st.tuples(st.just("cancel"), st.lists(st.integers(0, 300), max_size=60)),
    st.tuples(st.just("advance"), st.one_of(st.integers(-5, 3), st.integers(0, 900), st.integers(0, 10**7))),
    st.tuples(st.just("next"), st.just(0)),
)


@settings(max_examples=80)
@given(
    tick_ms=st.sampled_from([1, 1, 3, 10]),
    wheel_size=st.sampled_from([2, 3, 4, 20, 256]),
    start_ms=st.integers(0, 5_000),
    steps=st.lists(STEP, max_size=40),
)
def test_any_sequence_of_calls_does_what_a_sorted_list_does(
    tick_ms: int, wheel_size: int, start_ms: int, steps: list[tuple[str, object]]
) -> None:
    wheel, model = Numbered(tick_ms, wheel_size, start_ms), Model(tick_ms)
    model.now_ms, given_out = start_ms, 0
    for name, value in steps:
        if isinstance(value, list) and name != "cancel":
            deadlines = [model.now_ms + delay for delay in value]
            numbers = wheel.add(deadlines)
            model.pending.update(zip(numbers, deadlines, strict=True))
            given_out += len(numbers)
        elif isinstance(value, list):
            chosen = [number % given_out for number in value] if given_out else []
            assert wheel.cancel(chosen) == model.cancel(chosen)
        elif isinstance(value, int):
            now_ms = model.now_ms + value if name == "advance" else wheel.next_deadline_ms or 0
            assert wheel.advance(now_ms) == model.advance(now_ms)
        assert len(wheel) == len(model.pending)
        model.check_next(wheel.next_deadline_ms)
    fired = wheel.run_out()
    assert [number for _, number in fired] == model.advance(10**18)


def test_many_timers_over_several_wheels_do_what_a_sorted_list_does() -> None:
    """Timers move down through several wheels, and some are cancelled on the way."""
    chance = random.Random(draw_seed())
    wheel, model = Numbered(1, 16), Model(1)
    numbers: list[int] = []
    for _ in range(8):
        deadlines = [model.now_ms + int(chance.expovariate(1 / 3_000)) for _ in range(12_000)]
        added = wheel.add(deadlines)
        model.pending.update(zip(added, deadlines, strict=True))
        numbers += added
        chosen = chance.sample(numbers, len(numbers) * 2 // 5)
        assert wheel.cancel(chosen) == model.cancel(chosen)
        now_ms = model.now_ms + chance.choice([1, 7, 400, 5_000])
        assert wheel.advance(now_ms) == model.advance(now_ms)
        assert len(wheel) == len(model.pending)
    fired = wheel.run_out()
    deadlines_of = dict(model.pending)
    assert [time_ms for time_ms, _ in fired] == [max(deadlines_of[number], now_ms) for _, number in fired]
    assert [number for _, number in fired] == model.advance(10**9)
