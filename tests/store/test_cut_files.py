"""Files that are cut, or that the device cannot read, under an open store: right bytes or an error, never a signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreCorrupt, StoreError, StoreUnreadable
from stratalog.store.device.disk import OsDisk
from stratalog.store.format import footer as footer_module
from stratalog.store.format.stored_column import StoredColumn
from stratalog.store.segment.sealed import SealedSegment

from .disks import BadSectors
from .helpers import KIB, scanned, segment_path, small, until

QUEUES = 3
EACH = 150
CALLS: dict[str, Callable[[MessageStore], Any]] = {
    "bounds": lambda store: [store.queue_bounds("t", queue) for queue in range(QUEUES)],
    "get_range": lambda store: [store.get_range("t", queue, 0, EACH) for queue in range(QUEUES)],
    "one": lambda store: [store.get_range("t", queue, 3, 1) for queue in range(QUEUES)],
    "read": lambda store: [store.read("t", queue, 0, max_messages=EACH) for queue in range(QUEUES)],
    "read_batch": lambda store: [store.read_batch("t", queue, 0, max_messages=EACH) for queue in range(QUEUES)],
    "scan": scanned,
    "offset_at": lambda store: store.offset_at("t", 1, timestamp_ms=1),
}


@pytest.fixture(params=["held", "in the file"])
def store(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """Reopened, with several sealed segments; footers are held in memory, or their columns stay in the files."""
    monkeypatch.setattr("stratalog.store.log.upkeep.TICK_S", 0.02)  # leases are given back at its looks
    if request.param != "held":
        monkeypatch.setattr(footer_module, "HELD_PART", 1 << 40)
    with MessageStore.open(tmp_path, small()) as filled:
        for at in range(EACH):
            filled.append_batch([("t", queue, data_of(queue, at)) for queue in range(QUEUES)])
        until(lambda: filled.stats()["segments"]["open"] == 1)
    with MessageStore.open(tmp_path, small()) as reopened:
        if request.param != "held":
            reopened._lanes[0].index_memory.footers.limit_bytes = 0
        yield reopened


def data_of(queue: int, at: int) -> bytes:
    return b"%d/%d." % (queue, at) * 300


def first_of(store: MessageStore) -> SealedSegment:
    return store._lanes[0].view.sealed[0]


def test_columns_that_are_not_held_stay_in_the_file(store: MessageStore) -> None:
    for call in CALLS.values():
        call(store)
    index = first_of(store).index
    is_stored = store._lanes[0].index_memory.footers.limit_bytes == 0
    assert isinstance(index.first, StoredColumn) == isinstance(index.entries, StoredColumn) == is_stored


@pytest.mark.parametrize("where", ["in the footer", "before the footer", "in the first frame"])
def test_a_sealed_segment_that_is_cut_is_an_error_and_no_signal(store: MessageStore, where: str) -> None:
    for call in CALLS.values():
        call(store)  # all that is kept of the file is kept
    sealed = first_of(store)
    record = sealed.record
    places = {
        "in the footer": record.footer_position + record.footer_bytes // 2,
        "before the footer": record.footer_position - 4 * KIB,
        "in the first frame": 9 * KIB,
    }
    os.truncate(sealed.segment.path, places[where])  # it waits until the lease was given back
    for name, call in CALLS.items():
        for _ in range(3):
            try:
                call(store)
            except StoreError as error:
                assert isinstance(error, StoreCorrupt | StoreUnreadable), (name, error)
    for queue in range(QUEUES):
        newest = store.queue_bounds("t", queue)[1] - 1
        assert store.get_range("t", queue, newest, 1) == {0: data_of(queue, newest)}  # other segments are whole


def test_a_column_of_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.arange(10, dtype=np.uint32).tobytes())
    file = OsDisk().open(path)
    try:
        column = StoredColumn(file, str(path), 8, "<u4", 8)
        assert column[7] == 9 and list(column[2:4]) == [4, 5]
        os.truncate(path, 30)
        assert column[4] == 6
        for key in (5, slice(4, 6)):
            with pytest.raises(StoreCorrupt, match="the footer is cut short"):
                column[key]  # it raises
    finally:
        file.close()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_bad_sector_in_a_footer_is_an_error_and_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """The device refused: that says nothing of the footer, which is read again the next time."""
    if not is_held:
        monkeypatch.setattr(footer_module, "HELD_PART", 1 << 40)
    with MessageStore.open(tmp_path, small()) as filled:
        for at in range(EACH):
            filled.append_batch([("t", queue, data_of(queue, at)) for queue in range(QUEUES)])
    disk = BadSectors(segment_path(tmp_path, 1), 0, 0)
    inode, *_ = disk.bad
    with MessageStore.open(tmp_path, small(), disk=disk) as store:
        sealed = first_of(store)
        begin = sealed.record.footer_position
        with monkeypatch.context() as broken:
            broken.setattr(disk, "bad", (inode, begin, begin + sealed.record.footer_bytes))
            for name, call in CALLS.items():
                with pytest.raises(StoreUnreadable, match="Input/output error"):
                    call(store)
                assert sealed._damage is None, name
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, EACH) == {at: data_of(queue, at) for at in range(EACH)}
        assert store.stats()["cache"]["held"]["remade_footers"] == 0
