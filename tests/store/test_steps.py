"""Costs that do not grow: steps of calls and of background work, counted at some segments and at four times as many."""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, ScanPlanner, ShardWriter, StoreReader, commit_shards, plan_scan
from stratalog.store.device import open_files
from stratalog.store.format.footer import Footer
from stratalog.store.read import lane_tables
from stratalog.store.read.named_rows import Layout
from stratalog.store.read.wanted import StreamTable
from stratalog.store.segment.newest import NewestTimes
from stratalog.store.segment.sealed import SealedSegment
from stratalog.store.segment.sealed_segments import SealedSegments
from stratalog.store.segment.segment import MAP_AFTER

from ..seeds import draw_seed
from .helpers import tiny, until

FEW = 32
DOUBLINGS = 2  # from FEW to four times as many: so many steps more of a bisection
IDLE_MESSAGES = 100


class Counted(SealedSegments):
    """Segments that count how many of them are looked at."""

    looks = 0

    def __init__(self, segments: SealedSegments) -> None:
        super().__init__(segments._parts, segments._gone)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        Counted.looks += len(found) if isinstance(index, slice) else 1
        return found

    def at(self, index: int) -> Any:
        Counted.looks += 1
        return super().at(index)

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            Counted.looks += 1
            yield one


def noted(patch: pytest.MonkeyPatch, owner: Any, name: str, calls: list[Any]) -> None:
    """From now on, the first argument of each call goes into a list."""
    real = getattr(owner, name)

    def call(*given: Any, **more: Any) -> Any:
        calls.append(given[0])
        return real(*given, **more)

    patch.setattr(owner, name, call)


def looks_of(store: StoreReader, work: Callable[[], object]) -> int:
    """How many sealed segments are looked at meanwhile."""
    lane = store._lanes[0]
    lane.view = lane.view._replace(sealed=Counted(lane.view.sealed))
    before = Counted.looks
    work()
    return Counted.looks - before


def filled(folder: Path, segments: int) -> None:
    """A store of an idle queue, which has messages in the oldest segment alone, and a busy one."""
    with MessageStore.open(folder, tiny()) as store:
        store.append_batch([("idle", 0, b"x")] * IDLE_MESSAGES)
        while store.stats()["segments"]["sealed"] < segments:
            store.append_batch([("busy", 0, bytes(7000))] * 8)
            until(lambda: store.stats()["segments"]["open"] <= 1)


@pytest.fixture(scope="module")
def stores(shared_path: Path) -> tuple[Path, Path]:
    """The folders of a store of few segments, and of one of four times as many."""
    folders = shared_path / "few", shared_path / "many"
    for folder, segments in zip(folders, (FEW, 4 * FEW), strict=True):
        filled(folder, segments)
    return folders


IDLE_CALLS: dict[str, Callable[[MessageStore], object]] = {
    "get_range": lambda store: store.get_range("idle", 0, 0, 2 * IDLE_MESSAGES),
    "few of get_range": lambda store: store.get_range("idle", 0, IDLE_MESSAGES - 1, 32),
    "read": lambda store: store.read("idle", 0, 0, max_messages=2 * IDLE_MESSAGES),
    "read_batch": lambda store: store.read_batch("idle", 0, 0, max_messages=1000),
    "few of read_batch": lambda store: store.read_batch("idle", 0, IDLE_MESSAGES - 2),
    "offset_at": lambda store: store.offset_at("idle", 0, 1 << 61),
    "offset_at, an early time": lambda store: store.offset_at("idle", 0, 0),
}


@pytest.mark.parametrize("name", IDLE_CALLS)
def test_a_call_of_an_idle_queue_asks_few_segments_and_reads_few_footers(
    stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked: list[object] = []
    for owner, method in (
        (SealedSegment, "first_of"), (SealedSegment, "first_offset"), (SealedSegment, "add_parts"),
        (Footer, "__init__"),
    ):  # fmt: skip
        noted(monkeypatch, owner, method, asked)
    steps = []
    for folder in stores:
        with MessageStore.open(folder, tiny()) as store:
            asked.clear()
            IDLE_CALLS[name](store)
            steps.append(len(asked))
    assert steps[1] <= steps[0] + 6 * DOUBLINGS, steps


def test_a_search_by_time_asks_few_segments_once_their_times_are_known(
    stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    noted(monkeypatch, SealedSegment, "first_of", asked)
    steps = []
    for folder in stores:
        with MessageStore.open(folder, tiny()) as store:
            last = store.queue_bounds("busy", 0)[1] - 1
            late = store.read("busy", 0, last, max_messages=1)[0].timestamp_ms
            found = [store.offset_at("busy", 0, late), store.offset_at("busy", 0, late + 1)]
            asked.clear()
            assert found == [store.offset_at("busy", 0, late), store.offset_at("busy", 0, late + 1)]
            assert found[1] == last + 1
            steps.append(len(asked))
    assert steps[1] <= steps[0] + 2, steps


def test_the_first_segment_since_a_time_is_the_one_that_a_walk_finds() -> None:
    chance = random.Random(draw_seed())
    for _ in range(200):
        times, newest = [], NewestTimes()
        sealed: list[Any] = []
        number = chance.randrange(1, 1000)
        for _ in range(chance.randrange(1, 120)):
            number += 1 if chance.random() < 0.9 else chance.randrange(1, 40)  # a repair gave some up
            times.append(chance.randrange(100))
            record = SimpleNamespace(newest_ms=times[-1])
            sealed.append(SimpleNamespace(segment=SimpleNamespace(sequence=number), record=record))
        first = 0
        for _ in range(60):
            end = chance.randrange(first + 1, len(sealed) + 1)  # readers hold older and newer views
            view = sealed[first:end]
            index, time_ms = chance.randrange(len(view)), chance.randrange(-1, 102)
            passed = [times[at] < time_ms for at in range(first + index, end)]
            expected = index + (passed.index(False) if False in passed else len(passed))
            assert newest.first_since(view, index, time_ms) == expected
            if chance.random() < 0.1:  # retention, but for a reader that still has an older view
                first = max(0, min(first + chance.randrange(-4, 9), len(sealed) - 1))


def test_a_search_by_time_knows_what_only_an_older_view_has() -> None:
    def one(sequence: int) -> Any:
        record = SimpleNamespace(newest_ms=100 if sequence == 31 else 50)
        return SimpleNamespace(segment=SimpleNamespace(sequence=sequence), record=record)

    sealed, newest = [one(sequence) for sequence in range(20, 37)], NewestTimes()
    assert newest.first_since(sealed[:10], 0, 60) == 10
    assert newest.first_since(sealed[12:], 0, 60) == 5  # retention has removed all before, and what neither of them has
    assert newest.first_since(sealed, 0, 60) == 11  # of a reader that is still at the old one


def test_background_work_and_figures_look_at_few_segments(stores: tuple[Path, Path]) -> None:
    for folder in stores:
        with MessageStore.open(folder, tiny(retention_bytes=1 << 40, retention_ms=1 << 40)) as store:
            upkeep = store._upkeep
            upkeep.stop()
            for work in (upkeep.removal.retire, upkeep._give_way, upkeep.removal.held_bytes, store.stats):
                assert looks_of(store, work) <= 4, work


def test_a_readers_look_looks_at_few_segments(stores: tuple[Path, Path]) -> None:
    for folder in stores:
        with MessageStore.open(folder, read_only=True) as store:
            (followed,) = store._fetcher.follower._lanes  # type: ignore[attr-defined]
            assert looks_of(store, followed.learn_start) <= 2


def sums_are_right(store: StoreReader) -> bool:
    view = store._lanes[0].view
    records = [one.record for one in view.sealed]
    return (view.sealed_bytes, view.sealed_messages) == (
        sum(one.footer_position + one.footer_bytes for one in records), sum(one.entries for one in records)
    )  # fmt: skip


def test_the_sums_of_a_view_are_those_of_its_segments(tmp_path: Path) -> None:
    with (
        MessageStore.open(tmp_path, tiny(retention_bytes=512 << 10)) as store,
        MessageStore.open(tmp_path, read_only=True) as reader,
    ):
        for number in range(20):
            store.append_batch([("t", 0, bytes(7000))] * 8)
            if number == 10:
                with ShardWriter(tmp_path) as writer:
                    writer.append_columns([("t", 1)], np.zeros(30, int), np.full(30, 9000), bytes(30 * 9000))
                    shards = writer.finish()
                commit_shards(tmp_path, shards, name="one", wait_ms=0)
                store.attach_pending()
            assert sums_are_right(store)
            reader.queue_bounds("t", 0)
            assert sums_are_right(reader)
        until(lambda: store.stats()["log"]["removed_segments"] > 0)
        reader.queue_bounds("t", 0)
        assert sums_are_right(store)
        assert sums_are_right(reader)
    with MessageStore.open(tmp_path) as store:
        assert store._lanes[0].view.sealed
        assert sums_are_right(store)


def test_a_part_carries_the_trims_of_its_own_range_alone(tmp_path: Path) -> None:
    sizes = []
    for queues in (100, 400):
        folder = tmp_path / str(queues)
        with MessageStore.open(folder, tiny()) as store:
            store.append_batch([("many", queue, b"x") for queue in range(queues)] * 2)
            for queue in range(queues):
                store.trim("many", queue, 1)
            store.append_batch([("t", 0, bytes(7000))] * 40)
            until(lambda: store.stats()["segments"]["open"] <= 1)
        parts = plan_scan(folder, part_bytes=4096).parts
        sealed = [one for part in parts for one in part.ranges if one.known is None]
        assert sealed[0].sequence < sealed[-1].sequence
        sizes.append(len(pickle.dumps(sealed[-1])))
        assert sealed[0].trimmed is not None
        assert sealed[-1].trimmed is None
    assert sizes[1] <= sizes[0] + 16, sizes


def test_a_look_of_a_planner_makes_no_table_of_streams_where_none_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    noted(monkeypatch, StreamTable, "of", made)
    with MessageStore.open(tmp_path, tiny()) as store, ScanPlanner(tmp_path) as planner:
        store.append_batch([("t", queue, b"x") for queue in range(50)])
        planner.end()
        made.clear()
        store.append("t", 0, b"x")
        planner.end()
        assert not made
        store.append("t", 50, b"x")
        planner.end()
        assert [*map(len, made)] == [51]


def test_a_table_of_places_without_room_makes_no_names_and_is_not_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: list[object] = []
    tables: list[object] = []
    monkeypatch.setattr(Layout, "of", layouts.append)
    noted(monkeypatch, lane_tables, "make_places", tables)
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(200)] * 4)
        held = store._lanes[0].index_memory
        held.limit_bytes = held.frames.limit_bytes = 4096
        for number in range(1000):
            store.get_range("t", number % 200, 0, 4)
            if number % 100 == 0:
                store.append("t", 0, b"more")
        assert not layouts
        assert not tables


# -- descriptors --------------------------------------------------------------------------------------


class Holding:
    """A holder of a descriptor that tells whether it let go."""

    def __init__(self) -> None:
        self.used, self.is_open = True, True

    def was_used(self) -> bool:
        used, self.used = self.used, False
        return used

    def let_go(self) -> None:
        self.is_open = False


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(open_files, "OPENED", deque())
    monkeypatch.setattr(open_files, "MOST_DESCRIPTORS", 16)
    return 16


def test_what_is_used_all_the_time_keeps_its_descriptor(few_descriptors: int) -> None:
    often = Holding()
    open_files.note_opened(often)
    others = []
    for _ in range(10 * few_descriptors):
        often.used = True
        others.append(Holding())
        open_files.note_opened(others[-1])
        assert len(open_files.OPENED) <= few_descriptors
    assert often.is_open
    assert sum(one.is_open for one in others) == few_descriptors - 1


@pytest.mark.linux
def test_where_descriptors_are_scarce_a_message_here_and_there_maps_no_segment(
    stores: tuple[Path, Path], few_descriptors: int
) -> None:
    with MessageStore.open(stores[1], tiny()) as store:
        segments = [one.segment for one in store._lanes[0].view.sealed]
        for offset in range(0, 5 * FEW, 3):
            assert len(store.get_range("busy", 0, offset, 1)) == 1
        opened = [segment for segment in segments if segment._data is not None]
        assert few_descriptors // 2 <= len(opened) <= few_descriptors
        assert sum(segment.leased is not None for segment in segments) <= few_descriptors // 2
        for segment in segments:
            segment._map_at = 0.0  # what was let go is not mapped again at once
        for _ in range(MAP_AFTER + 1):
            store.get_range("busy", 0, 0, 1)
        assert any(segment.leased is not None for segment in segments)
        assert {segment for segment in segments if segment.leased is not None} <= store._lanes[0].mapped
