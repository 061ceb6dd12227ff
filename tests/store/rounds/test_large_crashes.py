"""A log that a crash left with a part of a large transaction, or whose part is damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore, StoreCorrupt, StoreReader
from stratalog.store import inspect_folder, verify_folder
from stratalog.store.format.layout import JOINT, REST, lane_name
from stratalog.store.testing import Operation, SimulatedDisk

from ...seeds import draw_seed
from ..helpers import KIB, crash_copy, flip_bit, full_frames, overwrite, small, tiny
from .helpers import LANES, NAMES, open_and_die, path_of, tear
from .test_large import store_rows, total

ROWS = 36  # of a transaction: two frames a lane, or six in one lane
pytestmark = pytest.mark.usefixtures("small_frames")


def crashed(
    tmp_path: Path, lanes: int, block_bytes: int, *, goes_on: bool = False, rows: int = ROWS
) -> tuple[Path, list[list[Any]]]:
    """A store that was killed when a large transaction was durable, and its frames in each lane. Before it lies another
    one; after it nothing, but with `goes_on` some messages of the last lane.
    """
    with MessageStore.open(tmp_path / "store", small(lanes=lanes, block_bytes=block_bytes)) as store:
        store_rows(store, ROWS)
        store_rows(store, rows, 900)
        for _ in range(2 if goes_on else 0):
            store.append(*NAMES[lanes - 1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink(missing_ok=True)
    parts = []
    for lane in range(lanes):
        frames = [frame for frame in full_frames(path_of(left, lane)) if frame.header.flags & (JOINT | REST)]
        begin = max(at for at, frame in enumerate(frames) if frame.header.flags & JOINT)
        parts.append(frames[begin:])
        if not goes_on or lane + 1 < lanes:
            overwrite(path_of(left, lane), frames[-1].header.end, bytes(8 * KIB))  # a mark that came later
    return left, parts


def check(folder: Path, rows: int) -> None:
    """Whoever looks finds so many messages, and the store goes on."""
    report = verify_folder(folder)
    assert report.ok, report.damages
    assert report.messages == rows
    found = inspect_folder(folder)
    assert found["problems"] == [] and sum(row["next_offset"] for row in found["queues"]) == rows
    with StoreReader.open(folder) as reader:
        assert total(reader) in (0, ROWS, rows)
    with MessageStore.open(folder) as store:
        assert total(store) == rows
        store_rows(store, ROWS)
    with MessageStore.open(folder) as store:
        assert total(store) == rows + ROWS
    assert verify_folder(folder).ok


@pytest.mark.parametrize("lanes", [1, LANES])
def test_one_that_is_whole_stays(tmp_path: Path, block_bytes: int, lanes: int) -> None:
    folder, parts = crashed(tmp_path, lanes, block_bytes)
    assert [len(part) for part in parts] == ([6] if lanes == 1 else [2] * LANES)
    check(folder, 2 * ROWS)


@pytest.mark.parametrize("how", ["all", "head", "bytes"])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_one_that_lacks_a_frame_is_cut_as_a_whole(tmp_path: Path, block_bytes: int, lanes: int, how: str) -> None:
    for lane in range(lanes):
        for at in range(6 if lanes == 1 else 2):
            folder, parts = crashed(tmp_path / f"{lane}-{at}", lanes, block_bytes)
            tear(folder, parts[lane][at], how)
            check(folder, ROWS)


@pytest.mark.parametrize("opened", range(1, LANES))
def test_a_second_crash_between_two_lanes_comes_to_the_same(tmp_path: Path, block_bytes: int, opened: int) -> None:
    """A recovered lane is sealed, and what follows its end in the file is left of the part: it proves nothing."""
    for lacking in range(LANES):
        for at in range(2):
            folder, parts = crashed(tmp_path / f"{lacking}-{at}", LANES, block_bytes)
            tear(folder, parts[lacking][at], "head")
            open_and_die(folder, opened)
            check(folder, ROWS)


@pytest.mark.parametrize("lanes", [1, LANES])
def test_damage_in_one_that_was_durable_is_reported_and_a_repair_keeps_the_rest(
    tmp_path: Path, block_bytes: int, lanes: int
) -> None:
    """Another lane has gone on, or for the last lane that one."""
    for lane in range(lanes):
        for at in range(6 if lanes == 1 else 2):
            folder, parts = crashed(tmp_path / f"{lane}-{at}", lanes, block_bytes, goes_on=True)
            frame = parts[lane][at]
            flip_bit(path_of(folder, lane), frame.payload_start + 5)
            (damage,) = verify_folder(folder).damages
            assert str(path_of(folder, lane)) in damage
            for _ in range(2):
                with pytest.raises(StoreCorrupt, match=lane_name(lane)):
                    MessageStore.open(folder)
            with MessageStore.open(folder, repair=True) as store:
                assert [loss.messages for loss in store.losses] == [1]
                assert total(store) == 2 * ROWS + 2
            with MessageStore.open(folder) as store:
                assert sum(map(len, store.scan())) == 2 * ROWS + 1
            assert verify_folder(folder).ok


@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_frame_of_one_that_was_durable_is_missed_if_another_lane_has_gone_on(
    tmp_path: Path, block_bytes: int, lanes: int
) -> None:
    for lane in range(lanes):
        folder, parts = crashed(tmp_path / str(lane), lanes, block_bytes, goes_on=True)
        frame = parts[lane][-1]
        overwrite(path_of(folder, lane), frame.header.position, bytes(frame.header.end - frame.header.position))
        assert not verify_folder(folder).ok
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=lane_name(lane)):
                MessageStore.open(folder)
        with MessageStore.open(folder, repair=True) as store:
            assert store.losses
            assert sum(map(len, store.scan())) == 2 * ROWS + 2 - frame.header.count
        assert verify_folder(folder).ok


@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_reader_without_a_writer_sees_all_of_one_that_is_proved(tmp_path: Path, block_bytes: int, lanes: int) -> None:
    folder, _ = crashed(tmp_path, lanes, block_bytes, goes_on=True)
    with StoreReader.open(folder) as reader:
        assert [reader.queue_bounds(*name)[1] for name in NAMES[:lanes]][:-1] == [2 * ROWS // LANES] * (lanes - 1)
        assert total(reader) >= 2 * ROWS


def test_a_reader_without_a_writer_shows_no_part_without_its_end(tmp_path: Path, block_bytes: int) -> None:
    """Although another lane proves it: the opening reports the damage."""
    folder, parts = crashed(tmp_path, LANES, block_bytes, goes_on=True)
    tear(folder, parts[0][-1], "head")
    with StoreReader.open(folder) as reader:
        assert reader.queue_bounds(*NAMES[0])[1] == ROWS // LANES


@pytest.mark.parametrize("durability", ["force", "os"])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_power_cut_at_any_operation_leaves_all_or_nothing(tmp_path: Path, lanes: int, durability: str) -> None:
    chance = random.Random(seed := draw_seed())
    print("seed", seed)
    disk, left, acknowledged = SimulatedDisk(), list[tuple[SimulatedDisk, int]](), 0

    def watch(operation: Operation) -> None:
        if chance.random() < 0.5:
            draw = chance.randrange(3)
            one = disk.kill() if not draw else disk.crash(chance) if draw == 1 else disk.crash(chance, "none")
            left.append((one, acknowledged))

    store = MessageStore.open(tmp_path, tiny(lanes=lanes, durability=durability), disk=disk)
    disk.on_operation = watch
    for _ in range(3):
        store_rows(store, ROWS, chance.randrange(2000))
        acknowledged += ROWS
    disk.on_operation = None
    store.close()
    seen = set[int]()
    for one, promised in chance.sample(left, min(len(left), 24)):
        with MessageStore.open(tmp_path, disk=one) as again:
            found = total(again)
            assert found % ROWS == 0 and (found >= promised or durability == "os")
            assert len({again.queue_bounds(*name)[1] for name in NAMES if name[0] in again.topics()}) <= 1
            store_rows(again, ROWS)
        with MessageStore.open(tmp_path, disk=one) as again:
            assert total(again) == found + ROWS
        seen.add(found)
    assert len(seen) > 1


@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_repair_before_one_that_lacks_its_first_frame_does_not_go_on_with_the_rest_of_it(
    tmp_path: Path, block_bytes: int, lanes: int
) -> None:
    """Nothing says that it ever counted: a part counts as a whole or not at all."""
    for lane in range(lanes):
        folder, parts = crashed(tmp_path / str(lane), lanes, block_bytes)
        begin = parts[lane][0].header.position
        before = [frame for frame in full_frames(path_of(folder, lane)) if frame.header.position < begin][-1]
        tear(folder, parts[lane][0], "head")
        overwrite(path_of(folder, lane), before.header.position, bytes(64))
        with pytest.raises(StoreCorrupt, match=f"{lane_name(lane)}.*at byte {before.header.position}"):
            MessageStore.open(folder)
        with MessageStore.open(folder, repair=True) as store:
            (loss,) = store.losses
            assert (loss.position, loss.messages) == (before.header.position, None), "nobody knows how many they were"
            left = sum(map(len, store.scan()))
            # A lane before the damaged one finds that this one lacks its part; one after it, that an earlier one does.
            cut = [frame for part in (parts if lane else parts[:1]) for frame in part]
            assert left == 2 * ROWS - before.header.count - sum(frame.header.count for frame in cut)
            store_rows(store, ROWS)
        with MessageStore.open(folder) as store:
            assert sum(map(len, store.scan())) == left + ROWS
        assert verify_folder(folder).ok


@pytest.mark.parametrize("lanes", [1, LANES])
def test_a_repair_keeps_all_that_it_can_of_one_that_counted(tmp_path: Path, block_bytes: int, lanes: int) -> None:
    """Its first frame is damaged, or a later one, and so is the one before; the lane, or another one, has gone on."""
    for lane in {0, lanes - 1}:
        for lost in ([0], [1], [0, 1], [1, 3])[: 4 if lanes == 1 else 2]:
            folder, parts = crashed(tmp_path / f"{lane}-{lost}", lanes, block_bytes, goes_on=True)
            is_proved = lane + 1 == lanes or lost != [0]  # another lane says so, but only the first frame leads there
            for at in lost:
                overwrite(path_of(folder, lane), parts[lane][at].header.position, bytes(64))
            with MessageStore.open(folder, repair=True) as store:
                gone = lost if is_proved else range(2)
                left = 2 * ROWS + 2 - sum(parts[lane][at].header.count for at in gone)
                assert sum(map(len, store.scan())) == left
            with MessageStore.open(folder) as store:
                assert sum(map(len, store.scan())) == left


def test_a_repair_keeps_the_rest_of_a_part_that_only_another_lane_proves(tmp_path: Path, block_bytes: int) -> None:
    """The first frame says where to ask; nothing in its own lane says that the part counted."""
    rows = 3 * 6 * LANES
    folder, parts = crashed(tmp_path, LANES, block_bytes, goes_on=True, rows=rows)
    assert [len(part) for part in parts] == [3] * LANES
    overwrite(path_of(folder, 0), parts[0][1].header.position, bytes(64))
    for _ in range(2):
        with MessageStore.open(folder, repair=True) as store:
            assert sum(map(len, store.scan())) == ROWS + rows + 2 - 6
    assert verify_folder(folder).ok
