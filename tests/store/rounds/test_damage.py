"""Damage of a part of a round is reported, and cuts nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stratalog import (
    MessageStore,
    StoreCorrupt,
    StoreUnusable,
)
from stratalog.store import inspect_folder, verify_folder
from stratalog.store.format.layout import JOINT, lane_name

from ..disks import BadSectors
from ..helpers import (
    KIB,
    contents,
    crash_copy,
    flip_bit,
    full_frames,
    overwrite,
    tiny,
)
from .helpers import LANES, NAMES, commit, crashed, gone_on, path_of, sizes, tear


def test_damage_that_hides_a_part_is_reported_and_nothing_else_is_cut(tmp_path: Path, block_bytes: int) -> None:
    """A lane that has gone on after the round says that the round was complete."""
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"new" * 500)
        store.append(*NAMES[1], b"later")
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    frames = [frame for frame in full_frames(path_of(left, 1)) if frame.header.flags & JOINT]
    flip_bit(path_of(left, 1), frames[-1].payload_start + 5)
    for lane in (0, 2):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    (damage,) = verify_folder(left).damages
    assert str(path_of(left, 1)) in damage
    with pytest.raises(StoreCorrupt, match="lane-01"):
        MessageStore.open(left)
    with MessageStore.open(left, repair=True) as store:
        assert sizes(store) == [2, 4, 2]
        assert [loss.messages for loss in store.losses] == [1]
    with MessageStore.open(left) as store:
        assert sizes(store) == [2, 4, 2]


def test_a_damaged_part_of_a_lane_with_a_damaged_seal_record_is_a_loss_of_that_lane_alone(
    tmp_path: Path, block_bytes: int
) -> None:
    """Its own recovery takes what stands there for a record of a close: the part was durable."""
    folder, parts, _ = crashed(tmp_path, block_bytes)
    flip_bit(path_of(folder, 1), 4 * KIB + 19)
    flip_bit(path_of(folder, 1), parts[1].payload_start + 5)
    with pytest.raises(StoreCorrupt, match="lane-01"):
        MessageStore.open(folder)
    with MessageStore.open(folder, repair=True) as store:
        assert sizes(store) == [3] * LANES
        assert [len(store.read(*name, 0)) for name in NAMES] == [3, 2, 3]
        assert [loss.messages for loss in store.losses] == [1]


@pytest.mark.parametrize("damaged", [0, 2])
def test_damage_of_the_last_part_of_a_lane_is_reported_if_another_lane_has_gone_on(
    tmp_path: Path, damaged: int, block_bytes: int
) -> None:
    left, parts = gone_on(tmp_path, block_bytes)
    flip_bit(path_of(left, damaged), parts[damaged].payload_start + 5)
    (damage,) = verify_folder(left).damages
    assert str(path_of(left, damaged)) in damage
    assert [str(path_of(left, damaged)) in str(problem) for problem in inspect_folder(left)["problems"]] == [True]
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=lane_name(damaged)):
            MessageStore.open(left)
    with MessageStore.open(left, repair=True) as store:
        assert sizes(store) == [2, 4, 2]
        assert [len(store.read(*name, 0)) for name in NAMES] == [
            2 - (lane == damaged) + 2 * (lane == 1) for lane in range(3)
        ]
        assert [loss.messages for loss in store.losses] == [1]
    with MessageStore.open(left) as store:
        assert sizes(store) == [2, 4, 2]
    assert verify_folder(left).ok


@pytest.mark.parametrize("damaged", [0, 2])
def test_without_a_whole_part_of_a_lane_the_others_stay_if_another_lane_has_gone_on(
    tmp_path: Path, block_bytes: int, damaged: int
) -> None:
    left, parts = gone_on(tmp_path, block_bytes)
    tear(left, parts[damaged], "all")
    with MessageStore.open(left) as store:
        assert sizes(store) == [2 - (damaged == lane) + 2 * (lane == 1) for lane in range(LANES)]
    assert verify_folder(left).ok


def test_a_lane_that_cannot_be_read_proves_nothing(tmp_path: Path, block_bytes: int) -> None:
    """The part of another lane is torn, and so the round is cut."""
    folder, parts, old = crashed(tmp_path, block_bytes)
    tear(folder, parts[2], "bytes")
    begin = parts[1].header.position
    with pytest.raises(StoreUnusable):
        MessageStore.open(folder, disk=BadSectors(path_of(folder, 1), begin, begin + 4 * KIB))
    tear(folder, parts[1], "all")
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old


@pytest.mark.parametrize("gone", range(LANES))
def test_a_lane_whose_folder_is_gone_cuts_nothing_in_the_others(tmp_path: Path, block_bytes: int, gone: int) -> None:
    folder, _, _ = crashed(tmp_path, block_bytes)
    shutil.rmtree(folder / lane_name(gone))
    with pytest.raises(StoreCorrupt):
        MessageStore.open(folder)
    with MessageStore.open(folder, repair=True) as store:
        assert sizes(store) == [0 if lane == gone else 3 for lane in range(LANES)]


def test_a_file_of_another_lane_in_the_place_of_a_part_cuts_nothing_in_the_others(
    tmp_path: Path, block_bytes: int
) -> None:
    folder, _, _ = crashed(tmp_path, block_bytes)
    aside = path_of(folder, 1).rename(folder / "aside")
    path_of(folder, 2).rename(path_of(folder, 1))
    aside.rename(path_of(folder, 2))
    with pytest.raises(StoreCorrupt):
        MessageStore.open(folder)
    with MessageStore.open(folder, repair=True) as store:
        assert sizes(store)[0] == 3
        assert {loss.file for loss in store.losses} == {str(path_of(folder, lane)) for lane in (1, 2)}
