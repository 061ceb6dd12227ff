"""Topics with an age of their own: what is older goes, what is younger stays, what outlives retention is not lost."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stratalog.store import InvalidMessage, MessageStore
from stratalog.store.testing import VirtualClock
from stratalog.store.topics.aging import TopicAges
from stratalog.store.topics.settings import Keep
from tests.seeds import draw_seed

from ..helpers import crash_copy, tiny, until
from ..subscriptions.test_removed_counts import RETIRE, ByHand, counts, retention_by_hand

SIZE = 3_800
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "topics.aging", "delayed.keeping")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def opened(path: Path, clock: VirtualClock, **more: Any) -> tuple[MessageStore, ByHand]:
    store = MessageStore.open(path, tiny(**more), clock=clock)
    return store, ByHand(store)


def fill(store: MessageStore, topic: str, count: int, queue_id: int = 0) -> None:
    store.append_batch([(topic, queue_id, bytes(SIZE))] * count)


def first(store: MessageStore, topic: str, queue_id: int = 0) -> int:
    return store.queue_bounds(topic, queue_id)[0]


def old_end(store: MessageStore, topic: str, age_ms: int = HOUR_MS) -> int:
    """The end of a queue in the segments of its lane whose newest message, or record, is older than this."""
    stream, limit_ms = store._streams.topics[topic][0], store._clock.wall_ms() - age_ms
    old = [one for one in stream.lane.view.sealed if one.record.newest_ms < limit_ms]
    return max((sum(one.first_of(stream.number)) for one in old), default=0)


def test_an_older_message_goes_and_those_of_other_topics_of_its_segment_stay(
    tmp_path: Path, clock: VirtualClock
) -> None:
    store, remove = opened(tmp_path, clock)
    with store:
        store.configure_topic("short", retention_ms=HOUR_MS)
        for _ in range(20):
            fill(store, "short", 1)
            fill(store, "other", 3)
        remove()
        assert first(store, "short") == 0
        clock.advance(ms=HOUR_MS)
        remove()
        assert first(store, "short") == 0, "not older than an hour, but exactly an hour"
        clock.advance(ms=1)
        end = old_end(store, "short")
        remove()
        assert first(store, "short") == end > 10
        assert first(store, "other") == 0
        assert [one.offset for one in store.read("other", 0, max_messages=100)] == list(range(60))
        assert store._upkeep.removal.removed_segments == 0


def test_segments_go_once_all_topics_in_them_have_come_of_age(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock)
    with store:
        store.configure_topic("hour", retention_ms=HOUR_MS)
        store.configure_topic("day", retention_ms=DAY_MS)
        for _ in range(30):
            fill(store, "hour", 2)
            fill(store, "day", 2)
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert store._upkeep.removal.removed_segments == 0
        clock.advance(ms=DAY_MS)
        remove()
        assert store._upkeep.removal.removed_segments > 3
        assert first(store, "day") > 40


@pytest.mark.parametrize("reopened", [False, True])
def test_a_topic_with_a_longer_age_keeps_its_segments_and_no_others(
    tmp_path: Path, clock: VirtualClock, reopened: bool
) -> None:
    store, remove = opened(tmp_path / "s", clock, retention_ms=HOUR_MS)
    with store:
        store.configure_topic("long", retention_ms=DAY_MS)
        fill(store, "other", 60)
        for _ in range(20):
            fill(store, "long", 1)
            fill(store, "other", 2)
        fill(store, "other", 60)
        if reopened:
            crash_copy(tmp_path / "s", tmp_path / "t")
            store.close()
            store, remove = opened(tmp_path / "t", clock, retention_ms=HOUR_MS)
        with store:
            clock.advance(ms=HOUR_MS + 1)
            remove()
            kept = first(store, "other")
            assert 40 < kept <= 60, "what lies before goes"
            assert first(store, "long") == 0
            clock.advance(ms=DAY_MS - HOUR_MS - 1)
            remove()
            assert first(store, "long") == 0
            clock.advance(ms=1)
            remove()
            assert first(store, "long") == 20
            assert first(store, "other") > 120


def test_a_segment_is_not_compared_with_all_topics_of_a_longer_age(tmp_path: Path, clock: VirtualClock) -> None:
    class Asked(dict[str, int]):
        def items(self) -> Any:
            raise AssertionError("it walks all topics")

    store, remove = opened(tmp_path, clock, retention_ms=HOUR_MS)
    with store:
        store.configure_topic("long", retention_ms=DAY_MS)
        fill(store, "other", 30)
        fill(store, "long", 30)
        remove()
        outlives: Any = store._upkeep.removal.outlives
        ages = outlives.__self__
        assert isinstance(ages, TopicAges)
        ages._longer = Asked(ages._longer)
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert (first(store, "other") > 10, first(store, "long")) == (True, 0)
        clock.advance(ms=DAY_MS)
        remove()
        assert first(store, "long") > 10


def test_the_size_of_the_store_removes_what_a_longer_age_would_keep(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock, retention_ms=HOUR_MS, retention_bytes=200_000)
    with store:
        store.configure_topic("long", retention_ms=DAY_MS)
        fill(store, "long", 200)
        remove()
        assert first(store, "long") > 100


def test_a_change_of_the_age_counts_for_older_messages(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock)
    with store:
        store.configure_topic("t", retention_ms=DAY_MS)
        fill(store, "t", 60)
        fill(store, "u", 60)
        clock.advance(ms=2 * HOUR_MS)
        remove()
        assert first(store, "t") == 0
        store.configure_topic("u", retention_ms=HOUR_MS)
        store.configure_topic("t", retention_ms=HOUR_MS)
        remove()
        assert first(store, "t") == 60
        assert first(store, "u") > 40
        store.configure_topic("u")
        fill(store, "u", 60)
        clock.advance(ms=2 * HOUR_MS)
        remove()
        assert first(store, "u") < 60


def test_the_age_is_there_after_a_crash_and_goes_with_its_topic(tmp_path: Path, clock: VirtualClock) -> None:
    store, _ = opened(tmp_path / "s", clock)
    with store:
        given = store.configure_topic("t", retention_ms=HOUR_MS, ttl_ms=5)
        assert (given.retention_ms, given.ttl_ms) == (HOUR_MS, 5)
        crash_copy(tmp_path / "s", tmp_path / "t")
    store, _ = opened(tmp_path / "t", clock)
    with store:
        assert store.topic_settings("t") == given
        assert store.delete_topic("t")
        assert store.topic_settings("t").retention_ms is None


def test_what_subscriptions_had_not_acknowledged_is_counted_once(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock, retention_ms=DAY_MS)
    with store:
        store.configure_topic("t", retention_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, "t", 60)
        sub.ack_batch([one for one in sub.receive(60) if one.message.offset % 3 == 0])
        clock.advance(ms=HOUR_MS + 1)
        remove()
        gone = first(store, "t")
        expected = sum(at % 3 != 0 for at in range(gone))
        assert counts(store) == {("t", "a"): expected}
        clock.advance(ms=DAY_MS)
        remove()
        assert store._upkeep.removal.removed_segments > 0
        assert counts(store) == {("t", "a"): sum(at % 3 != 0 for at in range(first(store, "t")))}


def test_a_topic_that_keeps_what_is_not_acknowledged_keeps_what_follows_it(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock)
    with store:
        store.configure_topic("t", retention_ms=HOUR_MS, keep="unacknowledged")
        sub = store.subscribe("t", "a")
        fill(store, "t", 90)
        got = sub.receive(90)
        stuck = [got[at] for at in (7, 50)]
        sub.ack_batch([one for one in got if one not in stuck])
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert first(store, "t") == 7
        sub.ack(stuck[0])
        remove()
        assert first(store, "t") == 50
        sub.ack(stuck[1])
        end = old_end(store, "t")
        remove()
        assert first(store, "t") == end > 70
        assert counts(store) == {("t", "a"): 0}


def test_a_topic_that_keeps_nothing_any_more_lets_its_queues_go(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock)
    with store:
        store.configure_topic("t", retention_ms=HOUR_MS, keep="unacknowledged")
        store.subscribe("t", "a")
        fill(store, "t", 60)
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert first(store, "t") == 0
        store.configure_topic("t", retention_ms=HOUR_MS)
        end = old_end(store, "t")
        remove()
        assert first(store, "t") == end > 30
        assert counts(store) == {("t", "a"): end}


def test_many_configured_topics_are_read_some_at_a_time_and_nothing_goes_meanwhile(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.topics.known_ages.READ_AT_ONCE", 2)
    store, _ = opened(tmp_path, clock)
    with store:
        for number in range(9):
            store.configure_topic(f"t{number}", queues=1)
        store.configure_topic("long", retention_ms=DAY_MS)
        store.configure_topic("short", retention_ms=HOUR_MS)
        for _ in range(30):
            fill(store, "long", 1)
            fill(store, "short", 1)
    store, remove = opened(tmp_path, clock, retention_ms=2 * HOUR_MS)
    with store:
        clock.advance(ms=3 * HOUR_MS)
        until(lambda: not any(map(store._upkeep.sealer.waiting, store._lanes)))
        for turn in range(6):
            assert first(store, "long") == first(store, "short") == 0, turn
            RETIRE(store._upkeep.removal)
        assert first(store, "long") == 0
        assert first(store, "short") > 10
        remove()
        assert first(store, "long") == 0
        clock.advance(ms=DAY_MS)
        remove()
        assert first(store, "long") > 10


def test_a_delayed_message_outlives_the_age_of_its_topic(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path / "s", clock)
    with store:
        store.configure_topic("t", retention_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, "t", 20)
        late = store.append("t", 0, b"late", deliver_at_ms=clock.wall_ms() + DAY_MS)
        fill(store, "t", 60)
        assert len(sub.receive(100)) == 80
        clock.advance(ms=HOUR_MS + 1)
        remove()
        assert first(store, "t") == late
        crash_copy(tmp_path / "s", tmp_path / "t")
    store, remove = opened(tmp_path / "t", clock)
    with store:
        sub = store.subscribe("t", "a")
        remove()
        assert first(store, "t") == late
        clock.advance(ms=DAY_MS)
        (found,) = [one for one in sub.receive(100) if one.message.offset == late]
        assert found.message.data == b"late"
        remove()
        assert first(store, "t") == late, "it is not acknowledged yet"
        sub.ack(found)
        remove()
        assert first(store, "t") > late + 40


def test_a_copy_of_an_older_message_is_not_trimmed_with_those_after_it(tmp_path: Path, clock: VirtualClock) -> None:
    store, remove = opened(tmp_path, clock, retention_bytes=200_000)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, "t", 200)
        got = sub.receive(200)
        sub.ack_batch(got[:3] + got[4:])
        sub.nack(got[3])
        remove()
        assert store.stats()["delayed"]["t"]["copies"] == 1
        clock.advance(ms=HOUR_MS + 1)
        remove()
        (found,) = sub.receive(10)
        assert found.message.offset == 3
        sub.ack(found)
        end = old_end(store, "t")
        remove()
        assert first(store, "t") == end


class Model:
    """What each topic's messages and subscription are, beside a store.

    Attributes:
        times: of each queue's messages: when they were appended, and their delivery times or 0.
        acked: topic, queue id and offset.
    """

    AGES: ClassVar[dict[str, int | None]] = {"t": 2 * HOUR_MS, "k": 3 * HOUR_MS, "d": None, "l": DAY_MS}

    def __init__(self, path: Path, clock: VirtualClock, lanes: int) -> None:
        self.rng = random.Random(draw_seed())
        self.path, self.clock, self.lanes = path, clock, lanes
        self.times: dict[tuple[str, int], list[tuple[int, int]]] = {(t, q): [] for t in self.AGES for q in range(2)}
        self.acked: set[tuple[str, int, int]] = set()
        self.open()
        for topic, age_ms in self.AGES.items():
            keep: Keep = "unacknowledged" if topic == "k" else "retention"
            self.store.configure_topic(topic, retention_ms=age_ms, keep=keep)

    def open(self) -> None:
        self.store, self.remove = opened(self.path, self.clock, lanes=self.lanes, retention_ms=6 * HOUR_MS)
        self.subs = {topic: self.store.subscribe(topic, "a") for topic in self.AGES}

    def append(self) -> None:
        topic, queue_id = self.rng.choice(list(self.times))
        is_late = topic in "td" and self.rng.random() < 0.2
        due_ms = self.clock.wall_ms() + self.rng.randrange(10 * HOUR_MS) if is_late else None
        for _ in range(self.rng.randrange(1, 12)):
            self.store.append(topic, queue_id, bytes(SIZE), deliver_at_ms=due_ms)
            self.times[topic, queue_id].append((self.clock.wall_ms(), due_ms or 0))

    def consume(self, topic: str, *, all_of_it: bool = False) -> bool:
        sub = self.subs[topic]
        got = sub.receive(self.rng.randrange(1, 20))
        for one in got:
            at = (topic, one.message.queue_id, one.message.offset)
            assert at not in self.acked
            if all_of_it or self.rng.random() < 0.8:
                sub.ack(one)
                self.acked.add(at)
            else:
                sub.nack(one)
        return bool(got)

    def check_nothing_young_is_gone(self) -> None:
        for (topic, queue_id), rows in self.times.items():
            gone = rows[: first(self.store, topic, queue_id)] if rows else []
            age_ms = self.AGES[topic] or 6 * HOUR_MS
            assert all(time_ms < self.clock.wall_ms() - age_ms for time_ms, _ in gone), topic

    def check_nothing_wanted_was_lost(self) -> None:
        for (topic, queue_id), rows in self.times.items():
            wanted = {(topic, queue_id, at) for at, (_, due_ms) in enumerate(rows) if due_ms or topic == "k"}
            assert wanted <= self.acked


@pytest.mark.parametrize("lanes", [1, 3])
def test_by_a_model_nothing_younger_goes_and_nothing_wanted_is_lost(
    tmp_path: Path, clock: VirtualClock, lanes: int
) -> None:
    model = Model(tmp_path / "0", clock, lanes)
    try:
        for _ in range(40):
            for _ in range(model.rng.randrange(5)):
                model.append()
            for topic in model.AGES:
                model.consume(topic)
            if model.rng.random() < 0.1:
                model.store.close()
                model.open()
            clock.advance(ms=model.rng.randrange(HOUR_MS // 2))
            model.remove()
            model.check_nothing_young_is_gone()
        clock.advance(ms=3 * DAY_MS)
        model.remove()
        for topic in model.AGES:
            while model.consume(topic, all_of_it=True):
                pass
        model.check_nothing_wanted_was_lost()
        ends = {
            topic: old_end(model.store, topic, DAY_MS)
            for (topic, queue), rows in model.times.items()
            if rows and not queue
        }
        model.remove()
        assert all(first(model.store, topic) >= end for topic, end in ends.items())
    finally:
        model.store.close()


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, (1 << 50) + 1])
@pytest.mark.parametrize("name", ["retention_ms", "ttl_ms"])
def test_odd_times_are_refused(tmp_path: Path, clock: VirtualClock, name: str, value: Any) -> None:
    store, _ = opened(tmp_path, clock)
    with store:
        with pytest.raises(InvalidMessage, match=name):
            store.configure_topic("t", **{name: value})
        assert store.topics() == []
