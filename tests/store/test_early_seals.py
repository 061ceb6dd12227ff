"""An idle lane makes another full footer, so that retention can remove the group of the one before; and no more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.store import MessageStore, verify_folder
from stratalog.store.log import early
from stratalog.store.log.stopping import end_segment
from stratalog.store.log.upkeep import Upkeep
from stratalog.store.segment import sealing

from .helpers import until
from .test_small_footers import Rows, append, check, config, fill, kinds, sealed_of, settle


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also of lanes of a few streams; nothing is done in the background, so that the test tells when."""
    monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
    monkeypatch.setattr(sealing, "SMALL_SHARE", 0)
    monkeypatch.setattr(early, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Upkeep, "_mark_idle", lambda upkeep: None)
    yield


def retain(store: MessageStore, retention_bytes: int | None) -> None:
    store._upkeep.removal._config = replace(store._upkeep.removal._config, retention_bytes=retention_bytes)


def tick(store: MessageStore, times: int = 3) -> None:
    """What the background does, by this thread: its own is busy or waits, and the two do not hinder each other."""
    upkeep = store._upkeep
    for _ in range(times):
        upkeep.sealer.seal_full()
        upkeep.removal.retire()
        upkeep.early.seal()
    upkeep.sealer.seal_full()
    upkeep.removal.retire()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background does not retire."""
    monkeypatch.setattr("stratalog.store.log.upkeep.Upkeep._look_after", lambda upkeep: None)


def filled(store: MessageStore, rows: Rows, segments: int, seed: int = 1) -> None:
    """As `fill`, with footers made by this thread."""
    chance = random.Random(seed)
    end = len(sealed_of(store)) + segments
    while len(sealed_of(store)) < end:
        for number in range(4):
            append(store, rows, (f"busy-{number}", number), chance.randbytes(700))
        store._upkeep.sealer.seal_full()


def test_an_idle_lane_gives_up_its_group_with_one_seal(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        append(store, rows, ("idle", 0), b"first")
        filled(store, rows, 12)
        store._upkeep.sealer.seal_full()
        count = len(sealed_of(store))
        assert kinds(store) == [1] + [0] * (count - 1)
        retain(store, 1)
        tick(store)
        assert kinds(store) == [1] and store._upkeep.early.sealed == 1
        assert store._upkeep.removal.removed_segments == count
        tick(store, 5)
        assert kinds(store) == [1] and store._upkeep.early.sealed == 1
        for queue, datas in rows.items():
            assert store.queue_bounds(*queue)[1] == len(datas)
        append(store, rows, ("busy-0", 0), b"goes on")
        assert store.read("busy-0", 0, len(rows["busy-0", 0]) - 1, max_messages=1)[0].data == b"goes on"
        tick(store)
        assert store._upkeep.early.sealed == 1, "what is left is the newest sealed segment, which stays in any case"
    assert verify_folder(tmp_path).damages == []
    with MessageStore.open(tmp_path, config()) as store:
        for queue, datas in rows.items():
            low, end = store.queue_bounds(*queue)
            assert (
                end == len(datas) and [one.data for one in store.read(*queue, low, max_messages=end + 1)] == datas[low:]
            )


def test_a_lane_with_nothing_open_gets_a_segment_with_a_mark_alone(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        append(store, rows, ("idle", 0), b"first")
        filled(store, rows, 6)
        lane = store._lanes[0]
        with store._flushers[0].building:
            end_segment(store._flushers[0])
        store._upkeep.sealer.seal_full()
        assert lane.segment is None and not lane.view.open
        retain(store, 1)
        tick(store)
        assert kinds(store) == [1] and sealed_of(store)[0].record.entries == 0
        append(store, rows, ("busy-1", 1), b"goes on")
        low, end = store.queue_bounds("busy-1", 1)
        assert store.read("busy-1", 1, end - 1, max_messages=1)[0].data == b"goes on" and low == end - 1
    assert verify_folder(tmp_path).damages == []
    with MessageStore.open(tmp_path, config()) as store:
        assert {queue: store.queue_bounds(*queue)[1] for queue in rows} == {
            queue: len(datas) for queue, datas in rows.items()
        }


def test_nothing_is_sealed_while_retention_wants_nothing(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        filled(store, rows, 6)
        tick(store)
        assert store._upkeep.early.sealed == 0 and len(sealed_of(store)) >= 6
        check(store, rows)


def test_a_lane_that_seals_by_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "PATIENCE_S", 1e9)
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        filled(store, rows, 6)
        retain(store, 1)
        tick(store)
        assert store._upkeep.early.sealed == 0 and kinds(store)[0] == 1 and len(sealed_of(store)) >= 6
        filled(store, rows, 1, seed=2)
        tick(store)
        assert kinds(store) == [1] and store._upkeep.early.sealed == 0, "the next footer was a full one"


def test_a_lane_that_is_writing_is_left_alone(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        filled(store, rows, 6)
        retain(store, 1)
        lane = store._lanes[0]
        store._upkeep.removal.retire()
        assert lane.groups.wants_full
        lane.under_way._pending.append(None)  # type: ignore[arg-type]  # a frame that is not durable
        store._upkeep.early.seal()
        lane.under_way._pending.clear()
        assert store._upkeep.early.sealed == 0


def test_after_a_kill_the_early_seal_is_as_any_other(tmp_path: Path) -> None:
    rows: Rows = {}
    for round_number in range(3):
        with MessageStore.open(tmp_path, config()) as store:
            filled(store, rows, 5, seed=round_number)
            retain(store, 1)
            tick(store)
            retain(store, None)
            assert kinds(store) == [1]
            fill_some(store, rows)
    assert verify_folder(tmp_path).damages == []


def fill_some(store: MessageStore, rows: Rows) -> None:
    append(store, rows, ("late", 0), b"late")
    low, end = store.queue_bounds("late", 0)
    assert [one.data for one in store.read("late", 0, low, max_messages=end)] == rows["late", 0][low:]


def test_background_does_it_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
    monkeypatch.setattr(sealing, "SMALL_SHARE", 0)
    monkeypatch.setattr(early, "PATIENCE_S", 0.0)
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 8)
        settle(store)
    with MessageStore.open(tmp_path, replace(config(), retention_bytes=1)) as store:
        until(lambda: kinds(store) == [1])
