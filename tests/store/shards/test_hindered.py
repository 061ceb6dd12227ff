"""Commits that cannot be attached: whoever commits is told, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import Commit, MessageStore, ReplayDiffers, StoreLocked, commit_shards
from stratalog.store.api import commits
from stratalog.store.device.folder import looking_at
from stratalog.store.format.applied import NO_BATCH
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.faults import Operation

from ..helpers import tiny
from .helpers import content, queues_of, rows_of, staged
from .test_giving_up import half_attached
from .test_repair import OLD, pending

PATIENCE_S = 60.0


def returned(call: Callable[[], Commit]) -> Commit:
    """What a call returns that may never do so; what it raises."""
    got: list[Commit | BaseException] = []

    def run() -> None:
        try:
            got.append(call())
        except BaseException as error:  # given to the test's thread
            got.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert got, "the call does not return"
    if isinstance(got[0], BaseException):
        raise got[0]
    return got[0]


@pytest.mark.parametrize("which", ["shard", "index"])
def test_a_commit_behind_one_that_cannot_be_attached_is_durable_and_returns(tmp_path: Path, which: str) -> None:
    files = {file.suffix: file for file in pending(tmp_path)}
    lost = files["." + which]
    kept = lost.read_bytes()
    lost.unlink()
    rows = rows_of("y", 5)
    shards = staged(tmp_path, rows)
    commit = returned(lambda: commit_shards(tmp_path, shards, name="other", wait_ms=500))
    assert commit == (True, False, 5)
    lost.write_bytes(kept)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(OLD, rows_of("x", 120), rows)


def test_a_commit_returns_when_the_device_is_full_behind_its_manifest(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    old, rows = rows_of("old", 30), rows_of("x", 400, queues=200)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append_batch(old)
    shards = staged(tmp_path, rows, disk=disk)

    def fill(operation: Operation) -> None:
        if operation.kind == "rename" and "manifest" in operation.path.name:
            disk.on_operation, disk.capacity_bytes = None, 0

    disk.on_operation = fill
    assert returned(lambda: commit_shards(tmp_path, shards, name="a", disk=disk, wait_ms=200)) == (True, False, 400)
    disk.capacity_bytes = None
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        assert content(store) == queues_of(old, rows)


@pytest.mark.usefixtures("as_segments")
def test_a_durable_commit_is_not_an_error_when_the_store_cannot_be_opened(tmp_path: Path) -> None:
    """A commit before it is there in part, and a shard of that is lost: only a repair opens the store for writing."""
    disk, folder = half_attached(tmp_path)
    disk.take_away(next(file for file in disk.files() if file.suffix == ".shard" and folder in str(file)))
    shards = staged(tmp_path, rows_of("x", 40), disk=disk)
    assert returned(lambda: commit_shards(tmp_path, shards, name="a", disk=disk)) == (True, False, 40)


@pytest.mark.usefixtures("as_segments")
def test_a_store_that_cannot_be_opened_still_tells_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if somebody has it for a moment, who tries to open it as well."""
    disk, folder = half_attached(tmp_path)
    disk.take_away(next(file for file in disk.files() if file.suffix == ".shard" and folder in str(file)))
    looks: list[Any] = []

    def in_use(*given: Any) -> Any:
        looks.append(given)
        if len(looks) == 1:
            raise StoreLocked("another process has it")
        return looking_at(*given)

    monkeypatch.setattr(commits, "looking_at", in_use)
    shards = staged(tmp_path, rows_of("x", 40), disk=disk)
    assert returned(lambda: commit_shards(tmp_path, shards, name="a", disk=disk)) == (True, False, 40)
    assert len(looks) == 2
    assert set(commits._in_closed(disk, tmp_path, ("q", NO_BATCH), 0) or ()) == {NO_BATCH}  # by its record in the log
    others = staged(tmp_path, rows_of("y", 3), disk=disk)
    for name in ("a", "q"):
        with pytest.raises(ReplayDiffers):
            commit_shards(tmp_path, others, name=name, disk=disk)
