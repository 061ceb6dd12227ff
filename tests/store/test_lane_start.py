"""Where a lane's log begins: noted before a segment goes, whole after any crash, told apart from a lost segment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.lane_start import read_start, write_start
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.layout import BLOCK_BYTES, START_FILE, UNKNOWN
from stratalog.store.format.store_files import LaneStart

from .helpers import crash_copy, flip_bit, has_settled, segment_paths, tiny, until

ID = bytes(16)
QUEUE = ("t", 0)
TINY = tiny()


@pytest.fixture
def retained(folder: Path) -> Path:
    """A closed store whose first segments retention has removed."""
    with MessageStore.open(folder / "s", tiny(retention_bytes=200 << 10)) as store:
        for index in range(60):
            store.append(*QUEUE, b"%04d" % index * 1500)
        until(lambda: has_settled(store))
        assert store.queue_bounds(*QUEUE)[0] > 0
    return folder / "s"


def start_of(path: Path) -> LaneStart:
    found = read_start(OsDisk(), path / "lane-00", 0, None)
    assert found.start is not None
    return found.start


def problems(path: Path) -> list[Any]:
    return list(inspect_folder(path)["problems"])


class Halting(OsDisk):
    """A disk that stops before its nth write of START."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return HaltingFile(path, self, create=create)


class HaltingFile(OsFile):
    """A file of it; the write that is stopped has come half of the way."""

    def __init__(self, path: Path, disk: Halting, *, create: bool) -> None:
        super().__init__(path, create=create, direct=False)
        self.disk = disk

    def write(self, parts: Any, position: int, *, force: bool = False) -> None:
        self.disk.left -= 1
        if self.disk.left < 0:
            super().write([b"".join(parts)[:34]], position, force=force)
            raise KeyboardInterrupt
        super().write(parts, position, force=force)


@pytest.mark.parametrize(("writes", "expected"), [(0, 3), (1, 5), (2, 5)])
def test_start_is_whole_wherever_a_write_of_it_stops(tmp_path: Path, writes: int, expected: int) -> None:
    write_start(OsDisk(), tmp_path, LaneStart(0, ID, 3, 30))
    try:
        write_start(Halting(writes), tmp_path, LaneStart(0, ID, 5, 50))
    except KeyboardInterrupt:
        assert not read_start(OsDisk(), tmp_path, 0, ID).is_whole
    found = read_start(OsDisk(), tmp_path, 0, ID).start
    assert found == LaneStart(0, ID, expected, 10 * expected)


def test_start_of_another_store_or_lane_is_none_of_ours(tmp_path: Path) -> None:
    write_start(OsDisk(), tmp_path, LaneStart(0, ID, 3, 30))
    assert read_start(OsDisk(), tmp_path, 1, ID).start is None
    assert read_start(OsDisk(), tmp_path, 0, b"x" * 16).start is None


def test_retention_notes_the_start_before_it_removes_a_segment(retained: Path) -> None:
    first = int(segment_paths(retained)[0].stem)
    start = start_of(retained)
    assert start.sequence == first > 1
    with MessageStore.open(retained, TINY) as store:
        assert store.queue_bounds(*QUEUE)[0] == start.messages_before  # one queue: its offsets count the log
    assert verify_folder(retained).ok and problems(retained) == []


def test_segment_below_the_start_is_a_removal_that_a_crash_cut_short(retained: Path) -> None:
    first = segment_paths(retained)[0]
    start = start_of(retained)
    write_start(OsDisk(), first.parent, start._replace(sequence=start.sequence + 1, messages_before=UNKNOWN))
    assert verify_folder(retained).ok and problems(retained) == []
    with MessageStore.open(retained, TINY) as store:
        assert not first.exists()
        assert store.queue_bounds(*QUEUE)[0] > start.messages_before
    assert verify_folder(retained).ok


def test_first_segment_above_the_start_is_missing(retained: Path) -> None:
    first, second, *_ = segment_paths(retained)
    with MessageStore.open(retained, TINY) as store:
        begin = store.queue_bounds(*QUEUE)[0]
    first.unlink()
    with pytest.raises(StoreCorrupt, match="a segment is missing") as caught:
        MessageStore.open(retained, TINY)
    assert caught.value.file == str(first)
    assert [problem["file"] for problem in problems(retained)] == [str(first)]
    assert [place.file for place in verify_folder(retained).places] == [str(first)]
    with MessageStore.open(retained, TINY, repair=True) as store:
        (loss,) = store.losses
        assert (loss.file, loss.messages) == (str(first), store.queue_bounds(*QUEUE)[0] - begin)
        assert not loss.offsets_may_repeat
    assert start_of(retained).sequence == int(second.stem)
    assert verify_folder(retained).ok and problems(retained) == []


def test_one_damaged_copy_is_made_again_and_harms_nothing(retained: Path) -> None:
    for at in (0, BLOCK_BYTES):
        flip_bit(retained / "lane-00" / START_FILE, at + 30)
        report = verify_folder(retained)
        assert report.ok and report.remarks and problems(retained) == []
        with MessageStore.open(retained, TINY) as store:
            assert store.losses == []
        assert verify_folder(retained).remarks == []


@pytest.mark.parametrize("is_there", [True, False])
def test_lost_start_is_damage_where_the_log_does_not_begin_with_segment_1(retained: Path, is_there: bool) -> None:
    path, start = retained / "lane-00" / START_FILE, start_of(retained)
    if is_there:
        path.write_bytes(bytes(100))
    else:
        path.unlink()
    with pytest.raises(StoreCorrupt, match=START_FILE):
        MessageStore.open(retained, TINY)
    assert not verify_folder(retained).ok
    assert [problem["file"] for problem in problems(retained)] == [str(path)]
    with MessageStore.open(retained, TINY, repair=True) as store:
        (loss,) = store.losses
        assert (loss.file, loss.messages) == (str(path), None)  # were there segments before? Nothing tells
    assert start_of(retained).sequence == start.sequence
    assert verify_folder(retained).ok and problems(retained) == []


def test_lost_start_of_a_log_that_begins_with_segment_1_is_made_again(folder: Path) -> None:
    with MessageStore.open(folder / "s", TINY) as store:
        store.append(*QUEUE, b"one")
    (folder / "s" / "lane-00" / START_FILE).unlink()
    assert verify_folder(folder / "s").ok
    with MessageStore.open(folder / "s", TINY) as store:
        assert store.losses == []
    assert start_of(folder / "s").sequence == 1


def test_missing_first_segment_of_a_store_without_retention_is_refused_by_all(folder: Path) -> None:
    """Its header tells how many messages were before the second; the names of queues are lost with the first."""
    path = folder / "s"
    with MessageStore.open(path, TINY) as store:
        for index in range(40):
            store.append("t", index % 4, b"%04d" % index * 500)
        until(lambda: has_settled(store))
        crashed = crash_copy(path, folder / "crashed")
    for home in (path, crashed):
        first = segment_paths(home)[0]
        first.unlink()
        with pytest.raises(StoreCorrupt, match="a segment is missing"):
            MessageStore.open(home, TINY)
        assert not verify_folder(home).ok
        assert [problem["file"] for problem in problems(home)] == [str(first)]
        with MessageStore.open(home, TINY, repair=True) as store:
            left = sum(len(batch) for batch in store.scan())
            (loss,) = store.losses
            assert loss.messages == 40 - left > 0
        MessageStore.open(home, TINY).close()
        assert verify_folder(home).ok and problems(home) == []


@pytest.mark.parametrize("is_begun", [False, True])
def test_lost_start_of_a_lane_with_nothing_else_left_says_that_offsets_may_repeat(folder: Path, is_begun: bool) -> None:
    """An old copy of a segment, or a spare, is all that is left: nothing tells how far the queue had got."""
    path = folder / "s"
    second = path / "lane-00" / "000000000002.seg"
    old = bytes(1 << 16)
    with MessageStore.open(path, TINY) as store:
        for _ in range(100):
            store.append(*QUEUE, bytes(3000))
            if is_begun and not any(old) and second.exists():
                old = second.read_bytes()
    shutil.rmtree(second.parent)
    second.parent.mkdir()
    second.write_bytes(old)
    with MessageStore.open(path, TINY, repair=True) as store:
        losses, offset = store.losses, store.append(*QUEUE, b"y")
        assert losses[0].file.endswith(START_FILE)
        assert offset >= 100 or any(loss.offsets_may_repeat for loss in losses), losses
    assert verify_folder(path).ok and problems(path) == []
