"""A store that was repaired, or closed, is at rest: opening it, repairing it and closing it change no file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, verify_folder
from stratalog.store.config import KIB
from stratalog.store.format.layout import BLOCK_BYTES, CLOSED, DATA_START
from stratalog.store.recovery.repair import Loss

from .helpers import (
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    has_settled,
    log_snapshot,
    memory_folder,
    overwrite,
    scanned,
    seal_of,
    segment_path,
    segment_paths,
    tiny,
    until,
)
from .test_moved_files import exchange
from .test_recovery import long_story

TINY = tiny()


@pytest.fixture
def path() -> Iterator[Path]:
    """A closed store of several sealed segments."""
    with memory_folder() as made:
        with MessageStore.open(made / "s", TINY) as store:
            long_story(store)
        yield made / "s"


def exchange_the_first(path: Path) -> None:
    exchange(segment_path(path, 1), segment_path(path, 2))


def empty_the_first(path: Path) -> None:
    for sequence in (1, 2):
        segment_path(path, sequence).write_bytes(b"")


def remove_the_first_and_copy_over_the_next(path: Path) -> None:
    shutil.copyfile(segment_path(path, 3), segment_path(path, 2))
    segment_path(path, 1).unlink()


def flip_headers(path: Path) -> None:
    for sequence in (1, 2):
        flip_bit(segment_path(path, sequence), 30)


def remove_the_first_and_flip_the_next(path: Path) -> None:
    segment_path(path, 1).unlink()
    flip_bit(segment_path(path, 2), 30)


KINDS = [
    exchange_the_first, empty_the_first, remove_the_first_and_copy_over_the_next, flip_headers,
    remove_the_first_and_flip_the_next,
]  # fmt: skip


@pytest.mark.parametrize("damage", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_second_repair_changes_nothing(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses
    repaired = log_snapshot(path)
    for again in (True, False):
        with MessageStore.open(path, TINY, repair=again) as store:
            assert store.losses == []
        assert log_snapshot(path) == repaired
    assert verify_folder(path).damages == []


def test_closing_notes_the_end_of_a_segment_that_has_nothing_but_a_mark(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, TINY) as store:
        store.append("t", 0, b"x")
        lane = store._lanes[0]
        first = lane.segment
        assert first is not None
        while lane.segment is first and lane.tail - (first.base or 0) + BLOCK_BYTES < first.header.capacity_bytes:
            store.append("t", 0, bytes(3000))
            store.flush()

        def has_begun_the_next() -> bool:
            store._upkeep._mark_idle()
            store.flush()
            return lane.segment is not first

        until(has_begun_the_next)
        assert lane.table.entries == 0
        messages = store.queue_bounds("t", 0)
    record = seal_of(segment_path(tmp_path, 2))
    assert record is not None
    assert (record.state, record.entries) == (CLOSED, 0)
    closed = log_snapshot(tmp_path)
    for again in (False, True):
        with MessageStore.open(tmp_path, TINY, repair=again) as store:
            assert store.losses == []
            assert store.queue_bounds("t", 0) == messages
        assert log_snapshot(tmp_path) == closed
    with MessageStore.open(tmp_path, TINY) as store:
        assert store.append("t", 0, b"y") == messages[1]


@pytest.mark.parametrize("kept_bytes", [0, DATA_START, 20_000])
def test_log_behind_removed_segments_is_whole_once_its_first_one_is_repaired(tmp_path: Path, kept_bytes: int) -> None:
    """Nothing is left that tells where the queues begin that only removed segments named."""
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=100 << 10)) as store:
        for turn in range(120):
            store.append_batch([("t", queue, bytes([turn, queue]) * 500) for queue in range(turn % 7 + 1)])
        until(lambda: not segment_path(tmp_path / "s", 1).exists())
        path = crash_copy(tmp_path / "s", tmp_path / "crashed")
    with MessageStore.open(path, TINY) as store:
        used = [sealed.segment.path for sealed in store._lanes[0].view.sealed]
    for one in used[:-1]:
        os.truncate(one, kept_bytes)
    unseal(used[-1])
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses
        rows = scanned(store)
    assert verify_folder(path).damages == []
    repaired = log_snapshot(path)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == []
        assert scanned(store) == rows
    assert log_snapshot(path) == repaired


def unseal(path: Path) -> None:
    """As if the store had been killed before it sealed the segment."""
    record = seal_of(path)
    assert record is not None
    overwrite(path, BLOCK_BYTES, bytes(BLOCK_BYTES))
    os.truncate(path, record.footer_position)


def test_cut_in_what_fills_up_the_last_block_is_told_and_repaired_once(path: Path) -> None:
    """No message has a byte there, but a plain opening refuses it."""
    last = max(at for at in segment_paths(path) if seal_of(at) is not None)
    record = seal_of(last)
    assert record is not None
    assert record.state == CLOSED
    os.truncate(last, record.data_end - 1)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == [Loss(str(last), record.data_end - 1, 0, 0, None)]
        rows = scanned(store)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == []
        assert scanned(store) == rows
    assert verify_folder(path).damages == []


def test_messages_without_bytes_survive_a_cut_of_their_frame(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, TINY) as store:
        store.append_batch([("t", 0, b"a" * 3000), ("t", 0, b""), ("t", 0, b"b" * 9000), ("t", 0, b"")])
    (frame,) = frames_of(segment_path(tmp_path, 1))
    os.truncate(segment_path(tmp_path, 1), frame.payload_start + 5000)
    with MessageStore.open(tmp_path, TINY, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [1]
        assert contents(store, [("t", 0)]) == {("t", 0): {0: b"a" * 3000, 1: b"", 3: b""}}
        assert scanned(store) == contents(store, [("t", 0)])
    assert verify_folder(tmp_path).damages == []


def test_queues_begin_at_zero_where_the_first_segment_is_lost_and_a_seal_record_behind_it(path: Path) -> None:
    """A footer that was written, and not noted yet, says where the queues are; START says that they began at zero."""
    first, second = segment_path(path, 1), segment_path(path, 2)
    with MessageStore.open(path, TINY) as store:
        rows = scanned(store)
    for at in segment_paths(path)[2:]:
        at.unlink()
    overwrite(second, BLOCK_BYTES, bytes(BLOCK_BYTES))
    os.truncate(first, 0)
    with MessageStore.open(path, TINY, repair=True) as store:
        left = scanned(store)
    assert left
    assert all(rows[name].get(at) == data for name, mine in left.items() for at, data in mine.items())
    assert verify_folder(path).damages == []
    repaired = log_snapshot(path)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == []
    assert log_snapshot(path) == repaired


def test_copy_from_before_a_repair_is_fitted_to_the_segments_behind_it(tmp_path: Path) -> None:
    """The last message of a queue was lost, so the repair left an offset out in each of them."""
    path, queues = tmp_path / "killed", [("t", queue) for queue in range(3)]
    with MessageStore.open(tmp_path / "s", TINY) as store:
        for index in range(9):
            store.append(*queues[index % 3], b"%d" % index * 100)
        crash_copy(tmp_path / "s", path)
    before = segment_path(path, 1).read_bytes()
    flip_bit(segment_path(path, 1), full_frames(segment_path(path, 1))[7].header.position + 24)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses
        sent = {(queue, store.append(*queue, b"later")) for queue in queues}
    segment_path(path, 1).write_bytes(before)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert all(store.read(*queue, offset)[0].data == b"later" for queue, offset in sent)
    assert verify_folder(path).damages == []
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == []


def test_copy_from_before_a_repair_stays_before_the_next_segment_though_nothing_counts_what_is_lost(
    tmp_path: Path,
) -> None:
    """The repair cut off the last message, and left an offset out in each queue. A lost header counts no messages."""
    path, queues = tmp_path / "s", [("t", queue) for queue in range(3)]
    with MessageStore.open(path, TINY) as store:
        for index in range(9):
            store.append(*queues[index % 3], b"%d" % index * 100)
    before = segment_path(path, 1).read_bytes()
    flip_bit(segment_path(path, 1), full_frames(segment_path(path, 1))[8].header.position + 24)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [1]
        while not segment_path(path, 3).exists():
            store.append_batch([(*queue, b"later" * 500) for queue in queues])
        rows = scanned(store)
    assert [sorted(rows[queue])[:4] for queue in queues] == [[0, 1, 2, 4], [0, 1, 2, 4], [0, 1, 3, 4]]
    segment_path(path, 1).write_bytes(before)
    overwrite(segment_path(path, 3), 0, bytes(BLOCK_BYTES))
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses
        left = scanned(store)
    rows["t", 2][2] = b"8" * 100
    assert left == rows
    assert verify_folder(path).damages == []
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses == []
        assert scanned(store) == left


def test_copy_of_a_closed_segment_does_not_hide_those_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with MessageStore.open(path, TINY) as store:
        store.append("t", 0, b"first")
    before = segment_path(path, 1).read_bytes()
    with MessageStore.open(path, TINY) as store:
        while len(store._lanes[0].view.open) < 2 and not store._lanes[0].view.sealed:
            store.append("t", 0, bytes(3000))
    segment_path(path, 1).write_bytes(before)
    flip_bit(segment_path(path, 2), 65)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, TINY)
    assert verify_folder(path).damages


def test_new_queue_begins_at_zero_though_its_name_and_all_footers_are_lost(tmp_path: Path) -> None:
    """Retention has removed the first segments; the header behind them says how many streams there were."""
    path = tmp_path / "killed"
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=64 * KIB)) as store:
        while not (has_settled(store) and store.queue_bounds("t", 0)[0] and store._lanes[0].table.entries <= 3):
            store.append("t", 0, bytes(9000))
        store.append("new", 0, b"lost with its name")
        store.append("new", 0, b"left")
        crash_copy(tmp_path / "s", path)
    begun = next(at for at in segment_paths(path) if seal_of(at) is None and full_frames(at))
    naming = next(frame for frame in full_frames(begun) if list(frame.definitions()))
    for at in segment_paths(path):
        record = seal_of(at)
        if record is not None:
            overwrite(at, BLOCK_BYTES, bytes(BLOCK_BYTES))
            os.truncate(at, record.footer_position)
    flip_bit(begun, naming.header.position + 24)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.losses
        assert scanned(store)["lost-name-0", 1] == {1: b"left"}
    assert verify_folder(path).damages == []


def test_names_stay_though_the_entries_of_each_footer_that_has_them_are_damaged(tmp_path: Path) -> None:
    """Retention has removed the frames that named the streams. A footer's table of streams has its own checksum."""
    path, names = tmp_path / "s", [("orders", 0), ("orders", 1), ("rare", 5)]
    with MessageStore.open(path, tiny(retention_bytes=64 * KIB)) as store:
        while not (all(store.queue_bounds(*name)[0] for name in names) and store._lanes[0].table.entries <= 3):
            store.append_batch([(*name, bytes(2000)) for name in names])  # so that there is room for what follows
            until(lambda: has_settled(store))
    for at in segment_paths(path):
        record = seal_of(at)
        if record is not None and record.footer_bytes:
            flip_bit(at, record.footer_position + record.footer_bytes - 5)
    with MessageStore.open(path, TINY) as store:
        offsets = [store.append(*name, b"new") for name in names]
        bounds = [store.queue_bounds(*name) for name in names]
    assert verify_folder(path).damages
    with MessageStore.open(path, TINY, repair=True) as store:
        assert store.topics() == ["orders", "rare"]
        assert [store.queue_bounds(*name) for name in names] == bounds
        for name, offset in zip(names, offsets, strict=True):
            assert store.get_range(*name, offset, 1) == {0: b"new"}
    assert verify_folder(path).damages == []
