"""Segment files that somebody has moved or copied: to another number, another lane, another store."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES, CLOSED, DATA_START, SealRecord, SegmentHeader
from stratalog.store.testing import Operation, SimulatedDisk
from stratalog.store.verify.inspect import inspect_folder

from ..fuzz.cuts import as_snapshot, load
from ..seeds import draw_seed
from .helpers import (
    Snapshot,
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    has_settled,
    memory_folder,
    overwrite,
    put_snapshot,
    scanned,
    segment_path,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)

CONFIG = tiny(lanes=2)
QUEUES = [("q", index) for index in range(8)]
Rows = dict[tuple[str, int], dict[int, bytes]]


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Snapshot], Rows]:
    """The files of a store of two lanes with some segments each, closed and crashed, and what it has."""
    with memory_folder() as folder, MessageStore.open(folder / "open", CONFIG) as store:
        for turn in range(60):
            store.append_batch([(*name, b"%d, %d;" % (name[1], turn) * 80) for name in QUEUES])
        rows = contents(store, QUEUES)
        until(lambda: has_settled(store))  # a footer has the names of the queues that a lost segment defined
        crashed = take_snapshot(folder / "open")
        store.close()
        return {"crashed": crashed, "closed": take_snapshot(folder / "open")}, rows


@pytest.fixture(params=["closed", "crashed"])
def made(both: tuple[dict[str, Snapshot], Rows], folder: Path, request: pytest.FixtureRequest) -> tuple[Path, Rows]:
    """That store, and what it has."""
    files, rows = both
    return put_snapshot(files[request.param], folder / request.param), {name: dict(mine) for name, mine in rows.items()}


def exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def newest(path: Path) -> int:
    """The number of the newest segment of lane 0 that has frames."""
    return max(int(at.stem) for at in segment_paths(path) if frames_of(at))


def check(path: Path, rows: Rows, moved: list[Path]) -> None:
    """It is reported, and a repair sets it aside as a whole: no queue gets a message that is not its own."""
    held = {at: at.read_bytes() for at in moved}
    with pytest.raises(StoreCorrupt) as caught:
        MessageStore.open(path, CONFIG)
    assert caught.value.what == "the file is another segment's"
    assert Path(caught.value.file) == min(moved)
    assert [one.split(" in ")[0] for one in verify_folder(path).damages].count(caught.value.what) == len(moved)
    problems = [segment["problem"] for lane in inspect_folder(path)["lanes"] for segment in lane["segments"]]
    assert sum(caught.value.what in (problem or "") for problem in problems) == len(moved)
    with MessageStore.open(path, CONFIG, repair=True) as store:
        found = contents(store, QUEUES)
        assert all(rows[name].get(at) == data for name, mine in found.items() for at, data in mine.items())
        assert scanned(store) == {name: mine for name, mine in found.items() if mine}
        aside = {loss.file: loss.quarantined_to for loss in store.losses}
        for at, content in held.items():
            copy = aside[str(at)]
            assert copy is not None
            assert Path(copy).read_bytes() == content
        ends = [store.queue_bounds(*name)[1] for name in QUEUES]
        assert [store.append(*name, b"new") for name in QUEUES] == ends
    with MessageStore.open(path, CONFIG) as store:
        assert contents(store, QUEUES) == {
            name: {**found[name], end: b"new"} for name, end in zip(QUEUES, ends, strict=True)
        }
    assert verify_folder(path).damages == []


@pytest.mark.parametrize("sequence", [1, 2])
def test_files_of_two_lanes_are_exchanged(made: tuple[Path, Rows], sequence: int) -> None:
    path, rows = made
    moved = [segment_path(path, sequence, lane) for lane in (0, 1)]
    exchange(*moved)
    check(path, rows, moved)


def test_file_of_one_lane_is_copied_over_that_of_another(made: tuple[Path, Rows]) -> None:
    path, rows = made
    shutil.copyfile(segment_path(path, 2, 1), segment_path(path, 2, 0))
    check(path, rows, [segment_path(path, 2, 0)])


def test_two_files_of_a_lane_are_exchanged(made: tuple[Path, Rows]) -> None:
    path, rows = made
    last = newest(path)
    moved = [segment_path(path, sequence) for sequence in (last - 1, last)]
    exchange(*moved)
    check(path, rows, moved)


def test_file_is_copied_over_the_newest_of_its_lane(made: tuple[Path, Rows]) -> None:
    path, rows = made
    last = newest(path)
    shutil.copyfile(segment_path(path, last - 1), segment_path(path, last))
    check(path, rows, [segment_path(path, last)])


def test_file_of_another_store_stands_behind_the_last(made: tuple[Path, Rows], folder: Path) -> None:
    path, rows = made
    with MessageStore.open(folder / "other", CONFIG) as store:
        store.append_batch([(*name, b"of another store") for name in QUEUES])
    behind = segment_path(path, newest(path) + 1)
    shutil.copyfile(segment_path(folder / "other", 1), behind)
    check(path, rows, [behind])


@pytest.mark.parametrize("whose", ["ours", "another store's"])
def test_damaged_first_blocks_after_the_log_end_it_only_if_they_name_this_store(
    made: tuple[Path, Rows], folder: Path, whose: str
) -> None:
    """A header and a seal record, both damaged, in a file without a frame: only our own store has written ours."""
    path, rows = made
    with MessageStore.open(folder / "other", CONFIG) as store:
        store.append_batch([(*name, b"of another store") for name in QUEUES])
    behind = newest(path) + 1
    named = segment_path(path if whose == "ours" else folder / "other", 1).read_bytes()[:DATA_START]
    header = SegmentHeader.unpack(named[:BLOCK_BYTES])
    assert header is not None
    file = segment_path(path, behind)
    size_bytes = segment_path(path, behind - 1).stat().st_size
    sealed = SealRecord(CLOSED, behind, DATA_START, 0, 0, 0, 0).pack()
    blocks = header._replace(sequence=behind).pack().ljust(BLOCK_BYTES, b"\0") + sealed.ljust(BLOCK_BYTES, b"\0")
    file.write_bytes(blocks.ljust(size_bytes, b"\0"))
    flip_bit(file, 60, 0)
    flip_bit(file, BLOCK_BYTES + 24, 0)
    verdict = verify_folder(path)
    if whose == "ours":
        assert verdict.damages
        with pytest.raises(StoreCorrupt):
            MessageStore.open(path, CONFIG)
    else:
        assert verdict.damages == []
        with MessageStore.open(path, CONFIG) as store:
            assert contents(store, QUEUES) == rows


@pytest.mark.parametrize("sequence", [1, 2])
@pytest.mark.parametrize("bits", [[(34, 1), (61, 1), (8, 1)], [(39, 5), (50, 0)], [(0, 0)], [(16, 3), (17, 4)]])
def test_file_of_another_store_is_known_with_some_bits_of_its_header_flipped(
    made: tuple[Path, Rows], folder: Path, sequence: int, bits: list[tuple[int, int]]
) -> None:
    """Its frames do not name their store."""
    path, rows = made
    with MessageStore.open(folder / "other", CONFIG) as store:
        for turn in range(60):
            store.append_batch([(*name, b"other %d;" % turn * 80) for name in QUEUES])
    put = segment_path(path, sequence)
    shutil.copyfile(segment_path(folder / "other", sequence), put)
    for position, bit in bits:
        flip_bit(put, position, bit)
    check(path, rows, [put])


@pytest.mark.parametrize(
    ("begin", "patch"),
    [
        (0, bytes(512)),
        (8, bytes(56)),
        (16, bytes(16)),
        (16, bytes(56)),
        (20, bytes(16)),
        (16, b"\xaa" * 16),
        (16, b"\xaa" * 16 + bytes([3])),
        (20, b"\xaa" * 16),
        (20, b"\xaa" * 60),
    ],
)
def test_own_header_with_a_bad_patch_is_not_taken_for_another_store_s(
    made: tuple[Path, Rows], begin: int, patch: bytes
) -> None:
    """Not even where the store's id is gone, and more with it: its neighbours know it."""
    path, rows = made
    overwrite(segment_path(path, 2), begin, patch)
    flip_bit(segment_path(path, 2), 45)
    assert verify_folder(path).damages[0].startswith("the segment's header is damaged")
    with MessageStore.open(path, CONFIG, repair=True) as store:
        assert contents(store, QUEUES) == rows


def test_crash_in_a_repair_lets_no_frame_of_another_store_in(made: tuple[Path, Rows], folder: Path) -> None:
    """The file is set aside and an empty one takes its place: at no moment do its frames stand behind our header."""
    path, rows = made
    with MessageStore.open(folder / "other", CONFIG) as store:
        for turn in range(60):
            store.append_batch([(*name, b"other %d;" % turn * 80) for name in QUEUES])
    shutil.copyfile(segment_path(folder / "other", 2), segment_path(path, 2))
    home, chance, left = folder / "simulated", random.Random(draw_seed()), list[SimulatedDisk]()
    damaged = take_snapshot(path)
    disk = load(damaged, home)

    def cut_the_power(operation: Operation) -> None:
        if str(operation.path).endswith(str(segment_path(path, 2).relative_to(path))):
            left.extend(disk.crash(chance) for _ in range(2))

    disk.on_operation = cut_the_power
    MessageStore.open(home, CONFIG, repair=True, disk=disk).close()
    assert left
    for cut in left:
        put_snapshot(as_snapshot(cut, damaged, home), folder / "again")
        with MessageStore.open(folder / "again", CONFIG, repair=True) as store:
            assert all(mine.items() <= rows[name].items() for name, mine in scanned(store).items())


def test_recycled_file_is_a_spare_as_before(folder: Path) -> None:
    """It has the header of a segment that retention has removed."""
    path, config = folder / "s", tiny(retention_bytes=200 << 10)
    with MessageStore.open(path, config) as store:
        while store.stats()["log"]["recycled_segments"] < 2:
            store.append("t", 0, bytes(7000))
        _, end = store.queue_bounds("t", 0)
        crashed = crash_copy(path, folder / "crashed")
    assert verify_folder(crashed).damages == []
    with MessageStore.open(crashed, config) as store:
        assert store.queue_bounds("t", 0)[1] == end
