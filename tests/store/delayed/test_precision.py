"""Precision coarsens the index: fewer slots, never early, late by less than what was accepted (R28)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed.messages import figures_of

from .consumer import START_MS, Hand, quiet, topic_of

PRECISION_MS = 1_000
COUNT = 2_000


def add(store: MessageStore, count: int = COUNT, every: int = 7) -> np.ndarray:
    """Messages with times of their own, 7 ms apart; returns these."""
    times = START_MS + 1 + every * np.arange(count)
    ones = np.ones(count, np.int64)
    store.append_columns([("t", 0)], ones * 0, ones, bytes(count), deliver_at_ms=times)
    return times


def test_entries_of_one_tick_share_a_slot_and_cost_fewer_bytes(tmp_path: Path, hand: Hand) -> None:
    sizes = []
    for precision_ms in (0, PRECISION_MS):
        with hand.open(tmp_path / str(precision_ms)) as store:
            sub = store.subscribe("t", "a", precision_ms=precision_ms)
            add(store, 20_000, every=1)
            assert sub.receive() == []
            quiet(store)
            stats = topic_of(store).tracker.stats()["mutable"]
            sizes.append(stats["bitmap_bytes"] + stats["packed_bytes"] + stats["inbox_rows"] * 16)
    assert sizes[1] < sizes[0] / 4


@pytest.mark.parametrize("precision_ms", [1, 2, 64, 100, PRECISION_MS])
def test_nothing_is_early_and_nothing_later_than_the_precision(
    store: MessageStore, hand: Hand, precision_ms: int
) -> None:
    sub = store.subscribe("t", "a", precision_ms=precision_ms)
    times = add(store, 150)
    assert sub.receive() == []
    quiet(store)
    left = 150
    while left:
        hand.now_ms += 1
        batch = sub.receive(max_messages=150)
        for one in batch:
            assert times[one.message.offset] <= hand.now_ms < times[one.message.offset] + max(1, precision_ms)
            sub.ack(one)
        left -= len(batch)
        assert hand.now_ms < times[-1] + 2 * precision_ms + 2


def test_subscription_with_a_finer_precision_has_the_index_made_anew(store: MessageStore, hand: Hand) -> None:
    coarse = store.subscribe("t", "coarse", precision_ms=PRECISION_MS)
    times = add(store, 200)
    assert coarse.receive() == []
    quiet(store)
    assert figures_of(topic_of(store))["precision_ms"] == 512
    delays = quiet(store)
    hand.now_ms += 300  # some are due by their own times, and not by the index
    fine = store.subscribe("t", "fine")
    got: dict[str, set[int]] = {"coarse": set(), "fine": set()}
    while len(got["coarse"]) < 200 or len(got["fine"]) < 200:
        for _ in range(3):
            delays.work()
        for name, sub, late_ms in (("coarse", coarse, PRECISION_MS), ("fine", fine, 1)):
            for one in sub.receive(max_messages=500):
                offset = one.message.offset
                assert times[offset] <= hand.now_ms < max(times[offset], START_MS + 301) + late_ms
                assert offset not in got[name], "twice"
                got[name].add(offset)
                sub.ack(one)
        hand.now_ms += 1
        assert hand.now_ms < times[-1] + 2 * PRECISION_MS
    assert figures_of(topic_of(store))["precision_ms"] == 1


def test_message_that_was_moved_stays_in_an_index_that_is_made_anew(tmp_path: Path, hand: Hand) -> None:
    """Its segment has nothing else to come, by the messages' own times: no scan looks into it."""
    with hand.open(tmp_path / "s") as store:
        coarse = store.subscribe("t", "coarse", precision_ms=PRECISION_MS)
        store.append("t", 0, b"moved", deliver_at_ms=START_MS + 10)
        assert coarse.receive() == []
        assert store.reschedule_delayed("t", 0, 0, START_MS + 10_000)
        while not store._lanes[0].view.sealed:
            store.append("filler", 0, bytes(1000))
        delays = quiet(store)
        hand.now_ms += 5_000
        fine = store.subscribe("t", "fine")
        for _ in range(20):
            delays.work()
            assert fine.receive() == coarse.receive() == []
        hand.now_ms = START_MS + 10_000
        assert [one.message.data for one in fine.receive()] == [b"moved"]
        hand.now_ms += PRECISION_MS
        assert [one.message.data for one in coarse.receive()] == [b"moved"]


def test_coarse_times_are_known_to_the_next_opening(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "coarse", precision_ms=PRECISION_MS)
        times = add(store, 500)
        assert sub.receive() == []
    with hand.open(tmp_path / "s") as store:
        fine = store.subscribe("t", "fine")
        assert fine.receive() == []
        delays = quiet(store)
        hand.now_ms = int(times[99])
        for _ in range(3):
            delays.work()
        assert len(fine.receive(max_messages=500)) == 100


def test_deleted_subscription_no_longer_keeps_the_index_fine(store: MessageStore) -> None:
    store.subscribe("t", "coarse", precision_ms=PRECISION_MS)
    fine = store.subscribe("t", "fine", precision_ms=20)
    add(store, 5)
    fine.receive()
    assert topic_of(store).tick_ms == 16
    store.delete_subscription("t", "fine")
    assert topic_of(store).tick_ms == 512
