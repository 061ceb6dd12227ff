"""A log that a crash left with a part of a round: the round counts in all of its lanes, or in none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog import (
    MessageStore,
    StoreReader,
)
from stratalog.store import inspect_folder, verify_folder
from stratalog.store.format.layout import JOINT, lane_name
from stratalog.store.testing import Operation, SimulatedDisk

from ..helpers import (
    KIB,
    contents,
    crash_copy,
    full_frames,
    overwrite,
    tiny,
)
from .helpers import LANES, NAMES, commit, crashed, hand_over, open_and_die, path_of, sizes, step, tear


@pytest.mark.parametrize("how", ["all", "head", "bytes"])
@pytest.mark.parametrize("lacking", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_a_round_that_lacks_a_part_is_cut_in_all_lanes(
    tmp_path: Path, block_bytes: int, lacking: tuple[int, ...], how: str
) -> None:
    folder, parts, old = crashed(tmp_path, block_bytes)
    for lane in lacking:
        tear(folder, parts[lane], how)
    with StoreReader.open(folder) as reader:
        assert len(set(sizes(reader))) == 1
    report = verify_folder(folder)
    assert report.ok, report.damages
    assert report.messages == sum(map(len, old.values()))
    found = inspect_folder(folder)
    assert found["problems"] == [] and {row["next_offset"] for row in found["queues"]} == {2}
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old
        assert commit(store) == [2] * LANES
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == {name: {**rows, 2: b"x"} for name, rows in old.items()}
    assert verify_folder(folder).ok


def test_a_round_that_is_whole_stays(tmp_path: Path, block_bytes: int) -> None:
    folder, _, old = crashed(tmp_path, block_bytes)
    report = verify_folder(folder)
    assert report.ok and report.messages == sum(map(len, old.values())) + LANES
    assert {row["next_offset"] for row in inspect_folder(folder)["queues"]} == {3}
    with MessageStore.open(folder) as store:
        assert sizes(store) == [3] * LANES


@pytest.mark.parametrize("opened", range(LANES))
def test_a_second_crash_between_two_lanes_comes_to_the_same(tmp_path: Path, block_bytes: int, opened: int) -> None:
    for lacking in range(LANES):
        folder, parts, old = crashed(tmp_path / str(lacking), block_bytes)
        tear(folder, parts[lacking], "all")
        open_and_die(folder, opened)
        with MessageStore.open(folder) as store:
            assert contents(store, NAMES) == old


def test_a_seal_record_that_a_second_crash_has_torn_says_nothing(tmp_path: Path, block_bytes: int) -> None:
    """It may be that of a lane whose part was cut: it does not prove that the round was complete."""
    folder, parts, old = crashed(tmp_path, block_bytes)
    tear(folder, parts[2], "all")
    open_and_die(folder, 1)
    overwrite(path_of(folder, 0), 4 * KIB + 40, bytes(4 * KIB - 40))
    with StoreReader.open(folder) as reader:
        assert len(set(sizes(reader))) == 1
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old


def test_a_part_that_counts_is_forced_before_another_lane_is_sealed_with_its_own(
    tmp_path: Path, block_bytes: int, by_hand: None
) -> None:
    """A kill left it with the kernel alone. The power fails when one lane was recovered."""
    disk, left = SimulatedDisk(), list[SimulatedDisk]()

    def watch(operation: Operation) -> None:
        if operation.kind == "force" and operation.path.parent.name == lane_name(2):
            left.append(disk.kill())

    with MessageStore.open(tmp_path, tiny(lanes=LANES, block_bytes=block_bytes), disk=disk) as store:
        hand_over(store, b"old")
        assert step(store)
        hand_over(store, b"new")
        disk.on_operation = watch
        assert step(store)
        disk.on_operation = None
    open_and_die(tmp_path, 1, disk=left[-1])  # of the last force, that of the part
    after = left[-1].crash(random.Random(0), "none")
    with MessageStore.open(tmp_path, disk=after) as store:
        assert sizes(store) == [2] * LANES


def test_a_round_with_messages_without_bytes_is_cut_as_well(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    for lane in range(LANES):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end if lane else frame.header.position, bytes(8 * KIB))
    for _ in range(2):
        with MessageStore.open(left) as store:
            assert sizes(store) == [1] * LANES
        assert verify_folder(left).ok


def test_streams_that_a_cut_part_has_named_get_other_numbers(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        fresh = [(f"n{at}", at) for at in range(20)]
        with store.transaction() as tx:
            tx.append_batch([(*name, b"x") for name in fresh])
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        overwrite(path_of(left, lane), frame.header.position if lane == 1 else frame.header.end, bytes(8 * KIB))
    with MessageStore.open(left) as store:
        assert store.topics() == ["t"]
        store.append_batch([(*name, b"y") for name in reversed(fresh)])
    assert verify_folder(left).ok
    with MessageStore.open(left) as store:
        assert [store.read(*name, 0)[0].data for name in fresh] == [b"y"] * 20
