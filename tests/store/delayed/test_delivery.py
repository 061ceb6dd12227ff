"""What becomes due, when, and in which order."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from stratalog.store import MessageStore
from stratalog.store.delayed.due_list import due_of
from stratalog.store.delayed.messages import figures_of
from stratalog.store.delayed.topic import waiting

from ..helpers import tiny, until
from .consumer import START_MS, Consumer, Got, Hand, delays_of, quiet, topic_of


def test_due_messages_come_by_time_queue_and_offset(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", tiny(lanes=2)) as store:
        consumer = Consumer(store)
        for queue_id, delay_ms in ((5, 30), (1, 20), (1, 10), (5, 10), (1, 10), (0, 30)):
            store.append("t", queue_id, b"x", deliver_at_ms=START_MS + delay_ms)
        assert consumer.poll() == []
        hand.now_ms += 50
        assert consumer.poll() == [Got(1, 1), Got(1, 2), Got(5, 1), Got(1, 0), Got(0, 0), Got(5, 0)]


def test_message_whose_time_was_over_at_its_append_is_an_ordinary_one(store: MessageStore) -> None:
    consumer = Consumer(store)
    store.append("t", 0, b"x", deliver_at_ms=START_MS - 1)
    store.append("t", 0, b"x", deliver_at_ms=0)
    assert consumer.poll() == [Got(0, 0), Got(0, 1)]
    assert figures_of(topic_of(store))["pending"] == 0


def test_delays_from_before_the_first_subscription_are_kept(store: MessageStore, hand: Hand) -> None:
    for number in range(200):
        store.append("t", number % 3, bytes(2000), deliver_at_ms=START_MS + 10 + number)
    until(lambda: bool(store._lanes[0].view.sealed))
    consumer = Consumer(store)
    assert consumer.poll() == []
    until(lambda: not topic_of(store).is_lagging)
    hand.now_ms += 500
    assert consumer.poll() == [Got(number % 3, number // 3) for number in range(200)]


def test_topics_share_a_frame_and_not_an_index(store: MessageStore, hand: Hand) -> None:
    one, other = Consumer(store, "t"), Consumer(store, "u")
    streams = [("t", 0), ("u", 0), ("v", 0)]
    times = START_MS + np.arange(1, 13)
    store.append_columns(streams, np.arange(12) % 3, np.ones(12, np.int64), bytes(12), deliver_at_ms=times)
    assert one.poll() + other.poll() == []
    hand.now_ms += 20
    assert one.poll() == other.poll() == [Got(0, offset) for offset in range(4)]
    assert set(store.stats()["delayed"]) == {"t", "u"}


def test_one_index_serves_many_subscriptions_each_at_its_own_place(store: MessageStore, hand: Hand) -> None:
    consumers = [Consumer(store) for _ in range(10)]
    for number in range(50):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
    for consumer in consumers:
        assert consumer.poll() == []
    for step, consumer in enumerate(consumers):
        hand.now_ms = START_MS + 5 * (step + 1)
        assert consumer.poll() == [Got(0, offset) for offset in range(5 * (step + 1))]
    assert figures_of(topic_of(store))["ready"] == 45, "the rows that all have passed are dropped"
    for consumer in consumers:
        consumer.poll()
        assert len(consumer.got) == 50
        consumer.close()
    assert figures_of(topic_of(store))["ready"] == 0


def test_waiting_consumer_is_told_when_something_is_due(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        rung, delay_ms = threading.Event(), 30
        topic = topic_of(store)
        pointer = topic.open_pointer(rung.set)
        offset = store.append("t", 0, b"x", deliver_at_ms=store._shared.clock.wall_ms() + delay_ms)
        topic.delays.catch_up()
        while not topic.pending:  # on a busy machine it was due before the index had it
            delay_ms *= 2
            offset = store.append("t", 0, b"x", deliver_at_ms=store._shared.clock.wall_ms() + delay_ms)
            topic.delays.catch_up()
        assert rung.wait(60)
        assert pointer.take().offsets.tolist()[-1:] == [offset]


def test_message_is_pending_from_the_moment_at_which_it_can_be_read(store: MessageStore) -> None:
    topic = topic_of(store)
    quiet(store)  # so that nobody else looks
    for offset in range(3):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
        later, cancelled = waiting(topic, 0, np.array([offset]), np.array([START_MS + 5]))
        assert (later.tolist(), cancelled.tolist()) == ([True], [False])
    assert topic.mended_messages == 0, "the index had them, and nobody took them for missed"


def test_consumer_is_told_when_another_one_took_what_became_due(store: MessageStore, hand: Hand) -> None:
    one, other = Consumer(store), Consumer(store)
    quiet(store)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 1)
    one.poll()
    other.poll()
    hand.now_ms += 1
    assert one.poll() == [Got(0, 0)]
    assert other.calls == 1


def test_trimmed_and_deleted_messages_are_not_delivered(store: MessageStore, hand: Hand) -> None:
    consumer = Consumer(store)
    for number in range(10):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
    consumer.poll()
    store.trim("t", 0, 4)
    hand.now_ms += 6
    assert consumer.poll() == [Got(0, 4), Got(0, 5)]
    store.delete_topic("t")
    hand.now_ms += 100
    assert consumer.poll() == []
    assert len(consumer.done) == 10, "those that are gone count as done"


def test_what_was_trimmed_meanwhile_leaves_the_tracker_as_cancelled(store: MessageStore) -> None:
    parts = topic_of(store).parts
    for number in range(6):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
    store.trim("t", 0, 4)
    due = due_of(parts, "t", np.zeros(6, np.int64), np.arange(6))
    assert due.offsets.tolist() == [0, 1, 2, 3, 4, 5]
    assert due.cancelled.tolist() == [True, True, True, True, False, False]


def test_store_without_subscriptions_has_no_thread_and_no_files(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1)
        assert (delays_of(store).topics, delays_of(store).worker.is_started) == ({}, False)
        assert store.stats()["delayed"] == {}
    assert not (tmp_path / "s" / "delayed").exists()
