"""What becomes due, when, and in which order."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed import due_list
from stratalog.store.delayed.due_list import due_of
from stratalog.store.delayed.messages import figures_of, waiting
from tests.clocks import SteppedClock

from ..helpers import tiny, until
from .consumer import START_MS, Consumer, Got, Hand, topic_of
from .test_promises import quiet


def test_a_look_counts_all_that_is_durable(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        quiet(store)  # nobody else has the index catch up
        store.append("t", 0, b"later", deliver_at_ms=START_MS + 100)
        pending, cancelled = waiting(topic, 0, np.zeros(1, np.int64), np.full(1, START_MS + 100))
        assert (pending.tolist(), cancelled.tolist()) == ([True], [False])
        assert topic.mended_messages == 0  # the index had it, and nobody took it for missed


def test_due_messages_come_by_time_queue_and_offset(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", tiny(lanes=2)) as store:
        consumer = Consumer(store)
        for queue_id, delay_ms in ((5, 30), (1, 20), (1, 10), (5, 10), (1, 10), (0, 30)):
            store.append("t", queue_id, b"x", deliver_at_ms=START_MS + delay_ms)
        assert consumer.poll() == []
        hand.now_ms += 50
        assert consumer.poll() == [Got(1, 1), Got(1, 2), Got(5, 1), Got(1, 0), Got(0, 0), Got(5, 0)]


def test_message_whose_time_was_over_at_its_append_is_an_ordinary_one(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        consumer = Consumer(store)
        store.append("t", 0, b"x", deliver_at_ms=START_MS - 1)
        store.append("t", 0, b"x", deliver_at_ms=0)
        assert consumer.poll() == [Got(0, 0), Got(0, 1)]
        assert figures_of(topic_of(store))["pending"] == 0


def test_delays_from_before_the_first_subscription_are_kept(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        for number in range(200):
            store.append("t", number % 3, bytes(2000), deliver_at_ms=START_MS + 10 + number)
        until(lambda: bool(store._lanes[0].view.sealed))
        consumer = Consumer(store)
        assert consumer.poll() == []
        until(lambda: not topic_of(store).is_lagging)
        hand.now_ms += 500
        assert consumer.poll() == [Got(number % 3, number // 3) for number in range(200)]


def test_topics_share_a_frame_and_not_an_index(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        one, other = Consumer(store, "t"), Consumer(store, "u")
        streams = [("t", 0), ("u", 0), ("v", 0)]
        times = START_MS + np.arange(1, 13)
        store.append_columns(streams, np.arange(12) % 3, np.ones(12, np.int64), bytes(12), deliver_at_ms=times)
        assert one.poll() + other.poll() == []
        hand.now_ms += 20
        assert one.poll() == other.poll() == [Got(0, offset) for offset in range(4)]
        assert set(store.stats()["delayed"]) == {"t", "u"}


def test_one_index_serves_many_subscriptions_each_at_its_own_place(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
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


def test_pointer_that_takes_nothing_holds_others_up_for_a_while_only(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_list, "DUE_ROWS", 20)
    clock = SteppedClock()
    monkeypatch.setattr(clock, "wall_ms", lambda: hand.now_ms)
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        slow, quick = Consumer(store), Consumer(store)
        for number in range(50):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
        assert slow.poll() + quick.poll() == []
        hand.now_ms += 100
        assert len(quick.poll()) == 20
        assert quick.poll() == [], "there is no room for more"
        clock.now += due_list.STALE_S
        assert len(quick.poll()) + len(quick.poll()) + len(quick.poll()) == 30
        assert slow.poll() == [Got(0, offset) for offset in range(50)], "it reads the queue again"
        assert slow.missed == 1


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


def test_message_is_pending_from_the_moment_at_which_it_can_be_read(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        assert store._running.delays is not None
        topic = topic_of(store)
        store._running.delays.stop()  # so that nobody else looks
        for offset in range(3):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
            later, cancelled = waiting(topic, 0, np.array([offset]), np.array([START_MS + 5]))
            assert (later.tolist(), cancelled.tolist()) == ([True], [False])


def test_consumer_is_told_when_another_one_took_what_became_due(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        assert store._running.delays is not None
        one, other = Consumer(store), Consumer(store)
        store._running.delays.stop()
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1)
        one.poll()
        other.poll()
        hand.now_ms += 1
        assert one.poll() == [Got(0, 0)]
        assert other.calls == 1


def test_trimmed_and_deleted_messages_are_not_delivered(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
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


def test_what_was_trimmed_meanwhile_leaves_the_tracker_as_cancelled(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
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
        assert store._running.delays is not None
        assert (store._running.delays.topics, store._running.delays.worker.is_started) == ({}, False)
        assert store.stats()["delayed"] == {}
    assert not (tmp_path / "s" / "delayed").exists()
