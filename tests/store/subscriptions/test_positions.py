"""How far a subscription is: positions, messages in flight, rates; and acknowledging up to a message."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import numpy as np
import pytest

from stratalog import InvalidMessage, MessageStore, StaleReceipt, StoreReader, SubscriptionClosed
from stratalog.store import InFlightMessage, Position
from stratalog.store.format.arrays import Int64s

from ...seeds import draw_seed
from ..helpers import Worker, start, tiny
from .helpers import TOPIC, BothClocks, fill, places


def test_a_new_subscription_is_at_the_beginning_of_each_queue(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    assert sub.positions() == {}
    fill(store, 3, 0, 5)
    assert sub.positions() == {0: Position(0, 0, 3), 2: Position(0, 0, 5)}
    assert store.subscribe(TOPIC, "late", start="latest").positions() == {0: Position(3, 0, 3), 2: Position(5, 0, 5)}


def test_the_mark_moves_over_what_is_acknowledged_without_a_gap(store: MessageStore) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    given = sub.receive()
    for at, expected in ((2, (0, 1, 6)), (1, (0, 2, 6)), (4, (0, 3, 6)), (0, (3, 1, 6)), (3, (5, 0, 6))):
        sub.ack(given[at])
        assert sub.positions() == {0: expected}
    (info,) = store.subscriptions(TOPIC)
    assert info.positions == {0: Position(mark_delete=5, acknowledged_above=0, next_offset=6)}


def test_positions_are_those_of_a_model_whatever_is_acknowledged(store: MessageStore, tmp_path: Path) -> None:
    dice = random.Random(draw_seed())
    fill(store, 60, 60)
    sub = store.subscribe(TOPIC, "a")
    left = {(one.message.queue_id, one.message.offset): one for one in sub.receive(120)}
    acked: dict[int, set[int]] = {0: set(), 1: set()}
    while left:
        for queue_id, offset in dice.sample(sorted(left), min(len(left), dice.randint(1, 9))):
            sub.ack(left.pop((queue_id, offset)))
            acked[queue_id].add(offset)
        marks = {queue: next(at for at in range(61) if at not in acked[queue]) for queue in acked}
        expected = {queue: (marks[queue], len(acked[queue]) - marks[queue], 60) for queue in acked}
        assert sub.positions() == expected
        with StoreReader.open(store.path) as reader:
            assert reader.subscriptions(TOPIC)[0].positions == expected


def test_what_a_trim_by_positions_leaves_is_what_is_left_to_consume(store: MessageStore) -> None:
    fill(store, 20, 20)
    sub = store.subscribe(TOPIC, "a")
    given = sub.receive(40)
    for delivery in given[::2]:
        sub.ack(delivery)
    left = {(one.message.queue_id, one.message.offset) for one in given[1::2]}
    for queue_id, position in sub.positions().items():
        store.trim(TOPIC, queue_id, position.mark_delete)
    sub.close()
    assert set(places(store.subscribe(TOPIC, "a").receive(40))) == left


def test_messages_in_flight_say_what_they_are_and_until_when(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        fill(store, 5)
        one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
        now_ms = clock.wall_ms()
        (first,) = one.receive(1, visibility_timeout_ms=1000)
        second, third = other.receive(2, visibility_timeout_ms=5000)
        clock.go(300)
        assert one.in_flight() == [
            InFlightMessage(TOPIC, 0, 0, 1, now_ms + 1000, first.receipt),
            InFlightMessage(TOPIC, 0, 1, 1, now_ms + 5000, second.receipt),
            InFlightMessage(TOPIC, 0, 2, 1, now_ms + 5000, third.receipt),
        ]
        other.ack(second)
        other.nack(third, delay_ms=100)
        assert [message.offset for message in other.in_flight()] == [0]
        assert one.message_of(first) == one.message_of(first.receipt) == one.in_flight()[0]
        for stale in (second, third.receipt):
            with pytest.raises(StaleReceipt):
                one.message_of(stale)


def test_a_message_that_timed_out_is_not_in_flight_and_its_receipt_is_good_until_it_is_given_out(
    tmp_path: Path,
) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        fill(store, 1)
        sub = store.subscribe(TOPIC, "a")
        (first,) = sub.receive(visibility_timeout_ms=1000)
        clock.go(1001)
        assert sub.in_flight() == []
        assert sub.message_of(first).until_ms < clock.wall_ms()
        (again,) = sub.receive()
        assert [one.attempt for one in sub.in_flight()] == [2] == [again.attempt]
        with pytest.raises(StaleReceipt):
            sub.message_of(first)


def test_ack_up_to_takes_the_messages_of_its_queue_that_this_object_has_and_no_others(store: MessageStore) -> None:
    fill(store, 8)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    mine, theirs = one.receive(3), other.receive(3)
    mine += one.receive(2)
    fill(store, 0, 8)
    of_other_queue = one.receive(4)
    assert [len(places(some)) for some in (mine, theirs, of_other_queue)] == [5, 3, 4]
    one.nack(mine[0], delay_ms=60_000)
    assert one.ack_up_to(mine[-1]) == 4
    assert one.positions() == {0: (0, 4, 8), 1: (0, 0, 8)}
    assert _left(store) == {(0, 0), (0, 3), (0, 4), (0, 5), *((1, at) for at in range(8))}
    with pytest.raises(StaleReceipt):
        one.ack_up_to(mine[-1])
    assert other.ack_up_to(theirs[1]) == 2


def _left(store: MessageStore) -> set[tuple[int, int]]:
    """What is not acknowledged, as a reader of the log sees it."""
    with StoreReader.open(store.path) as reader:
        cursor = reader._subscriptions()._cursor_of(TOPIC, "a")
    return {(queue, at) for queue in store.queues(TOPIC) for at in range(8) if at not in cursor.queue(queue)}


def test_ack_up_to_does_not_fail_for_a_message_that_others_acknowledge_meanwhile(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It chooses its messages and marks them by one step."""
    store.append_batch([(TOPIC, 0, b"x")] * 3)
    sub = store.subscribe(TOPIC, "a")
    given, workers = sub.receive(), list[Worker]()
    plain = sub._state.receipts_up_to

    def other() -> None:
        with pytest.raises(StaleReceipt):
            sub.ack(given[0])

    def chosen(receipt: int, owner: int) -> Int64s:
        found = plain(receipt, owner)
        workers.append(start(other))
        time.sleep(0.05)  # it comes as far as it can
        return found

    monkeypatch.setattr(sub._state, "receipts_up_to", chosen)
    assert sub.ack_up_to(given[2]) == 3
    workers[0].join()


def test_a_message_that_was_removed_may_be_acknowledged_by_ack_up_to_as_by_ack(store: MessageStore) -> None:
    store.append_batch([(TOPIC, 0, b"x")] * 4)
    sub = store.subscribe(TOPIC, "a")
    given = sub.receive()
    store.trim(TOPIC, 0, 2)
    assert sub.receive() == []
    sub.ack(given[1])
    assert sub.ack_up_to(given[1]) == 0
    assert sub.ack_up_to(given[3]) == 2


def test_ack_up_to_by_a_receipt_from_a_coroutine_and_of_what_others_gave(store: MessageStore) -> None:
    fill(store, 10)
    sub = store.subscribe(TOPIC, "a")
    given = sub.receive(10)

    async def acknowledge() -> int:
        return await sub.ack_up_to_async(given[4].receipt)

    assert asyncio.run(acknowledge()) == 5
    assert sub.positions() == {0: (5, 0, 10)}
    assert sub.ack_up_to(np.int64(given[9].receipt)) == 5  # type: ignore[arg-type]  # as a batch has them
    assert sub.positions() == {0: (10, 0, 10)}
    with pytest.raises(InvalidMessage):
        sub.ack_up_to("x")  # type: ignore[arg-type]


def test_rates_and_the_age_of_the_oldest_message(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        (info,) = store.subscriptions()
        assert (info.oldest_ms, info.arrived_per_s, info.acknowledged_per_s) == (None, None, None)
        fill(store, 30)
        first_ms = clock.wall_ms()
        clock.go(500)
        (info,) = store.subscriptions()
        assert (info.oldest_ms, info.arrived_per_s) == (first_ms, None)
        clock.go(2500)
        fill(store, 0, 30)
        sub.ack_batch([one for one in sub.receive(60) if one.message.queue_id == 0])
        (info,) = store.subscriptions()
        assert (info.arrived_per_s, info.acknowledged_per_s) == (20.0, 10.0)
        assert info.oldest_ms == first_ms + 3000
        clock.go(400)
        (info,) = store.subscriptions()  # the look before was less than a second ago
        assert info.acknowledged_per_s == pytest.approx(30 / 3.4)
        clock.go(1000)
        (info,) = store.subscriptions()
        assert (info.arrived_per_s, info.acknowledged_per_s) == (0.0, 0.0)


def test_the_oldest_message_of_what_retention_left_and_of_a_gap(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        for _ in range(6):
            fill(store, 1)
            clock.go(1000)
        begin = clock.wall_ms() - 6000
        sub = store.subscribe(TOPIC, "a")
        given = sub.receive()
        sub.ack(given[0])
        sub.ack(given[2])
        assert store.subscriptions()[0].oldest_ms == begin + 1000
        store.trim(TOPIC, 0, 2)
        assert store.subscriptions()[0].oldest_ms == begin + 3000
        store.trim(TOPIC, 0, 6)
        assert store.subscriptions()[0].oldest_ms is None


def test_the_rates_of_a_deleted_subscription_are_forgotten(store: MessageStore) -> None:
    for number in range(20):
        store.subscribe(TOPIC, f"s{number}").close()
    assert len(store.subscriptions()) == 20
    for number in range(20):
        store.delete_subscription(TOPIC, f"s{number}")
    assert store.subscriptions() == []  # where a deletion could not forget it at once, the next look does
    assert store._subscriptions()._rates._looks == {}


def test_a_closed_subscription_tells_nothing(store: MessageStore) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (given,) = sub.receive()
    sub.close()
    for call in (sub.positions, sub.in_flight, lambda: sub.message_of(given), lambda: sub.ack_up_to(given)):
        with pytest.raises(SubscriptionClosed):
            call()


def test_a_reader_forgets_the_rates_of_subscriptions_that_their_writer_has_deleted(store: MessageStore) -> None:
    with StoreReader.open(store.path) as reader:
        for number in range(5):
            store.subscribe(TOPIC, f"a{number}").close()
            assert len(reader.subscriptions()) == 1
            store.delete_subscription(TOPIC, f"a{number}")
        assert reader.subscriptions() == []
        assert not reader._subscriptions()._rates._looks
