"""Pending messages are passed over without being read, and come through the pointer; nothing else is passed over."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, Subscription
from stratalog.store.delayed.changes import Decision
from stratalog.store.delayed.parts import places_of
from stratalog.store.delayed.topic import first_not_pending
from stratalog.store.subscriptions import scanner as scanner_module
from tests.seeds import draw_seed

from ..helpers import tiny
from .consumer import START_MS, Hand, topic_of


def taken(sub: Subscription) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(batch := sub.receive_batch()):
        found += zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True)
        sub.ack_batch(batch.receipts)
    return found


def test_first_offset_that_is_not_pending_is_told_of_each_queue(tmp_path: Path, hand: Hand) -> None:
    seed = draw_seed()
    chance = random.Random(seed)
    with hand.open(tmp_path / "s", tiny(lanes=2)) as store:
        topic = topic_of(store)
        delayed = [[chance.random() < 0.7 for _ in range(chance.randrange(60))] for _ in range(5)]
        for queue_id, rows in enumerate(delayed):
            for is_delayed in rows:
                store.append("t", queue_id, b"x", deliver_at_ms=START_MS + 10 if is_delayed else None)
        for _ in range(200):
            queues = chance.sample(range(5), chance.randrange(1, 6))
            begins = [chance.randrange(60) for _ in queues]
            ends = [begin + chance.randrange(40) for begin in begins]
            found = first_not_pending(topic, *(np.array(column, np.int64) for column in (queues, begins, ends)))
            for queue_id, begin, end, first in zip(queues, begins, ends, found.tolist(), strict=True):
                rows = (delayed[queue_id] + [False] * 200)[begin:end]
                assert first == begin + (rows.index(False) if False in rows else len(rows)), f"seed {seed}"


def test_message_that_is_being_decided_about_is_not_passed_over(store: MessageStore) -> None:
    topic = topic_of(store)
    for _ in range(3):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    bounds = np.array([0]), np.array([0]), np.array([3])
    assert first_not_pending(topic, *bounds).tolist() == [3]
    place, [request] = int(places_of(0, 1)), topic.parts.hidden.requests(topic.decisions.stream, [b"x"])
    topic.records.open[place] = Decision(0, 1, START_MS + 50, START_MS + 10, request)
    found = first_not_pending(topic, *bounds).tolist()
    del topic.records.open[place]  # a store does not close while one is open
    assert found == [1]
    assert store.cancel_delayed("t", 0, 2)
    assert first_not_pending(topic, *bounds).tolist() == [2]


def test_messages_that_are_all_delayed_are_not_read_before_they_are_due(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner_module, "SKIPPED_MESSAGES", 7)
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        assert taken(sub) == []  # the index is used from now on
        for number in range(100):
            store.append("t", number % 3, b"x", deliver_at_ms=START_MS + 10)
        before = store._fetcher.reader.counters.messages
        assert taken(sub) == []
        assert store._fetcher.reader.counters.messages == before
        store.append("t", 0, b"now")
        assert taken(sub) == [(0, 35)]
        hand.now_ms += 10
        assert len(taken(sub)) == 101
        assert sub.backlog().total == 0


def test_filter_is_asked_about_what_comes_later_at_once(store: MessageStore) -> None:
    sub = store.subscribe("t", "a", filter={"tag": {"yes"}})
    for tag in ("yes", "no", "no"):
        store.append("t", 0, b"x", properties={"tag": tag}, deliver_at_ms=START_MS + 10)
    assert taken(sub) == []
    assert sub.backlog() == (0, 0, 1), "what it leaves out is acknowledged"


def test_seek_and_trim_behind_what_was_passed_over(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a")
    for _ in range(20):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    assert taken(sub) == []
    sub.seek({0: 5})
    assert taken(sub) == []
    store.trim("t", 0, before_offset=8)
    hand.now_ms += 10
    assert taken(sub) == [(0, offset) for offset in range(8, 20)]
    assert sub.backlog().total == 0
    sub.seek("earliest")
    assert taken(sub) == [(0, offset) for offset in range(8, 20)]


def test_consumer_with_a_precision_takes_what_is_due_once_in_so_many_ms(store: MessageStore, hand: Hand) -> None:
    sub, exact = store.subscribe("t", "a", precision_ms=100), store.subscribe("t", "b")
    for number in range(30):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10 * number)
    got: list[int] = []
    for step in range(60):
        hand.now_ms = START_MS + 5 * step
        mine = [offset for _, offset in taken(sub)]
        assert all(START_MS + 10 * offset <= hand.now_ms for offset in mine)
        assert not mine or not step or hand.now_ms % 100 == 0
        got += mine
        due = step // 2 + 1
        assert due - len(got) <= 10, "late by less than the precision"
        assert len(taken(exact)) == (step % 2 == 0)
    hand.now_ms += 100
    assert sorted(got + [offset for _, offset in taken(sub)]) == list(range(30))


def test_topic_without_a_pointer_loses_no_message_that_became_due(tmp_path: Path, hand: Hand) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe("t", "a")
        at_ms = store._shared.clock.wall_ms() + 20
        store.append("t", 0, b"x", deliver_at_ms=at_ms)
        sub.receive()
        sub.close()
        with store.subscribe("t", "a") as again:
            assert [one.message.offset for one in again.receive(wait_ms=60_000)] == [0]
