"""A batch ends at `max_bytes`, whatever its messages were before."""

from __future__ import annotations

import numpy as np
import pytest

from stratalog.store import MessageStore

from .helpers import TOPIC, BothClocks

SIZE = 100


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def test_messages_that_come_again_end_at_max_bytes_and_all_come(store: MessageStore) -> None:
    store.append_batch([(TOPIC, at % 2, bytes(SIZE)) for at in range(21)])
    sub = store.subscribe(TOPIC, "a")
    sub.nack_batch(sub.receive_batch().receipts)
    sizes = []
    while len(batch := sub.receive_batch(10, max_bytes=250)):
        sizes.append(len(batch))
        assert (batch.attempts == 2).all()
        sub.ack_batch(batch.receipts)
    assert sizes == [2] * 10 + [1]


def test_one_message_that_comes_again_is_given_though_it_is_larger(store: MessageStore) -> None:
    store.append_batch([(TOPIC, 0, bytes(SIZE))] * 2)
    sub = store.subscribe(TOPIC, "a")
    sub.nack_batch(sub.receive_batch().receipts)
    assert [len(sub.receive_batch(10, max_bytes=1)) for _ in range(3)] == [1, 1, 0]


def test_new_messages_behind_those_that_come_again_end_at_max_bytes(store: MessageStore) -> None:
    store.append(TOPIC, 0, bytes(SIZE))
    sub = store.subscribe(TOPIC, "a")
    sub.nack_batch(sub.receive_batch().receipts)
    store.append_batch([(TOPIC, 0, bytes(SIZE))] * 4)
    assert [len(sub.receive_batch(10, max_bytes=150)) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


def test_what_is_due_ends_at_max_bytes_and_all_comes_once(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    for at in range(30):
        store.append(TOPIC, at % 3, bytes(SIZE), deliver_at_ms=clock.wall + 10 + at)
    assert sub.receive() == []
    clock.go(100)
    seen = []
    while len(batch := sub.receive_batch(10, max_bytes=350)):
        assert len(batch) <= 3
        seen += [(one.message.queue_id, one.message.offset) for one in batch.deliveries()]
    assert seen == [(at % 3, at // 3) for at in range(30)]


def test_what_is_freed_ends_at_max_bytes_and_keeps_its_order(store: MessageStore) -> None:
    for at in range(24):
        store.append(TOPIC, 0, bytes(SIZE), key=b"%d" % (at % 8))
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    last = dict.fromkeys(range(8), -1)
    count = 0
    waiting = np.empty(0, np.int64)
    while len(batch := sub.receive_batch(10, max_bytes=350)) or len(waiting):
        assert len(batch) <= 3
        for offset in batch.offsets.tolist():
            assert offset > last[offset % 8]
            last[offset % 8] = offset
        count += len(batch)
        waiting = np.concatenate([waiting, batch.receipts])
        if len(waiting) >= 6 or not len(batch):
            sub.ack_batch(waiting)
            waiting = waiting[:0]
    assert count == 24


def test_due_messages_that_a_filter_leaves_out_take_no_room(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"a"}})
    for at in range(30):
        properties = {"tag": "a" if at >= 28 else "b"}
        store.append(TOPIC, 0, bytes(SIZE), deliver_at_ms=clock.wall + 10 + at, properties=properties)
    assert sub.receive() == []
    clock.go(100)
    assert sub.receive_batch(4, max_bytes=350).offsets.tolist() == [28, 29]


def test_freed_messages_behind_one_that_comes_again_end_at_max_bytes(store: MessageStore) -> None:
    for key in (b"x", b"y", b"y"):
        store.append(TOPIC, 0, bytes(SIZE), key=key)
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    x, y = sub.receive(2)
    sub.ack(y)
    sub.nack(x)
    assert [sub.receive_batch(10, max_bytes=150).offsets.tolist() for _ in range(3)] == [[0], [2], []]
