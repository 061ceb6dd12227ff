"""Subscriptions: receiving, acknowledging, moving, order, filters, dead letters, several topics."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from stratalog import (
    Backlog,
    Delivery,
    DeliveryBatch,
    InvalidMessage,
    InvalidTopic,
    OffsetOutOfRange,
    StaleReceipt,
    SubscriptionClosed,
    SubscriptionSettings,
)
from tests.store.helpers import until

PATIENCE_S = 60.0


def fill(store: Any, count: int = 6, topic: str = "t") -> Any:
    """Messages 0, 1, .. by turns in two queues."""
    store.append_batch([(topic, number % 2, b"%d" % number) for number in range(count)])
    return store


def datas(deliveries: Any) -> list[bytes]:
    """What was received."""
    return [one.message.data for one in deliveries]


def test_a_message_comes_until_it_is_acknowledged(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    found = sub.receive()
    assert all(isinstance(one, Delivery) for one in found)
    assert sorted(datas(found)) == [b"%d" % number for number in range(6)]
    assert {(one.attempt, one.subscription) for one in found} == {(1, "s")}
    for one in found[:3]:
        sub.ack(one)
    sub.ack_batch(found[3:5])
    assert sub.backlog() == Backlog(0, 1, 0)
    sub.ack(found[5].receipt)
    assert sub.backlog().total == 0 and sub.receive() == []
    assert (sub.name, sub.topic, sub.closed) == ("s", "t", False)


def test_a_nack_brings_a_message_back(store: Any) -> None:
    sub = fill(store, 1).subscribe("t", "s")
    (first,) = sub.receive()
    sub.nack(first, reason="no such customer")
    (again,) = sub.receive()
    assert (again.message, again.attempt) == (first.message, 2)
    sub.nack(again, delay_ms=3_600_000)
    assert sub.receive() == [] and sub.backlog() == Backlog(0, 0, 1)
    with pytest.raises(StaleReceipt) as caught:
        sub.ack(again)
    assert caught.value.receipts == (again.receipt,)


def test_a_late_consumer_loses_its_message(timed: Any, clock: Any) -> None:
    sub = fill(timed, 1).subscribe("t", "s")
    (slow,) = sub.receive(visibility_timeout_ms=1000)
    assert sub.receive() == []
    clock.advance(ms=1001)
    (again,) = sub.receive()
    assert again.attempt == 2
    for call in (sub.ack, sub.nack, lambda one: sub.extend(one, 10)):
        with pytest.raises(StaleReceipt):
            call(slow)
    sub.ack(again)


def test_extend_keeps_a_message(timed: Any, clock: Any) -> None:
    sub = fill(timed, 1).subscribe("t", "s")
    (one,) = sub.receive(visibility_timeout_ms=1000)
    sub.extend(one, 60_000)
    clock.advance(ms=30_000)
    assert sub.receive() == []
    sub.ack(one)


def test_a_waiting_receive_sees_the_clock_move(timed: Any, clock: Any) -> None:
    timed.append("t", 0, b"later", deliver_at_ms=clock.wall_ms() + 3_600_000)
    sub = timed.subscribe("t", "s")
    found: list[Delivery] = []
    thread = threading.Thread(target=lambda: found.extend(sub.receive(wait_ms=7_200_000)))
    thread.start()

    def has_ended() -> bool:
        clock.advance(ms=600_000)
        thread.join(0.05)
        return not thread.is_alive()

    until(has_ended)
    assert datas(found) == [b"later"]


def test_receive_waits_for_a_message(store: Any) -> None:
    sub = store.subscribe("t", "s")
    found: list[Delivery] = []
    thread = threading.Thread(target=lambda: found.extend(sub.receive(wait_ms=60_000)))
    thread.start()
    store.append("t", 0, b"x")
    thread.join(PATIENCE_S)
    assert datas(found) == [b"x"]
    assert store.subscribe("t", "s").receive(wait_ms=10) == []


def test_batches_are_columns(store: Any) -> None:
    sub = fill(store, 100).subscribe("t", "s")
    batch = sub.receive_batch(max_messages=64)
    assert isinstance(batch, DeliveryBatch) and len(batch) == 64 and batch.subscription == "s"
    assert batch.attempts.tolist() == [1] * 64
    assert [bytes(one) for one in batch.payloads()] == [one.message.data for one in batch.deliveries()]
    sub.ack_batch(batch.receipts)
    sub.nack_batch(sub.receive_batch().receipts)
    again = sub.receive_batch()
    assert len(again) == 36 and set(again.attempts.tolist()) == {2}
    assert len(sub.receive_batch()) == 0
    sub.ack_batch(again.deliveries())
    sub.ack_batch([])
    assert sub.backlog().total == 0


def test_a_batch_ends_by_bytes(store: Any) -> None:
    store.append_batch([("t", 0, bytes(1000))] * 10)
    assert len(store.subscribe("t", "s").receive_batch(max_bytes=3500)) == 3


def test_receive_of_one_queue(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    assert sorted(datas(sub.receive(queue_id=1))) == [b"1", b"3", b"5"]
    assert sub.receive(queue_id=9) == []
    assert len(sub.receive_batch(queue_id=0)) == 3


def test_ack_up_to(store: Any) -> None:
    sub = fill(store, 10).subscribe("t", "s")
    found = [one for one in sub.receive() if one.message.queue_id == 0]
    assert sub.ack_up_to(found[3]) == 4
    assert sub.positions()[0].mark_delete == 4
    assert sub.ack_up_to(found[4].receipt) == 1


def test_acknowledgements_have_tickets(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    for ticket in [sub.submit_ack(one) for one in sub.receive()]:
        ticket.result(PATIENCE_S)
    assert sub.backlog().total == 0


def test_what_is_no_delivery_is_refused(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    for wrong in ("x", -1, 1.5, None, True):
        with pytest.raises(InvalidMessage):
            sub.ack(wrong)
        with pytest.raises(InvalidMessage):
            sub.nack(wrong)
    with pytest.raises(InvalidMessage):
        sub.ack_batch(["x"])
    with pytest.raises(InvalidMessage):
        sub.ack_batch(np.array([1.5]))
    with pytest.raises(StaleReceipt):
        sub.ack(12345)
    with pytest.raises(StaleReceipt) as caught:
        sub.ack_batch([12345, 12346])
    assert caught.value.receipts == (12345, 12346)
    (one, *_) = sub.receive()
    with pytest.raises(InvalidMessage):
        sub.extend(one, 0)
    with pytest.raises(InvalidMessage):
        sub.nack(one, reason=7)
    for arguments in ({"max_messages": 0}, {"wait_ms": -1}, {"visibility_timeout_ms": 0}):
        with pytest.raises(InvalidMessage):
            sub.receive(**arguments)
    with pytest.raises(InvalidTopic):
        sub.receive(queue_id=-1)


def test_positions_and_what_is_in_flight(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    found = sub.receive(max_messages=2)
    (first, *_) = sub.in_flight()
    assert (first.topic, first.attempt, len(sub.in_flight())) == ("t", 1, 2)
    assert sub.message_of(found[0]).receipt == found[0].receipt == sub.message_of(found[0].receipt).receipt
    sub.ack(found[0])
    at = sub.positions()[found[0].message.queue_id]
    assert (at.mark_delete, at.acknowledged_above, at.next_offset) == (1, 0, 3)
    with pytest.raises(StaleReceipt):
        sub.message_of(found[0])


def test_seek_moves_the_cursor(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    sub.skip_all()
    assert sub.receive() == []
    sub.seek("earliest")
    assert len(sub.receive()) == 6
    sub.seek({0: 2})
    assert datas(sub.receive()) == [b"4"]
    sub.seek("latest")
    sub.seek(0)
    assert len(sub.receive()) == 6
    with pytest.raises(OffsetOutOfRange):
        sub.seek({0: 99})
    for wrong in ("somewhere", -1, {"0": 1}, None):
        with pytest.raises(InvalidMessage):
            sub.seek(wrong)


def test_a_subscription_begins_where_it_is_told(store: Any) -> None:
    fill(store)
    assert store.subscribe("t", "late", "latest").receive() == []
    assert datas(store.subscribe("t", "some", {0: 2, 1: 3}).receive()) == [b"4"]
    assert len(store.subscribe("t", "time", int(time.time() * 1000) + 60_000).receive()) == 0


def test_consumers_of_a_name_compete_and_names_do_not(store: Any) -> None:
    fill(store, 10)
    one, two, other = store.subscribe("t", "s"), store.subscribe("t", "s"), store.subscribe("t", "other")
    both = datas(one.receive(max_messages=4)) + datas(two.receive())
    assert sorted(both) == sorted(datas(other.receive())) == [b"%d" % number for number in range(10)]


def test_close_gives_the_messages_back_at_once(store: Any) -> None:
    fill(store)
    with store.subscribe("t", "s") as one:
        found = one.receive()
        one.ack(found[0])
    assert one.closed
    assert len(store.subscribe("t", "s").receive()) == 5
    for call in (one.receive, one.backlog, lambda: one.ack(found[1]), lambda: one.seek("earliest"), lambda: list(one)):
        with pytest.raises(SubscriptionClosed):
            call()
    one.close()


def test_a_deleted_subscription_is_closed(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    assert store.delete_subscription("t", "s") is True
    assert store.delete_subscription("t", "s") is False
    with pytest.raises(SubscriptionClosed):
        sub.receive()
    assert sub.closed and store.subscriptions() == []


def test_ordered_by_key(store: Any) -> None:
    for number in range(6):
        store.append("t", 0, b"%d" % number, key=b"k%d" % (number % 2))
    sub = store.subscribe("t", "s", mode="ordered", order_by="key")
    first = sub.receive(max_messages=1)
    second = sub.receive(max_messages=1)
    assert {one.message.key for one in first + second} == {b"k0", b"k1"}
    assert sub.receive() == []
    sub.ack_batch(first)
    assert sub.receive(max_messages=1)[0].message.key == first[0].message.key


def test_filters(store: Any) -> None:
    for tag, price in (("a", "5"), ("b", "12"), ("a", "12")):
        store.append("t", 0, price.encode(), properties={"tag": tag, "price": price})
    assert datas(store.subscribe("t", "sql", filter="tag = 'a' AND price BETWEEN 1 AND 9").receive()) == [b"5"]
    assert len(store.subscribe("t", "mapping", filter={"tag": {"a", "c"}}).receive()) == 2
    assert len(store.subscribe("t", "list", filter={"tag": ["b"]}).receive()) == 1
    with pytest.raises(InvalidMessage) as caught:
        store.subscribe("t", "wrong", filter="tag ==")
    assert caught.value.position is not None and caught.value.expected


def test_settings_change(store: Any) -> None:
    sub = fill(store).subscribe("t", "s", max_attempts=3, dead_letter_topic="dead")
    with pytest.raises(InvalidMessage, match="max_attempts"):
        store.subscribe("t", "s", max_attempts=5, dead_letter_topic="dead")
    sub.change(max_attempts=5, dead_letter_topic="dead", backoff_ms=[1000, 5000], filter={"tag": {"x"}})
    (row,) = store.subscriptions("t")
    assert row.settings == SubscriptionSettings(
        max_attempts=5, dead_letter_topic="dead", backoff_ms=(1000, 5000), filter={"tag": ("x",)}
    )
    sub.change(filter=None)
    sub.change()
    assert store.subscriptions()[0].settings.filter is None
    assert (row.topic, row.name, row.positions[0].next_offset) == ("t", "s", 3)
    assert row.backlog.total == 6 and isinstance(row.backlog, Backlog)
    with pytest.raises(InvalidMessage):
        sub.change(max_attempts=0)


def test_dead_letters_go_and_come_back(store: Any) -> None:
    sub = store.subscribe("t", "s", max_attempts=1, dead_letter_topic="failed")
    store.append("t", 2, b"12 EUR", properties={"customer": "7"})
    sub.nack(sub.receive()[0], reason="no such customer")
    assert sub.receive() == []
    (letter,) = store.read("failed", 2)
    assert letter.properties["dead_letter.reason"] == "no such customer"
    assert store.redrive("failed", max_messages=5) == 1
    (again,) = sub.receive()
    assert (again.message.data, again.message.properties) == (b"12 EUR", {"customer": "7"})
    assert store.redrive("failed") == 0


def test_delayed_messages(timed: Any, clock: Any) -> None:
    now = clock.wall_ms()
    offsets = [timed.append("t", 0, b"%d" % number, deliver_at_ms=now + 60_000) for number in range(3)]
    sub = timed.subscribe("t", "s")
    assert sub.receive() == [] and sub.backlog() == Backlog(0, 0, 3)
    assert timed.cancel_delayed("t", 0, offsets[0]) is True
    assert timed.cancel_delayed("t", 0, offsets[0]) is False
    assert timed.reschedule_delayed("t", 0, offsets[1], now + 120_000) is True
    clock.advance(ms=60_001)
    found: list[Delivery] = []

    def has_come() -> bool:
        found.extend(sub.receive(wait_ms=20))
        return bool(found)

    until(has_come)
    assert datas(found) == [b"2"]


def test_iteration_gives_message_by_message(store: Any) -> None:
    sub = fill(store).subscribe("t", "s")
    seen = []
    for delivery in sub:
        seen.append(delivery.message.data)
        sub.ack(delivery)
        if len(seen) == 6:
            threading.Timer(0.02, sub.close).start()
    assert sorted(seen) == [b"%d" % number for number in range(6)]
    with pytest.raises(TypeError):
        _ = 1 in sub


def test_several_topics_are_one_subscription(store: Any) -> None:
    fill(store, 4, "orders.a")
    fill(store, 4, "orders.b")
    with store.subscribe(["orders.a", "orders.b"], "office") as both:
        assert (both.name, both.topics, both.pattern) == ("office", ["orders.a", "orders.b"], None)
        found = both.receive()
        assert len(found) == 8 and both.backlog() == Backlog(0, 8, 0)
        assert both.topic_of(found[0]) == found[0].message.topic
        both.ack(found[0])
        both.ack(found[1].receipt)
        both.nack(found[2])
        both.ack_batch(found[3:])
        (again,) = both.receive(topic=found[2].message.topic)
        assert again.attempt == 2
        both.ack(again)
        assert {place: at.next_offset for place, at in both.positions().items()} == {
            (topic, queue): 2 for topic in ("orders.a", "orders.b") for queue in (0, 1)
        }
        both.seek({("orders.a", 0): 1})
        assert [one.message.topic for one in both.receive()] == ["orders.a"]
    with store.subscribe(pattern="orders.*", name="all") as every:
        assert every.pattern == "orders.*"
        fill(store, 2, "orders.c")
        assert len(every.receive_batch(wait_ms=1000)) >= 8
    with pytest.raises(InvalidTopic):
        store.subscribe([], "none")


def test_a_wrong_subscription_is_refused(store: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"mode": "other"}, {"order_by": 7}, {"max_attempts": 1}, {"dead_letter_topic": "t", "max_attempts": 1},
        {"start": "never"}, {"precision_ms": -1}, {"name": ""}, {"backoff_ms": "x"}, {"filter": 7},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(InvalidMessage):
            store.subscribe(**{"topic": "t", "name": "s", **given})
    assert store.subscriptions() == []
    with pytest.raises(InvalidTopic):
        store.subscribe("", "s")
