"""One subscription over several topics: what it takes, gives out, acknowledges and says."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    Delivery,
    InvalidMessage,
    InvalidTopic,
    Message,
    MessageStore,
    OffsetOutOfRange,
    StaleReceipt,
    StoreClosed,
    StoreReadOnly,
    SubscriptionClosed,
)
from stratalog.store.subscriptions.topics_subscription import TopicsSubscription
from stratalog.store.testing import VirtualClock

from ..helpers import crash_copy, start, tiny, until
from .helpers import fill

TOPICS = ["bills", "orders"]


@pytest.fixture
def timely(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose clock goes on by itself."""
    with MessageStore.open(tmp_path / "timely", tiny()) as opened:
        yield opened


@pytest.fixture
def virtual(tmp_path: Path) -> Iterator[tuple[MessageStore, VirtualClock]]:
    """A store, and its clock, which the test moves."""
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "virtual", tiny(), clock=clock) as opened:
        yield opened, clock


def whole(deliveries: list[Delivery]) -> list[tuple[str, int, int]]:
    """(topic, queue id, offset) of each message."""
    return [(one.message.topic, one.message.queue_id, one.message.offset) for one in deliveries]


def fill_both(store: MessageStore, *counts: int) -> None:
    for topic in TOPICS:
        fill(store, *counts, topic=topic)


def test_messages_of_all_topics_come_each_once_until_they_are_acknowledged(
    virtual: tuple[MessageStore, VirtualClock],
) -> None:
    store, clock = virtual
    with store.subscribe(TOPICS, "s") as sub:
        fill_both(store, 3, 2)
        got = sub.receive()
        assert sorted(whole(got)) == [
            (topic, q, at) for topic in TOPICS for q, n in ((0, 3), (1, 2)) for at in range(n)
        ]
        assert [one.message.data for one in got] == [b"%d/%d" % (queue_id, at) for _, queue_id, at in whole(got)]
        assert {one.subscription for one in got} == {"s"}
        assert sub.receive() == []
        sub.ack_batch(got[:4])
        clock.advance(ms=31_000)
        again = sub.receive()
        assert sorted(whole(again)) == sorted(whole(got[4:]))
        assert {one.attempt for one in again} == {2}


def test_a_batch_has_the_topic_of_each_message(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2, 1)
    batch = sub.receive_batch()
    names = [batch.stream_names[at] for at in batch.stream_index.tolist()]
    assert Counter(topic for topic, _ in names) == {"bills": 3, "orders": 3}
    assert [one.message.topic for one in batch.deliveries()] == [topic for topic, _ in names]
    assert [sub.topic_of(receipt) for receipt in batch.receipts.tolist()] == [topic for topic, _ in names]
    sub.ack_batch(batch.receipts)
    assert sub.backlog() == (0, 0, 0)
    assert len(sub.receive_batch()) == 0


def test_all_acknowledgements_of_a_batch_share_one_frame(store: MessageStore) -> None:
    sub = store.subscribe([f"t{at}" for at in range(20)], "s")
    for at in range(20):
        store.append(f"t{at}", 0, b"x")
    batch = sub.receive_batch()
    before = store.stats()["log"]["frames"]
    sub.ack_batch(batch.receipts)
    assert store.stats()["log"]["frames"] == before + 1
    assert sub.backlog().total == 0


def test_in_several_lanes_a_batch_is_acknowledged_in_all_of_them(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=4)) as store:
        sub = store.subscribe([f"t{at}" for at in range(8)], "s")
        for at in range(8):
            store.append(f"t{at}", 0, b"x")
        sub.ack_batch(sub.receive_batch().receipts)
        assert sub.backlog().total == 0
        crash_copy(tmp_path / "s", tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy") as again:
        assert again.subscribe([f"t{at}" for at in range(8)], "s").receive() == []


@pytest.mark.parametrize("lanes", [1, 3])
def test_with_a_stale_receipt_no_message_of_any_topic_is_acknowledged_or_given_back(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=lanes)) as store:
        sub = store.subscribe(TOPICS, "s")
        fill_both(store, 2)
        batch = sub.receive_batch()
        sub.ack(int(batch.receipts[-1]))
        for call in (sub.ack_batch, sub.nack_batch):
            with pytest.raises(StaleReceipt) as caught:
                call(batch.receipts)
            assert caught.value.receipts == (int(batch.receipts[-1]),)
            for unknown in (7, -7):
                with pytest.raises(StaleReceipt):
                    call([*batch.receipts[:2].tolist(), unknown])
            assert sub.backlog() == (0, 3, 0)


def test_receipts_and_deliveries_are_known_by_their_topic(virtual: tuple[MessageStore, VirtualClock]) -> None:
    store, clock = virtual
    sub, other = store.subscribe(TOPICS, "s"), store.subscribe("orders", "s")
    fill_both(store, 4)
    got = sub.receive(3) + sub.receive(3)
    by_topic = {one.message.topic: one for one in got}
    assert set(by_topic) == set(TOPICS)
    bill, order = by_topic["bills"], by_topic["orders"]
    assert sub.message_of(bill.receipt)[:3] == ("bills", 0, bill.message.offset)
    assert sub.message_of(order)[:3] == ("orders", 0, order.message.offset)
    sub.extend(bill.receipt, 60_000)
    sub.nack(order.receipt, 5_000)
    with pytest.raises(StaleReceipt):
        sub.ack(order)
    clock.advance(ms=5_000)
    (again,) = other.receive(1)
    assert again.message == order.message
    sub.ack(again)  # of another object of the name: the delivery says its topic
    with pytest.raises(StaleReceipt):
        sub.ack(again.receipt)
    clock.advance(ms=31_000)
    sub.ack(bill)
    strange = Delivery(Message("nowhere", 0, 0, b"", 0, None, None, None), 1, bill.receipt, "s")
    odd: Any = Delivery(None, 1, bill.receipt, "s")  # type: ignore[arg-type]
    for wrong in (strange, odd, 5):
        with pytest.raises(StaleReceipt):
            sub.ack(wrong)
    for bad in ("x", None, -1, 1 << 63, 1.5):
        with pytest.raises(InvalidMessage):
            sub.ack(bad)  # type: ignore[arg-type]


def test_a_busy_topic_does_not_hold_up_the_others(store: MessageStore) -> None:
    sub = store.subscribe([f"t{at}" for at in range(5)], "s")
    for size in (1, 7, 100):  # one by one, a few, and in columns
        store.append_batch([("t0", 0, b"busy")] * 500)
        for _ in range(3):
            assert {one.message.topic for one in sub.receive(size)} == {"t0"}
        for at in range(1, 5):
            store.append_batch([(f"t{at}", 0, b"rare")] * size)
        seen = Counter(one.message.topic for _ in range(5) for one in sub.receive(size))
        assert set(seen) == {f"t{at}" for at in range(5)}, size
        sub.skip_all()


def test_what_times_out_comes_also_before_a_timer_says_so(
    virtual: tuple[MessageStore, VirtualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = virtual
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)

    def none(*given: Any) -> None:
        raise RuntimeError("there are no timers")

    monkeypatch.setattr(store._waiting, "at", none)
    for _ in range(3):
        assert len(sub.receive()) == 4
        assert sub.receive() == []
        clock.advance(ms=30_000)


def test_a_batch_ends_before_its_bytes_and_has_a_message_at_the_least(store: MessageStore) -> None:
    sub = store.subscribe(["a", "b", "c"], "s")
    for topic in "abc":
        store.append_batch([(topic, 0, bytes(1000))] * 3)
    for most in (1, 999, 1000, 1999, 2500, 3100, 5000, 8999, 9000):
        sub.seek("earliest")
        seen = set()
        while len(batch := sub.receive_batch(max_bytes=most)):
            assert len(batch) == 1 or int(batch.lengths.sum()) <= most
            seen.update(whole(batch.deliveries()))
            assert {one.attempt for one in batch.deliveries()} == {1}
        assert len(seen) == 9, most


def test_positions_backlogs_and_seeks_are_by_topic_and_queue(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 3, 1)
    sub.ack_batch(sub.receive())
    assert {place: at.mark_delete for place, at in sub.positions().items()} == {
        ("bills", 0): 3, ("bills", 1): 1, ("orders", 0): 3, ("orders", 1): 1,
    }  # fmt: skip
    sub.seek({("bills", 0): 1, ("orders", 1): 0})
    assert sub.backlog() == (3, 0, 0)
    assert sorted(whole(sub.receive())) == [("bills", 0, 1), ("bills", 0, 2), ("orders", 1, 0)]
    assert sorted(one[:3] for one in sub.in_flight()) == [("bills", 0, 1), ("bills", 0, 2), ("orders", 1, 0)]
    for wrong, error in (
        ({("bills", 0): 9, ("orders", 0): 0}, OffsetOutOfRange),
        ({("orders", 0): 0, ("bills", 0): 9}, OffsetOutOfRange),
        ({("nowhere", 0): 0}, InvalidMessage), ({0: 0}, InvalidMessage), ({("bills",): 0}, InvalidMessage),
        ({("bills", -1): 0}, InvalidMessage), ({(7, 0): 0}, InvalidMessage),
        ("soon", InvalidMessage), (-1, InvalidMessage),
    ):  # fmt: skip
        with pytest.raises(error):
            sub.seek(wrong)  # type: ignore[arg-type]
    assert sub.backlog() == (0, 3, 0), "nothing was moved"
    sub.skip_all()
    assert sub.backlog().total == 0
    sub.seek(0)
    assert sub.backlog().ready == 8


def test_ack_up_to_takes_what_this_object_has_of_the_queue(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 3, 2)
    got = {place: one for one in sub.receive() for place in whole([one])}
    assert sub.ack_up_to(got["orders", 0, 1]) == 2
    assert sub.ack_up_to(got["bills", 1, 1].receipt) == 2
    assert sub.backlog() == (0, 6, 0)


def test_settings_are_those_of_each_topic_and_change_together(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s", mode="ordered", filter={"tag": {"a"}}, max_attempts=2, dead_letter_topic="dead")
    for topic in TOPICS:
        for tag in "ab":
            store.append(topic, 0, tag.encode(), properties={"tag": tag})
    assert {one.message.data for one in sub.receive()} == {b"a"}
    assert {(one.topic, one.settings.mode, one.settings.max_attempts) for one in store.subscriptions()} == {
        ("bills", "ordered", 2), ("orders", "ordered", 2),
    }  # fmt: skip
    sub.change(filter=None, max_attempts=5)
    assert {(one.settings.filter, one.settings.max_attempts) for one in store.subscriptions()} == {(None, 5)}
    for wrong in ("bills", ""):
        with pytest.raises((InvalidMessage, InvalidTopic)):
            sub.change(dead_letter_topic=wrong)
    with pytest.raises(InvalidMessage):
        sub.change(filter="tag =")
    assert {one.settings.dead_letter_topic for one in store.subscriptions()} == {"dead"}


def test_dead_letters_of_all_topics_go_where_they_should(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s", max_attempts=1, dead_letter_topic="dead")
    fill_both(store, 2)
    sub.nack_batch(sub.receive(), reason="no")
    assert sub.receive() == []
    letters = store.read("dead", 0)
    assert Counter((one.properties or {})["dead_letter.topic"] for one in letters) == {"bills": 2, "orders": 2}


def test_a_wrong_list_makes_no_subscription(store: MessageStore) -> None:
    store.subscribe("orders", "s", filter="tag = 'a'").close()
    wrong_lists: list[Any] = [[], (), set(), ["a", 7], ["a", ""], ["a", "b\n"], [["a"]], ["a", None]]
    for topics in wrong_lists:
        with pytest.raises(InvalidTopic):
            store.subscribe(topics, "s")
    for wrong in (
        {"dead_letter_topic": "b", "max_attempts": 1}, {"start": {("c", 0): 0}}, {"start": {0: 0}}, {"mode": "odd"},
        {"filter": "="}, {"pattern": "x*"}, {"start": {("a", 0): -1}},
    ):  # fmt: skip
        given: Any = wrong
        with pytest.raises(InvalidMessage):
            store.subscribe(["a", "b"], "s", **given)
    with pytest.raises(InvalidMessage, match=r"topic 'orders': .* has filter="):
        store.subscribe(["a", "orders"], "s")
    with pytest.raises(OffsetOutOfRange):
        store.subscribe(["b"], "s", start={("b", 0): 3})
    assert [(one.topic, one.name) for one in store.subscriptions()] == [("orders", "s")]


def test_a_list_names_each_topic_once_and_topics_may_come_later(store: MessageStore) -> None:
    sub = store.subscribe(["b", "a", "b", "ü/*"], "s")
    assert sub.topics == ["a", "b", "ü/*"]
    assert (sub.name, sub.pattern, sub.closed) == ("s", None, False)
    store.append("ü/*", 3, b"x")
    assert whole(sub.receive()) == [("ü/*", 3, 0)]
    assert store.subscribe({"a"}, "t").topics == store.subscribe(("a",), "t").topics == ["a"]


def test_a_start_by_topic_and_queue(store: MessageStore) -> None:
    fill_both(store, 3)
    sub = store.subscribe(TOPICS, "s", start={("bills", 0): 2})
    assert sorted(whole(sub.receive())) == [("bills", 0, 2), *[("orders", 0, at) for at in range(3)]]
    assert store.subscribe(TOPICS, "late", start="latest").receive() == []


def test_consumers_of_one_topic_and_of_several_compete(store: MessageStore) -> None:
    sub, other, both = store.subscribe(TOPICS, "s"), store.subscribe("orders", "s"), store.subscribe(TOPICS, "s")
    fill_both(store, 8)
    seen = [place for one in (sub, other, both) * 8 for place in whole(one.receive(1))]
    assert len(seen) == len(set(seen)) == 16
    assert len(sub.in_flight()) == 16
    assert {place for place, at in sub.positions().items() if at.mark_delete} == set()
    sub.close()
    left = whole(other.receive()) + whole(both.receive())
    assert left, "what a closed object had comes again at once"
    assert other.closed is both.closed is False


def test_a_deleted_subscription_leaves_the_others(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)
    assert len(sub.receive(2)) == 2
    assert store.delete_subscription("bills", "s")
    assert {topic for topic, *_ in whole(sub.receive() + sub.receive())} <= {"orders"}
    assert sub.topics == ["orders"]
    sub.seek("earliest")
    assert len(sub.receive()) == 2
    assert sub.backlog() == (0, 2, 0)
    assert store.delete_subscription(TOPICS, "s")
    for call in (sub.receive, sub.backlog, sub.positions, lambda: list(sub)):
        with pytest.raises(SubscriptionClosed, match="all topics"):
            call()
    assert not store.delete_subscription(TOPICS, "s")
    with pytest.raises(InvalidTopic):
        store.delete_subscription([], "s")


def test_a_deleted_topic_stays_and_gives_what_comes_after(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)
    store.delete_topic("bills")
    assert {topic for topic, *_ in whole(sub.receive())} == {"orders"}
    offset = store.append("bills", 0, b"anew")
    assert whole(sub.receive()) == [("bills", 0, offset)]


def test_after_its_end_all_calls_say_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", tiny())
    sub, left = store.subscribe(TOPICS, "s"), store.subscribe(TOPICS, "t")
    fill_both(store, 1)
    got = sub.receive()
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="subscribe again"):
            copied(sub)
    sub.close()
    sub.close()
    calls: list[Any] = [
        sub.receive, sub.receive_batch, sub.backlog, sub.positions, sub.in_flight, sub.skip_all,
        lambda: sub.ack(got[0]), lambda: sub.ack_batch(got), lambda: sub.nack_batch(got), lambda: list(sub),
        lambda: sub.change(precision_ms=1), lambda: sub.seek({}), lambda: asyncio.run(sub.receive_async()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(SubscriptionClosed):
            call()
    assert "closed" in repr(sub)
    store.close()
    for call in (left.receive, left.backlog, lambda: left.ack(got[0])):
        with pytest.raises(StoreClosed):
            call()
    left.close()
    with MessageStore.open(tmp_path / "s", read_only=True) as reader:
        assert [(one.topic, one.name) for one in reader.subscriptions()] == [
            (topic, name) for topic in TOPICS for name in "st"
        ]
        with pytest.raises(StoreReadOnly):
            _ = reader.subscribe  # type: ignore[attr-defined]


def test_a_transaction_takes_its_deliveries_and_receipts(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)
    batch = sub.receive_batch()
    with store.transaction() as tx:
        tx.append("results", 0, b"x")
        for receipt in batch.receipts.tolist()[:2]:
            tx.ack(receipt, sub)
        for delivery in batch.deliveries()[2:]:
            tx.ack(delivery)
    assert sub.backlog().total == 0
    with store.transaction() as tx, pytest.raises(StaleReceipt):
        tx.ack(5, sub)
    with store.transaction() as tx, pytest.raises(InvalidMessage):
        tx.ack(5, "sub")  # type: ignore[arg-type]


def test_it_is_gone_through_message_by_message_and_in_coroutines(timely: MessageStore) -> None:
    store = timely
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)
    seen = []
    for delivery in sub:
        seen.append(delivery.message.topic)
        sub.ack(delivery)
        if len(seen) == 4:
            break
    assert Counter(seen) == {"bills": 2, "orders": 2}

    async def program() -> None:
        await sub.seek_async("earliest")
        one, two, three, four = [delivery async for delivery in _first(sub, 4)]
        await sub.ack_async(one)
        await sub.ack_up_to_async(two)
        await sub.extend_async(three, 600_000)
        await sub.nack_async(four, reason="again")
        await sub.change_async(backoff_ms=[1])
        assert [again.attempt for again in await sub.receive_async(wait_ms=60_000)] == [2]
        assert len(await sub.receive_batch_async()) == 0
        await asyncio.to_thread(sub.submit_ack(three).result)

    asyncio.run(program())


async def _first(sub: TopicsSubscription, count: int) -> Any:
    async for delivery in sub:
        yield delivery
        count -= 1
        if not count:
            return


def test_receipts_of_messages_that_are_over_are_not_kept(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    for at in range(3000):
        store.submit(TOPICS[at % 2], 0, b"x")
    store.flush()
    kept = [sub.receive(1)[0] for _ in range(3)]
    for _ in range(2800):
        sub.submit_ack(sub.receive(1)[0].receipt)
    assert len(sub._members.receipts) <= 1100
    sub.ack_batch([one.receipt for one in kept])
    assert sub.backlog().in_flight == 0


def test_a_message_that_was_removed_while_a_consumer_had_it_is_acknowledged_by_its_receipt(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    fill_both(store, 2)
    batch = sub.receive_batch()
    store.trim("bills", 0, 2)
    assert sub.receive() == []
    sub._members.receipts._drop_old()
    sub.ack_batch(batch.receipts)
    assert sub.backlog().total == 0


def test_many_topics_cost_by_those_that_have_news(timely: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = timely
    """An idle receive looks at no topic, and one after a message at its topic."""
    names = [f"t{at}" for at in range(200)]
    sub = store.subscribe(names, "s")
    assert sub.receive() == []
    looks: list[str] = []
    members = sub._members
    for topic, member in members.by_topic.items():

        def look(*given: Any, real: Any = member.look, topic: str = topic) -> Any:
            looks.append(topic)
            return real(*given)

        monkeypatch.setattr(member, "look", look)
    for _ in range(10):
        assert sub.receive() == []
        assert sub.receive(wait_ms=1) == []
    assert looks == []
    store.append("t17", 0, b"x")
    got = sub.receive(100)
    assert whole(got) == [("t17", 0, 0)]
    assert set(looks) == {"t17"}
    assert len(looks) <= 2
    looks.clear()
    sub.nack(got[0])
    store.append("t5", 0, b"y")
    assert {topic for topic, *_ in whole(sub.receive(100))} == {"t5", "t17"}
    assert set(looks) == {"t5", "t17"}


def test_a_store_holds_no_object_that_its_program_has_let_go_of(store: MessageStore) -> None:
    sub = store.subscribe(TOPICS, "s")
    listeners = store._waiting.listeners
    assert "bills" in listeners
    del sub
    gc.collect()
    store.append_batch([(topic, 0, b"x") for topic in TOPICS])
    until(lambda: not listeners)


def test_concurrent_consumers_get_each_message_once(timely: MessageStore) -> None:
    store = timely
    names = [f"t{at}" for at in range(6)]
    subs = [store.subscribe(names, "s") for _ in range(2)]
    total, seen = 600, list[tuple[str, int, int]]()

    def consume(sub: TopicsSubscription) -> None:
        while len(seen) < total:
            got = sub.receive(3, wait_ms=200)
            for one in got:
                sub.ack(one)
            seen.extend(whole(got))

    workers = [start(consume, sub) for sub in subs * 3]
    for at in range(total):
        store.submit(names[at % 6], at % 2, b"x")
    for worker in workers:
        worker.join()
    assert len(seen) == len(set(seen)) == total
    assert np.sum([sub.backlog().total for sub in subs]) == 0
