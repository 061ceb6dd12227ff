"""Messages older than their topic's `ttl_ms` come to no subscription, and hold nothing up."""

from __future__ import annotations

import random
import threading
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest

from stratalog.store import MessageStore, Subscription, SubscriptionInfo
from stratalog.store.testing import VirtualClock
from tests.seeds import draw_seed

from ..helpers import crash_copy, start, tiny
from ..interrupts import interrupt_at, places
from ..subscriptions.test_removed_counts import ByHand, retention_by_hand

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "topics.aging", "delayed.keeping")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def opened(path: Path, clock: VirtualClock, **more: Any) -> MessageStore:
    return MessageStore.open(path, tiny(**more), clock=clock)


def fill(store: MessageStore, count: int, topic: str = "t", size: int = 100) -> None:
    store.append_batch([(topic, 0, bytes(size))] * count)


def offsets(sub: Subscription, most: int = 1000, **more: Any) -> list[int]:
    return [one.message.offset for one in sub.receive(most, **more)]


def info(store: MessageStore, topic: str = "t") -> SubscriptionInfo:
    (found,) = store.subscriptions(topic)
    return found


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_only_what_is_young_enough_comes_and_the_rest_is_acknowledged(
    tmp_path: Path, clock: VirtualClock, mode: Literal["shared", "ordered"]
) -> None:
    with opened(tmp_path / "s", clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a", mode=mode)
        fill(store, 300)
        clock.advance(ms=1)
        fill(store, 5)
        clock.advance(ms=HOUR_MS)
        assert info(store).backlog.total == 305, "nobody has looked"
        got = sub.receive(1000)
        assert [one.message.offset for one in got] == list(range(300, 305))
        assert (info(store).expired, info(store).backlog.total) == (300, 5)
        assert store.stats()["subscriptions"]["expired"] == 300
        assert [one.offset for one in store.read("t", 0, max_messages=1000)] == list(range(305))
        sub.ack_batch(got)
        sub.close()
        store.flush()
        crash_copy(tmp_path / "s", tmp_path / "t")
    with opened(tmp_path / "t", clock) as store:
        assert info(store).backlog.total == 0, "what has expired is acknowledged in the log"
        assert info(store).expired == 0, "counted since the opening"


def test_a_message_that_was_read_ahead_expires_too(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, 1000)
        long_ms = 99 * HOUR_MS
        assert offsets(sub, 1, visibility_timeout_ms=long_ms) == [0]
        clock.advance(ms=HOUR_MS + 1)
        assert offsets(sub, 1, visibility_timeout_ms=long_ms) == []
        fill(store, 1)
        assert offsets(sub, 1) == [1000]
        assert info(store).expired == 999, "the first one is in flight"


@pytest.mark.parametrize("how", ["given back", "timed out", "left", "rests"])
@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_a_message_that_would_come_again_expires(
    tmp_path: Path, clock: VirtualClock, mode: Literal["shared", "ordered"], how: str
) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a", mode=mode, backoff_ms=[2 * HOUR_MS] if how == "rests" else None)
        other = store.subscribe("t", "a", mode=mode)
        fill(store, 3)
        got = sub.receive(3, visibility_timeout_ms=HOUR_MS)
        sub.ack(got[1])
        if how in ("given back", "rests"):
            sub.nack_batch([got[0], got[2]])
        if how == "left":
            sub.close()
        clock.advance(ms=3 * HOUR_MS)
        fill(store, 2)
        assert offsets(other) == [3, 4]
        assert info(store).expired == 2
        assert other.backlog().total == 2


def test_a_late_acknowledgement_counts_and_nothing_is_counted_twice(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, 2)
        one, two = sub.receive(2, visibility_timeout_ms=HOUR_MS)
        clock.advance(ms=2 * HOUR_MS)
        sub.ack(one)
        assert offsets(sub) == []
        assert (info(store).expired, info(store).backlog.total) == (1, 0)
        with pytest.raises(Exception, match="receipt"):
            sub.ack(two)


def test_a_delayed_message_ages_from_its_time_on_and_a_moved_one_not_at_all(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        now_ms = clock.wall_ms()
        for _ in range(3):
            store.append("t", 0, b"", deliver_at_ms=now_ms + 5 * HOUR_MS)
        store.append("t", 0, b"", deliver_at_ms=now_ms - 5 * HOUR_MS)
        assert offsets(sub) == [3]
        assert store.reschedule_delayed("t", 0, 1, now_ms + 9 * HOUR_MS)
        clock.advance(ms=5 * HOUR_MS)
        got = sub.receive(1)
        assert len(got) == 1
        clock.advance(ms=HOUR_MS + 1)
        assert offsets(sub) == []
        assert info(store).expired == 3, "one that nobody took, and two that consumers had for too long"
        clock.advance(ms=9 * HOUR_MS)
        assert offsets(sub) == [1]


def test_dead_letters_get_what_was_given_out_often_enough_whatever_its_age(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a", max_attempts=1, dead_letter_topic="dead")
        fill(store, 1)
        sub.nack(sub.receive()[0])
        clock.advance(ms=2 * HOUR_MS)
        assert offsets(sub) == []
        assert len(store.read("dead", 0)) == 1
        assert info(store).expired == 0


def test_the_setting_may_change_beside_a_consumer(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        sub = store.subscribe("t", "a")
        fill(store, 6)
        long = {"visibility_timeout_ms": 99 * HOUR_MS}
        assert offsets(sub, 1, **long) == [0]
        clock.advance(ms=2 * HOUR_MS)
        assert offsets(sub, 1, **long) == [1]
        store.configure_topic("t", ttl_ms=3 * HOUR_MS)
        assert offsets(sub, 1, **long) == [2]
        store.configure_topic("t", ttl_ms=HOUR_MS)
        assert offsets(sub, 9, **long) == []
        assert info(store).expired == 3
        store.configure_topic("t")
        fill(store, 1)
        clock.advance(ms=2 * HOUR_MS)
        assert offsets(sub, 1, **long) == [6]
        store.configure_topic("t", ttl_ms=1)
        store.delete_topic("t")
        fill(store, 1)
        clock.advance(ms=HOUR_MS)
        assert offsets(sub, 1, **long) == [7]


def test_another_subscription_of_the_name_counts_from_zero(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=1)
        store.subscribe("t", "a")
        fill(store, 3)
        clock.advance(ms=HOUR_MS)
        assert offsets(store.subscribe("t", "a")) == []
        assert info(store).expired == 3
        store.delete_subscription("t", "a")
        store.subscribe("t", "a", start="latest")
        assert info(store).expired == 0
        assert store.stats()["subscriptions"]["expired"] == 3


def test_a_look_at_many_expired_messages_ends_and_the_next_goes_on(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.subscriptions.dispatcher.MOST_LOOKS", 2)
    monkeypatch.setattr("stratalog.store.subscriptions.scanner.MOST_CHUNKS", 2)
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        for _ in range(50):
            store.append("t", 0, b"", deliver_at_ms=clock.wall_ms() + 5)
        fill(store, 5000)
        assert len(sub.receive(40)) == 40
        clock.advance(ms=100)
        clock.advance(ms=HOUR_MS)
        fill(store, 1)
        assert offsets(sub, 1, wait_ms=0) == [5050]
        assert info(store).expired >= 5050 - 40


@pytest.mark.parametrize("every", [1, 5])
def test_what_has_expired_is_not_kept_for_a_subscription_without_a_consumer(
    tmp_path: Path, clock: VirtualClock, every: int
) -> None:
    with opened(tmp_path, clock, retention_bytes=200_000) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="unacknowledged", ttl_ms=HOUR_MS, retention_bytes=1 << 20)
        sub = store.subscribe("t", "a")
        fill(store, 150, size=3_800)
        got = sub.receive(150)
        sub.ack_batch([one for one in got if one.message.offset % every])
        sub.nack_batch([one for one in got if one.message.offset % every == 0])
        store.append("t", 0, b"late", deliver_at_ms=clock.wall_ms() + 9 * HOUR_MS)
        fill(store, 50, "u", size=3_800)
        remove()
        kept = info(store).backlog.total
        assert kept == len(range(0, 150, every)) + 1, "it is young enough"
        clock.advance(ms=HOUR_MS + 1)
        for _ in range(6):
            fill(store, 60, "u", size=3_800)
            remove()
        assert store.queue_bounds("u", 0)[0] > 200, "nothing holds segments up"
        store._delaying.delays.drop_copies(store._delaying.delays.topics["t"])
        assert info(store).backlog.total == 1
        assert info(store).removed_unacknowledged == 0
        clock.advance(ms=9 * HOUR_MS)
        assert offsets(sub) == [], "an hour has passed since its time"
        clock.jump_wall(ms=-HOUR_MS - 2)
        assert info(store).backlog.total == 0, "and it stays so"


def test_a_topic_with_an_age_and_a_time_to_live_loses_what_has_expired(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="unacknowledged", ttl_ms=2 * HOUR_MS, retention_ms=HOUR_MS)
        store.subscribe("t", "a")
        fill(store, 60, size=3_800)
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert store.queue_bounds("t", 0)[0] == 0
        clock.advance(ms=HOUR_MS)
        remove()
        gone = store.queue_bounds("t", 0)[0]
        assert gone > 30
        assert (info(store).expired, info(store).removed_unacknowledged) == (gone, 0)


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_by_a_model_nothing_old_comes_and_nothing_young_is_lost(
    tmp_path: Path, clock: VirtualClock, mode: Literal["shared", "ordered"]
) -> None:
    rng = random.Random(draw_seed())
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        subs = [store.subscribe("t", "a", mode=mode) for _ in range(2)]
        since: dict[tuple[int, int], int] = {}  # when each begins to age
        acked: set[tuple[int, int]] = set()
        held: dict[tuple[int, int], Any] = {}
        for _ in range(120):
            now_ms = clock.wall_ms()
            for _ in range(rng.randrange(4)):
                queue_id = rng.randrange(2)
                due_ms = now_ms + rng.randrange(2 * HOUR_MS) if rng.random() < 0.3 else None
                offset = store.append("t", queue_id, b"", key=rng.choice([b"k", None]), deliver_at_ms=due_ms)
                since[queue_id, offset] = due_ms or now_ms
            for one in rng.choice(subs).receive(rng.randrange(1, 6), visibility_timeout_ms=rng.randrange(1, HOUR_MS)):
                at = one.message.queue_id, one.message.offset
                assert at not in acked
                assert since[at] >= now_ms - HOUR_MS
                held[at] = one
            for at, one in list(held.items()):
                choice = rng.random()
                if choice < 0.4:
                    try:
                        subs[0].ack(one)
                        acked.add(at)
                    except Exception as error:
                        assert "receipt" in str(error)
                    del held[at]
                elif choice < 0.5:
                    held.pop(at)
                    try:
                        subs[0].nack(one)
                    except Exception as error:
                        assert "receipt" in str(error)
            clock.advance(ms=rng.randrange(HOUR_MS // 4))
        clock.advance(ms=9 * HOUR_MS)
        assert offsets(subs[1]) == []
        assert info(store).backlog.total == 0
        assert info(store).expired + len(acked) == len(since), "each message was acknowledged, or has expired, once"


def test_changes_of_the_setting_beside_receivers_leave_what_the_last_one_says(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with opened(tmp_path, clock) as store:
        sub = store.subscribe("t", "a")
        done = threading.Event()

        def receives() -> None:
            while not done.is_set():
                sub.ack_batch(sub.receive_batch(10).receipts)

        receiver = start(receives)
        for turn in range(60):
            store.configure_topic("t", ttl_ms=None if turn % 2 else HOUR_MS)
            fill(store, 5)
        done.set()
        receiver.join()
        fill(store, 2)
        clock.advance(ms=2 * HOUR_MS)
        assert len(offsets(sub)) >= 2


def test_a_receive_that_is_interrupted_anywhere_loses_nothing_young_and_gives_out_nothing_old(
    tmp_path: Path, clock: VirtualClock
) -> None:
    ours = ("expiring.py", "dispatcher.py", "scanner.py", "ttl.py")
    with opened(tmp_path, clock) as store:
        store.configure_topic("t", ttl_ms=HOUR_MS)
        for place in islice(places(), random.Random(draw_seed()).randrange(5), None, 5):  # each fifth
            name = f"s{place}"
            sub = store.subscribe("t", name, start="latest")
            fill(store, 3)
            sub.nack_batch(sub.receive(2))
            begin = store.queue_bounds("t", 0)[1]
            clock.advance(ms=HOUR_MS + 1)
            fill(store, 3)
            was, _ = interrupt_at(place, ours, partial(sub.receive, 2, 0, 1))
            clock.advance(ms=2)
            assert sorted(offsets(sub)) == [begin, begin + 1, begin + 2]
            assert sub.backlog().total == 3
            store.delete_subscription("t", name)
            if not was:
                break
