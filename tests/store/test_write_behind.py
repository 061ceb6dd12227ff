"""Bytes that the kernel is told to write while more are made."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, ShardWriter, StoreConfig, StoreUnreadable, commit_shards
from stratalog.store.device import linux_file
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile
from stratalog.store.device.write_behind import STEP_BYTES, WriteBehind
from stratalog.store.testing import SimulatedDisk

pytestmark = [pytest.mark.disk, pytest.mark.linux]  # sync_file_range is called

ROWS, EACH = 40, 1 << 20  # five steps


HAS_CALL = hasattr(ctypes.CDLL(None), "sync_file_range")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    opened = OsDisk().open(tmp_path / "file", create=True)
    yield opened
    opened.close()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges (first byte, bytes) that the kernel was told to write."""
    if not HAS_CALL:
        pytest.skip("the system has no such call")
    ranges: list[tuple[int, int]] = []
    begin = linux_file._BEGIN

    def noting(descriptor: int, position: int, size: int, flags: int) -> int:
        ranges.append((position, size))
        assert begin is not None
        return int(begin(descriptor, position, size, flags))

    monkeypatch.setattr(linux_file, "_BEGIN", noting)
    return ranges


def answering(number: int) -> Callable[..., int]:
    """A kernel that answers with this error."""

    def answer(*_: int) -> int:
        ctypes.set_errno(number)
        return -1

    return answer


def written(store: Path) -> ShardWriter:
    """A writer with a shard of several steps, not finished."""
    MessageStore.open(store, StoreConfig(lanes=1)).close()
    writer = ShardWriter(store)
    payload = np.random.default_rng(7).integers(0, 256, EACH, dtype=np.uint8).tobytes()
    for _ in range(ROWS):
        writer.append_columns([("orders", 0)], [0], [EACH], payload)
    return writer


@pytest.mark.skipif(not HAS_CALL, reason="the system has no such call")
def test_the_kernel_takes_the_call_and_has_the_bytes_all_the_same(file: OsFile) -> None:
    content = bytes(range(256)) * (STEP_BYTES // 128)
    file.write([content], 0)
    ctypes.set_errno(0)
    WriteBehind(file).reached(len(content))
    assert ctypes.get_errno() == 0
    assert file.read(0, len(content)) == content


def test_a_step_is_begun_at_a_time_and_the_page_that_gets_more_is_left_out(
    file: OsFile, begun: list[tuple[int, int]]
) -> None:
    behind = WriteBehind(file)
    for end in (STEP_BYTES - 1, STEP_BYTES + 1, 2 * STEP_BYTES - 1, 2 * STEP_BYTES + 5_000):
        behind.reached(end)
    assert begun == [(0, STEP_BYTES), (STEP_BYTES, STEP_BYTES + 4096)]


def test_a_shard_s_bytes_are_begun_while_it_is_written_and_so_are_its_heads_at_attaching(
    tmp_path: Path, begun: list[tuple[int, int]]
) -> None:
    with written(tmp_path / "store") as writer:
        shards = writer.finish()
    assert sum(size for _, size in begun) > (ROWS - STEP_BYTES // EACH - 1) * EACH
    assert [at for at, _ in begun[1:]] == [at + size for at, size in begun[:-1]]
    begun.clear()
    commit_shards(tmp_path / "store", shards, name="load")
    assert len(begun) >= 3
    with MessageStore.open(tmp_path / "store") as store:
        assert store.queue_bounds("orders", 0) == (0, ROWS)


def test_a_system_that_refuses_the_call_is_asked_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def refuse(descriptor: int, *rest: int) -> int:
        calls.append(descriptor)
        return answering(errno.ENOSYS)(descriptor, *rest)

    monkeypatch.setattr(linux_file, "_BEGIN", refuse)
    with written(tmp_path / "store") as writer:
        shards = writer.finish()
    assert len(calls) == 1
    commit_shards(tmp_path / "store", shards, name="load")
    with MessageStore.open(tmp_path / "store") as store:
        assert store.queue_bounds("orders", 0) == (0, ROWS)


def test_a_device_that_fails_meanwhile_fails_the_shard_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux_file, "_BEGIN", answering(errno.EIO))
    with pytest.raises(StoreUnreadable, match="Input/output error"):
        written(tmp_path / "store")
    assert not [path for path in (tmp_path / "store" / "incoming").rglob("*.shard")]


def test_a_device_that_fails_in_an_attaching_leaves_the_commit_to_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with written(tmp_path / "store") as writer:
        shards = writer.finish()
    with monkeypatch.context() as broken:
        broken.setattr(linux_file, "_BEGIN", answering(errno.EIO))
        assert not commit_shards(tmp_path / "store", shards, name="load", wait_ms=0).is_attached
    with MessageStore.open(tmp_path / "store") as store:
        assert store.queue_bounds("orders", 0) == (0, ROWS)


def test_a_file_of_a_simulated_disk_needs_no_such_call() -> None:
    disk = SimulatedDisk()
    WriteBehind(disk.open(Path("/file"), create=True)).reached(4 * STEP_BYTES)
