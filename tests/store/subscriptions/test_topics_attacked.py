"""A subscription of several topics beside crashes, interrupts, errors, and consumers that wait or go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.bulk import ShardWriter, commit_shards
from stratalog.store import (
    Delivery,
    MessageStore,
    StoreClosed,
    StoreCorrupt,
    StoreFull,
    SubscriptionClosed,
)
from stratalog.store.subscriptions.journal import Journal
from stratalog.store.subscriptions.members import Member
from stratalog.store.subscriptions.topics_receiving import TopicsLook
from stratalog.store.testing import SimulatedDisk, VirtualClock

from ...seeds import draw_seed
from ..helpers import start, tiny, until
from .helpers import fill
from .test_damage import flip
from .test_topics import whole

NAMES = ["a", "b", "c"]
LONG_MS = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("lanes", [1, 2])
def test_no_crash_brings_an_acknowledged_message_back_or_loses_another(tmp_path: Path, lanes: int) -> None:
    """The power fails at each operation of the disk. A batch of several topics is acknowledged at once."""
    disk, chance = SimulatedDisk(), random.Random(draw_seed())
    crashed: list[tuple[SimulatedDisk, set[Any], bool]] = []
    acked, tried, is_made = set[tuple[str, int, int]](), set[tuple[str, int, int]](), False

    def crash(operation: object) -> None:
        crashed.append((disk.crash(chance), set(acked), is_made))

    with MessageStore.open(tmp_path, tiny(lanes=lanes), disk=disk) as store:
        disk.on_operation = crash
        sub = store.subscribe(pattern="*", name="s", start="latest")
        for topic in NAMES:
            store.append(topic, 0, b"0" + bytes(700))
        got = sub.receive(1)
        assert len(got) == 1
        is_made = True
        sub.ack(got[0])
        acked.update(whole(got))
        batch = sub.receive_batch()
        tried = {*whole(batch.deliveries())}
        sub.ack_batch(batch.receipts)
        acked.update(tried)
        disk.on_operation = None
        crash(None)
    everything = {(topic, 0, 0) for topic in NAMES}
    assert len(crashed) > 10
    for left, sure, was_made in crashed:
        with MessageStore.open(tmp_path, tiny(lanes=lanes), disk=left) as store:
            again = store.subscribe(pattern="*", name="s", start="latest" if was_made else "earliest")
            came = {*whole(again.receive(100))}
            assert not came & sure, "acknowledged"
            stored = {(topic, 0, 0) for topic in store.topics()}
            over = {place for place in stored - came if place not in sure}
            assert over <= (tried if sure else everything), "only what was being acknowledged"
            if sure:
                assert over in (set(), tried - sure), "all of a batch or nothing"


@pytest.mark.parametrize("where", ["look", "attempts", "receipts"])
def test_an_interrupt_loses_no_message(store: MessageStore, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    sub = store.subscribe(NAMES, "s", max_attempts=9, dead_letter_topic="dead")
    for topic in NAMES:
        fill(store, 2, topic=topic)
    struck = [1]

    def strike(real: Any) -> Any:
        def call(*given: Any) -> Any:
            found = real(*given)
            if struck and struck.pop() == 0:
                raise KeyboardInterrupt
            return found

        return call

    struck[:] = [0, 1]  # at the second call
    if where == "look":
        monkeypatch.setattr(Member, "look", strike(Member.look))
    elif where == "attempts":
        monkeypatch.setattr(Member, "wait_for", strike(Member.wait_for))
    else:
        monkeypatch.setattr(sub._members.receipts, "note", strike(sub._members.receipts.note))
    with pytest.raises(KeyboardInterrupt):
        sub.receive(100)
    monkeypatch.undo()
    seen = {*whole(sub.receive(100)), *whole(sub.receive(100))}
    missing = {(topic, 0, at) for topic in NAMES for at in range(2)} - seen
    if where == "look":  # of the look itself: as after an interrupt of a receive from one topic, they time out
        assert len(missing) <= 2
        store._clock.advance(ms=30_000)  # type: ignore[attr-defined]
        assert {*whole(sub.receive(100))} >= missing
    else:
        assert not missing


def test_an_error_of_one_topic_stops_no_other_and_comes_with_the_next_call(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub, real = store.subscribe(NAMES, "s"), Member.look
    for topic in NAMES:
        fill(store, 1, topic=topic)

    def look(member: Member, *given: Any) -> Any:
        if member.topic == "b":
            raise StoreFull("no room")
        return real(member, *given)

    monkeypatch.setattr(Member, "look", look)
    assert {topic for topic, *_ in whole(sub.receive(9))} == {"a", "c"}
    for _ in range(3):
        with pytest.raises(StoreFull):
            sub.receive(9)
    monkeypatch.undo()
    assert whole(sub.receive(9)) == [("b", 0, 0)]


def test_attempts_that_cannot_be_stored_bring_their_topic_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub, real = store.subscribe(NAMES, "s", max_attempts=5, dead_letter_topic="dead"), Member.wait_for
    for topic in NAMES:
        fill(store, 2, topic=topic)

    def wait_for(member: Member, noted: Any, receipts: Any) -> None:
        real(member, noted, receipts)
        if member.topic == "b":
            member.undo(receipts)  # as it does after an error
            raise StoreFull("no room")

    monkeypatch.setattr(Member, "wait_for", wait_for)
    assert {topic for topic, *_ in whole(sub.receive_batch().deliveries())} == {"a", "c"}
    monkeypatch.undo()
    with pytest.raises(StoreFull):
        sub.receive_batch()
    again = sub.receive_batch().deliveries()
    assert [(one.message.topic, one.attempt) for one in again] == [("b", 1)] * 2


def test_a_damaged_topic_holds_up_no_other(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for at in range(30):
            store.append(NAMES[at % 3], 0, b"MARKER%04d" % at + bytes(3000))
    flip(tmp_path / "s", b"MARKER0001")
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub, seen, errors = store.subscribe(NAMES, "s"), list[Delivery](), 0
        for _ in range(30):
            try:
                seen += sub.receive(3)
            except StoreCorrupt as error:
                assert "lane-00" in str(error)
                errors += 1
        assert errors
        assert {(topic, at) for topic, _, at in whole(seen)} == {(topic, at) for topic in "ac" for at in range(10)}
        sub.seek({("b", 0): 1})
        assert len(sub.receive_batch()) == 9


def test_each_of_many_waiting_consumers_gets_one(store: MessageStore) -> None:
    sub, got = store.subscribe(NAMES, "s"), list[Delivery]()
    workers = [start(lambda: got.extend(sub.receive(1, LONG_MS))) for _ in range(9)]
    until(lambda: len(store._waiting) == 9)
    for topic in NAMES:
        store.append_batch([(topic, 0, b"x")] * 3)
    for worker in workers:
        worker.join()
    assert len({*whole(got)}) == 9


def test_a_waiting_consumer_gets_what_times_out_or_becomes_due(store: MessageStore, clock: VirtualClock) -> None:
    sub, other = store.subscribe(NAMES, "s"), store.subscribe("b", "s")
    store.append("a", 0, b"late", deliver_at_ms=clock.wall_ms() + 400)
    got: list[Delivery] = []
    worker = start(lambda: got.extend(sub.receive(1, LONG_MS)))
    until(lambda: len(store._waiting) == 1)
    clock.advance(ms=400)
    worker.join()
    assert whole(got) == [("a", 0, 0)]
    sub.ack_batch(got)
    store.append("b", 0, b"x")
    assert len(other.receive(visibility_timeout_ms=700)) == 1
    worker = start(lambda: got.extend(sub.receive(1, LONG_MS)))
    until(lambda: len(store._waiting) == 1)
    clock.advance(ms=700)
    worker.join()
    assert whole(got[1:]) == [("b", 0, 0)]
    worker = start(lambda: got.extend(sub.receive(1, LONG_MS)))
    until(lambda: len(store._waiting) == 1)
    other.seek("earliest")
    worker.join()
    assert whole(got[2:]) == [("b", 0, 0)]


def test_the_end_of_it_or_of_the_store_ends_those_who_wait(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", tiny())
    ended: list[type[BaseException]] = []

    def wait(sub: Any) -> None:
        try:
            sub.receive(1, LONG_MS)
        except (SubscriptionClosed, StoreClosed) as error:
            ended.append(type(error))

    one, two = store.subscribe(NAMES, "s"), store.subscribe(pattern="*", name="t")
    gone = store.subscribe(["d"], "u")
    workers = [start(wait, sub) for sub in (one, two, gone)]
    until(lambda: len(store._waiting) == 3)
    one.close()
    workers[0].join()
    store.delete_subscription("d", "u")
    workers[2].join()
    store.close()
    workers[1].join()
    assert ended == [SubscriptionClosed, SubscriptionClosed, StoreClosed]


def test_a_cancelled_coroutine_gives_its_messages_to_others(store: MessageStore) -> None:
    sub = store.subscribe(NAMES, "s")

    async def program() -> None:
        tasks = [asyncio.ensure_future(sub.receive_async(1, LONG_MS)) for _ in range(30)]
        while len(store._waiting) < 30:
            await asyncio.sleep(0.001)
        for task in tasks[:15]:
            task.cancel()
        for at in range(15):
            store.submit(NAMES[at % 3], 0, b"x")
        for task in tasks[:15:2]:
            task.cancel()
        found = await asyncio.wait_for(asyncio.gather(*tasks[15:]), 30)
        assert len({place for one in found for place in whole(one)}) == 15

    asyncio.run(program())
    assert sub.backlog() == (0, 15, 0)


def test_a_coroutine_that_is_cancelled_while_a_thread_takes_gives_all_topics_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub, real = store.subscribe(NAMES, "s"), TopicsLook.take
    for topic in NAMES:
        fill(store, 2, topic=topic)

    async def program() -> None:
        task: list[asyncio.Task[Any]] = []
        loop = asyncio.get_running_loop()

        def take(look: TopicsLook, *given: Any) -> Any:
            found = real(look, *given)
            loop.call_soon_threadsafe(task[0].cancel)
            until(lambda: task[0].cancelling() > 0)
            return found

        monkeypatch.setattr(TopicsLook, "take", take)
        task.append(asyncio.ensure_future(sub.receive_batch_async()))
        with pytest.raises(asyncio.CancelledError):
            await task[0]
        monkeypatch.undo()

    asyncio.run(program())
    until(lambda: sub.backlog() == (6, 0, 0))
    assert {one.attempt for one in sub.receive()} == {1}


def test_consumers_beside_a_blocked_loop_get_the_messages(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub, got = store.subscribe(NAMES, "s"), list[Delivery]()

        async def program() -> None:
            task = asyncio.ensure_future(sub.receive_async(1, LONG_MS))
            while len(store._waiting) < 1:
                await asyncio.sleep(0.001)
            worker = start(lambda: got.extend(sub.receive(1, LONG_MS)))
            until(lambda: len(store._waiting) == 2)
            start(lambda: store.append("b", 0, b"x")).join()
            worker.join()  # the loop stands still
            task.cancel()

        asyncio.run(program())
        assert whole(got) == [("b", 0, 0)]


def test_a_failed_joint_acknowledgement_gives_all_topics_back(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = store.subscribe(NAMES, "s")
    for topic in NAMES:
        fill(store, 1, topic=topic)
    batch = sub.receive_batch()

    def full(*given: Any) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr("stratalog.store.log.atomic_group.AtomicGroup.put_and_sleep", full)
    with pytest.raises(StoreFull):
        sub.ack_batch(batch.receipts)
    monkeypatch.undo()
    assert sub.backlog().total == 3
    sub.nack_batch(sub.receive_batch().receipts)  # as after each acknowledgement that failed, they come again
    sub.ack_batch(sub.receive_batch().receipts)
    assert sub.backlog().total == 0


def test_a_subscription_that_cannot_be_made_leaves_no_object_open(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = Journal.append, [1]

    def append(journal: Journal, *given: Any) -> None:
        if not left:
            raise StoreFull("no room")
        left.pop()
        real(journal, *given)

    monkeypatch.setattr(Journal, "append", append)
    with pytest.raises(StoreFull):
        store.subscribe(NAMES, "s")
    monkeypatch.undo()
    assert not store._waiting.listeners
    assert [one.topic for one in store.subscriptions()] == ["a"], "call it again"
    assert store._subscriptions()._known["a", "s"]._open == set()
    fill(store, 1, topic="c")
    assert whole(store.subscribe(NAMES, "s").receive()) == [("c", 0, 0)]


def test_messages_that_a_bulk_commit_attaches_are_news(store: MessageStore) -> None:
    sub, got = store.subscribe(pattern="*", name="s"), list[Delivery]()
    worker = start(lambda: got.extend(sub.receive(1, LONG_MS)))
    until(lambda: len(store._waiting) == 1)
    with ShardWriter(store.path) as writer:
        writer.append_columns([("new", 0)], [0], [1], b"x")
        commit_shards(store.path, writer.finish(), name="load")
    store.attach_pending()
    worker.join()
    assert whole(got) == [("new", 0, 0)]
