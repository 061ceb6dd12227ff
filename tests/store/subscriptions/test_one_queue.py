"""Receiving from one queue only: what comes, what stays for others, and what a consumer that waits is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    Delivery,
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    StaleReceipt,
    StoreCorrupt,
    Subscription,
    SubscriptionClosed,
)
from stratalog.store.subscriptions import redelivery
from stratalog.store.subscriptions.dispatcher import Dispatcher
from stratalog.store.subscriptions.redelivery import MOST_CHUNKS, Redelivery
from stratalog.store.testing import VirtualClock

from ..helpers import Worker, start, tiny, until
from .helpers import TOPIC, fill, places
from .test_damage import flip

LONG_MS = 60_000
MODES: list[dict[str, Any]] = [
    {}, {"mode": "ordered"}, {"mode": "ordered", "order_by": "key"}, {"filter": "tag = 'a'"},
    {"max_attempts": 9, "dead_letter_topic": "dead"},
]  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as opened:
        yield opened


def put(store: MessageStore, queue_id: int, count: int = 1, **facts: Any) -> None:
    for at in range(count):
        store.append(TOPIC, queue_id, b"x", key=b"k%d" % (at % 2), properties={"tag": "a"}, **facts)


def waiting(sub: Subscription, queue_id: int | None, got: list[Delivery], **how: Any) -> Worker:
    """A thread that receives, and sleeps by now."""
    before = len(sub._state.parts.waiting)
    worker = start(lambda: got.extend(sub.receive(1, LONG_MS, queue_id=queue_id, **how)))
    until(lambda: len(sub._state.parts.waiting) > before)
    return worker


@pytest.mark.parametrize("settings", MODES, ids=str)
def test_only_its_messages_come_new_ones_due_ones_and_those_that_come_again(
    store: MessageStore, clock: VirtualClock, settings: dict[str, Any]
) -> None:
    sub = store.subscribe(TOPIC, "s", **settings)
    for queue_id in range(3):
        put(store, queue_id, 3)
        put(store, queue_id, deliver_at_ms=clock.wall_ms() + 1000)
    for _ in range(2):
        got = sub.receive(queue_id=1)
        assert sorted(places(got)) == [(1, 0), (1, 1), (1, 2)]
        assert sub.receive(queue_id=1) == []
        sub.nack_batch(got)
    clock.advance(ms=1000)
    got = sub.receive(queue_id=1)
    assert [one.attempt for one in got[:3]] == [3, 3, 3]
    sub.ack_batch(got)
    late = sub.receive(queue_id=1)
    sub.ack_batch(late)
    assert sorted(places(got + late)) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert sub.receive(queue_id=1) == []
    sub.receive_batch(queue_id=2, visibility_timeout_ms=10)
    clock.advance(ms=10)
    assert {queue for queue, _ in places(sub.receive(queue_id=0))} == {0}
    assert sub.receive(queue_id=1) == []
    assert [one.attempt for one in sub.receive(2, queue_id=2)] == [2, 2]
    assert sub.backlog().total == 8


@pytest.mark.parametrize("settings", MODES, ids=str)
def test_what_it_leaves_is_there_for_consumers_of_all_queues(
    store: MessageStore, clock: VirtualClock, settings: dict[str, Any]
) -> None:
    sub = store.subscribe(TOPIC, "s", **settings)
    for queue_id in range(3):
        put(store, queue_id, 4)
    seen = set[tuple[int, int]]()
    for only in (1, None, 1, 2, None, 0, 0, 1, 2, None, None, 2, 1, 0):
        got = sub.receive(2, queue_id=only)
        sub.nack_batch(got[1:])
        for one in got[:1]:
            sub.ack(one)
        seen.update(places(got[:1]))
    while got := sub.receive():
        sub.ack_batch(got)
        seen.update(places(got))
    assert len(seen) == 12
    assert sub.backlog().total == 0


def test_wrong_queues_are_refused_and_one_without_messages_has_none(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    wrong: list[Any] = [-1, True, 1.5, "1", 1 << 40, (0,)]
    for bad in wrong:
        for call in (sub.receive, sub.receive_batch):
            with pytest.raises(InvalidTopic):
                call(queue_id=bad)
        with pytest.raises(InvalidTopic):
            asyncio.run(sub.receive_async(queue_id=bad))
    with pytest.raises(InvalidMessage):
        sub.receive(0, queue_id=1)
    assert sub.receive(queue_id=77) == sub.receive(wait_ms=0, queue_id=77) == []
    assert 77 not in sub._state.cursor.queues, "nothing is kept for it"
    assert not sub._state.queue_calls
    sub.close()
    with pytest.raises(SubscriptionClosed):
        sub.receive(queue_id=0)


def test_a_waiting_consumer_is_woken_by_its_queue_alone(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub, got, looks, real = store.subscribe(TOPIC, "s"), list[Delivery](), list[int | None](), Dispatcher.take

    def take(dispatcher: Dispatcher, *given: Any) -> Any:
        looks.append(given[4])
        return real(dispatcher, *given)

    consumers = [waiting(sub, queue_id, got) for queue_id in (1, 2)]
    monkeypatch.setattr(Dispatcher, "take", take)
    for _ in range(5):
        put(store, 0)
    assert looks == []
    put(store, 2)
    until(lambda: len(got) == 1)
    assert places(got) == [(2, 0)]
    assert set(looks) == {2}
    put(store, 1)
    for consumer in consumers:
        consumer.join()
    assert places(got) == [(2, 0), (1, 0)]
    assert not sub._state.queue_calls


def give_back_for_later(store: MessageStore, clock: VirtualClock, sub: Subscription, one: Delivery) -> None:
    sub.nack(one, 500)
    clock.advance(ms=500)


def keep_for_less(store: MessageStore, clock: VirtualClock, sub: Subscription, one: Delivery) -> None:
    sub.extend(one, 100)
    clock.advance(ms=100)


EVENTS: dict[str, Callable[[MessageStore, VirtualClock, Subscription, Delivery], object]] = {
    "given back": lambda store, clock, sub, one: sub.nack_batch([one]),
    "given back for later": give_back_for_later,
    "timed out": lambda store, clock, sub, one: clock.advance(ms=5_000),
    "kept for less": keep_for_less,
    "moved": lambda store, clock, sub, one: sub.seek({1: 0}),
}


@pytest.mark.parametrize("queue_id", [1, None])
@pytest.mark.parametrize("event", EVENTS)
def test_a_waiting_consumer_gets_what_comes_again(
    store: MessageStore, clock: VirtualClock, event: str, queue_id: int | None
) -> None:
    """Those of its queue are told, and those of all queues, whoever had the message."""
    sub, got = store.subscribe(TOPIC, "s"), list[Delivery]()
    put(store, 1)
    (one,) = sub.receive(visibility_timeout_ms=5_000, queue_id=None if queue_id else 1)
    consumer, other = waiting(sub, queue_id, got), waiting(sub, 0, [])
    EVENTS[event](store, clock, sub, one)
    consumer.join()
    assert places(got) == [(1, 0)]
    put(store, 0)
    other.join()


def test_what_is_given_out_while_it_waits_comes_when_it_times_out(store: MessageStore, clock: VirtualClock) -> None:
    sub, got = store.subscribe(TOPIC, "s"), list[Delivery]()
    consumer = waiting(sub, 1, got)
    with sub._dispatcher.receiving:  # it is told, and another one is quicker
        put(store, 1)
        taken = sub._dispatcher.take(1, 1 << 20, 2_000, 99)
    assert taken is not None
    until(lambda: sub._state.queue_calls._of[1][0].wakes_ms == sub._state.table.next_ms)
    clock.advance(ms=2_000)
    consumer.join()
    assert places(got) == [(1, 0)]


def test_a_waiting_consumer_gets_what_becomes_due(store: MessageStore, clock: VirtualClock) -> None:
    sub, got = store.subscribe(TOPIC, "s"), list[Delivery]()
    for queue_id in (0, 1):
        put(store, queue_id, deliver_at_ms=clock.wall_ms() + 700)
    consumers = [waiting(sub, 1, got), waiting(sub, None, got)]
    clock.advance(ms=700)
    for consumer in consumers:
        consumer.join()
    assert sorted(places(got)) == [(0, 0), (1, 0)]


def test_a_line_goes_on_for_the_consumer_of_its_queue(store: MessageStore) -> None:
    sub, got = store.subscribe(TOPIC, "s", mode="ordered"), list[Delivery]()
    for queue_id in (0, 1):
        put(store, queue_id, 2)
    first = [*sub.receive(1, queue_id=0), *sub.receive(1, queue_id=1)]
    consumer = waiting(sub, 1, got)
    sub.ack(first[0])
    assert got == []
    sub.ack(first[1])
    consumer.join()
    assert places(got) == [(1, 1)]


def test_lines_that_nobody_takes_do_not_pile_up(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s", mode="ordered", order_by="key")
    for at in range(120):
        store.append(TOPIC, at % 2, b"x", key=b"k")
    first = [sub.receive(1, queue_id=queue_id)[0] for queue_id in (0, 1)]
    for queue_id in (0, 1):
        assert sub.receive(100, queue_id=queue_id) == [], "they wait in their line"
    sub.ack_batch(first)
    seen = 0
    while got := sub.receive(1, queue_id=1):
        sub.ack_batch(got)
        seen += 1
    assert seen == 59
    order = sub._state.order
    assert order is not None
    assert len(order.freed) <= 3
    assert len(sub.receive(100)) == 59


def test_what_waits_to_come_again_is_listed_a_few_times_at_the_most(store: MessageStore) -> None:
    """Consumers of single queues leave no list that grows."""
    sub = store.subscribe(TOPIC, "s")
    for queue_id in (0, 1):
        put(store, queue_id, 3)
    sub.nack_batch(sub.receive())
    for _ in range(200):
        sub.nack_batch(sub.receive(queue_id=1))
    assert sum(map(len, sub._state.to_redeliver)) <= 3 * MOST_CHUNKS + 12
    assert len(sub.receive()) == 6


def test_in_order_what_does_not_fit_comes_to_consumers_of_all_queues(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s", mode="ordered")
    store.append_batch([(TOPIC, 1, bytes(1000))] * 4)
    given = sub.receive()
    sub.nack_batch(given[:3])  # they wait for the last one, which a consumer has
    assert sub.receive() == []
    sub.ack(given[3])
    few = sub.receive_batch(max_bytes=2500, queue_id=1)
    assert few.offsets.tolist() == [0, 1]
    sub.ack_batch(few.receipts)
    assert places(sub.receive()) == [(1, 2)]


def test_a_poor_message_of_the_queue_goes_to_the_dead_letters(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s", max_attempts=1, dead_letter_topic="dead")
    for queue_id in (0, 1):
        put(store, queue_id)
    sub.nack_batch(sub.receive())
    assert sub.receive(queue_id=1) == []
    assert [store.queue_bounds("dead", queue_id)[1] for queue_id in (0, 1)] == [0, 1]


def test_a_damaged_queue_stops_only_those_who_want_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for number in range(40):
            store.append(TOPIC, number % 2, b"MARKER%04d" % number + bytes(3000))
    flip(tmp_path / "s", b"MARKER0000")
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe(TOPIC, "s")
        with pytest.raises(StoreCorrupt):
            sub.receive(queue_id=0)
        assert len(sub.receive(queue_id=1)) == 20


def test_one_that_left_out_much_is_looked_through_to_its_end(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s", filter="tag = 'b'")
    for queue_id in (0, 1):
        store.append_batch([(TOPIC, queue_id, b"x")] * 20_000)
        store.append(TOPIC, queue_id, b"x", properties={"tag": "b"})
    assert places(sub.receive(queue_id=1)) == [(1, 20_000)]
    assert places(sub.receive()) == [(0, 20_000)]


def test_of_several_topics_one_queue_or_one_topic(store: MessageStore) -> None:
    sub = store.subscribe(["a", "b"], "s")
    for topic in "ab":
        fill(store, 2, 2, topic=topic)
    got = sub.receive(1, topic="b", queue_id=1)
    assert [(one.message.topic, *places([one])[0]) for one in got] == [("b", 1, 0)]
    batch = sub.receive_batch(topic="b")
    assert {topic for topic, _ in batch.stream_names} == {"b"}
    sub.ack_batch([got[0].receipt, *batch.receipts.tolist()])
    with pytest.raises(StaleReceipt):
        sub.ack(got[0].receipt)
    wrong: list[dict[str, Any]] = [{"queue_id": 0}, {"topic": "c"}, {"topic": "c", "queue_id": 0}, {"topic": 7}]
    for bad in wrong:
        with pytest.raises(InvalidMessage):
            sub.receive(**bad)
        with pytest.raises(InvalidMessage):
            asyncio.run(sub.receive_async(**bad))
    with pytest.raises(InvalidTopic):
        sub.receive(topic="a", queue_id=-1)
    assert len(asyncio.run(sub.receive_async(topic="a", queue_id=0))) == 2
    consumer = start(lambda: sub.ack_batch(sub.receive(1, LONG_MS, topic="b", queue_id=9)))
    until(lambda: len(store._waiting) > 0)
    store.append("b", 9, b"x")
    consumer.join()
    assert sub.backlog() == (2, 2, 0)


def test_a_coroutine_waits_for_its_queue(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")

    async def program() -> None:
        tasks = [asyncio.ensure_future(sub.receive_async(1, LONG_MS, queue_id=queue_id)) for queue_id in range(20)]
        while len(store._waiting) < 20:
            await asyncio.sleep(0.001)
        tasks[7].cancel()
        for queue_id in range(20):
            await store.append_async(TOPIC, queue_id, b"x")
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[7], asyncio.CancelledError)
        del found[7], tasks[7]
        assert [places(one) for one in found if isinstance(one, list)] == [
            [(queue_id, 0)] for queue_id in range(20) if queue_id != 7
        ]
        assert places(await sub.receive_async(1, LONG_MS)) == [(7, 0)]

    asyncio.run(program())
    assert not sub._state.queue_calls


def test_an_interrupted_relisting_loses_nothing(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = store.subscribe(TOPIC, "s")
    for queue_id in (0, 1):
        put(store, queue_id, 3)
    sub.nack_batch(sub.receive())
    sub.receive(1, queue_id=1, visibility_timeout_ms=LONG_MS)
    real, struck = Redelivery._waiting, [True]

    def once(redelivery: Redelivery, receipts: Any) -> Any:
        if struck:
            struck.clear()
            raise KeyboardInterrupt
        return real(redelivery, receipts)

    monkeypatch.setattr(Redelivery, "_waiting", once)
    monkeypatch.setattr(redelivery, "MOST_CHUNKS", -1)
    with pytest.raises(KeyboardInterrupt):
        sub.receive(1, queue_id=1)
    assert len(sub.receive()) == 5


def test_what_is_due_in_other_queues_stays_for_them(store: MessageStore, clock: VirtualClock) -> None:
    sub = store.subscribe(TOPIC, "s")
    for queue_id in range(4):
        put(store, queue_id, 2, deliver_at_ms=clock.wall_ms() + 500)
    assert sub.receive() == []
    clock.advance(ms=500)
    until(lambda: not store.stats()["delayed"][TOPIC]["is_behind"])
    assert sorted(places(sub.receive(queue_id=2))) == [(2, 0), (2, 1)]
    assert sorted(places(sub.receive(1, queue_id=3))) == [(3, 0)]
    assert sorted(places(sub.receive())) == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 1)]
