"""The official Python client, unmodified: every kind of message, simple and push consumers, retries and dead letters.

The client has one event loop for all of its objects of a process; so all is here in one process, as in a user's tests.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rocketmq import (
    ConsumeResult,
    FilterExpression,
    MessageListener,
    PushConsumer,
    TransactionChecker,
    TransactionResolution,
)

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.testing import VirtualClock

from ...store.helpers import until
from .official_client import configuration, consumer, message, producer, receive_all

HOUR_MS = 3_600_000
LONG_S = 60
SQL = 2


class Listener(MessageListener):  # type: ignore[misc]
    """Notes what it gets, and fails for the bodies that are to fail."""

    def __init__(self, *bad: bytes) -> None:
        self.got: queue.Queue[Any] = queue.Queue()
        self._bad = bad

    def consume(self, message: Any) -> Any:
        self.got.put(message)
        return ConsumeResult.FAILURE if message.body in self._bad else ConsumeResult.SUCCESS

    def bodies(self, count: int) -> list[bytes]:
        return [self.got.get(timeout=LONG_S).body for _ in range(count)]


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits what it is asked about, and notes it."""

    def __init__(self) -> None:
        self.asked: queue.Queue[bytes] = queue.Queue()

    def check(self, message: Any) -> Any:
        self.asked.put(message.body)
        return TransactionResolution.COMMIT


@contextmanager
def push_consumer(address: str, group: str, topic: str, listener: Listener) -> Iterator[Any]:
    made = PushConsumer(configuration(address), group, listener, {topic: FilterExpression("*")})
    made.startup()
    try:
        yield made
    finally:
        made.shutdown()


def test_what_is_sent_is_received_once_it_is_acknowledged_never_again(store: MessageStore) -> None:
    with RocketMQEndpoint(store, queues=1) as endpoint, producer(endpoint.address, "orders") as sender:
        given = {"tag": "paid", "keys": "k1", "properties": {"price": "5"}}
        receipt = sender.send(message("orders", b"two shoes", **given))
        with consumer(endpoint.address, "billing", "orders") as receiver:
            (got,) = receive_all(receiver, 1)
        assert (got.body, got.tag, got.keys, got.properties) == (b"two shoes", "paid", {"k1"}, {"price": "5"})
        assert (got.message_id, got.delivery_attempt, got.corrupted) == (receipt.message_id, 1, False)
        assert receipt.transaction_id == receipt.message_id
    assert store.subscriptions("orders")[0].backlog.total == 0
    (kept,) = store.read("orders", 0)
    assert (kept.data, kept.key, (kept.properties or {})["tag"]) == (b"two shoes", b"k1", "paid")


def test_tags_and_sql_choose_messages(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, producer(endpoint.address, "offers") as sender:
        for tag, price in (("a", 1), ("b", 5), ("c", 20)):
            sender.send(message("offers", tag.encode(), tag=tag, properties={"price": str(price)}))
        for group, wanted, bodies in (
            ("tags", FilterExpression("a || c"), {b"a", b"c"}),
            ("sql", FilterExpression("price BETWEEN 2 AND 30 AND TAGS <> 'c'", SQL), {b"b"}),
        ):
            with consumer(endpoint.address, group, "offers", wanted) as receiver:
                assert {one.body for one in receive_all(receiver, len(bodies))} == bodies
        assert {info.name: info.backlog.ready for info in store.subscriptions("offers")}["tags"] == 0


def test_another_filter_counts_from_the_next_receive_on(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, producer(endpoint.address, "offers") as sender:
        with consumer(endpoint.address, "shop", "offers", FilterExpression("a")) as receiver:
            sender.send(message("offers", b"1", tag="a"))
            assert [one.body for one in receive_all(receiver, 1)] == [b"1"]
        sender.send(message("offers", b"2", tag="b"))
        with consumer(endpoint.address, "shop", "offers", FilterExpression("b")) as receiver:
            assert [one.body for one in receive_all(receiver, 1)] == [b"2"]


def test_a_message_group_comes_in_order_to_a_fifo_group(store: MessageStore) -> None:
    with RocketMQEndpoint(store, fifo_groups=["lines"]) as endpoint, producer(endpoint.address, "steps") as sender:
        for number in range(6):
            sender.send(message("steps", b"%d" % number, message_group=f"line {number % 2}"))
        with consumer(endpoint.address, "lines", "steps") as receiver:
            first: list[Any] = []

            def are_six() -> bool:
                first.extend(receiver.receive(32, 15))
                return len(first) >= 6

            until(are_six)
            for line in ("line 0", "line 1"):
                ours = [one for one in first if one.message_group == line]
                assert [one.body for one in ours] == sorted(one.body for one in ours)
            sender.send(message("steps", b"later", message_group="line 0"))
            sender.send(message("steps", b"free", message_group="line 2"))
            assert [one.body for one in receiver.receive(32, 15)] == [b"free"]  # line 0 waits for its batch
            for one in first:
                receiver.ack(one)
            assert [one.body for one in receiver.receive(32, 15)] == [b"later"]


def test_a_delayed_message_comes_when_a_test_moves_the_clock(tmp_path: Path) -> None:
    clock = VirtualClock()
    with (
        MessageStore.open(tmp_path / "store", StoreConfig(durability="os"), clock=clock) as store,
        RocketMQEndpoint(store) as endpoint,
        producer(endpoint.address, "reminders") as sender,
        consumer(endpoint.address, "mail", "reminders") as receiver,
    ):
        at_s = (clock.wall_ms() + HOUR_MS) // 1000
        sender.send(message("reminders", b"in an hour", delivery_timestamp=at_s))
        recalled = sender.send(message("reminders", b"never", delivery_timestamp=at_s))
        assert sender.recall_message("reminders", recalled.recall_handle) == recalled.message_id
        with pytest.raises(Exception, match="recall failed"):
            sender.recall_message("reminders", recalled.recall_handle)
        waiting = receiver.receive_async(32, 15)
        clock.advance(ms=HOUR_MS)
        assert [one.body for one in waiting.result(LONG_S)] == [b"in an hour"]
        assert store.subscriptions("reminders")[0].backlog.total == 1


def test_an_invisible_time_is_over_when_a_test_moves_the_clock(tmp_path: Path) -> None:
    clock = VirtualClock()
    with (
        MessageStore.open(tmp_path / "store", StoreConfig(durability="os"), clock=clock) as store,
        RocketMQEndpoint(store) as endpoint,
        producer(endpoint.address, "orders") as sender,
        consumer(endpoint.address, "billing", "orders") as receiver,
    ):
        sender.send(message("orders", b"slow"))
        (first,) = receiver.receive(32, 3600)
        waiting = receiver.receive_async(32, 3600)
        clock.advance(ms=HOUR_MS)
        (again,) = waiting.result(LONG_S)
        assert (again.message_id, again.delivery_attempt) == (first.message_id, 2)
        with pytest.raises(Exception, match="receipt"):
            receiver.ack(first)
        receiver.ack(again)


def test_a_transaction_is_seen_after_its_commit_and_never_after_its_rollback(store: MessageStore) -> None:
    with (
        RocketMQEndpoint(store) as endpoint,
        producer(endpoint.address, "payments", checker=Checker()) as sender,
        consumer(endpoint.address, "books", "payments") as receiver,
    ):
        dropped, kept = sender.begin_transaction(), sender.begin_transaction()
        sender.send(message("payments", b"dropped", tag="t"), dropped)
        sender.send(message("payments", b"kept", tag="t", keys="k"), kept)
        dropped.rollback()
        kept.commit()
        (got,) = receive_all(receiver, 1)
        assert (got.body, got.tag, got.keys, got.message_type) == (b"kept", "t", {"k"}, 4)
        assert got.properties == {"__transactionId__": got.message_id}
        assert store.subscriptions("RMQ_SYS_TRANS_HALF_TOPIC")[0].backlog.total == 0


def test_a_transaction_without_an_end_is_asked_about_after_a_restart_too(store: MessageStore) -> None:
    checker = Checker()
    fast: dict[str, Any] = {"check_first_ms": 200, "check_interval_ms": 200}
    with RocketMQEndpoint(store) as endpoint, producer(endpoint.address, "payments", checker=checker) as sender:
        sender.send(message("payments", b"orphan"), sender.begin_transaction())
    assert checker.asked.empty()
    with RocketMQEndpoint(store, **fast) as endpoint, producer(endpoint.address, "payments", checker=checker):
        assert checker.asked.get(timeout=LONG_S) == b"orphan"
        with consumer(endpoint.address, "books", "payments") as receiver:
            assert [one.body for one in receive_all(receiver, 1)] == [b"orphan"]


def test_a_transaction_that_nobody_ends_goes_aside(store: MessageStore) -> None:
    class Undecided(Checker):
        def check(self, message: Any) -> Any:
            super().check(message)
            return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED

    fast: dict[str, Any] = {"check_first_ms": 50, "check_interval_ms": 50, "max_checks": 2}
    checker = Undecided()
    with (
        RocketMQEndpoint(store, **fast) as endpoint,
        producer(endpoint.address, "payments", checker=checker) as sender,
    ):
        sender.send(message("payments", b"orphan"), sender.begin_transaction())
        until(lambda: store.subscriptions("RMQ_SYS_TRANS_HALF_TOPIC")[0].backlog.total == 0)
        assert checker.asked.qsize() == 2
        with consumer(endpoint.address, "undertaker", "TRANS_CHECK_MAX_TIME_TOPIC") as receiver:
            assert [one.body for one in receive_all(receiver, 1)] == [b"orphan"]


def test_a_push_consumer_retries_and_gives_up_to_the_dead_letters(store: MessageStore) -> None:
    listener = Listener(b"bad")
    with (
        RocketMQEndpoint(store, max_attempts=2, retry_delays_ms=[0], long_polling_ms=1000) as endpoint,
        producer(endpoint.address, "orders") as sender,
        push_consumer(endpoint.address, "work", "orders", listener),
    ):
        sent = sender.send(message("orders", b"bad"))
        attempts = [listener.got.get(timeout=LONG_S).delivery_attempt for _ in range(2)]
        assert attempts == [1, 2]
        with consumer(endpoint.address, "undertaker", "%DLQ%work") as receiver:
            (letter,) = receive_all(receiver, 1)
        assert (letter.body, letter.message_id) == (b"bad", sent.message_id)
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == "orders"
        assert letter.properties["dead_letter.attempts"] == "2"
        assert listener.got.empty()


def test_a_fifo_push_consumer_gets_lines_in_order_and_forwards_what_it_gives_up(store: MessageStore) -> None:
    listener = Listener(b"bad")
    options: dict[str, Any] = {"max_attempts": 1, "fifo_groups": ["lines"], "long_polling_ms": 1000}
    with (
        RocketMQEndpoint(store, **options) as endpoint,
        producer(endpoint.address, "steps") as sender,
        push_consumer(endpoint.address, "lines", "steps", listener),
    ):
        for body in (b"1", b"bad", b"3"):
            sender.send(message("steps", body, message_group="line"))
        assert listener.bodies(3) == [b"1", b"bad", b"3"]
        with consumer(endpoint.address, "undertaker", "%DLQ%lines") as receiver:
            (letter,) = receive_all(receiver, 1)
        assert (letter.body, letter.message_group) == (b"bad", "line")
        assert letter.properties["dead_letter.reason"] == "the consumer has given it up"
        until(lambda: store.subscriptions("steps")[0].backlog.total == 0)
