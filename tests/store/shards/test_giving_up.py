"""repair=True gives up what cannot be attached: the rest of the store is there, and what is lost is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, ReplayDiffers, StoreCorrupt, commit_shards, sweep_shards, verify_folder
from stratalog.store.format.shard import Manifest
from stratalog.store.shards.staging import pending_in
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.faults import Operation

from ..helpers import flip_bit, tiny
from .helpers import content, held, queues_of, rows_of, scanned, staged
from .test_repair import OLD, ROWS, pending

PARTS = [rows_of(f"part{at}-", 20) for at in range(3)]


def half_attached(path: Path) -> tuple[SimulatedDisk, str]:
    """A disk that a kill has left between the names of two of a commit's shards; the last shard's folder."""
    disk = SimulatedDisk()
    left: list[SimulatedDisk] = []
    with MessageStore.open(path, tiny(), disk=disk) as store:
        store.append_batch(OLD)
        shards = [shard for part in PARTS for shard in staged(path, part, disk=disk)]
        forced = 0

        def cut(operation: Operation) -> None:
            nonlocal forced
            forced += operation.kind == "force_folder" and operation.path.name == "lane-00"
            if forced == 3 and not left:
                left.append(disk.kill())

        disk.on_operation = cut
        commit_shards(path, shards, name="q", wait_ms=0, disk=disk)
        store.attach_pending()
        disk.on_operation = None
    return left[0], shards[2].folder


@pytest.mark.usefixtures("as_segments")
def test_a_begun_commit_whose_shard_is_lost_is_given_up_by_a_repair(tmp_path: Path) -> None:
    disk, folder = half_attached(tmp_path)
    disk.take_away(next(file for file in disk.files() if file.suffix == ".shard" and folder in str(file)))
    with pytest.raises(StoreCorrupt, match="repair=True"):
        MessageStore.open(tmp_path, tiny(), disk=disk)
    with MessageStore.open(tmp_path, tiny(), disk=disk, repair=True) as store:
        found = content(store)
        (loss,) = store.losses
        assert loss.file.endswith(".manifest")
        assert str(loss.quarantined_to).endswith(".refused")
        assert not loss.offsets_may_repeat
        kept = len(PARTS) - (loss.messages or 0) // len(PARTS[0])
        assert 0 < kept < len(PARTS)
        assert found == queues_of(OLD, *PARTS[:kept])
        store.append_batch(OLD)
    for _ in range(2):
        with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            assert store.losses == []
            assert content(store) == queues_of(OLD, *PARTS[:kept], OLD)
    again = [shard for part in PARTS for shard in staged(tmp_path, part, disk=disk)]
    with pytest.raises(ReplayDiffers, match="in part"):
        commit_shards(tmp_path, again, name="q", disk=disk)
    more = rows_of("more", 9)
    assert commit_shards(tmp_path, staged(tmp_path, more, disk=disk), name="r", disk=disk).is_attached
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        assert content(store) == queues_of(OLD, *PARTS[:kept], OLD, more)


@pytest.mark.usefixtures("as_segments")
def test_after_a_repair_gave_a_begun_commit_up_a_later_one_may_wait(tmp_path: Path) -> None:
    """Nothing of the log is missing any more: damage of a later commit's shard does not hinder an opening."""
    disk, folder = half_attached(tmp_path)
    disk.take_away(next(file for file in disk.files() if file.suffix == ".shard" and folder in str(file)))
    MessageStore.open(tmp_path, tiny(), disk=disk, repair=True).close()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        attacher = store._running.attacher
        assert attacher is not None
        with attacher._attaching:
            shards = staged(tmp_path, ROWS, disk=disk)
            commit_shards(tmp_path, shards, name="r", wait_ms=0, disk=disk)
            attacher._stopped = True
    disk.take_away(next(file for file in disk.files() if file.suffix == ".shard" and shards[0].folder in str(file)))
    MessageStore.open(tmp_path, tiny(), disk=disk).close()


@pytest.mark.parametrize("which", ["shard", "index"])
def test_a_commit_that_waits_for_lost_files_is_given_up_by_a_repair(tmp_path: Path, which: str) -> None:
    """Commits behind it are attached, and the same commit again is a new one."""
    lost = next(file for file in pending(tmp_path) if file.suffix == "." + which)
    lost.unlink()
    rows = rows_of("y", 5)
    assert not commit_shards(tmp_path, staged(tmp_path, rows), name="other").is_attached
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [(Path(loss.file).suffix, loss.messages) for loss in store.losses] == [(".manifest", len(ROWS))]
        assert content(store) == queues_of(OLD, rows)
    assert verify_folder(tmp_path).damages == []
    assert commit_shards(tmp_path, staged(tmp_path, ROWS), name="q") == (True, True, len(ROWS))
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.losses == []
        assert content(store) == queues_of(OLD, rows, ROWS)


def test_a_damaged_manifest_is_set_aside_by_a_repair(tmp_path: Path) -> None:
    pending(tmp_path)
    manifest = next((tmp_path / "incoming").glob("*.manifest"))
    flip_bit(manifest, 20)
    assert [place.file for place in verify_folder(tmp_path).places] == [str(manifest)]
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        refused = manifest.with_suffix(".refused")
        assert [(loss.file, loss.messages, loss.quarantined_to) for loss in store.losses] == [
            (str(manifest), None, str(refused))
        ]
        assert refused.exists()
        assert store.attach_pending() == 0


def test_shards_of_a_commit_that_was_given_up_are_not_swept(tmp_path: Path) -> None:
    """What is whole of them may be wanted; they go with the manifest that was set aside."""
    index, shard = sorted(pending(tmp_path))
    index.unlink()
    MessageStore.open(tmp_path, tiny(), repair=True).close()
    assert sweep_shards(tmp_path, older_than_s=-1) == []
    assert shard.exists()
    next((tmp_path / "incoming").glob("*.refused")).unlink()
    assert sweep_shards(tmp_path, older_than_s=-1) == [shard.parent.name]


@pytest.mark.usefixtures("both_ways")
def test_a_repair_attaches_no_damaged_payload(tmp_path: Path) -> None:
    """Of a large shard no payload is read else. A repaired store is whole, and a second repair changes nothing."""
    shard = next(file for file in pending(tmp_path) if file.suffix == ".shard")
    flip_bit(shard, shard.stat().st_size - 3)
    [place] = verify_folder(tmp_path).places
    assert place.file == str(shard)
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [loss.messages for loss in store.losses] == [len(ROWS)]
        assert content(store) == scanned(store) == queues_of(OLD)
    assert verify_folder(tmp_path).damages == []
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert store.losses == []
    assert commit_shards(tmp_path, staged(tmp_path, ROWS), name="q") == (True, True, len(ROWS))


def waits(path: Path, names: str, **how: Any) -> list[Path]:
    """A store with some commits that wait, and their manifests."""
    with MessageStore.open(path, tiny(lanes=2)) as store, held(store):
        for name in names:
            commit_shards(path, staged(path, rows_of(name, 9)), name=name, wait_ms=0, **how)
        attacher = store._running.attacher
        assert attacher is not None
        attacher._stopped = True
    return sorted((path / "incoming").glob("*.manifest"))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_manifest_is_told_by_the_next_one(tmp_path: Path, lost: int, keep: bool) -> None:
    manifest = waits(tmp_path, "abc", keep=keep)[lost]
    assert verify_folder(tmp_path).ok
    manifest.unlink()
    [place] = verify_folder(tmp_path).places
    assert (place.file, "missing" in place.what) == (str(manifest), True)
    before, after = "abc"[:lost], "abc"[lost + 1 :]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert manifest.name in (store.stats()["last_background_error"] or "")
        with pytest.raises(StoreCorrupt, match=f"the manifest of transaction '{'abc'[lost]}' is missing") as raised:
            store.attach_pending()
        assert raised.value.file == str(manifest)
        assert content(store) == queues_of(*(rows_of(name, 9) for name in before))
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        [loss] = store.losses
        assert (loss.file, loss.messages, loss.quarantined_to) == (str(manifest), 9, None)
        assert content(store) == queues_of(*(rows_of(name, 9) for name in before + after))
    again = commit_shards(tmp_path, staged(tmp_path, rows_of("abc"[lost], 9)), name="abc"[lost])
    assert again == (True, True, 9)


@pytest.mark.parametrize("keep", [True, False])
def test_a_manifest_that_was_attached_is_not_missing(tmp_path: Path, keep: bool) -> None:
    """The one before it was attached, and what hindered the second one has gone; or it was refused."""
    waits(tmp_path, "abc", keep=keep)
    second = Manifest.unpack(sorted((tmp_path / "incoming").glob("*.manifest"))[1].read_bytes())
    assert second is not None
    index = next((tmp_path / "incoming" / second.shards[0].folder).glob("*.index"))
    kept = index.read_bytes()
    index.unlink()
    for _ in range(2):
        with MessageStore.open(tmp_path, tiny()) as store, pytest.raises(StoreCorrupt, match="index is missing"):
            store.attach_pending()
    assert [place.file for place in verify_folder(tmp_path).places] == [str(index)]
    index.write_bytes(kept)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(*(rows_of(name, 9) for name in "abc"))
        assert store.stats()["last_background_error"] is None


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("keep", [True, False])
def test_no_manifest_is_missing_after_a_kill_before_one_goes(tmp_path: Path, keep: bool) -> None:
    """The lanes may have forgotten the commit before it by then."""
    disk, left = SimulatedDisk(), list[SimulatedDisk]()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store, held(store):
        for name in "ab":
            shards = staged(tmp_path, rows_of(name, 9), disk=disk)
            commit_shards(tmp_path, shards, name=name, wait_ms=0, keep=keep, disk=disk)
        attacher = store._running.attacher
        assert attacher is not None
        first, second = pending_in(disk, attacher._folder)
        attacher._attach(first, [first, second])

        def kill(operation: Operation) -> None:
            if operation.kind == "remove" and operation.path.suffix == ".manifest":
                left.append(disk.kill())

        disk.on_operation = kill
        attacher._attach(second, [second])
        disk.on_operation = None
    with MessageStore.open(tmp_path, tiny(), disk=left[0]) as store:
        assert store.stats()["last_background_error"] is None
        assert content(store) == queues_of(rows_of("a", 9), rows_of("b", 9))
