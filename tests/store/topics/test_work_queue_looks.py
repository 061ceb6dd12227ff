"""Work queues: what a change of settings, or of time, makes them look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore, StoreUnusable, TopicFull
from stratalog.store.delayed.work_queues import WorkQueues
from stratalog.store.format.hidden import TOPIC_KIND, hidden_topic
from stratalog.store.testing import VirtualClock
from stratalog.store.topics.table import TopicTable

from ..helpers import tiny, until
from ..subscriptions.test_removed_counts import RETIRE, ByHand
from .keeping import all_of, fill, leave, look_at_once, opened, places
from .test_work_queues import drop_unwanted


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_once(monkeypatch)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The segments that were looked at."""
    found = list[int]()
    real = WorkQueues._share

    def share(self: WorkQueues, lane: Any, sealed: Any, before: Any) -> Any:
        found.append(sealed.segment.sequence)
        return real(self, lane, sealed, before)

    monkeypatch.setattr(WorkQueues, "_share", share)
    monkeypatch.setattr("stratalog.store.delayed.work_queues.LOOKED_AT", 4)
    return found


def test_one_more_work_queue_does_not_look_at_the_segments_of_the_others(tmp_path: Path, looked: list[int]) -> None:
    store, _ = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="until_acknowledged", retention_bytes=1 << 40)
        sub = store.subscribe("t", "a")
        fill(store, 600)
        until(lambda: not any(map(store._upkeep.sealer.waiting, store._lanes)))  # else there is one more meanwhile
        store._delaying.keeping.look_now()
        segments = len(store._lanes[0].view.sealed)
        assert len(set(looked)) == segments > 30
        for number in range(3):
            looked.clear()
            store.configure_topic(f"more{number}", keep="until_acknowledged", retention_bytes=1 << 40)
            assert len(looked) <= 3 * 4
        assert store._delaying.keeping.work_queues.wanted_bytes(0, "t") > 500 * 3_800, "what was known still is"
        store.delete_topic("more0")
        leave(sub, lambda _: False)
        for _ in range(segments):
            RETIRE(store._upkeep.removal)
        assert store.queue_bounds("t", 0)[0] > 500


def test_a_topic_that_becomes_a_work_queue_lets_the_segments_after_its_messages_go(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="until_acknowledged")
        sub = store.subscribe("t", "a")
        fill(store, 40)
        fill(store, 1, "u")
        fill(store, 200)
        leave(sub, lambda _: False)
        remove()
        assert store.queue_bounds("t", 0)[0] <= 40
        store.configure_topic("u", keep="until_acknowledged")
        remove()
        assert store.queue_bounds("t", 0)[0] > 180
        assert store.stats()["delayed"]["u"]["copies"] == 1


def test_what_was_known_of_a_work_queue_goes_with_its_setting(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="until_acknowledged", retention_bytes=1 << 40)
        store.configure_topic("other", keep="until_acknowledged")
        sub = store.subscribe("t", "a")
        fill(store, 100)
        leave(sub, lambda _: False)
        store._delaying.keeping.look_now()
        store.configure_topic("t", keep="unacknowledged")
        remove()
        assert store.queue_bounds("t", 0)[0] == 0, "no age or size wants it to go"


@pytest.mark.parametrize("is_subscribed", [True, False])
def test_a_topic_whose_settings_cannot_be_read_keeps_all_and_loses_nothing_early(
    tmp_path: Path, is_subscribed: bool
) -> None:
    with opened(tmp_path)[0] as store:
        store.configure_topic("t", keep="until_acknowledged")
        sub = store.subscribe("t", "a")
        fill(store, 80)
        if is_subscribed:
            leave(sub, lambda _: False)
        else:
            store.delete_subscription("t", "a")
        hidden = store._shared.hidden
        hidden.append(hidden.find_or_make(hidden_topic(TOPIC_KIND, "t")), [b"of a later version"])
    store, remove = opened(tmp_path, retention_bytes=None if is_subscribed else 200_000)
    with store:
        with pytest.raises(StoreUnusable):
            store.topic_settings("t")
        store.configure_topic("other", keep="until_acknowledged")
        if is_subscribed:
            fill(store, 80, "other")
            remove()
            assert store.queue_bounds("t", 0)[0] == 0
            return
        fill(store, 200, "waste")
        remove()
        assert store.queue_bounds("waste", 0)[0] > 100
        drop_unwanted(store)
        store.configure_topic("t", keep="until_acknowledged")
        assert sorted(places(all_of(store.subscribe("t", "a")))) == [(0, at) for at in range(80)]


def test_a_refused_change_leaves_what_is_known_of_all_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path)[0] as store:
        for number in range(5):
            store.configure_topic(f"t{number}", keep="until_acknowledged")
        store.append("t0", 3, b"")
        table = store._fetcher.configured
        known, read = table.keeping(), list[str]()
        real = TopicTable._read

        def noted(self: TopicTable, topic: str) -> Any:
            read.append(topic)
            return real(self, topic)

        monkeypatch.setattr(TopicTable, "_read", noted)
        table._known.clear()
        with pytest.raises(InvalidMessage):
            store.configure_topic("t0", queues=2)
        assert table.keeping() is known
        assert set(read) <= {"t0"}


# -- a time to live -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_subscribed", [True, False])
def test_a_full_work_queue_goes_on_when_its_messages_are_too_old_for_its_subscriptions(
    tmp_path: Path, is_subscribed: bool
) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="until_acknowledged", ttl_ms=60_000, retention_bytes=300_000)
        if is_subscribed:
            store.subscribe("t", "a")
        fill(store, 60)
        remove()
        fill(store, 60)
        remove()
        remove()
        with pytest.raises(TopicFull):
            store.append("t", 0, b"x")
        assert store.queue_bounds("t", 0)[0] == 0, "they are young enough"
        clock.advance(ms=60_001)
        remove()
        store.append("t", 0, b"x")
        assert store.queue_bounds("t", 0)[0] > 80
        assert store._delaying.keeping.copied_messages == 0
        assert all(one.removed_unacknowledged == 0 for one in store.subscriptions("t"))


def test_segments_are_looked_at_once_when_their_messages_become_too_old(tmp_path: Path, looked: list[int]) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        remove = ByHand(store)
        for topic, ttl_ms in (("t", None), ("u", 60_000)):
            store.configure_topic(topic, keep="until_acknowledged", ttl_ms=ttl_ms)
        fill(store, 300)
        fill(store, 150, "u")
        for _ in range(60):
            remove()
        looked.clear()
        remove()
        assert looked == []
        clock.advance(ms=60_001)
        for _ in range(20):
            remove()
        assert store._delaying.keeping.work_queues.wanted_bytes(0, "u") == 0
        assert len(looked) < 200
        looked.clear()
        remove()
        assert looked == []


def test_a_delayed_message_of_a_work_queue_comes_when_those_around_it_are_too_old(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="until_acknowledged", ttl_ms=60_000)
        sub = store.subscribe("t", "a")
        fill(store, 100)
        store.append("t", 0, b"late", deliver_at_ms=clock.wall_ms() + 100_000)
        fill(store, 100)
        remove()
        clock.advance(ms=60_001)
        remove()
        assert store.queue_bounds("t", 0)[0] > 60
        clock.advance(ms=40_001)
        assert [one.message.data for one in sub.receive(300)] == [b"late"]


def test_another_time_to_live_counts_at_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="until_acknowledged", ttl_ms=3_600_000, retention_bytes=1 << 30)
        fill(store, 100)
        remove()
        clock.advance(ms=60_001)
        remove()
        assert store.queue_bounds("t", 0)[0] == 0
        store.configure_topic("t", keep="until_acknowledged", ttl_ms=60_000, retention_bytes=1 << 30)
        remove()
        assert store.queue_bounds("t", 0)[0] > 60


def test_copies_of_a_work_queue_go_when_they_are_too_old(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep="until_acknowledged", ttl_ms=60_000, retention_bytes=200_000)
        sub = store.subscribe("t", "a")
        for _ in range(8):
            fill(store, 40)
            leave(sub, lambda at: at % 6 == 0)
            remove()
        sub.close()
        index = store._delaying.delays.topics["t"]
        assert index.copies.size_bytes > 2 * 65_536
        clock.advance(ms=60_001)
        for _ in range(3):
            remove()
            drop_unwanted(store)
        assert index.copies.size_bytes < 2 * 65_536, "the newest segments stay"
