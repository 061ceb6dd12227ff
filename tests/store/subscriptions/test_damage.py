"""Damage to what subscriptions and delays remember: it costs the messages that it meets, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.format.cursors import pack_ones
from stratalog.store.format.delays import CANCELLED, CHANGES, Changes

from ..delayed.test_retention import retire
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, BothClocks, fill, places

SIZE = 3_000
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def flip(path: Path, wanted: bytes) -> None:
    """Change a bit of the first segment that has these bytes."""
    for file in sorted(path.glob("lane*/*.seg")):
        data = bytearray(file.read_bytes())
        at = data.find(wanted)
        if at >= 0:
            data[at] ^= 1
            file.write_bytes(data)
            return
    raise AssertionError("no segment has it")


def churn(store: MessageStore, clock: BothClocks, is_enough: Callable[[], bool]) -> None:
    """Append to another topic, and have retention look, until it is enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough():
        clock.go(100)
        store.append("other", 0, bytes(SIZE))
        store._upkeep.wake()
        time.sleep(0.0005)  # so that the background has the interpreter
        removed = store._upkeep.removal.removed_segments
        assert time.monotonic() < deadline, f"retention has removed {removed}: {store._upkeep.last_error}"


def retire_all(store: MessageStore, clock: BothClocks) -> None:
    """Append to all lanes, and have retention look until it removes nothing more."""
    for round_ in range(400):
        clock.go(100)
        store.append("other", round_ % 7, bytes(SIZE))
    for _ in range(5):
        clock.go(10_000)
        retire(store)


def test_a_damaged_copy_is_passed_over_and_all_others_come(tmp_path: Path, clock: BothClocks) -> None:
    path, config = tmp_path / "store", tiny(retention_ms=1_000)
    with MessageStore.open(path, config, clock=clock) as store:
        store.subscribe(TOPIC, "a")
        for number in range(100):
            at_ms = clock.wall_ms() + HOUR_MS if number % 10 == 0 else None
            store.append(TOPIC, 0, b"MARKER%04d" % number + bytes(SIZE), deliver_at_ms=at_ms)
        clock.go(60_000)
        churn(store, clock, lambda: store._upkeep.removal.removed_segments >= 6)
        for _ in range(50):
            store.append("other", 0, bytes(SIZE))
    flip(path, b"MARKER0000")
    with MessageStore.open(path, config, clock=clock) as store:
        assert store.stats()["delayed"][TOPIC]["copies_damaged"] == 1
        clock.go(2 * HOUR_MS)
        came = {at for _, at in places(store.subscribe(TOPIC, "a").receive(1000))}
        assert came >= set(range(10, 100, 10))  # the first one comes too if retention has copied it twice


def test_a_damaged_record_of_changes_refuses_the_calls_of_its_topic_alone(tmp_path: Path, clock: BothClocks) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(), clock=clock) as store:
        store.append(TOPIC, 0, b"later", deliver_at_ms=clock.wall_ms() + HOUR_MS)
        store.cancel_delayed(TOPIC, 0, 0)
        for _ in range(50):
            store.append("other", 0, bytes(SIZE))
    row = [np.array([value], np.int64) for value in (0, 0, CANCELLED)]
    flip(path, Changes(CHANGES, 0, *row).pack())
    with MessageStore.open(path, tiny(), clock=clock) as store:
        assert len(store.subscribe("other", "a").receive(50)) == 50
        with pytest.raises(StoreCorrupt):
            store.subscribe(TOPIC, "a").receive()
    MessageStore.open(path, tiny(), clock=clock, repair=True).close()


def test_retention_goes_on_beside_a_damaged_record_of_a_subscription(tmp_path: Path, clock: BothClocks) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        fill(store, 20)
        for one in sub.receive()[:5]:
            sub.ack(one)
        for _ in range(100):
            store.append("other", 0, bytes(SIZE))
    flip(path, pack_ones(1, [(0, 0, 2)]))
    with MessageStore.open(path, tiny(), clock=clock) as store, pytest.raises(StoreCorrupt):
        store.subscribe(TOPIC, "a")
    with MessageStore.open(path, tiny(retention_ms=1_000), clock=clock) as store:
        clock.go(60_000)
        churn(store, clock, lambda: store._upkeep.removal.removed_segments > 0)
        sub = store.subscribe(TOPIC, "a", start="latest")
        fill(store, 1)
        assert places(sub.receive()) == [(0, 20)]


def damaged_changes(path: Path, clock: BothClocks) -> None:
    """A store of three lanes, with a damaged record about one of two delayed messages."""
    with MessageStore.open(path, tiny(lanes=3), clock=clock) as store:
        store.subscribe(TOPIC, "a")
        for _ in range(2):
            store.append(TOPIC, 0, bytes(SIZE), deliver_at_ms=clock.wall_ms() + HOUR_MS)
        store.cancel_delayed(TOPIC, 0, 0)
        for queue_id in range(100):
            store.append("other", queue_id % 7, bytes(SIZE))
    row = [np.array([value], np.int64) for value in (0, 0, CANCELLED)]
    flip(path, Changes(CHANGES, 0, *row).pack())


def test_damaged_changes_hold_what_they_are_about_and_retention_of_all_else_goes_on(
    tmp_path: Path, clock: BothClocks
) -> None:
    path = tmp_path / "store"
    damaged_changes(path, clock)
    with MessageStore.open(path, tiny(lanes=3, retention_ms=1_000), clock=clock) as store:
        why = store.stats()["delayed"][TOPIC]["damaged"]
        assert "damaged" in why or "no sense" in why
        clock.go(60_000)
        firsts = [lane.view.sealed[0].segment.sequence for lane in store._lanes]
        retire_all(store, clock)
        gone = [lane.view.sealed[0].segment.sequence > first for lane, first in zip(store._lanes, firsts, strict=True)]
        assert any(gone)
        held = [store._streams.topics[TOPIC][0].lane.index]
        held += [store._shared.hidden.of_kind("delays")[0].lane.index]
        assert [lane for lane in (0, 1, 2) if not gone[lane]] == sorted(set(held)), store._upkeep.last_error
        assert store.read(TOPIC, 0, 0, max_messages=10)[1].offset == 1, "what may be wanted is there"
    with MessageStore.open(path, tiny(lanes=3, retention_ms=1_000), clock=clock, repair=True) as store:
        clock.go(60_000)
        churn(store, clock, lambda: store._upkeep.removal.removed_segments > 10)


def test_what_all_have_acknowledged_is_not_held_by_damaged_changes(tmp_path: Path, clock: BothClocks) -> None:
    path = tmp_path / "store"
    damaged_changes(path, clock)
    with MessageStore.open(path, tiny(lanes=3, retention_ms=1_000), clock=clock) as store:
        store.subscribe(TOPIC, "a").skip_all()
        clock.go(60_000)
        lane = store._streams.topics[TOPIC][0].lane
        first = lane.view.sealed[0].segment.sequence
        retire_all(store, clock)
        changes = store._shared.hidden.of_kind("delays")[0]
        assert (lane.view.sealed[0].segment.sequence > first) == (changes.lane is not lane)
