"""Retention and subscriptions: cursors outlive the segments that their records were in."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig
from stratalog.store.log import upkeep
from stratalog.store.log.streams import Stream
from stratalog.store.subscriptions.cursor import Cursor
from stratalog.store.subscriptions.journal import Journal

from ..helpers import segment_paths, tiny, until
from .helpers import TOPIC, fill, places


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "TICK_S", 0.02)


def churn(store: MessageStore, segments: int) -> None:
    """Fill and seal segments with a topic of its own."""
    for _ in range(segments * 3):
        store.append_batch([("churn", 0, bytes(30_000))])


@pytest.mark.parametrize("config", [tiny(retention_bytes=300_000), tiny()], ids=["by bytes", "by trim"])
def test_a_cursor_outlives_the_segments_of_its_records(tmp_path: Path, config: StoreConfig) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, config) as store:
        fill(store, 20)
        sub = store.subscribe(TOPIC, "a")
        store.subscribe(TOPIC, "idle", start={0: 5})
        sub.ack_batch(sub.receive(10)[3:])
        for _ in range(4):
            churn(store, 4)
            store.trim("churn", 0, store.queue_bounds("churn", 0)[1])
            fill(store, 1)
        if config.retention_bytes is None:
            store.trim(TOPIC, 0, 20)
        until(lambda: not segment_paths(path)[0].name.startswith("000000000001"))
        until(lambda: store._upkeep.removal.removed_segments > 3)
        churn(store, 4)
    with MessageStore.open(path) as again:
        first = again.queue_bounds(TOPIC, 0)[0]
        assert [one.name for one in again.subscriptions()] == ["a", "idle"]
        left = [(0, at) for at in range(first, 24)]
        assert places(again.subscribe(TOPIC, "a").receive()) == [at for at in left if at[1] < 3 or at[1] >= 10]
        assert places(again.subscribe(TOPIC, "idle").receive()) == [at for at in left if at[1] >= 5]


def test_what_retention_took_counts_as_acknowledged(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 10)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(4)
        store.trim(TOPIC, 0, 8)
        sub.nack_batch(got[:2])
        assert places(sub.receive()) == [(0, 8), (0, 9)]
        assert sub.backlog().total == 2
        sub.seek("earliest")
        assert places(sub.receive()) == [(0, 8), (0, 9)]


def test_a_deleted_topic_leaves_its_subscription(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 5)
        sub = store.subscribe(TOPIC, "a")
        sub.receive(2)
        store.delete_topic(TOPIC)
        assert sub.receive() == []
        fill(store, 1)
        assert places(sub.receive()) == [(0, 5)]


def test_a_cursor_that_is_compacted_while_it_is_read_is_read_whole(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    sub.ack(sub.receive()[0])
    parts = sub._state.parts
    bounds = parts.reads.reader.bounds

    def late(stream: Stream) -> tuple[int, int]:
        found = bounds(stream)
        monkeypatch.undo()
        sub._shared.move_records()  # as retention does it
        return found

    monkeypatch.setattr(parts.reads.reader, "bounds", late)
    cursor = Cursor()
    Journal(parts, TOPIC, "a").load(cursor)
    assert cursor.settings is not None
    assert 0 in cursor.queue(0)
    assert 1 not in cursor.queue(0)
