"""Odd calls with delayed messages: each has a clear answer or a clear error, and nothing is lost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, StoreClosed, Subscription, SubscriptionClosed
from stratalog.store.delayed.topic import DelayedTopic

from ..helpers import tiny, until
from .consumer import START_MS, Hand, delays_of, topic_of

LAST_MS = (1 << 62) - 1


def taken(sub: Subscription, most: int = 4096) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(batch := sub.receive_batch(most)):
        found += zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True)
        sub.ack_batch(batch.receipts)
    return found


@pytest.mark.parametrize("odd", [-1, 1 << 62, (1 << 63) - 1, 1 << 64, 1.0, float("nan"), True, "1", b"1", [1]])
def test_odd_time_of_delivery_is_refused_and_nothing_is_stored(store: MessageStore, odd: Any) -> None:
    with pytest.raises(InvalidMessage, match="deliver_at_ms"):
        store.append("t", 0, b"x", deliver_at_ms=odd)
    with pytest.raises(InvalidMessage, match="deliver_at_ms"):
        store.submit("t", 0, b"x", deliver_at_ms=odd)
    offset = store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
    assert offset == 0
    with pytest.raises(InvalidMessage, match="deliver_at_ms"):
        store.reschedule_delayed("t", 0, 0, odd)
    assert store.cancel_delayed("t", 0, 0), "it was still pending"


def test_first_and_last_time_there_is(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        store.append("t", 0, b"x", deliver_at_ms=0)
        store.append("t", 0, b"x", deliver_at_ms=LAST_MS)
        store.append("t", 0, b"x", deliver_at_ms=np.int64(7))  # type: ignore[arg-type]  # an integer of numpy will do
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1)
        assert taken(sub) == [(0, 0), (0, 2)]
        assert store.reschedule_delayed("t", 0, 3, LAST_MS)
        hand.now_ms += 1_000_000
        assert taken(sub) == []
        assert store.stats()["delayed"]["t"]["next_due_ms"] == LAST_MS
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        assert taken(sub) == []
        hand.now_ms = LAST_MS
        assert taken(sub) == [(0, 1), (0, 3)]


def test_many_messages_of_one_millisecond_come_once_in_the_order_of_their_places(tmp_path: Path, hand: Hand) -> None:
    count, queues = 40_000, 5
    with hand.open(tmp_path / "s", tiny(segment_bytes=4 << 20)) as store:
        subs = [store.subscribe("t", name) for name in ("a", "b")]
        streams = [("t", queue_id) for queue_id in range(queues)]
        for begin in range(0, count, 10_000):
            index = np.arange(begin, begin + 10_000) % queues
            ones = np.ones(10_000, np.int64)
            times = np.full(10_000, START_MS + 9)
            store.append_columns(streams, index, ones, bytes(10_000), deliver_at_ms=times)
            assert taken(subs[0]) == []
        hand.now_ms += 9
        for sub, most in zip(subs, (4_096, 1 << 20), strict=True):
            got = taken(sub, most)
            assert sorted(got) == [(queue_id, at) for queue_id in range(queues) for at in range(count // queues)]
            assert sub.backlog().total == 0


def test_cancelled_twice_moved_after_that_and_into_the_past(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a")
    for _ in range(3):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 50)
    assert taken(sub) == []
    assert store.cancel_delayed("t", 0, 0)
    assert not store.cancel_delayed("t", 0, 0)
    assert not store.reschedule_delayed("t", 0, 0, START_MS + 60)
    assert store.reschedule_delayed("t", 0, 1, 0)
    assert taken(sub) == [(0, 1)]
    assert not store.reschedule_delayed("t", 0, 1, START_MS + 60), "it was due"
    hand.now_ms += 100
    assert taken(sub) == [(0, 2)]
    assert sub.backlog().total == 0


def test_what_is_cancelled_while_a_consumer_has_it_is_not_cancelled(store: MessageStore, hand: Hand) -> None:
    sub, other = store.subscribe("t", "a"), store.subscribe("t", "b")
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
    assert taken(sub) == taken(other) == []
    hand.now_ms += 5
    (delivery,) = sub.receive()
    assert not store.cancel_delayed("t", 0, 0)
    assert taken(other) == [(0, 0)]
    sub.nack(delivery)
    (delivery,) = sub.receive()
    sub.ack(delivery)


def test_deleted_topic_takes_its_pending_messages_with_it(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        for number in range(20):
            store.append("t", number % 2, b"x", deliver_at_ms=START_MS + 5)
        assert taken(sub) == []
        store.delete_topic("t")
        again = store.append("t", 0, b"new", deliver_at_ms=START_MS + 7)
        hand.now_ms += 10
        with store.subscribe("t", "a", start="earliest") as fresh:
            assert taken(fresh) == [(0, again)]
    with hand.open(tmp_path / "s") as store, store.subscribe("t", "a") as fresh:
        assert taken(fresh) == []


def test_ten_subscriptions_get_each_message_once_whenever_they_look(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", tiny(lanes=2)) as store:
        subs = [store.subscribe("t", f"s{number}", precision_ms=10 * (number % 3)) for number in range(10)]
        got: list[list[tuple[int, int]]] = [[] for _ in subs]
        places = []
        for number in range(150):
            queue_id = number % 4
            at_ms = hand.now_ms + number * 7 % 90
            places.append((queue_id, store.append("t", queue_id, b"x", deliver_at_ms=at_ms)))
            hand.now_ms += number % 3
            got[number % 10] += taken(subs[number % 10])
        hand.now_ms += 1_000
        for sub, mine in zip(subs, got, strict=True):
            mine.extend(taken(sub))
            assert sorted(mine) == sorted(places)
            assert sub.backlog().total == 0


def test_store_that_is_closed_while_a_consumer_waits_says_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", tiny())
    sub = store.subscribe("t", "a")
    store.append("t", 0, b"x", deliver_at_ms=time.time_ns() // 1_000_000 + 3_600_000)
    errors: list[BaseException] = []
    waiting = threading.Event()

    def consume() -> None:
        try:
            sub.receive()
            waiting.set()
            sub.receive(wait_ms=60_000)
        except BaseException as error:  # the test looks which one it was
            errors.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert waiting.wait(60)
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(error) for error in errors] in ([StoreClosed], [SubscriptionClosed])
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        assert store.cancel_delayed("t", 0, 0), "it is pending still"


def test_reader_beside_a_writer_counts_what_is_pending_and_changes_nothing(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        for number in range(10):
            store.append("t", number % 2, b"x", deliver_at_ms=START_MS + 5 + number)
        assert taken(sub) == []
        assert store.cancel_delayed("t", 0, 4)
        with hand.open(tmp_path / "s", read_only=True) as reader:
            (told,) = reader.subscriptions()
            assert told.backlog.delayed == 9
        hand.now_ms += 7
        with hand.open(tmp_path / "s", read_only=True) as reader:
            (told,) = reader.subscriptions()
            assert told.backlog.delayed == 6


def test_error_of_the_thread_is_noted_and_what_is_due_comes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed load left no timer elsewhere."""
    real, failures = DelayedTopic.look, [OSError("broken"), MemoryError(), ValueError("a bug")]

    def look(topic: DelayedTopic) -> None:
        if failures:
            raise failures.pop()
        real(topic)

    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe("t", "a")
        topic_of(store)
        monkeypatch.setattr(DelayedTopic, "look", look)
        store.append("t", 0, b"x", deliver_at_ms=time.time_ns() // 1_000_000 + 100)
        assert len(sub.receive(wait_ms=60_000)) == 1
        until(lambda: not failures)
        assert delays_of(store).last_error is not None


def test_stats_of_a_closed_store_tells_of_no_delayed_messages(tmp_path: Path, hand: Hand) -> None:
    store = hand.open(tmp_path / "s")
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
    store.subscribe("t", "a").receive()
    assert store.stats()["delayed"]["t"]["pending"] == 1
    store.close()
    assert store.stats()["delayed"] == {}


USES_OF_THE_INDEX: dict[str, Callable[[MessageStore, Subscription], object]] = {
    "receive": lambda store, sub: sub.receive(),
    "receive_batch": lambda store, sub: sub.receive_batch(wait_ms=60_000),
    "cancel": lambda store, sub: store.cancel_delayed("t", 0, 0),
    "reschedule": lambda store, sub: store.reschedule_delayed("t", 0, 0, START_MS),
    "backlog": lambda store, sub: sub.backlog(),
    "subscriptions": lambda store, sub: store.subscriptions(),
}


@pytest.mark.parametrize("use", USES_OF_THE_INDEX)
def test_store_that_is_closed_while_a_call_waits_for_the_index_says_so(tmp_path: Path, hand: Hand, use: str) -> None:
    store = hand.open(tmp_path / "s")
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
    sub = store.subscribe("t", "a")
    assert sub.receive() == []
    hand.now_ms += 10
    topic, told = topic_of(store), list[StoreClosed]()
    delays = delays_of(store)
    delays.checkpoint(topic)

    def call() -> None:
        try:
            USES_OF_THE_INDEX[use](store, sub)
        except StoreClosed as error:
            told.append(error)

    worker = threading.Thread(target=call)
    with topic.lock:
        worker.start()
        until(lambda: is_inside(worker, "delayed"))
        topic.tracker.close()  # what `close` does while the call waits
        store._shared.closed = True
    worker.join(60)
    store._shared.closed = False
    store.close()
    assert len(told) == 1


def is_inside(thread: threading.Thread, folder: str) -> bool:
    """Whether a thread runs code of a folder of the store."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and Path(frame.f_code.co_filename).parent.name != folder:
        frame = frame.f_back
    return frame is not None
