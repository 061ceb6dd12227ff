"""A segment's file that ends before its first frame was cut by somebody: it is no open segment, and no spare.

Such files are pre-written before they get their names. So no crash leaves one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.format.layout import BLOCK_BYTES, DATA_START, SegmentHeader
from stratalog.store.log.streams import lane_of

from .helpers import (
    crash_copy,
    has_settled,
    log_snapshot,
    overwrite,
    segment_path,
    segment_paths,
    tiny,
    until,
    without_marks,
)

Q = ("t", 0)
OLD, NEW = 9, 2  # messages in the first segments, and in the newest one
BODY = bytes(15 << 10)
CUTS = [0, 50, 104, 2127, BLOCK_BYTES, BLOCK_BYTES + 50, DATA_START - 1]
KILLED = pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])


def stored(folder: Path, *, killed: bool = False) -> Path:
    """A store with a newest segment of NEW messages, which have ids, and a spare after it: that segment's file."""
    with MessageStore.open(folder / "s", tiny()) as store:
        for number in range(OLD + NEW):
            assert store.append(*Q, BODY, message_id=f"id {number}") == number
        until(lambda: has_settled(store) and len(store._upkeep._spares[0]) == 1)
        if killed:
            crash_copy(folder / "s", folder / "killed")
    path = folder / ("killed" if killed else "s")
    newest = [one for one in segment_paths(path) if is_begun(one)][-1]
    assert segment_paths(path)[-1] > newest  # the spare
    return newest


def is_begun(path: Path) -> bool:
    header = SegmentHeader.unpack(path.read_bytes()[:BLOCK_BYTES])
    return header is not None and header.sequence == int(path.stem)


@KILLED
@pytest.mark.parametrize("size", CUTS)
def test_newest_segment_that_is_cut_before_its_first_frame_is_reported(tmp_path: Path, size: int, killed: bool) -> None:
    newest = stored(tmp_path, killed=killed)
    folder = newest.parent.parent
    os.truncate(newest, size)
    before = log_snapshot(folder)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="the segment is cut short") as caught:
            MessageStore.open(folder, tiny())
        assert Path(caught.value.file) == newest
    assert {Path(place.file) for place in verify_folder(folder).places} == {newest}
    assert inspect_folder(folder)["problems"]
    assert log_snapshot(folder) == before


@KILLED
@pytest.mark.parametrize("size", CUTS)
def test_repair_tells_of_a_segment_that_is_cut_and_keeps_the_others(tmp_path: Path, size: int, killed: bool) -> None:
    newest = stored(tmp_path, killed=killed)
    folder = newest.parent.parent
    os.truncate(newest, size)
    with MessageStore.open(folder, tiny(), repair=True) as store:
        assert {Path(loss.file) for loss in store.losses} == {newest}
        counts = [loss.messages for loss in store.losses]
        assert any(count is None or count >= NEW for count in counts)
        may_repeat = any(loss.offsets_may_repeat for loss in store.losses)
        assert may_repeat == (None in counts)
    assert verify_folder(folder).ok and not inspect_folder(folder)["problems"]
    with MessageStore.open(folder, tiny(), repair=True) as store:
        assert not store.losses
    with MessageStore.open(folder, tiny()) as store:
        assert store.get_range(*Q, 0, OLD + NEW) == dict.fromkeys(range(OLD), BODY)
        for number in range(OLD):  # known: it answers the old offset
            assert store.append(*Q, BODY, message_id=f"id {number}") == number
        offset = store.append(*Q, BODY, message_id=f"id {OLD}")
        assert offset == OLD if may_repeat else offset >= OLD + NEW


@pytest.mark.parametrize("filling", [b"\0", b"\x5a"])
def test_newest_segment_without_its_record_and_all_of_its_frames_is_reported(tmp_path: Path, filling: bytes) -> None:
    """The record is garbage, and so it was there: the frames before it were durable."""
    newest = stored(tmp_path)
    size = newest.stat().st_size
    overwrite(newest, BLOCK_BYTES + 40, b"\x5a" * (BLOCK_BYTES - 40))
    overwrite(newest, DATA_START, filling * (size - DATA_START))
    with pytest.raises(StoreCorrupt) as caught:
        MessageStore.open(tmp_path / "s", tiny())
    assert Path(caught.value.file) == newest
    with MessageStore.open(tmp_path / "s", tiny(), repair=True) as store:
        assert any(loss.messages is None and loss.offsets_may_repeat for loss in store.losses)
        assert store.get_range(*Q, 0, OLD + NEW) == dict.fromkeys(range(OLD), BODY)
    assert verify_folder(tmp_path / "s").ok


@pytest.mark.parametrize("size", CUTS)
def test_cut_spare_behind_a_closed_segment_is_no_damage(tmp_path: Path, size: int) -> None:
    newest = stored(tmp_path)
    os.truncate(segment_paths(tmp_path / "s")[-1], size)
    assert verify_folder(tmp_path / "s").ok and not inspect_folder(tmp_path / "s")["problems"]
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        assert len(store.get_range(*Q, 0, OLD + NEW)) == OLD + NEW
        store.append_batch([(*Q, BODY)] * NEW)
    assert len([one for one in segment_paths(tmp_path / "s") if is_begun(one) and one >= newest]) == 2


@pytest.mark.parametrize("size", [104, 2127, DATA_START - 1])
def test_part_of_a_transaction_stays_where_the_file_with_the_other_part_is_cut(tmp_path: Path, size: int) -> None:
    """It was acknowledged, and the file that is cut does not say that a crash has taken its part."""
    queues = [("t", next(queue for queue in range(100) if lane_of("t", queue, 2) == lane)) for lane in range(2)]
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        without_marks(store)
        with store.transaction() as tx:
            tx.append_batch([(*queue, b"both") for queue in queues])
        crash_copy(tmp_path / "s", tmp_path / "killed")
    os.truncate(segment_path(tmp_path / "killed", 1, 1), size)
    with pytest.raises(StoreCorrupt, match="the segment is cut short"):
        MessageStore.open(tmp_path / "killed", tiny(lanes=2))
    with MessageStore.open(tmp_path / "killed", tiny(lanes=2), repair=True) as store:
        assert [Path(loss.file).parent.name for loss in store.losses] == ["lane-01"]
        assert store.get_range(*queues[0], 0, 1) == {0: b"both"}
