"""The contract of a tracker, held against all of them."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import numpy as np
import pytest

from stratalog.index import BadEntry, BucketTracker, TrackerClosed, TrackerFull
from tests.seeds import draw_seed

from .kinds import KINDS, Make, Model, check, taken

FAR_MS = 1 << 61


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


def test_entry_is_due_at_its_time_and_not_before(make: Make) -> None:
    tracker = make()
    for time_ms in (0, 1, 1_000, 1_700_000_000_123, FAR_MS):
        assert tracker.add_message(1, 2, time_ms)
        assert not tracker.has_message_available(time_ms - 1)
        assert taken(tracker, time_ms - 1) == []
        assert tracker.has_message_available(time_ms)
        assert taken(tracker, time_ms) == [(1, 2)]
        assert tracker.next_deadline_ms is None


def test_entry_whose_time_is_over_is_due_at_once(make: Make) -> None:
    tracker = make()
    assert taken(tracker, 5_000) == []
    tracker.add_message(1, 2, 3_000)
    assert taken(tracker, 5_000) == [(1, 2)]


def test_entries_come_by_time_and_then_by_position(make: Make) -> None:
    tracker = make()
    tracker.add_messages([5, 4, 5, 4, 3], [1, 9, 0, 8, 7], [20, 10, 10, 20, 10])
    assert taken(tracker, 100, 2) == [(3, 7), (4, 9)]
    tracker.add_message(1, 1, 5)
    assert taken(tracker, 100) == [(1, 1), (5, 0), (4, 8), (5, 1)]


def test_time_is_rounded_up_so_that_no_entry_is_early(make: Make) -> None:
    tracker = make(precision_bits=10)
    assert tracker.precision_ms == 1024
    tracker.add_messages(7, [3, 2, 1], [1, 1024, 1025])
    assert tracker.next_deadline_ms == 1024
    assert taken(tracker, 1023) == []
    assert taken(tracker, 1024) == [(7, 2), (7, 3)]
    assert taken(tracker, 2047) == []
    assert taken(tracker, 2048) == [(7, 1)]


def test_rounding_never_gives_an_entry_that_has_to_be_added_again(make: Make) -> None:
    """Rounding down gives a message early; its reader puts it back, and it turns round for up to a tick."""
    tracker, chance = make(precision_bits=9), random.Random(draw_seed())
    for entry in range(200):
        tracker.add_message(0, entry, chance.randrange(10_000))
    times = {entry: chance.randrange(10_000) for entry in range(200, 400)}
    tracker.add_messages(0, list(times), list(times.values()))
    for now_ms in range(0, 11_000, 7):
        late = [now_ms - times[entry] for _, entry in taken(tracker, now_ms) if entry >= 200]
        assert all(0 <= late_ms < 512 + 7 for late_ms in late)
    assert len(tracker) == 0


def test_pending_entries_are_told_from_all_others(make: Make) -> None:
    tracker = make()
    tracker.add_messages(3, np.arange(0, 5_000, 2), np.arange(2_500))
    tracker.add_message(2, 7, 10)
    assert tracker.are_pending([3, 3, 2, 2, 3], [0, 1, 7, 8, 4_998]).tolist() == [True, False, True, False, True]
    taken(tracker, 999)
    assert tracker.cancel(3, 4_998)
    assert tracker.are_pending(3, [1_998, 2_000, 4_996, 4_998, 2_000]).tolist() == [False, True, True, False, True]
    tracker.add_message(3, 4_998, 5)
    assert tracker.are_pending(3, [4_998]).tolist() == [True]
    assert tracker.are_pending(3, []).tolist() == []
    with pytest.raises(BadEntry):
        tracker.are_pending(3, [-1])


def test_set_of_pending_places_is_what_the_calls_say_one_by_one(make: Make) -> None:
    tracker = make()
    known: set[tuple[int, int]] = set()
    for ledger in (2, 3, 9):
        tracker.add_messages(ledger, np.arange(0, 9_000, 3), np.arange(3_000) * 7)
        known |= {(ledger, entry) for entry in range(0, 9_000, 3)}
    known -= set(taken(tracker, 5_000))
    assert tracker.cancel(9, 8_997)
    assert not tracker.add_message(9, 8_994, 1)
    tracker.add_message(9, 8_997, 1)
    found = tracker.pending_places()
    assert {(place >> 32, place & 0xFFFF_FFFF) for place in found} == known
    found.clear()
    assert len(tracker) == len(known), "it is a copy"


def test_tick_that_changes_is_of_what_comes_after(make: Make) -> None:
    tracker = make()
    tracker.add_message(0, 0, 1_001)
    tracker.reset_tick_time(1_500)
    assert tracker.precision_ms == 1024
    tracker.add_message(0, 1, 1_002)
    tracker.reset_tick_time(1)
    tracker.add_message(0, 2, 1_003)
    assert [taken(tracker, now_ms) for now_ms in (1_001, 1_003, 1_024)] == [[(0, 0)], [(0, 2)], [(0, 1)]]


def test_entry_that_is_pending_is_not_added_again(make: Make) -> None:
    tracker = make()
    assert tracker.add_message(1, 1, 50)
    assert not tracker.add_message(1, 1, 10)
    assert tracker.add_messages(1, [1, 2, 2, 3], [5, 60, 6, 70]) == 2
    assert len(tracker) == 3
    assert taken(tracker, 49) == []
    assert taken(tracker, 100) == [(1, 1), (1, 2), (1, 3)]


def test_large_batch_that_is_given_twice_is_there_once(make: Make) -> None:
    tracker = make(precision_bits=4)
    ledgers, entries = np.arange(30_000) // 10_000, np.arange(30_000) % 10_000
    times = np.random.default_rng(draw_seed()).integers(0, 3_000, 30_000)
    assert tracker.add_messages(ledgers[::2], entries[::2], times[::2]) == 15_000
    assert tracker.add_messages(ledgers, entries, times) == 15_000
    assert tracker.add_messages(np.tile(ledgers, 2), np.tile(entries, 2), np.tile(times, 2)) == 0
    assert len(taken(tracker, 10_000)) == 30_000


def test_entry_that_was_given_out_can_be_added_again(make: Make) -> None:
    tracker = make()
    tracker.add_message(1, 1, 10)
    assert taken(tracker, 10) == [(1, 1)]
    assert tracker.add_message(1, 1, 30)
    assert taken(tracker, 29) == []
    assert taken(tracker, 30) == [(1, 1)]


def test_cancel_is_true_exactly_while_the_entry_is_pending(make: Make) -> None:
    tracker = make()
    assert not tracker.cancel(1, 1)
    tracker.add_messages(1, [1, 2], [10, 20])
    assert tracker.cancel(1, 1)
    assert not tracker.cancel(1, 1)
    assert taken(tracker, 100) == [(1, 2)]
    assert not tracker.cancel(1, 2)
    assert not tracker.cancel(9, 9)


def test_entry_that_is_put_back_is_pending_as_before(make: Make) -> None:
    tracker = make(precision_bits=4)
    tracker.add_messages(3, [7, 8], [100, 20])
    assert not tracker.put_back(3, 7, 50), "it is pending"
    assert tracker.cancel(3, 7)
    assert tracker.put_back(3, 7, 101)
    assert taken(tracker, 111) == [(3, 8)]
    assert tracker.put_back(3, 8, 20)
    assert taken(tracker, 112) == [(3, 8), (3, 7)]


def test_cancelled_first_entry_leaves_no_deadline_behind(make: Make) -> None:
    """A timer that keeps the target of a cancelled entry stalls the delivery of the others."""
    tracker = make()
    tracker.add_messages(1, np.arange(2_000), np.arange(2_000) + 10)
    assert tracker.cancel(1, 0)
    assert tracker.next_deadline_ms == 11
    for entry in range(1, 1_999):
        assert tracker.cancel(1, entry)
    assert tracker.next_deadline_ms == 2_009
    assert not tracker.has_message_available(2_008)
    assert tracker.cancel(1, 1_999)
    assert tracker.next_deadline_ms is None
    assert not tracker.has_message_available(10**9)


@pytest.mark.parametrize("rows", [1, 5_000])
def test_moved_entry_comes_at_its_new_time_alone(make: Make, rows: int) -> None:
    tracker = make(precision_bits=2)
    tracker.add_messages(1, np.arange(rows), np.arange(rows) % 100 + 1_000)
    for new_ms in (3_000, 500, 2_000):
        assert tracker.cancel(1, 0)
        assert tracker.add_message(1, 0, new_ms)
        assert len(tracker) == rows
    assert len(taken(tracker, 1_999)) == rows - 1
    assert taken(tracker, 2_000) == [(1, 0)]


def test_what_is_counted_can_be_taken(make: Make) -> None:
    """A position in the set of what is pending, and in no queue, is counted for ever and never delivered."""
    tracker, chance = make(precision_bits=3), random.Random(draw_seed())
    for turn in range(15):
        entries = [chance.randrange(3_000) for _ in range(1_500)]
        tracker.add_messages(chance.randrange(3), entries, [turn * 50 + chance.randrange(500) for _ in entries])
        for _ in range(300):
            tracker.cancel(chance.randrange(3), chance.randrange(3_000))
        taken(tracker, turn * 50, 200)
    count = len(tracker)
    assert count == len(taken(tracker, 10**9))
    assert len(tracker) == 0 and tracker.next_deadline_ms is None


def test_time_that_goes_back_gives_nothing_early(make: Make) -> None:
    tracker = make()
    tracker.add_messages(1, np.arange(5_000), np.arange(5_000))
    assert len(taken(tracker, 2_000, 10)) == 10
    assert taken(tracker, 5) == []
    tracker.add_message(2, 0, 3)
    assert taken(tracker, 5) == [(2, 0)]
    assert taken(tracker, 11, 100) == [(1, 10), (1, 11)]


def test_years_of_downtime_lose_nothing(make: Make) -> None:
    tracker = make()
    tracker.add_messages(np.arange(3_000), np.full(3_000, 5), np.arange(3_000) * 1_000)
    assert len(taken(tracker, 10 * 365 * 86_400_000)) == 3_000


def test_count_of_what_to_take_is_kept(make: Make) -> None:
    tracker = make(precision_bits=10)
    tracker.add_messages(1, np.arange(10_000), 5)
    assert taken(tracker, 2_000, 0) == []
    assert [len(taken(tracker, 2_000, count)) for count in (1, 32, 4_096, 10_000, 1)] == [1, 32, 4_096, 5_871, 0]


def test_trim_forgets_exactly_the_ledgers_before(make: Make) -> None:
    """A trim by a range that was clipped to what was kept in memory took more than it should."""
    tracker = make()
    for ledger in (7, 3, 5, 4, 6):
        tracker.add_messages(ledger, np.arange(1_500), np.arange(1_500) + ledger)
    tracker.add_message(2, 0, 1)
    assert tracker.trim(5) == 3_001
    assert tracker.trim(5) == 0
    assert {ledger for ledger, _ in taken(tracker, 10**6)} == {5, 6, 7}
    assert not tracker.cancel(3, 5)
    assert tracker.add_message(5, 0, 10)


def test_cleared_tracker_is_as_new(make: Make) -> None:
    tracker = make(precision_bits=3)
    tracker.add_messages(1, np.arange(5_000), np.arange(5_000))
    tracker.cancel(1, 7)
    tracker.clear()
    assert (len(tracker), tracker.next_deadline_ms, taken(tracker, 10**9)) == (0, None, [])
    assert not tracker.cancel(1, 8)
    assert tracker.add_messages(1, [7, 8], [1, 2]) == 2
    assert taken(tracker, 8) == [(1, 7), (1, 8)]
    assert tracker.precision_ms == 8


def test_tracker_at_its_limit_says_so_and_takes_no_more(make: Make) -> None:
    tracker = make(memory_limit_bytes=3_000_000)
    assert not tracker.should_pause_all_deliveries
    chance, added = np.random.default_rng(draw_seed()), 0
    with pytest.raises(TrackerFull, match="limit"):
        for ledger in range(10_000):
            times = chance.integers(0, 1 << 40, 3_000)
            added += tracker.add_messages(np.full(3_000, ledger), chance.permutation(3_000), times)
    assert tracker.should_pause_all_deliveries
    assert tracker.buffer_memory_usage < 3_000_000 + 3_000 * 400
    with pytest.raises(TrackerFull):
        tracker.add_message(10_001, 0, 5)
    assert tracker.cancel(0, 0) and tracker.put_back(0, 0, 5), "what was taken out has room"
    assert len(taken(tracker, 1 << 41)) == added
    if isinstance(tracker, BucketTracker):
        tracker.checkpoint()  # until then the disk has to know what was taken
    assert not tracker.should_pause_all_deliveries
    assert tracker.add_message(10_001, 0, 5)


@pytest.mark.parametrize(
    "given",
    [(-1, 0, 0), (1 << 31, 0, 0), (0, -1, 0), (0, 1 << 32, 0), (0, 0, -1), (0, 0, 1 << 62), (0, 0, 1.5), ("1", 0, 0),
     (0, 1.0, 0), (0, None, 0)],
)  # fmt: skip
def test_entry_that_is_out_of_range_is_refused(make: Make, given: tuple[Any, Any, Any]) -> None:
    tracker = make()
    with pytest.raises(BadEntry):
        tracker.add_message(*given)
    with pytest.raises(BadEntry):
        tracker.add_messages(*([value] for value in given))
    with pytest.raises(BadEntry):
        tracker.put_back(*given)
    if given[2] == 0:
        with pytest.raises(BadEntry):
            tracker.cancel(*given[:2])
    assert len(tracker) == 0


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int64])
def test_integers_of_numpy_are_integers(make: Make, kind: Any) -> None:
    tracker = make(precision_bits=4)
    assert tracker.add_message(kind(3), kind(7), kind(100))
    assert not tracker.add_message(3, 7, 5)
    assert tracker.cancel(kind(3), kind(7))
    tracker.add_message(kind(3), kind(7), kind(100))
    assert taken(tracker, kind(112), kind(5)) == [(3, 7)]


def test_call_that_makes_no_sense_is_refused(make: Make) -> None:
    tracker = make()
    calls: list[tuple[Any, ...]] = [
        (tracker.add_messages, [1, 2], [1], [1]), (tracker.add_messages, [[1]], [[1]], [[1]]),
        (tracker.add_messages, 1, 2, 3), (tracker.get_scheduled_messages, 5, -1),
        (tracker.get_scheduled_messages, 5.0, 1), (tracker.reset_tick_time, 0), (tracker.reset_tick_time, 1.5),
        (tracker.trim, -1), (tracker.trim, "1"),
    ]  # fmt: skip
    for call, *arguments in calls:
        with pytest.raises(BadEntry):
            call(*arguments)
    assert tracker.add_messages([], [], []) == 0
    for name, value in (("precision_bits", 41), ("precision_bits", -1), ("memory_limit_bytes", 0)):
        with pytest.raises(BadEntry):
            make(**{name: value})


def test_closed_tracker_refuses_every_call(make: Make) -> None:
    with make() as tracker:
        tracker.add_message(1, 1, 1)
    tracker.close()
    calls = [
        lambda: tracker.add_message(1, 1, 1), lambda: tracker.add_messages([1], [1], [1]), lambda: tracker.cancel(1, 1),
        lambda: tracker.put_back(1, 1, 1),
        lambda: tracker.get_scheduled_messages(1, 1), lambda: tracker.has_message_available(1), tracker.clear,
        lambda: tracker.next_deadline_ms, lambda: len(tracker), tracker.stats, lambda: tracker.reset_tick_time(1),
        lambda: tracker.trim(1), lambda: tracker.buffer_memory_usage, tracker.pending_places,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TrackerClosed):
            call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_refuses_every_call(make: Make) -> None:
    tracker = make()
    tracker.add_message(1, 1, 1)
    child = os.fork()
    if not child:
        try:
            tracker.get_scheduled_messages(1, 1)
        except TrackerClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert taken(tracker, 1) == [(1, 1)]


def test_threads_that_add_cancel_and_take_lose_nothing(make: Make) -> None:
    tracker, got, cancelled = make(precision_bits=3), [[], []], []  # type: ignore[var-annotated]

    def add(ledger: int) -> None:
        for first in range(0, 6_000, 1_500):
            tracker.add_messages(ledger, np.arange(first, first + 1_500), np.arange(1_500) % 300)
            for entry in range(first, first + 100):
                if tracker.cancel(ledger, entry):
                    cancelled.append((ledger, entry))

    def take(into: list[tuple[int, int]]) -> None:
        while any(thread.is_alive() for thread in adders):
            into += taken(tracker, 200, 700)

    adders = [threading.Thread(target=add, args=(ledger,)) for ledger in range(3)]
    takers = [threading.Thread(target=take, args=(into,)) for into in got]
    for thread in [*adders, *takers]:
        thread.start()
    for thread in [*adders, *takers]:
        thread.join()
    everything = [*got[0], *got[1], *cancelled, *taken(tracker, FAR_MS)]
    assert sorted(everything) == [(ledger, entry) for ledger in range(3) for entry in range(6_000)]


def test_many_entries_in_all_forms_come_as_from_a_sorted_list(make: Make) -> None:
    """Dense slots, sparse ones, an inbox, moved entries, all at once, and taken in pieces of all sizes."""
    chance = random.Random(draw_seed())
    bits = chance.choice([0, 5, 10])
    tracker, model, now_ms = make(precision_bits=bits), Model(bits), 0
    for turn in range(8):
        first = turn * 1_000
        entries = list(range(first, first + 1_500))
        for times in ([now_ms + 700] * 1_500, [now_ms + chance.randrange(10_000) for _ in entries]):
            ledgers = [chance.randrange(2)] * 1_500
            assert tracker.add_messages(ledgers, entries, times) == model.add(ledgers, entries, times)
        for _ in range(300):
            position = chance.randrange(2), chance.randrange(first + 1_500)
            assert tracker.cancel(*position) == model.cancel(*position)
            if chance.random() < 0.5:
                time_ms = now_ms + chance.randrange(5_000)
                added = model.add([position[0]], [position[1]], [time_ms])
                assert tracker.add_message(*position, time_ms) == bool(added)
        now_ms += chance.choice([1, 300, 2_000])
        for count in (1, 10, 1_000):
            assert taken(tracker, now_ms, count) == model.take(now_ms, count)
        check(tracker, model, now_ms)
    assert taken(tracker, FAR_MS) == model.take(FAR_MS, 1 << 40)
