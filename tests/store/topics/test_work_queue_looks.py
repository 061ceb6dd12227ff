"""Work queues: what a change of settings, or of time, makes them look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store.delayed.work_queues import WorkQueues

from ..subscriptions.test_removed_counts import RETIRE
from .keeping import fill, leave, look_at_once, opened


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
