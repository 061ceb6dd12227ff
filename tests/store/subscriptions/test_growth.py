"""Costs that do not grow: steps are counted at n and at 4 n, where a square would show as 16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from pyroaring import BitMap64

from stratalog.index.trackers.bucket_tracker import BucketTracker
from stratalog.store import MessageStore
from stratalog.store.log.streams import Stream
from stratalog.store.read.finder import Finder
from stratalog.store.subscriptions import backlog, journal
from stratalog.store.subscriptions.cursor import AckedOffsets, Cursor
from stratalog.store.subscriptions.in_flight import InFlight, Places

from ..helpers import has_settled, tiny, until
from .helpers import TOPIC

HOUR_MS = 3_600_000
LINEAR = 5  # times as many steps at the most, for 4 times as much


class Counted(BitMap64):
    """A bitmap that counts the places of all copies of it and of them."""

    places = 0

    def copy(self) -> Counted:
        Counted.places += len(self)
        return Counted(super().copy())


@pytest.fixture(autouse=True)
def counts_anew() -> Iterator[None]:
    Counted.places = 0
    yield


def one_each(store: MessageStore, queues: int, deliver_at_ms: int = -1) -> None:
    """A message in each of so many queues."""
    streams = [(TOPIC, queue_id) for queue_id in range(queues)]
    at, sizes, due = np.arange(queues), np.ones(queues, np.int64), np.full(queues, deliver_at_ms)
    store.append_columns(streams, at, sizes, bytes(queues), deliver_at_ms=due)


def grows(steps: Callable[[Path, int], int], folder: Path, few: int) -> float:
    """How many times the steps of `few` those of 4 times as many are."""
    return steps(folder / "few", 4 * few) / steps(folder / "many", few)


def test_counting_copies_the_delayed_messages_of_all_queues_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BucketTracker.pending_places
    monkeypatch.setattr(BucketTracker, "pending_places", lambda self: Counted(real(self)))
    monkeypatch.setattr("stratalog.store.delayed.counting.FEW_PLACES", 16, raising=False)

    def copied(folder: Path, queues: int) -> int:
        with MessageStore.open(folder, tiny()) as store:
            sub = store.subscribe(TOPIC, "a")
            one_each(store, queues, store._clock.wall_ms() + HOUR_MS)
            assert sub.receive() == []
            Counted.places = 0
            assert sub.backlog() == store.subscriptions(TOPIC)[0].backlog == (0, 0, queues)
            return Counted.places

    assert grows(copied, tmp_path, 100) <= LINEAR * 1.5, "halving takes a logarithm more"


def test_counting_looks_at_each_message_in_flight_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [0]
    real = InFlight.places

    def places(table: InFlight, wanted: np.ndarray) -> Places:
        rows[0] += len(wanted)
        return real(table, wanted)

    def looked_at(folder: Path, queues: int) -> int:
        with MessageStore.open(folder, tiny()) as store:
            sub = store.subscribe(TOPIC, "a")
            one_each(store, queues)
            while sub.receive_batch().receipts.size:
                pass
            with mock.patch.object(InFlight, "places", places):
                rows[0] = 0
                assert sub.backlog() == store.subscriptions(TOPIC)[0].backlog == (0, queues, 0)
                return rows[0]

    assert grows(looked_at, tmp_path, 100) <= LINEAR


def test_counting_asks_for_nothing_queue_by_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real, copied = [0], Finder.bounds, AckedOffsets.copy

    def bounds(finder: Finder, stream: Stream) -> tuple[int, int]:
        asked[0] += 1
        return real(finder, stream)

    def copy(acked: AckedOffsets) -> AckedOffsets:
        asked[0] += 1
        return copied(acked)

    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe(TOPIC, "a")
        one_each(store, 100)
        while sub.receive_batch().receipts.size:
            pass
        monkeypatch.setattr(Finder, "bounds", bounds)
        monkeypatch.setattr(AckedOffsets, "copy", copy)
        assert sub.backlog() == (0, 100, 0)
        assert [one.backlog for one in store.subscriptions(TOPIC)] == [(0, 100, 0)]
        assert asked[0] <= 3, "the topic's own queues are counted together"


@pytest.mark.parametrize("is_sealed", [False, True])
def test_bounds_of_a_topic_are_those_of_its_queues(tmp_path: Path, is_sealed: bool) -> None:
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        for size in (1, 30_000 if is_sealed else 1, 30_000 if is_sealed else 1, 1):
            store.append_batch([(TOPIC, queue_id, bytes(size)) for queue_id in range(7)])
        until(lambda: has_settled(store))
        store.append(TOPIC, 9, b"x")
        store.trim(TOPIC, 3, 2)
        store.trim(TOPIC, 4, store.queue_bounds(TOPIC, 4)[1])
        expected = {queue_id: store.queue_bounds(TOPIC, queue_id) for queue_id in [*range(7), 9]}
        assert store._fetcher.bounds_of_topic(TOPIC) == expected
        assert store._fetcher.bounds_of_topic("none") == {}
        assert any(bool(lane.view.sealed) for lane in store._lanes) == is_sealed
        with MessageStore.open(tmp_path / "s", read_only=True) as reader:
            assert reader._fetcher.bounds_of_topic(TOPIC) == expected


def test_no_consumer_waits_while_a_backlog_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe(TOPIC, "a")
        one_each(store, 3)
        one_each(store, 3)
        sub.ack_batch(sub.receive_batch().receipts[:2])
        state, real, locked = sub._state, backlog._not_acked, list[bool]()

        def not_acked(queues: backlog.QueueBounds, known: backlog.SubscriptionSnapshot) -> int:
            locked.append(state.lock.locked())
            return real(queues, known)

        monkeypatch.setattr(backlog, "_not_acked", not_acked)
        assert sub.backlog() == store.subscriptions(TOPIC)[0].backlog == (0, 4, 0)
        assert locked and not any(locked)


def test_deleted_subscriptions_cost_nothing(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = [0]

    def names_of(stream: Stream) -> tuple[str, str] | None:
        parsed[0] += 1
        return journal.names_of(stream)

    monkeypatch.setattr("stratalog.store.subscriptions.registry.names_of", names_of)
    one_each(store, 1)
    store.subscribe(TOPIC, "stays").close()
    for at in range(20):
        store.subscribe(TOPIC, f"web-{at}").close()
        assert store.delete_subscription(TOPIC, f"web-{at}")
    parsed[0] = 0
    assert [one.name for one in store.subscriptions()] == ["stays"]
    assert not store.delete_subscription(TOPIC, "web-3")
    store.subscribe(TOPIC, "web-3").close()
    assert [one.name for one in store.subscriptions(TOPIC)] == ["stays", "web-3"]
    assert parsed[0] <= 1, "each name is read once"
    assert len(store._subscriptions()._names._names) == 2


def test_a_snapshot_is_packed_while_others_go_on(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = store.subscribe(TOPIC, "a")
    one_each(store, 3)
    first, second, _ = sub.receive(3)
    sub.ack(first)
    real = Cursor.records

    def records(cursor: Cursor, limit_bytes: int) -> list[bytes]:
        if second.receipt in sub._state.table.receipts(sub._state.table.live()):
            sub._acks.ack_one(second.receipt)  # it would wait for the lock
        return real(cursor, limit_bytes)

    monkeypatch.setattr(Cursor, "records", records)
    with sub._state.changing:
        sub._state.compact()
    assert sub.backlog() == (0, 1, 0)
