"""The wheel in columns: ids, arrays, memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stratalog.index.columns import stable_order
from stratalog.perf.references.bulk_timers import LEAST_SLOTS, SLOT_MASK, TimerIds
from stratalog.perf.references.bulk_timing_wheel import BulkTimingWheel
from tests.seeds import draw_seed


def test_ids_ascend_and_are_not_given_again() -> None:
    wheel, given = BulkTimingWheel(), np.empty(0, np.int64)
    for now_ms in range(0, 300_000, 100):
        ids = wheel.add(np.full(50, now_ms + 150))
        assert ids.dtype == np.int64 and len(ids) == 50
        given = np.concatenate([given, ids])
        wheel.advance(now_ms)
    assert (np.diff(given) > 0).all()


def slot(timer_id: int) -> int:
    return timer_id & SLOT_MASK


def test_id_of_a_timer_that_is_over_does_not_cancel_the_one_that_has_its_slot() -> None:
    wheel = BulkTimingWheel()
    [first] = wheel.add([5]).tolist()
    wheel.advance(5)
    for _ in range(2 * LEAST_SLOTS):
        [other] = wheel.add([10**9]).tolist()
        if slot(other) == slot(first):
            break
        wheel.cancel([other])
    assert slot(other) == slot(first)
    assert wheel.cancel([first]) == 0
    assert wheel.cancel([other]) == 1


@pytest.mark.parametrize("unknown", [0, 1, -1, -(2**63), 2**63 - 1, 4096, 2**32 + 4096, 2**32 - 1, 2**33])
def test_id_that_was_never_given_cancels_nothing(unknown: int) -> None:
    wheel = BulkTimingWheel()
    ids = wheel.add([5, 6])
    assert wheel.cancel([unknown]) == 0
    assert wheel.cancel([unknown, int(ids[1]), unknown]) == 1
    assert wheel.advance(10).tolist() == [ids[0]]


def test_row_of_a_cancelled_timer_does_not_fire_the_one_that_has_its_slot() -> None:
    wheel = BulkTimingWheel()
    kept = wheel.add([10**9]).tolist()
    early = wheel.add(np.full(100, 5_000)).tolist()
    assert wheel.cancel(early) == 100
    later: list[int] = []
    while len(later) < 100:
        now_ms = wheel.now_ms + 1
        ids = wheel.add([now_ms] * 50 if not later else [6_000] * 50).tolist()
        if {slot(one) for one in early} & {slot(one) for one in ids} and not later:
            later = wheel.add([6_000] * 50).tolist()
        elif later:
            later += ids
        wheel.advance(now_ms)
    assert {slot(one) for one in early} & {slot(one) for one in later}
    assert wheel.advance(5_500).tolist() == []
    assert wheel.advance(6_000).tolist() == later
    assert wheel.advance(10**9).tolist() == kept


def test_empty_arrays_are_fine() -> None:
    wheel = BulkTimingWheel()
    assert wheel.add([]).tolist() == [] and wheel.add([]).dtype == np.int64
    assert wheel.cancel([]) == 0
    assert wheel.advance(5).tolist() == [] and wheel.advance(5).dtype == np.int64


@pytest.mark.parametrize("deadlines", [[1.5], ["a"], [True], [None]])
def test_numbers_that_are_no_integers_are_refused(deadlines: list[object]) -> None:
    wheel = BulkTimingWheel()
    with pytest.raises(TypeError):
        wheel.add(np.array(deadlines))
    with pytest.raises(TypeError):
        wheel.cancel(np.array(deadlines))


def test_arrays_of_a_wrong_shape_or_too_large_numbers_are_refused() -> None:
    wheel = BulkTimingWheel()
    for wrong in (np.zeros((2, 2), np.int64), np.int64(5), np.array([2**63], np.uint64)):
        with pytest.raises(ValueError):
            wheel.add(wrong)
    assert len(wheel) == 0


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint64, np.int64])
def test_deadlines_of_any_integers_are_taken(dtype: type) -> None:
    wheel = BulkTimingWheel()
    ids = wheel.add(np.array([9, 3], dtype))
    assert wheel.advance(10).tolist() == [ids[1], ids[0]]


@pytest.mark.parametrize("deadline_ms", [2**63 - 1, 2**62 + 1, 2**53 + 1])
def test_latest_deadlines_are_exact(deadline_ms: int) -> None:
    for tick_ms, wheel_size in ((1, 256), (1, 2), (1, 8192), (1, 20)):
        wheel = BulkTimingWheel(tick_ms, wheel_size)
        ids = wheel.add([deadline_ms, deadline_ms - 1])
        assert wheel.advance(deadline_ms - 1).tolist() == [ids[1]]
        assert wheel.advance(deadline_ms).tolist() == [ids[0]]


@pytest.mark.parametrize("batch", [100_000, 1_000])
def test_pending_timer_takes_at_most_24_bytes(batch: int) -> None:
    wheel, chance = BulkTimingWheel(), np.random.default_rng(draw_seed())
    for _ in range(1_000_000 // batch):
        wheel.add(chance.integers(0, 100_000, batch))
    assert wheel.memory_bytes <= 24 * len(wheel)


def test_memory_returns_with_the_last_timer() -> None:
    wheel = BulkTimingWheel()
    empty_bytes = wheel.memory_bytes
    for end in ("expire", "cancel"):
        now_ms = wheel.now_ms
        ids = wheel.add(np.arange(now_ms, now_ms + 300_000))
        assert wheel.memory_bytes > 16 * 300_000
        if end == "expire":
            assert len(wheel.advance(now_ms + 300_000)) == 300_000
        else:
            assert wheel.cancel(ids) == 300_000
        assert wheel.memory_bytes <= empty_bytes


def test_rows_of_cancelled_timers_are_dropped_before_they_are_many() -> None:
    wheel = BulkTimingWheel()
    kept = wheel.add(np.full(50_000, 10**9))
    for _ in range(40):
        wheel.cancel(wheel.add(np.arange(10**6, 10**6 + 50_000)))
        assert wheel.memory_bytes <= 24 * 2 * 50_000 + (2 << 20)
    assert wheel.advance(10**9).tolist() == kept.tolist()


def test_few_ids_do_not_keep_a_large_array_alive() -> None:
    wheel = BulkTimingWheel()
    wheel.add([*range(1, 60_000), 255])
    for now_ms in (1, 255, 256, 257):
        assert wheel.advance(now_ms).base is None


def test_hand_crosses_slots_in_use() -> None:
    """The table is nearly full of timers that stay; new ids come from the gaps, in ascending order."""
    ids, chance = TimerIds(), random.Random(draw_seed())
    stay = ids.give(60_000)
    gaps = np.array(sorted(chance.sample(stay.tolist(), 200)))
    assert ids.cancel(gaps) == 200
    last = int(stay[-1])
    for _ in range(300):
        new = ids.give(37)
        assert new[0] > last and (np.diff(new) > 0).all()
        last = int(new[-1])
        assert ids.cancel(new) == 37
    assert ids.cancel(stay) == 60_000 - 200


def test_stable_order_is_the_order_of_a_stable_sort() -> None:
    chance = np.random.default_rng(draw_seed())
    for spread in (1, 3, 1 << 16, (1 << 16) + 1, 1 << 40, 1 << 62):
        for low in (0, -(2**62), 2**62 - 5):
            values = chance.integers(low, low + spread, 3_000, endpoint=True)
            order = stable_order(values)
            assert order is None or order.tolist() == np.argsort(values, kind="stable").tolist()
            assert stable_order(np.sort(values)) is None
    far_apart = stable_order(np.array([2**63 - 1, -(2**63)]))
    assert far_apart is not None and far_apart.tolist() == [1, 0]
