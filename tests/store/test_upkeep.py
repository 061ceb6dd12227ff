"""The background thread: an error does not end it, and what it could not make it does not keep."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreFull, commit_shards
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile
from stratalog.store.segment.sealing import seal
from stratalog.store.segment.writer import SegmentWriter
from stratalog.store.testing import TunedConfig

from .helpers import PATIENCE_S, has_settled, small, tiny, until
from .shards.helpers import rows_of, staged

MIB = 1 << 20


class SmallDisk(OsDisk):
    """The system's disk, with little space: what does not fit keeps what there was, as on ext4."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _SmallFile(self, path, create=create, direct=direct)


class _SmallFile(OsFile):
    def __init__(self, disk: SmallDisk, path: Path, *, create: bool, direct: bool) -> None:
        super().__init__(path, create=create, direct=direct)
        self._disk = disk

    def reserve(self, size: int) -> bool:
        wanted = size - self.size()
        is_reserved = super().reserve(min(size, self.size() + self._disk.left_bytes))
        if wanted > self._disk.left_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.left_bytes -= max(0, wanted)
        return is_reserved


def segment_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.seg"))


def test_error_of_any_kind_in_the_background_is_noted_and_the_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[int]()

    def fails_once(*given: Any) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError
        return seal(*given)

    monkeypatch.setattr("stratalog.store.log.sealer.seal", fails_once)
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(20):
            store.append_batch([("t", 0, bytes(10_000))] * 5)
        until(lambda: len(calls) > 1 and has_settled(store))
        assert "MemoryError" in str(store.stats()["last_background_error"])
        assert store.stats()["segments"]["sealed"] > 5


def test_spare_that_has_no_space_is_told_of_and_appends_go_on_while_there_is_room(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(segment_bytes=MIB), disk=SmallDisk(3 * MIB // 2)) as store:
        for number in range(60):
            assert store.append("t", 0, bytes(10_000)) == number
        until(lambda: store.stats()["last_background_error"] is not None)
        assert "no space" in str(store.stats()["last_background_error"])


def test_more_prewriting_than_there_is_space_for_is_refused_and_none_of_it_kept(tmp_path: Path) -> None:
    config = tiny(segment_bytes=MIB, prewrite_bytes=100 * MIB, lanes=2)
    with pytest.raises(StoreFull, match="Nothing was written"):
        MessageStore.open(tmp_path, config, disk=SmallDisk(20 * MIB))
    assert segment_bytes(tmp_path) == 0
    with MessageStore.open(tmp_path) as store:
        assert store.append("t", 0, b"x") == 0


def test_prewriting_that_the_file_system_has_no_room_for_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreFull, match="its file system has"):
        MessageStore.open(tmp_path, TunedConfig(prewrite_bytes=1 << 50))
    assert segment_bytes(tmp_path) == 0


def test_spare_that_could_not_be_made_larger_keeps_its_size(tmp_path: Path) -> None:
    config = TunedConfig(max_message_bytes=64 * MIB, segment_bytes=4 * MIB, prewrite_bytes=4 * MIB)
    with MessageStore.open(tmp_path, config, disk=SmallDisk(24 * MIB)) as store:
        with pytest.raises(StoreFull):
            store.append("t", 0, bytes(60 * MIB))
        assert segment_bytes(tmp_path) == 4 * MIB
        assert store.append("t", 0, b"small") == 0


def test_pages_of_a_lane_are_dropped_from_the_page_cache_once_they_are_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int]] = []
    monkeypatch.setattr(SegmentWriter, "drop_pages", lambda writer, begin, size: dropped.append((begin, size)))
    with MessageStore.open(tmp_path, small(direct_io=False, segment_bytes=64 << 20)) as store:
        while len(dropped) < 2:
            store.append_batch([("t", 0, bytes(50_000))] * 20)
        assert store.stats()["last_background_error"] is None
    assert dropped[0][0] == 0
    assert all(size > 0 for _, size in dropped)


def test_neither_commits_nor_spares_wait_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take long: a spare as long as its blocks, a commit as long as its rows."""
    going_on, patience_s = threading.Event(), PATIENCE_S / 2
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        store.append_batch(rows_of("old", 20))  # each lane has a segment
        attacher, upkeep = store._running.attacher, store._upkeep
        assert attacher is not None
        spares, attach = upkeep.spares_of(0), attacher.attach_pending
        making, attaching = threading.Event(), threading.Event()

        def keeps_ahead() -> None:
            with spares.making:
                making.set()
                going_on.wait(patience_s)

        with monkeypatch.context() as patched:
            patched.setattr(upkeep, "_keep_ahead", keeps_ahead)
            upkeep.wake()
            assert making.wait(patience_s)
            assert commit_shards(tmp_path, staged(tmp_path, rows_of("x", 5)), name="a", wait_ms=25_000).is_attached
            going_on.set()
        going_on.clear()

        def attaches() -> int:
            attaching.set()
            going_on.wait(patience_s)
            return attach()

        with monkeypatch.context() as patched:
            patched.setattr(attacher, "attach_pending", attaches)
            commit_shards(tmp_path, staged(tmp_path, rows_of("y", 5)), name="b", wait_ms=0)
            assert attaching.wait(patience_s)
            kept = threading.Event()
            patched.setattr(upkeep, "_keep_ahead", kept.set)
            upkeep.wake()
            try:
                assert kept.wait(patience_s / 2)
            finally:
                going_on.set()
