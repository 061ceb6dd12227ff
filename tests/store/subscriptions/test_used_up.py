"""What was given out as often as it may be goes to the dead letters, also where retention or an age takes it first."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from stratalog.store import (
    MessageStore,
    MessageTooLarge,
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StorePoisoned,
    Subscription,
    TopicFull,
)
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.topic import DelayedTopic
from stratalog.store.errors import system_errors
from stratalog.store.testing import VirtualClock
from tests.seeds import draw_seed

from ..helpers import crash_copy, tiny
from .test_removed_counts import ByHand, remove_by_hand, retention_by_hand

HOUR_MS = 3_600_000
HOW: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the store's retention": ({"retention_ms": 2 * HOUR_MS}, {}),
    "the store's retention, and too old": ({"retention_ms": 2 * HOUR_MS}, {"ttl_ms": HOUR_MS}),
    "the topic's retention": ({}, {"retention_ms": 2 * HOUR_MS}),
    "kept, and too old": ({"retention_ms": 2 * HOUR_MS}, {"keep": "unacknowledged", "ttl_ms": HOUR_MS}),
    "a work queue, and too old": ({}, {"keep": "until_acknowledged", "ttl_ms": HOUR_MS}),
}


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "topics.aging", "delayed.keeping", "delayed.work_queues")


def fill(store: MessageStore, topic: str, count: int = 60, begin: int = 0) -> None:
    for at in range(begin, begin + count):
        store.append(topic, 0, b"%d;" % at * 500, key=b"k%d" % at)


def workers(store: MessageStore, mode: Literal["shared", "ordered"] = "shared") -> Subscription:
    return store.subscribe("t", "s", mode=mode, max_attempts=2, dead_letter_topic="dead")


def fail(sub: Subscription, offsets: set[int], times: int = 2) -> None:
    """Acknowledge all but some messages, and give these back so often."""
    for _ in range(times):
        got = list[Any]()
        while more := sub.receive(100):
            got += more
        sub.ack_batch([one for one in got if one.message.offset not in offsets])
        sub.nack_batch([one for one in got if one.message.offset in offsets])


def dead(store: MessageStore) -> list[int]:
    """The origins of the dead letters."""
    found = store.read("dead", 0, max_messages=1000, max_bytes=1 << 30) if "dead" in store.topics() else []
    return [int(one.data.partition(b";")[0]) for one in found]


def pass_time(store: MessageStore, clock: VirtualClock) -> None:
    """All that there is comes of age, and goes; the newest messages are young."""
    clock.advance(ms=3 * HOUR_MS)
    fill(store, "t", 60, 1000)
    remove = ByHand(store)
    remove()
    store._upkeep.early.seal()
    fill(store, "t", 60, 2000)
    remove()
    assert store.queue_bounds("t", 0)[0] >= 40, "the segments are gone"


@pytest.mark.parametrize("opens", ["one opening", "after a crash, nobody has it open", "after a crash, it is opened"])
@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("how", HOW)
def test_what_is_used_up_goes_to_the_dead_letters_before_its_segment_goes(
    tmp_path: Path, how: str, mode: Literal["shared", "ordered"], opens: str
) -> None:
    config, settings = HOW[how]
    clock = VirtualClock()
    store = MessageStore.open(tmp_path / "s", tiny(**config), clock=clock)
    store.configure_topic("t", **settings)
    sub = workers(store, mode)
    fill(store, "t")
    fail(sub, {3, 17})
    assert dead(store) == [], "no consumer has looked"
    if opens != "one opening":
        crash_copy(tmp_path / "s", tmp_path / "again")
        store.close()
        store = MessageStore.open(tmp_path / "again", tiny(**config), clock=clock)
        if "it is opened" in opens:
            sub = workers(store, mode)
    with store:
        pass_time(store, clock)
        assert sorted(dead(store)) == [3, 17]
        (info,) = store.subscriptions("t")
        assert (info.expired, info.removed_unacknowledged) == (0, 0)
        letter = store.read("dead", 0)[0]
        assert letter.key == b"k3"
        assert letter.properties
        again = workers(store, mode)
        got = {one.message.offset for one in again.receive(1000)}
        assert not got & {3, 17}
        assert sorted(dead(store)) == [3, 17], "once"


def test_what_is_used_up_and_too_old_goes_to_the_dead_letters_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = workers(store)
        fill(store, "t", 4)
        fail(sub, {1, 2}, times=1)
        fail(sub, {2}, times=1)  # 1 is acknowledged: so 2 alone was given out twice
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        sub = workers(store)
        clock.advance(ms=2 * HOUR_MS)
        assert sub.receive(100) == []
        assert dead(store) == [2]
        assert store.subscriptions("t")[0].expired == 0
        assert sub.backlog().total == 0


@pytest.mark.parametrize("keeps_ms", [100, 100 * HOUR_MS])
def test_one_that_times_out_is_used_up_and_one_that_a_consumer_has_is_counted(tmp_path: Path, keeps_ms: int) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=2 * HOUR_MS), clock=clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = workers(store)
        fill(store, "t")
        fail(sub, {3, 4}, times=1)
        assert [one.message.offset for one in sub.receive(1, visibility_timeout_ms=keeps_ms)] == [3]
        pass_time(store, clock)
        assert dead(store) == ([3] if keeps_ms == 100 else [])
        assert store.subscriptions("t")[0].expired == (1 if keeps_ms == 100 else 2), "4 had an attempt left"


def test_what_is_used_up_and_lives_on_only_as_a_copy_goes_to_the_dead_letters_before_that_goes(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=HOUR_MS), clock=clock) as store:
        store.configure_topic("t", keep="unacknowledged", ttl_ms=5 * HOUR_MS)
        sub = workers(store)
        fill(store, "t")
        fail(sub, {3, 17}, times=1)
        pass_time(store, clock)
        assert store._delaying.keeping.copied_messages > 0
        got = {one.message.offset: one for one in sub.receive(1000)}
        sub.nack_batch([got[3], got[17]])
        sub.ack_batch([one for offset, one in got.items() if offset not in (3, 17)])
        assert dead(store) == []
        clock.advance(ms=20 * HOUR_MS)
        pass_time(store, clock)
        assert sorted(dead(store)) == [3, 17]


def with_copies(store: MessageStore, clock: VirtualClock) -> DelayedTopic:
    """Messages 3 and 17 were delayed, have outlived their segments, are given out twice, and are too old now."""
    sub = workers(store)
    for at in range(60):
        deliver_at_ms = clock.wall_ms() + 4 * HOUR_MS if at in (3, 17) else None
        store.append("t", 0, b"%d;" % at * 500, deliver_at_ms=deliver_at_ms)
    fail(sub, set(), times=1)
    pass_time(store, clock)
    index = store._delaying.delays.topics["t"]
    assert len(index.copies) == 2
    clock.advance(ms=HOUR_MS + 1)
    fail(sub, {3, 17})
    sub.close()
    clock.advance(ms=2 * HOUR_MS)
    assert dead(store) == []
    return index


KEPT_COPIES: dict[str, Any] = {"keep": "unacknowledged", "ttl_ms": HOUR_MS}


def test_a_copy_that_is_used_up_and_too_old_goes_to_the_dead_letters_before_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Delays, "_drop_copies_in_time", lambda delays: None)  # this test says when
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=2 * HOUR_MS), clock=clock) as store:
        store.configure_topic("t", **KEPT_COPIES)
        index = with_copies(store, clock)
        delays = store._delaying.delays
        with store._subscriptions()._known["t", "s"].dispatcher.receiving:
            delays.drop_copies(index)
            assert len(index.copies) == 2, "they stay while a consumer receives"
        delays.drop_copies(index)
        assert sorted(dead(store)) == [3, 17]
        delays.drop_copies(index)
        assert len(index.copies) == 0
        assert not {one.message.offset for one in workers(store).receive(1000)} & {3, 17}
        assert sorted(dead(store)) == [3, 17], "once"


def test_what_is_used_up_goes_to_the_dead_letters_and_is_not_copied(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=HOUR_MS), clock=clock) as store:
        store.configure_topic("t", keep="unacknowledged")
        fill(store, "t")
        fail(workers(store), {3, 17})
        pass_time(store, clock)
        assert sorted(dead(store)) == [3, 17]
        assert store._delaying.keeping.copied_messages == 0


def test_retention_goes_on_where_the_dead_letters_take_nothing_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=2 * HOUR_MS), clock=clock) as store:
        sub = workers(store)
        fill(store, "t")
        fail(sub, {3, 17})

        def refuse(*_: object) -> None:
            raise StoreFull("as if")

        redelivery = store._subscriptions()._known["t", "s"].dispatcher._redelivery
        with monkeypatch.context() as patch:
            patch.setattr(redelivery, "_move", refuse)
            pass_time(store, clock)
        assert dead(store) == []
        assert store.subscriptions("t")[0].removed_unacknowledged == 2
        clock.advance(ms=60_000)
        assert {one.message.offset for one in sub.receive(1000)} == set(range(60, 180))


def refused(number: int) -> StoreError:
    """The error for a number of the system's."""
    try:
        with system_errors("0.log"):
            raise OSError(number, "as if")
    except StoreError as error:
        return error


REFUSALS: dict[str, tuple[Exception, bool]] = {
    "the topic is full": (TopicFull("dead", None, 0, 2, 1), True),
    "a message is too large": (MessageTooLarge("with its origin"), True),
    "a message is damaged": (StoreCorrupt("a payload", "0.log", 4096), True),
    "a bad sector": (refused(errno.EIO), True),
    "the publish buffer is full": (PublishBufferFull("as if"), False),
    "a consumer was faster": (StaleReceipt("as if"), False),
    "no file descriptor is left": (refused(errno.EMFILE), False),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_segments_wait_for_what_may_pass_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    error, is_lost = REFUSALS[why]
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=2 * HOUR_MS), clock=clock) as store:
        fill(store, "t")
        fail(workers(store), {3, 17})
        clock.advance(ms=3 * HOUR_MS)
        fill(store, "t", 60, 1000)
        refuse_moves(store, monkeypatch, error)
        ByHand(store)()
        assert (store.queue_bounds("t", 0)[0] > 17) == is_lost
        assert store.subscriptions("t")[0].removed_unacknowledged == (2 if is_lost else 0)
        monkeypatch.undo()
        remove_by_hand(monkeypatch)
        pass_time(store, clock)
        assert sorted(dead(store)) == ([] if is_lost else [3, 17])


@pytest.mark.parametrize("error", [StoreClosed("as if"), StorePoisoned("as if")], ids=["closed", "poisoned"])
@pytest.mark.parametrize("how", ["the store's retention", "the topic's retention"])
def test_a_store_that_closes_or_is_poisoned_loses_nothing_that_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, error: StoreError
) -> None:
    config, settings = HOW[how]
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(**config), clock=clock) as store:
        store.configure_topic("t", **settings)
        fill(store, "t")
        fail(workers(store), {3, 17})
        clock.advance(ms=3 * HOUR_MS)
        fill(store, "t", 60, 1000)
        refuse_moves(store, monkeypatch, error)
        with suppress(StoreClosed, StorePoisoned):
            ByHand(store)()
        assert store.queue_bounds("t", 0)[0] <= 3
        monkeypatch.undo()
        remove_by_hand(monkeypatch)
    with MessageStore.open(tmp_path / "s", tiny(**config), clock=clock) as store:
        pass_time(store, clock)
        assert sorted(dead(store)) == [3, 17]


def refuse_moves(store: MessageStore, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The dead letters take nothing."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(store._subscriptions()._known["t", "s"].dispatcher._redelivery, "_move", refuse)


def test_retention_asks_again_while_a_consumer_receives(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "s", tiny(retention_ms=2 * HOUR_MS), clock=clock) as store:
        sub = workers(store)
        fill(store, "t")
        fail(sub, {3, 17})
        clock.advance(ms=3 * HOUR_MS)
        fill(store, "t", 60, 1000)
        with store._subscriptions()._known["t", "s"].dispatcher.receiving:
            ByHand(store)()
            assert store.queue_bounds("t", 0)[0] <= 3, "it waits for nobody, and loses nothing"
        pass_time(store, clock)
        assert sorted(dead(store)) == [3, 17]


def test_used_up_messages_are_lost_in_no_order_of_failures_crashes_and_removals(tmp_path: Path) -> None:
    """Each message is acknowledged, a dead letter, counted as lost, or comes again."""
    chosen = random.Random(draw_seed())
    clock, path, failed = VirtualClock(), tmp_path / "s0", set[int]()
    store = MessageStore.open(path, tiny(), clock=clock)
    store.configure_topic("t", retention_ms=2 * HOUR_MS)
    count = 0
    for turn in range(6):
        sub = workers(store)
        for at in range(count, count + 40):
            store.append("t", 0, b"%d;" % at * 500)
        count += 40
        bad = set(chosen.sample(range(count - 40, count), 5))
        fail(sub, bad | failed)
        failed |= bad
        if chosen.random() < 0.5:
            crash_copy(path, tmp_path / f"s{turn + 1}")
            store.close()
            path = tmp_path / f"s{turn + 1}"
            store = MessageStore.open(path, tiny(), clock=clock)
        elif chosen.random() < 0.5:
            sub.close()
        clock.advance(ms=chosen.choice([1, 3 * HOUR_MS]))
        ByHand(store)()
    with store:
        sub = workers(store)
        clock.advance(ms=60_000)
        sub.ack_batch(sub.receive(1000))
        assert sorted(dead(store)) == sorted(failed), "each once"
        assert sub.backlog().total == 0
