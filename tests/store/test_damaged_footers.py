"""A damaged footer costs nothing that its segment's frames tell as well, and nobody else anything."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreCorrupt
from stratalog.store.format.footer import HEADER_BYTES
from stratalog.store.read import finder
from stratalog.store.segment.sealed import SealedSegment
from tests.clocks import WallClock
from tests.seeds import draw_seed

from .helpers import (
    KIB,
    Queue,
    Snapshot,
    calls_that_read,
    contents,
    flip_bit,
    full_frames,
    has_settled,
    memory_folder,
    overwrite,
    put_snapshot,
    scanned,
    seal_of,
    segment_path,
    segment_paths,
    start,
    take_snapshot,
    tiny,
    until,
)

QUEUES: list[Queue] = [("t", 0), ("t", 1), ("other", 0)]
LATE: Queue = ("late", 7)  # its first message is in segment 2
MESSAGES = 1500


def fill(store: MessageStore, begin: int = 0, end: int = MESSAGES) -> dict[Queue, dict[int, bytes]]:
    """Messages of all queues in turn, in batches; by queue and offset."""
    expected: dict[Queue, dict[int, bytes]] = {}
    for first in range(begin, end, 12):
        rows: list[tuple[str, int, bytes]] = []
        for at in range(first, min(first + 12, end)):
            queue = LATE if at >= 300 and at % 10 == 0 else QUEUES[at % 3]
            rows.append((*queue, b"%d of %s/%d " % (at, queue[0].encode(), queue[1]) * 12))
        for (topic, queue_id, data), offset in zip(rows, store.append_batch(rows), strict=True):
            expected.setdefault((topic, queue_id), {})[offset] = data
    return expected


@pytest.fixture(scope="module")
def made() -> tuple[Snapshot, dict[Queue, dict[int, bytes]]]:
    with memory_folder() as path:
        with MessageStore.open(path, tiny()) as store:
            expected = fill(store)
            until(lambda: has_settled(store))
        assert sum(seal_of(name) is not None for name in segment_paths(path)) > 5
        return take_snapshot(path), expected


@pytest.fixture
def filled(
    made: tuple[Snapshot, dict[Queue, dict[int, bytes]]], tmp_path: Path
) -> tuple[Path, dict[Queue, dict[int, bytes]]]:
    """A store of several sealed segments, and what it has."""
    files, expected = made
    return put_snapshot(files, tmp_path / "store"), {queue: dict(rows) for queue, rows in expected.items()}


def damage_footer(path: Path, sequence: int, part: str = "header") -> int:
    """Damage the footer of a sealed segment; where it begins."""
    name = segment_path(path, sequence)
    record = seal_of(name)
    assert record is not None
    assert record.footer_bytes > 0
    begin = record.footer_position
    at = {"header": begin + 20, "tables": begin + HEADER_BYTES + 60, "end": begin + record.footer_bytes - 3}
    if part == "all":
        overwrite(name, begin, b"\xff" * record.footer_bytes)
    elif part == "cut":
        with name.open("r+b") as file:
            file.truncate(begin + 10)
    else:
        flip_bit(name, at[part])
    return begin


def segments(store: MessageStore) -> Sequence[SealedSegment]:
    return store._lanes[0].view.sealed


PARTS = ["header", "tables", "end", "all", "cut"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sequences", [(1,), (4,), (1, 2), (1, 3), (2, 3, 4), (1, 2, 3, 4)])
def test_messages_of_segments_with_damaged_footers_are_read_by_their_frames(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]], sequences: Sequence[int], part: str
) -> None:
    path, expected = filled
    for sequence in sequences:
        damage_footer(path, sequence, part)
    with MessageStore.open(path, tiny()) as store:
        for queue, rows in expected.items():
            assert store.queue_bounds(*queue) == (0, len(rows))
            assert store.get_range(*queue, 0, len(rows)) == rows
            assert store.get_range(*queue, len(rows) - 1, 1) == {0: rows[len(rows) - 1]}
            batch = store.read_batch(*queue, 0, max_messages=len(rows))
            assert dict(zip(batch.offsets.tolist(), map(bytes, batch.payloads()), strict=True)) == rows
            assert [message.offset for message in store.read(*queue, len(rows), wait_ms=1)] == []
        assert contents(store, list(expected)) == expected
        assert scanned(store) == expected
        held = store.stats()["cache"]["held"]
        assert held["remade_footers"] == len(sequences) <= held["footers"]
        # What comes afterwards has nothing to do with it.
        assert store.append("t", 0, b"new") == len(expected["t", 0])
        assert store.append("new", 0, b"first") == 0
        assert store.read("new", 0)[0].data == b"first"


def test_a_footer_that_is_damaged_while_the_store_is_open_costs_nothing_either(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        expected = fill(store)
        until(lambda: has_settled(store))
        for sealed in segments(store):
            damage_footer(tmp_path, sealed.segment.sequence, "all")
            sealed.let_go()
        for queue, rows in fill(store, MESSAGES, 2 * MESSAGES).items():  # sealing goes on
            expected.setdefault(queue, {}).update(rows)
        until(lambda: has_settled(store))
        assert store.stats()["last_background_error"] is None
        assert contents(store, list(expected)) == scanned(store) == expected


def test_a_stream_that_begins_in_the_damaged_segment_begins_at_0(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]],
) -> None:
    path, expected = filled
    with MessageStore.open(path, tiny()) as store:
        born = next(one.segment.sequence for one in segments(store) if one.index.streams == 4)
    damage_footer(path, born)
    with MessageStore.open(path, tiny()) as store:
        assert store.queue_bounds(*LATE) == (0, len(expected[LATE]))
        assert store.get_range(*LATE, 0, 3) == {at: expected[LATE][at] for at in range(3)}
        with pytest.raises(OffsetOutOfRange):
            store.read(*LATE, len(expected[LATE]) + 1)


# -- a footer and frames, both damaged ----------------------------------------------------------------


def damage_head(path: Path, sequence: int, frame: int) -> int:
    """Damage the head of a frame; where it begins."""
    name = segment_path(path, sequence)
    position = full_frames(name)[frame].header.position
    flip_bit(name, position + 24)
    return position


def test_messages_around_a_damaged_frame_are_read_though_the_footer_is_damaged_too(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]],
) -> None:
    path, expected = filled
    lost = full_frames(segment_path(path, 3))[2]
    gone = {int(number): int((lost.numbers == number).sum()) for number in np.unique(lost.numbers)}
    damage_footer(path, 3)
    damage_head(path, 3, 2)
    with MessageStore.open(path, tiny()) as store:
        for number, queue in enumerate([*QUEUES, LATE]):
            assert store.queue_bounds(*queue) == (0, len(expected[queue]))
            broken = []
            for offset, data in expected[queue].items():
                try:
                    assert store.get_range(*queue, offset, 1) == {0: data}
                except StoreCorrupt as error:
                    broken.append(offset)
                    assert error.file == str(segment_path(path, 3))
            assert len(broken) == gone.get(number, 0)
            if broken:
                assert store.get_range(*queue, 0, 10_000) == {at: expected[queue][at] for at in range(broken[0])}
                with pytest.raises(StoreCorrupt):
                    store.read(*queue, broken[0])
                behind = broken[-1] + 1
                assert list(store.get_range(*queue, behind, 10_000).values()) == list(expected[queue].values())[behind:]
        with pytest.raises(StoreCorrupt):
            scanned(store)


@pytest.fixture
def unknown(tmp_path: Path) -> tuple[Path, dict[Queue, dict[int, bytes]], int]:
    """Nothing tells what is in the oldest segment: its footer and a frame are damaged, and retention was there before.

    Its number is given as well; the other segments are whole.
    """
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(retention_bytes=900 * KIB)) as store:
        expected = fill(store, 0, 3 * MESSAGES)
        until(lambda: has_settled(store))
    oldest = int(segment_paths(path)[0].stem)
    assert oldest > 1
    damage_footer(path, oldest)
    damage_head(path, oldest, 1)
    return path, expected, oldest


def test_bounds_begin_behind_an_oldest_segment_that_nothing_tells_of(
    unknown: tuple[Path, dict[Queue, dict[int, bytes]], int],
) -> None:
    path, expected, oldest = unknown
    with MessageStore.open(path, tiny()) as store:
        for queue, rows in expected.items():
            first, end = store.queue_bounds(*queue)
            assert 0 < first < end == len(rows)
            assert store.get_range(*queue, first, 10_000) == {at - first: rows[at] for at in range(first, end)}
            assert [message.data for message in store.read(*queue, first, max_messages=1)] == [rows[first]]
            assert store.read(*queue, end, wait_ms=1) == []
            for read in calls_that_read(store).values():
                with pytest.raises(StoreCorrupt, match="footer") as caught:
                    read(*queue, first - 1, max_messages=10)
                assert caught.value.file == str(segment_path(path, oldest))
        assert store.read("nobody", 0) == []
        assert store.append("new", 0, b"data") == 0
        assert store.read("new", 0)[0].data == b"data"


def test_a_read_that_comes_to_a_segment_that_nothing_tells_of_ends_before_it(
    unknown: tuple[Path, dict[Queue, dict[int, bytes]], int],
) -> None:
    path, expected, oldest = unknown
    for sequence in (oldest + 3, oldest + 4):
        damage_footer(path, sequence)
        damage_head(path, sequence, 1)
    with MessageStore.open(path, tiny()) as store:
        for queue, rows in expected.items():
            first, end = store.queue_bounds(*queue)
            assert end == len(rows)
            found = store.get_range(*queue, first, 10_000)
            stop = first + len(found)
            assert list(found.values()) == [rows[at] for at in range(first, stop)]
            assert first < stop < end
            with pytest.raises(StoreCorrupt, match="footer") as caught:
                store.read(*queue, stop, max_messages=1)
            assert caught.value.file == str(segment_path(path, oldest + 3))
            behind = int(segments(store)[5].footer.first[segments_number(store, queue)])
            with pytest.raises(StoreCorrupt):
                store.get_range(*queue, behind - 1, 10)
            assert store.get_range(*queue, behind, 10_000) == {at - behind: rows[at] for at in range(behind, end)}


def test_a_read_around_a_lost_footer_asks_few_segments(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged footer that cannot be made again must not have each read ask every segment."""
    path, expected = filled
    for sequence in (4, 5):
        damage_footer(path, sequence)
        damage_head(path, sequence, 1)
    asked: list[int] = []
    real = SealedSegment.first_offset

    def first_offset(segment: SealedSegment, number: int) -> int:
        asked.append(segment.segment.sequence)
        return real(segment, number)

    monkeypatch.setattr(SealedSegment, "first_offset", first_offset)
    with MessageStore.open(path, tiny()) as store:
        sealed = len(segments(store))
        for queue, rows in expected.items():
            number, lane = segments_number(store, queue), store._lanes[0]
            firsts = {}
            for at, segment in enumerate(lane.view.sealed):
                with suppress(StoreCorrupt):
                    firsts[at] = real(segment, number)
            for offset in range(0, len(rows), 7):
                asked.clear()
                found = finder._where(lane, lane.view, number, offset)
                assert len(asked) <= 2 * (sealed.bit_length() + 3)
                before = max((at for at, first in firsts.items() if first <= offset), default=0)
                assert found in (before, before + 1)


def segments_number(store: MessageStore, queue: Queue) -> int:
    return store._streams.topics[queue[0]][queue[1]].number


@pytest.mark.parametrize("lost", [False, True])
def test_retention_by_bytes_and_by_age_goes_on_over_damaged_footers(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]], lost: bool
) -> None:
    path, expected = filled
    for sequence in (1, 2, 3, 5):
        damage_footer(path, sequence)
        if lost:
            damage_head(path, sequence, 1)
    with MessageStore.open(path, tiny(retention_bytes=300 * KIB)) as store:
        until(lambda: has_settled(store) and store.stats()["log"]["removed_segments"] > 4)
        assert store.stats()["last_background_error"] is None
    with MessageStore.open(path, tiny(retention_ms=0)) as store:
        until(lambda: store.stats()["segments"]["sealed"] == 1)
        assert store.stats()["last_background_error"] is None
        for queue, rows in expected.items():
            first, end = store.queue_bounds(*queue)
            assert end == len(rows)
            assert list(store.get_range(*queue, first, 10_000).values()) == [rows[at] for at in range(first, end)]


def test_retention_by_age_knows_the_age_of_a_segment_without_a_footer(
    unknown: tuple[Path, dict[Queue, dict[int, bytes]], int],
) -> None:
    """The seal record tells it."""
    path, _, first = unknown
    with MessageStore.open(path, tiny(retention_ms=3_600_000)) as store:
        store._upkeep.stop()  # nobody retires beside the test
        store._upkeep.removal.retire()
        assert segments(store)[0].segment.sequence == first
        oldest = segments(store)[0].record.newest_ms
        assert oldest <= segments(store)[1].footer.time_min_ms
        store._upkeep.removal._clock = WallClock(lambda: oldest + 3_600_000)
        store._upkeep.removal.retire()
        assert segments(store)[0].segment.sequence == first
        store._upkeep.removal._clock = WallClock(lambda: oldest + 3_600_001)
        store._upkeep.removal.retire()
        assert segments(store)[0].segment.sequence > first


def test_bounds_and_reads_are_right_after_retention_has_removed_messages_before_a_damaged_footer(
    tmp_path: Path,
) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=300 * KIB)) as store:
        expected = fill(store, 0, 4 * MESSAGES)
        until(lambda: has_settled(store))
    oldest = int(segment_paths(tmp_path)[0].stem)
    assert oldest > 5
    with MessageStore.open(tmp_path, tiny()) as store:
        bounds = {queue: store.queue_bounds(*queue) for queue in expected}
    damage_footer(tmp_path, oldest)
    damage_footer(tmp_path, oldest + 1)
    with MessageStore.open(tmp_path, tiny()) as store:
        for queue, rows in expected.items():
            first, end = bounds[queue]
            assert store.queue_bounds(*queue) == (first, end)
            assert store.get_range(*queue, first, end) == {at - first: rows[at] for at in range(first, end)}
            with pytest.raises(OffsetOutOfRange):
                store.get_range(*queue, first - 1, 1)


def test_a_footer_is_made_again_by_one_thread_for_all_and_again_when_its_memory_was_wanted(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]],
) -> None:
    path, expected = filled
    for sequence in (1, 2, 3):
        damage_footer(path, sequence)
    with MessageStore.open(path, tiny()) as store:
        held = store._lanes[0].index_memory
        together = threading.Barrier(4)

        def read() -> None:
            together.wait(60)
            assert contents(store, list(expected)) == expected

        for worker in [start(read) for _ in range(4)]:
            worker.join()
        assert held.remade_footers == 3
        held.footers.limit(0)
        assert len(held.footers.items) == 1
        assert contents(store, list(expected)) == expected
        assert held.remade_footers > 3


def run_of(sequence: int, damaged: set[int]) -> set[int]:
    """The segments with damaged footers next to each other that this one is one of: they know offsets of each other."""
    low = high = sequence
    while low - 1 in damaged:
        low -= 1
    while high + 1 in damaged:
        high += 1
    return set(range(low, high + 1))


def test_random_damage_to_footers_and_heads_costs_no_message_that_is_whole(
    filled: tuple[Path, dict[Queue, dict[int, bytes]]],
) -> None:
    path, expected = filled
    names = [name for name in segment_paths(path) if seal_of(name) is not None][:-2]  # opening needs the newest
    kept = {name: name.read_bytes() for name in names}
    chance = random.Random(draw_seed())
    for _ in range(12):
        broken: set[int] = set()
        damaged: set[int] = set()
        for name in chance.sample(names, chance.randrange(1, len(names))):
            record = seal_of(name)
            assert record is not None
            damaged.add(int(name.stem))
            flip_bit(name, record.footer_position + chance.randrange(record.footer_bytes), chance.randrange(8))
            if chance.random() < 0.3:
                broken.add(int(name.stem))
                damage_head(path, int(name.stem), chance.randrange(len(full_frames(name))))
        wrong: Any = []
        with MessageStore.open(path, tiny()) as store:
            for queue, rows in expected.items():
                for offset, data in rows.items():
                    try:
                        assert store.get_range(*queue, offset, 1) == {0: data}
                    except StoreCorrupt as error:
                        wrong.append(int(Path(error.file).stem))
        assert set(wrong) <= {one for one in damaged if broken & run_of(one, damaged)}
        for name, content in kept.items():
            name.write_bytes(content)
