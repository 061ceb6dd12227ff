"""A lone message that has just come is received by a quick look, and all that a long look does still comes."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

from stratalog.store import MessageStore
from stratalog.store.errors import StoreError
from stratalog.store.subscriptions.dispatcher import Dispatcher
from stratalog.store.subscriptions.scanner import LOOKS_BETWEEN
from stratalog.store.subscriptions.subscription import Subscription

from .helpers import TOPIC, places


def one_job(store: MessageStore, sub: Subscription, queue_id: int = 0) -> tuple[int, int]:
    """A job that is appended, received and acknowledged: its place."""
    store.append(TOPIC, queue_id, b"job")
    (delivery,) = sub.receive(1)
    sub.ack(delivery)
    return delivery.message.queue_id, delivery.message.offset


def test_most_lone_messages_need_no_long_look(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    with mock.patch.object(Dispatcher, "take", autospec=True, side_effect=Dispatcher.take) as long_looks:
        assert [one_job(store, sub) for _ in range(64)] == [(0, offset) for offset in range(64)]
    assert 1 <= long_looks.call_count <= 64 // LOOKS_BETWEEN + 2
    assert sub.backlog().total == 0


def test_queues_that_all_have_new_messages_have_their_turns(store: MessageStore) -> None:
    """Consumers are slower than producers: no queue is left behind."""
    sub = store.subscribe(TOPIC, "a")
    found: list[int] = []
    for offset in range(60):
        for queue_id in (0, 1, 2):
            store.append(TOPIC, queue_id, b"%d" % offset)
        found += [places(sub.receive(1))[0][0] for _ in range(2)]
    shares = [found.count(queue_id) for queue_id in (0, 1, 2)]
    assert max(shares) - min(shares) <= LOOKS_BETWEEN, shares


def test_a_queue_with_a_damaged_message_keeps_no_other_one_waiting(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick look that meets an error leaves it to a long one, which tells it and goes on."""
    sub = store.subscribe(TOPIC, "a")
    one_job(store, sub)
    reads, calls = sub._state.parts.reads, list[int]()
    read_batch = type(reads).read_batch

    def broken(topic: str, queue_id: int, *rest: int) -> object:
        calls.append(queue_id)
        if queue_id == 0:
            raise StoreError("the device has it no more")
        return read_batch(reads, topic, queue_id, *rest)

    store.append(TOPIC, 0, b"damaged")
    store.append(TOPIC, 1, b"whole")
    monkeypatch.setattr(reads, "read_batch", broken)
    found, raised = list[tuple[int, int]](), 0
    for _ in range(6):
        try:
            found += places(sub.receive(1))
        except StoreError:
            raised += 1
    assert found == [(1, 0)]
    assert raised
    monkeypatch.undo()
    assert places(sub.receive(1)) == [(0, 1)]


def test_a_quick_look_that_reads_leaves_the_rest_to_a_consumer_that_waits(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    one_job(store, sub)
    found: list[tuple[int, int]] = []
    waiting = threading.Thread(target=lambda: found.extend(places(other.receive(1, wait_ms=60_000))))
    waiting.start()
    for round_ in range(20):
        store.append_batch([(TOPIC, 0, b"one"), (TOPIC, 0, b"two")])
        mine = places(sub.receive(1))
        waiting.join(timeout=60)
        assert not waiting.is_alive(), round_
        assert len(mine) == 1
        assert sorted(mine + found) == [(0, 1 + 2 * round_), (0, 2 + 2 * round_)]
        found.clear()
        waiting = threading.Thread(target=lambda: found.extend(places(other.receive(1, wait_ms=60_000))))
        waiting.start()
    store.append(TOPIC, 0, b"last")
    waiting.join(timeout=60)
    assert found == [(0, 41)]


def test_what_a_filter_leaves_out_is_acknowledged_though_most_looks_are_quick(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"red"}})
    for number in range(50):
        store.append(TOPIC, 0, b"no", properties={"tag": "blue"})
        store.append(TOPIC, 0, b"yes", properties={"tag": "red"})
        (delivery,) = sub.receive(1)
        assert delivery.message.offset == 2 * number + 1
        sub.ack(delivery)
    assert sub.receive(1) == []
    assert sub.positions()[0].mark_delete == 100


def test_a_quick_look_meets_messages_that_were_removed(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    one_job(store, sub)
    store.append_batch([(TOPIC, 0, b"gone")] * 5)
    store.append(TOPIC, 0, b"kept")
    store.trim(TOPIC, 0, 6)
    assert places(sub.receive(1)) == [(0, 6)]
