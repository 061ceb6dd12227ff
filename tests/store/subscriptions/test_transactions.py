"""Acknowledgements in transactions: they hold exactly if the transaction's messages are stored."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stratalog import (
    Delivery,
    InvalidMessage,
    MessageStore,
    PublishBufferFull,
    StaleReceipt,
    StoreFull,
    StorePoisoned,
    Subscription,
    SubscriptionClosed,
)

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..disks import FailingDisk
from ..helpers import PATIENCE_S, crash_copy, tiny, until
from ..interrupts import Interrupted, interrupt_at, places
from ..test_reserve import disk_of
from ..test_reserve import fill as fill_disk
from .helpers import TOPIC, fill, fill_buffer, on_way
from .helpers import places as places_of

FILES = (
    "transaction.py", "committing.py", "joint_acks.py", "acknowledging.py", "atomic_group.py", "log/queue.py",
    "log/request.py", "in_flight.py", "state.py",
)  # fmt: skip
STEP = 5


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 6, 6)
        yield store


def bills(store: MessageStore) -> int:
    return store.queue_bounds("bills", 0)[1]


def bill(store: MessageStore, *deliveries: Delivery) -> None:
    """One message for some deliveries, which it acknowledges."""
    with store.transaction() as tx:
        tx.append("bills", 0, b"bill")
        for one in deliveries:
            tx.ack(one)


def left(sub: Subscription) -> set[tuple[int, int]]:
    """All that still comes."""
    found = set()
    while got := sub.receive():
        found |= set(places_of(got))
    return found


def test_a_commit_acknowledges_and_stores_in_one_frame(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    one, two, three = sub.receive(3)
    frames = store.stats()["log"]["frames"]
    bill(store, one, two)
    assert store.stats()["log"]["frames"] == frames + 1
    assert bills(store) == 1
    for each in (one, two):
        with pytest.raises(StaleReceipt):
            sub.ack(each)
    sub.ack(three)
    assert sub.backlog().total == 9


def test_deliveries_of_all_kinds_of_receive_and_bare_receipts_are_taken(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    batch = sub.receive_batch(2)
    (few,) = sub.receive(1)
    assert few.subscription == batch.subscription == "s"
    with store.transaction() as tx:
        tx.ack(few)
        tx.ack(few)
        tx.ack(batch.deliveries()[0])
        tx.ack(batch.receipts[1], sub)
    assert sub.backlog().total == 9
    with pytest.raises(InvalidMessage, match="does not say whose"):
        store.transaction().ack(int(batch.receipts[0]))


def test_acknowledgements_of_several_subscriptions_and_topics_go_together(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 2)
        fill(store, 2, topic="other")
        subs = [store.subscribe(topic, name) for topic in (TOPIC, "other") for name in ("a", "b")]
        given = [sub.receive(1)[0] for sub in subs]
        bill(store, *given)
        assert [sub.backlog().total for sub in subs] == [1, 1, 1, 1]
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    with MessageStore.open(crashed) as store:
        assert bills(store) == 1
        assert [info.backlog.total for info in store.subscriptions()] == [1, 1, 1, 1]


def test_with_a_stale_receipt_nothing_is_stored_and_the_others_keep_their_deadlines(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "s"), store.subscribe(TOPIC, "other")
    one, two = sub.receive(2)
    (mine,) = other.receive(1)
    sub.ack(two)
    for given in ((one, two), (mine, two), (mine, one, two)):
        with pytest.raises(StaleReceipt, match="'s' are stale") as caught:
            bill(store, *given)
        assert caught.value.receipts == (two.receipt,)
    assert bills(store) == 0
    assert not set(places_of([one])) & left(sub)
    assert not set(places_of([mine])) & left(other)
    bill(store, one, mine)
    assert bills(store) == 1


def test_a_message_that_timed_out_and_went_to_another_is_billed_once(store: MessageStore) -> None:
    clock = SteppedClock()
    with MessageStore.open(store.path.parent / "clocked", tiny(), clock=clock) as timed:
        fill(timed, 1)
        sub = timed.subscribe(TOPIC, "s")
        (slow,) = sub.receive(1, 0, 100)
        clock.now += 1
        (quick,) = sub.receive(1)
        bill(timed, quick)
        with pytest.raises(StaleReceipt):
            bill(timed, slow)
        assert bills(timed) == 1


def test_many_workers_bill_each_message_exactly_once(tmp_path: Path) -> None:
    """Short time-outs give messages to several workers at once; crashes leave as many bills as acknowledgements."""
    total, crashes = 120, list[Path]()
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, total)
        sub = store.subscribe(TOPIC, "s", mode="shared")

        def work() -> None:
            while sub.backlog().total:
                for one in sub.receive(3, 1, 2):
                    try:
                        with store.transaction() as tx:
                            tx.append("bills", 0, one.message.data)
                            tx.ack(one)
                    except StaleReceipt:
                        continue

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and len(crashes) < 4:
            crashes.append(crash_copy(tmp_path / "store", tmp_path / f"crash{len(crashes)}"))
        for thread in threads:
            thread.join()
        assert sorted(m.data for m in store.read("bills", 0, max_messages=1000)) == sorted(
            m.data for m in store.read(TOPIC, 0, max_messages=1000)
        )
    for path in crashes:
        with MessageStore.open(path) as store:
            (info,) = store.subscriptions()
            assert bills(store) == total - info.backlog.total
            stored = {m.data for m in store.read("bills", 0, max_messages=1000)}
            assert len(stored) == bills(store)
            again = {m.message.data for m in store.subscribe(TOPIC, "s").receive_batch(1000).deliveries()}
            assert not again & stored


def test_after_a_rollback_or_an_exception_the_messages_are_still_the_consumers(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    (one,) = sub.receive(1)
    tx = store.transaction()
    tx.ack(one)
    tx.rollback()
    with pytest.raises(ValueError), store.transaction() as tx:
        tx.ack(one)
        raise ValueError
    sub.extend(one, 30_000)
    bill(store, one)


def test_a_full_publish_buffer_or_a_poisoned_store_gives_the_messages_back(tmp_path: Path) -> None:
    disk = FailingDisk()
    with MessageStore.open(tmp_path / "store", tiny(append_timeout_ms=20), disk=disk) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "s")
        one, _ = sub.receive(2)
        queue = fill_buffer(sub)
        with pytest.raises(PublishBufferFull):
            bill(store, one)

        async def in_loop() -> None:
            async with store.transaction() as tx:
                tx.append("bills", 0, b"bill")
                tx.ack(one)

        with pytest.raises(PublishBufferFull):
            asyncio.run(in_loop())
        assert not on_way(sub)
        queue.release(queue.cap_bytes, 0)
        assert one.message.offset in [offset for _, offset in left(sub)]
        disk.fail = "write"
        with pytest.raises(StaleReceipt):
            bill(store, one)  # it was given out again
        with pytest.raises(StorePoisoned):
            store.append("bills", 0, b"")
        assert not on_way(sub)


def test_on_a_full_disk_acknowledgements_alone_are_stored_and_bills_are_not(tmp_path: Path) -> None:
    disk = disk_of()
    with MessageStore.open(tmp_path / "s", tiny(), disk=disk) as store:
        fill(store, 4)
        sub = store.subscribe(TOPIC, "s")
        one, two, _, _ = sub.receive(4)
        fill_disk(store, disk)
        for _ in range(3):
            with pytest.raises(StoreFull):
                bill(store, two)
        with store.transaction() as tx:
            tx.ack(one)
        assert sub.backlog().total == 3
        assert bills(store) == 0


def test_a_cancelled_commit_in_line_gives_the_messages_back(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    (one,) = sub.receive(1)
    queue = fill_buffer(sub)

    async def commit() -> None:
        async with store.transaction() as tx:
            tx.append("bills", 0, b"bill")
            tx.ack(one)

    async def run() -> None:
        task = asyncio.create_task(commit())
        await asyncio.sleep(0.01)
        assert on_way(sub) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert not on_way(sub)
    queue.release(queue.cap_bytes, 0)
    assert bills(store) == 0


def test_a_deleted_or_unknown_subscription_is_an_error(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    one, two = sub.receive(2)
    tx = store.transaction()
    tx.append("bills", 0, b"x")
    tx.ack(one)
    store.delete_subscription(TOPIC, "s")
    with pytest.raises((SubscriptionClosed, StaleReceipt)):
        tx.commit()
    with pytest.raises(SubscriptionClosed):
        store.transaction().ack(two)
    with pytest.raises(SubscriptionClosed):
        store.transaction().ack(two._replace(subscription="nobody"))
    assert bills(store) == 0


def test_a_message_that_was_removed_counts_as_acknowledged(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "s")
    given = sub.receive(2)
    store.trim(TOPIC, given[0].message.queue_id, given[0].message.offset + 1)
    sub.receive(1)
    bill(store, *given)
    assert bills(store) == 1
    store.trim(TOPIC, given[1].message.queue_id, 6)


def test_a_transaction_leaves_no_cycle_of_objects(store: MessageStore) -> None:
    """Else each costs the garbage collector a look: 40 threads committed at half the rate."""
    sub = store.subscribe(TOPIC, "s")
    given = sub.receive()
    bill(store, given[0])
    gc.collect()
    gc.disable()
    try:
        for one in given[1:]:
            bill(store, one)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_ordered_subscriptions_go_on_after_a_commit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 4)
        sub = store.subscribe(TOPIC, "s", mode="ordered")
        for at in range(4):
            (one,) = sub.receive(1, 1000)
            assert one.message.offset == at
            bill(store, one)


def test_the_records_of_a_subscription_are_compacted(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.subscriptions.journal.LEAST_BYTES", 100)
    sub = store.subscribe(TOPIC, "s")

    async def in_loop(one: Delivery) -> None:
        async with store.transaction() as tx:
            tx.ack(one)

    for at, one in enumerate(sub.receive()):
        bill(store, one) if at % 2 else asyncio.run(in_loop(one))
    first, end = store._reader.bounds(sub._state.journal.stream)  # type: ignore[arg-type]  # it is durable
    assert end - first < 8


@pytest.mark.filterwarnings("ignore:coroutine 'Transaction._commit_async'")  # interrupted before it was awaited
@pytest.mark.parametrize(("how", "lanes"), [("thread", 1), ("loop", 1), ("thread", 3)])
def test_an_interrupted_commit_is_stored_with_its_acknowledgements_or_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, lanes: int
) -> None:
    """Whatever place the interrupt comes at, this process and the next one agree, and the caller hears of its commit.

    asyncio swallows one that comes in a callback of its loop.
    """
    monkeypatch.setattr("stratalog.store.api.batches.LOST_S", 0.02)
    clock, first = SteppedClock(), random.Random(draw_seed()).randrange(STEP)

    with MessageStore.open(tmp_path / "store", tiny(lanes=lanes), clock=clock) as store:
        fill(store, 2, 2)

        def commit(*given: Delivery) -> None:
            if how == "thread":
                bill(store, *given)
                return

            async def in_loop() -> None:
                async with store.transaction() as tx:
                    tx.append("bills", 0, b"bill")
                    for one in given:
                        tx.ack(one)

            asyncio.run(asyncio.wait_for(in_loop(), PATIENCE_S))

        for place in islice(places(), first, None, STEP):
            subs = [store.subscribe(TOPIC, f"{name}{place}") for name in "ab"]
            given = [one for sub in subs for one in sub.receive(2)]
            before = bills(store)
            interrupted, result = interrupt_at(place, FILES, lambda: commit(*given))  # noqa: B023  # called at once
            if how == "thread":
                assert isinstance(result, Interrupted if interrupted else type(None)), result
            assert isinstance(result, Interrupted | None), (place, result)
            for sub in subs:
                sub.backlog()  # what an interrupt left is finished
                until(lambda: not on_way(sub))  # noqa: B023  # called at once
            store.flush()
            stored = bills(store) - before
            clock.now += 31
            came = [left(sub) for sub in subs]
            assert [len(one) for one in came] == ([2, 2] if stored else [4, 4]), (place, stored, came)
            for sub in subs:
                sub.close()
            crashed = crash_copy(tmp_path / "store", tmp_path / f"crashed{place}") if place % 7 == 0 else None
            if crashed is not None:
                with MessageStore.open(crashed, tiny(lanes=lanes), clock=clock) as again:
                    found = {info.name: info.backlog.total for info in again.subscriptions()}
                    assert {found[sub.name] for sub in subs} == {2 if stored else 4}
            if not interrupted:
                break
