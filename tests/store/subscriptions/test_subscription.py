"""What a subscription promises to its consumers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import (
    Delivery,
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    OffsetOutOfRange,
    StaleReceipt,
    StoreClosed,
    StoreReadOnly,
    SubscriptionClosed,
)

from ...clocks import SteppedClock, WallClock
from ..helpers import PATIENCE_S, tiny, until
from .helpers import TOPIC, fill, places

LONG_MS = int(PATIENCE_S * 1000)


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with the machine's own clock."""
    with MessageStore.open(tmp_path / "timed", tiny()) as opened:
        yield opened


# -- receiving and acknowledging ----------------------------------------------------------------------


def test_messages_come_in_the_order_of_each_queue_and_by_turns_of_the_queues(store: MessageStore) -> None:
    fill(store, 40, 40, 40)
    sub = store.subscribe(TOPIC, "a")
    queues = []
    for _ in range(12):
        got = places(sub.receive(10))
        queues.append(got[0][0])
        assert got == [(got[0][0], at) for at in range(got[0][1], got[0][1] + 10)]
    assert sorted(queues) == [0] * 4 + [1] * 4 + [2] * 4
    assert set(queues[:3]) == {0, 1, 2}
    assert sub.receive() == []


def test_an_acknowledged_message_never_comes_again(store: MessageStore, tmp_path: Path, clock: SteppedClock) -> None:
    fill(store, 10)
    with store.subscribe(TOPIC, "a") as sub:
        got = sub.receive()
        sub.ack(got[3])
        sub.ack_batch(got[5:7])
        clock.now += 100
        assert places(sub.receive()) == [(0, at) for at in (0, 1, 2, 4, 7, 8, 9)]
    store.close()
    with MessageStore.open(tmp_path / "store") as again:
        assert places(again.subscribe(TOPIC, "a").receive()) == [(0, at) for at in (0, 1, 2, 4, 7, 8, 9)]


def test_many_acknowledgements_are_under_way_at_once(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 300)
    sub = store.subscribe(TOPIC, "a")
    tickets = [sub.submit_ack(one) for one in sub.receive(299)]
    for ticket in tickets:
        ticket.result()
    with pytest.raises(StaleReceipt):
        sub.submit_ack(1)
    clock.now += 31
    assert places(sub.receive()) == [(0, 299)]

    async def acknowledge() -> None:
        await sub.submit_ack(sub.receive()[0])

    store.append(TOPIC, 0, b"300")
    asyncio.run(acknowledge())
    store.close()
    with MessageStore.open(store.path) as again:
        assert places(again.subscribe(TOPIC, "a").receive()) == [(0, 299)]


def test_consumers_of_one_name_compete(store: MessageStore) -> None:
    fill(store, 10)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    assert places(one.receive(4)) + places(other.receive(100)) == [(0, at) for at in range(10)]
    assert len(store.subscribe(TOPIC, "b").receive()) == 10, "another name has its own cursor"


def test_what_timed_out_comes_again_first_with_its_attempts_counted(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    sub.receive(1, visibility_timeout_ms=1000)
    clock.now += 2
    again = sub.receive(3)
    assert places(again) == [(0, 0), (0, 1), (0, 2)]
    assert [one.attempt for one in again] == [2, 1, 1]


def test_a_late_receipt_is_good_until_the_message_is_given_to_another(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    late, stale = sub.receive(2, visibility_timeout_ms=1000)
    clock.now += 2
    assert sub.receive(1, visibility_timeout_ms=1000)[0].message == late.message
    with pytest.raises(StaleReceipt) as raised:
        sub.ack_batch([late, stale])
    assert raised.value.receipts == (late.receipt,)
    sub.ack(stale)
    clock.now += 2
    assert places(sub.receive()) == [(0, 0)]


def test_what_is_given_back_comes_after_its_delay(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    first, second = sub.receive()
    sub.nack(first, delay_ms=5000)
    sub.nack(second)
    assert places(sub.receive()) == [(0, 1)]
    assert sub.backlog() == (0, 1, 1)
    clock.now += 5
    assert places(sub.receive()) == [(0, 0)]


def test_extended_messages_stay(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (got,) = sub.receive(visibility_timeout_ms=1000)
    clock.now += 0.9
    sub.extend(got, 10_000)
    clock.now += 9
    assert sub.receive() == []
    clock.now += 2
    assert len(sub.receive()) == 1


def test_a_batch_has_the_columns_of_its_messages(store: MessageStore) -> None:
    fill(store, 3, 2)
    store.append(TOPIC, 1, b"with extras", key=b"k", properties={"a": "b"}, deliver_at_ms=1)
    sub = store.subscribe(TOPIC, "a")
    batch = sub.receive_batch()
    assert len(batch) == 6
    assert batch.queue_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert [bytes(data) for data in batch.payloads()] == [b"0/0", b"0/1", b"0/2", b"1/0", b"1/1", b"with extras"]
    assert batch.message(5).properties == {"a": "b"}
    assert batch.attempts.tolist() == [1] * 6
    assert len(set(batch.receipts.tolist())) == 6
    sub.ack_batch(batch.receipts)
    assert sub.backlog().total == 0
    assert len(sub.receive_batch()) == 0


def test_a_batch_ends_before_its_bytes_would_pass_the_limit(store: MessageStore) -> None:
    store.append_batch([(TOPIC, 0, bytes(100)) for _ in range(10)])
    sub = store.subscribe(TOPIC, "a")
    assert [len(sub.receive_batch(10, max_bytes=size)) for size in (250, 1, 100, 350, 1000)] == [2, 1, 1, 3, 3]


def test_acknowledging_in_any_order_moves_on(store: MessageStore) -> None:
    fill(store, 500)
    sub = store.subscribe(TOPIC, "a")
    batch = sub.receive_batch()
    for receipts in np.array_split(np.random.default_rng(4).permutation(batch.receipts), 40):
        sub.ack_batch(receipts)
    assert sub.backlog() == (0, 0, 0)
    assert sub._state.cursor.queues[0].mark == 500


# -- waiting ------------------------------------------------------------------------------------------


def test_a_receive_waits_for_a_message_of_a_queue_that_is_new(timed: MessageStore) -> None:
    sub = timed.subscribe(TOPIC, "a")
    got: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: got.extend(places(sub.receive(wait_ms=LONG_MS))))
    thread.start()
    until(lambda: len(timed._waiting) == 1)
    timed.append(TOPIC, 5, b"x")
    thread.join(PATIENCE_S)
    assert got == [(5, 0)]


def test_a_receive_that_waits_is_woken_by_what_is_given_back(timed: MessageStore) -> None:
    fill(timed, 1)
    sub = timed.subscribe(TOPIC, "a")
    (first,) = sub.receive()
    got: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: got.extend(places(sub.receive(wait_ms=LONG_MS))))
    thread.start()
    until(lambda: len(timed._waiting) == 1)
    sub.nack(first, delay_ms=20)
    thread.join(PATIENCE_S)
    assert got == [(0, 0)]


def test_a_receive_that_waits_gets_what_times_out(timed: MessageStore) -> None:
    fill(timed, 1)
    sub = timed.subscribe(TOPIC, "a")
    sub.receive(visibility_timeout_ms=20)
    assert [one.attempt for one in sub.receive(wait_ms=LONG_MS)] == [2]


def test_a_receive_that_waits_in_vain_is_empty_after_its_time(timed: MessageStore) -> None:
    sub = timed.subscribe(TOPIC, "a")
    assert sub.receive(wait_ms=20) == []
    assert len(sub.receive_batch(wait_ms=20)) == 0


def test_coroutines_receive_and_wait(timed: MessageStore) -> None:
    sub = timed.subscribe(TOPIC, "a")

    async def both() -> list[tuple[int, int]]:
        waiting = [asyncio.create_task(sub.receive_async(1, wait_ms=LONG_MS)) for _ in range(3)]
        while len(timed._waiting) < 3:
            await asyncio.sleep(0)
        for _ in range(3):
            await timed.append_async(TOPIC, 0, b"x")
        return [place for task in waiting for place in places(await task)]

    assert sorted(asyncio.run(both())) == [(0, 0), (0, 1), (0, 2)]


def test_closing_the_store_ends_a_receive_that_waits(timed: MessageStore) -> None:
    sub = timed.subscribe(TOPIC, "a")
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            sub.receive(wait_ms=LONG_MS)
        except StoreClosed as error:
            raised.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    until(lambda: len(timed._waiting) == 1)
    timed.close()
    thread.join(PATIENCE_S)
    assert len(raised) == 1


# -- where it begins, and moving ----------------------------------------------------------------------


def test_a_new_one_begins_where_it_is_told(store: MessageStore) -> None:
    fill(store, 4, 4)
    assert len(store.subscribe(TOPIC, "all").receive()) == 8
    latest = store.subscribe(TOPIC, "new", start="latest")
    assert latest.receive() == []
    some = store.subscribe(TOPIC, "some", start={1: 3})
    fill(store, 1, 0, 2)
    assert sorted(places(latest.receive())) == [(0, 4), (2, 0), (2, 1)]
    assert sorted(places(some.receive())) == [(0, at) for at in range(5)] + [(1, 3), (2, 0), (2, 1)]
    with pytest.raises(OffsetOutOfRange):
        store.subscribe(TOPIC, "beyond", start={0: 6})


def test_it_begins_and_seeks_by_time(tmp_path: Path) -> None:
    now = [1_000_000]
    with MessageStore.open(tmp_path / "by-time", tiny(), clock=WallClock(lambda: now[0])) as store:
        fill(store, 2)
        now[0] += 1000
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a", start=1_001_000)
        assert places(sub.receive()) == [(0, 2), (0, 3)]
        sub.seek(1_000_000)
        assert places(sub.receive()) == [(0, at) for at in range(4)]


def test_seeking_makes_receipts_stale_and_brings_back_what_was_acknowledged(store: MessageStore) -> None:
    fill(store, 3, 3)
    sub = store.subscribe(TOPIC, "a")
    got = {place: one for one in sub.receive() for place in places([one])}
    sub.ack_batch([got[0, 0], got[1, 0]])
    sub.seek({0: 0})
    with pytest.raises(StaleReceipt):
        sub.ack(got[0, 1])
    sub.ack(got[1, 1])
    assert places(sub.receive()) == [(0, 0), (0, 1), (0, 2)]
    sub.seek("earliest")
    assert len(sub.receive()) == 6
    sub.skip_all()
    assert sub.receive() == []
    assert sub.backlog() == (0, 0, 0)
    with pytest.raises(OffsetOutOfRange):
        sub.seek({0: 4})


def test_a_seek_survives(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 5)
    sub = store.subscribe(TOPIC, "a")
    sub.ack_batch(sub.receive())
    sub.seek({0: 2})
    sub.ack(sub.receive(2)[1])
    store.close()
    with MessageStore.open(tmp_path / "store") as again:
        assert places(again.subscribe(TOPIC, "a").receive()) == [(0, 2), (0, 4)]


# -- ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100])
def test_an_object_that_is_closed_gives_back_what_it_was_given_and_no_more(store: MessageStore, count: int) -> None:
    fill(store, 4)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    got = one.receive(count) + one.receive(1)
    kept = other.receive(count)
    one.nack(got[0], delay_ms=60_000)
    one.close()
    one.close()
    left = [place for place in places(got) if place != (0, 0)]
    again = other.receive()
    assert [(place, each.attempt) for place, each in zip(places(again), again, strict=True)][: len(left)] == [
        (place, 2) for place in left
    ]
    assert not set(places(again)) & {(0, 0), *places(kept)}
    other.ack_batch(kept)
    if len(got) > 1:
        with pytest.raises(StaleReceipt):
            other.ack(got[1])


def test_what_a_closed_object_has_may_be_acknowledged_until_it_is_given_to_another(store: MessageStore) -> None:
    fill(store, 2)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    got = one.receive()
    one.close()
    other.ack(got[0])
    assert places(other.receive()) == [(0, 1)]


def test_a_consumer_that_waits_gets_at_once_what_another_one_leaves(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
        one.receive(visibility_timeout_ms=1 << 30)
        came: list[Delivery] = []
        thread = threading.Thread(target=lambda: came.extend(other.receive(wait_ms=int(PATIENCE_S * 1000))))
        thread.start()
        until(lambda: len(store._fetcher.waiting) > 0)
        one.close()
        thread.join(PATIENCE_S / 4)
        assert places(came) == [(0, 0)]


def test_the_last_one_that_closes_gives_everything_back(store: MessageStore) -> None:
    fill(store, 2)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    (got, _) = one.receive()
    one.close()
    other.ack(got)
    other.close()
    assert places(store.subscribe(TOPIC, "a").receive()) == [(0, 1)]
    for call in (one.receive, one.backlog, one.skip_all, lambda: one.ack(got)):
        with pytest.raises(SubscriptionClosed):
            call()


def test_a_subscription_ends_with_its_store_and_in_a_forked_child(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    sub.receive(1)
    child = os.fork()
    if not child:
        try:
            with sub._state.lock, sub._state.changing, sub._dispatcher.receiving:  # as a lost thread would
                sub.close()
                sub.receive()
        except StoreClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert places(sub.receive()) == [(0, 1)]
    store.close()
    sub.close()
    with pytest.raises(StoreClosed):
        sub.receive()


def test_a_deleted_one_is_gone_and_a_new_one_begins_anew(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    (got, *_) = sub.receive()
    sub.ack(got)
    assert store.delete_subscription(TOPIC, "a")
    assert not store.delete_subscription(TOPIC, "a")
    assert store.subscriptions() == []
    with pytest.raises(SubscriptionClosed):
        sub.receive()
    store.close()
    with MessageStore.open(tmp_path / "store") as again:
        assert again.subscriptions() == []
        assert len(again.subscribe(TOPIC, "a").receive()) == 3
        assert again.delete_subscription(TOPIC, "a")
        assert len(again.subscribe(TOPIC, "a", start={0: 1}).receive()) == 2


def test_other_settings_are_refused_where_they_would_give_out_other_messages(store: MessageStore) -> None:
    store.subscribe(TOPIC, "a", filter={"tag": ["b", "a"]}, precision_ms=5)
    store.subscribe(TOPIC, "a", filter={"tag": {"a", "b"}})
    assert store.subscriptions(TOPIC)[0].settings.precision_ms == 5
    with pytest.raises(InvalidMessage, match="filter"):
        store.subscribe(TOPIC, "a")
    with pytest.raises(InvalidMessage, match="mode"):
        store.subscribe(TOPIC, "a", mode="ordered", filter={"tag": {"a", "b"}})


def test_the_list_has_settings_and_backlogs(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "b")
    store.subscribe("other", "a")
    sub.ack(sub.receive(2)[0])
    assert [(one.topic, one.name, one.backlog) for one in store.subscriptions()] == [
        (TOPIC, "b", (1, 1, 0)), ("other", "a", (0, 0, 0)),
    ]  # fmt: skip
    assert [one.name for one in store.subscriptions("other")] == ["a"]


def test_a_reader_of_the_store_lists_them_and_subscribes_to_none(store: MessageStore) -> None:
    fill(store, 3)
    with MessageStore.open(store.path, read_only=True) as reader:
        sub = store.subscribe(TOPIC, "a")
        sub.ack(sub.receive()[0])
        assert [(one.name, one.backlog.total) for one in reader.subscriptions(TOPIC)] == [("a", 2)]
        for name in ("subscribe", "delete_subscription"):
            assert not hasattr(reader, name)
            with pytest.raises(StoreReadOnly, match="read_only=True"):
                getattr(reader, name)(TOPIC, "a")


def test_users_see_nothing_of_where_it_is_kept(store: MessageStore) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    sub.ack(sub.receive()[0])
    assert store.topics() == [TOPIC]
    assert [len(batch) for batch in store.scan()] == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""}, {"name": 3}, {"name": "a\x01b"}, {"name": "x" * 256}, {"start": "newest"}, {"start": -1},
        {"start": {0: -1}}, {"start": {"0": 1}}, {"start": True}, {"mode": "fast"}, {"order_by": "size"},
        {"filter": {}}, {"filter": {"tag": "a"}}, {"filter": {"tag": []}}, {"filter": {1: ["a"]}},
        {"max_attempts": 3}, {"dead_letter_topic": "x"}, {"max_attempts": 0, "dead_letter_topic": "x"},
        {"precision_ms": -1}, {"precision_ms": 1.5}, {"mode": ["shared"]},
    ],
)  # fmt: skip
def test_wrong_arguments_make_nothing(store: MessageStore, arguments: dict[str, object]) -> None:
    given: dict[str, object] = {"topic": TOPIC, "name": "a", **arguments}
    with pytest.raises(InvalidMessage):
        store.subscribe(**given)  # type: ignore[call-overload]  # wrong ones are what it is about
    with pytest.raises(InvalidTopic):
        store.subscribe("", "a")
    assert store.subscriptions() == []


@pytest.mark.parametrize("wrong", [None, "1", 1.0, -1, 1 << 64, True, b"1", [1], object()])
def test_what_is_no_receipt_is_refused(store: MessageStore, wrong: object) -> None:
    sub = store.subscribe(TOPIC, "a")
    for call in (sub.ack, sub.nack):
        with pytest.raises(InvalidMessage):
            call(wrong)  # type: ignore[arg-type]  # wrong ones are what it is about
    with pytest.raises((InvalidMessage, StaleReceipt)):
        sub.ack_batch([wrong])  # type: ignore[arg-type]  # as above
    for count in (0, -1, 1.5, "2"):
        with pytest.raises(InvalidMessage):
            sub.receive(count)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("how", ["receive", "extend", "nack"])
def test_no_message_comes_again_before_its_time_is_over_whatever_part_of_a_ms_it_is(
    store: MessageStore, clock: SteppedClock, how: str, count: int
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    clock.now = 1000.0009
    (got,) = sub.receive(count, visibility_timeout_ms=2 if how == "receive" else 60_000)
    if how == "extend":
        sub.extend(got, 2)
    if how == "nack":
        sub.nack(got, delay_ms=2)
    clock.now = 1000.0028
    assert sub.receive() == []
    clock.now = 1000.0030001
    assert places(sub.receive()) == [(0, 0)]
