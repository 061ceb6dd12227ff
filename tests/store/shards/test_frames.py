"""A small commit is appended to the log in frames: once, whole, and without a segment of its own."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from stratalog.store import MessageStore, ReplayDiffers, StoreCorrupt, StoreFull, commit_shards
from stratalog.store.format.applied import AppliedCommit, AppliedRecord, pack_applied, unpack_applied
from stratalog.store.shards import parts
from stratalog.store.testing import SimulatedDisk, TunedConfig
from stratalog.store.testing.faults import Operation
from tests.seeds import draw_seed

from ..helpers import flip_bit, segment_paths, tiny
from .helpers import attaching, content, held, queues_of, rows_of, scanned, staged
from .test_repair import OLD, ROWS, pending


def test_segments_do_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    rows = [[("t", 0, b"%d" % number)] for number in range(40)]
    with MessageStore.open(tmp_path, TunedConfig(prewrite_bytes=0)) as store:
        for number in range(20):
            commit_shards(tmp_path, staged(tmp_path, rows[number]), name="q", batch=number, wait_ms=0)
            store.attach_pending()
        assert len(segment_paths(tmp_path)) == 1
    for number in range(20, 40):
        assert commit_shards(tmp_path, staged(tmp_path, rows[number]), name="q", batch=number).is_attached
    assert len(segment_paths(tmp_path)) == 1
    with MessageStore.open(tmp_path) as store:
        assert scanned(store) == queues_of(*rows)


def test_a_large_commit_becomes_segments(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    rows = [("t", 0, bytes(1 << 20))] * 5
    commit_shards(tmp_path, staged(tmp_path, rows), name="q")
    assert len(segment_paths(tmp_path)) == 2
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 5)


def test_a_committer_beside_a_writer_knows_the_commits_of_the_segment_that_grows(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:  # its first segment is large enough for all of it
        for batch in range(5):
            for name in ("q", "r"):
                shards = staged(tmp_path, rows_of(f"{name}{batch}", 3))
                commit_shards(tmp_path, shards, name=name, batch=batch, wait_ms=0)
                store.attach_pending()
                store.append_batch(OLD)
        for name, batch in (("q", 4), ("r", 4), ("q", 0)):
            again = staged(tmp_path, rows_of(f"{name}{batch}", 3))
            assert not commit_shards(tmp_path, again, name=name, batch=batch).is_new
        with pytest.raises(ReplayDiffers):
            commit_shards(tmp_path, staged(tmp_path, OLD), name="q", batch=3)


def take_shards(disk: SimulatedDisk) -> None:
    """The files of staged shards are lost."""
    for file in [file for file in disk.files() if file.suffix == ".shard"]:
        disk.take_away(file)


def torn(path: Path, rows: list[tuple[str, int, bytes]], chance: Random) -> tuple[SimulatedDisk, int]:
    """A disk on which the log has the beginning of a commit, and how many of its messages those are."""
    disk = SimulatedDisk()
    left: list[SimulatedDisk] = []
    with MessageStore.open(path, tiny(), disk=disk) as store:
        store.append_batch(OLD)
        with held(store):
            shards = [shard for at in range(2) for shard in staged(path, rows[at::2], disk=disk)]
            commit_shards(path, shards, name="q", wait_ms=0, disk=disk)

            def cut(operation: Operation) -> None:
                if operation.path.suffix == ".seg":
                    left.extend(disk.crash(chance) for _ in range(30))

            disk.on_operation = cut
            store.attach_pending()
            disk.on_operation = None
    for one in left:
        without = one.copy()
        take_shards(without)
        with MessageStore.open(path, tiny(), disk=without, repair=True) as store:
            found = len(rows) - sum(loss.messages or 0 for loss in store.losses)
        if 0 < found < len(rows):
            return one, found
    raise AssertionError("no cut has left a part of the commit")


@pytest.fixture
def in_many_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames as small as they get."""
    attaching(monkeypatch.setattr, as_segments=False, frame_bytes=2_000)


@pytest.mark.usefixtures("in_many_frames")
def test_a_commit_that_is_there_in_part_is_finished_by_the_next_opening(tmp_path: Path) -> None:
    rows = rows_of("x", 300)
    disk, _ = torn(tmp_path, rows, Random(draw_seed()))
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append_batch(OLD)
        assert content(store) == scanned(store) == queues_of(OLD, rows[::2], rows[1::2], OLD)
    assert not commit_shards(tmp_path, staged(tmp_path, rows, disk=disk), name="q", disk=disk).is_new


@pytest.mark.usefixtures("in_many_frames")
def test_a_repair_gives_up_the_rest_of_a_commit_whose_shard_is_lost(tmp_path: Path) -> None:
    rows = rows_of("x", 300)
    disk, found = torn(tmp_path, rows, Random(draw_seed()))
    take_shards(disk)
    with pytest.raises(StoreCorrupt, match="repair=True"):
        MessageStore.open(tmp_path, tiny(), disk=disk)
    with MessageStore.open(tmp_path, tiny(), disk=disk, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [len(rows) - found]
        store.append_batch(OLD)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        assert store.losses == []
        assert sum(map(len, scanned(store).values())) == 2 * len(OLD) + found


def test_a_full_device_changes_nothing(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store, held(store):
        store.append_batch(OLD)
        rows = rows_of("x", 1000, size=50)
        commit_shards(tmp_path, staged(tmp_path, rows, disk=disk), name="q", wait_ms=0, disk=disk)
        disk.capacity_bytes = 0
        with pytest.raises(StoreFull):
            store.attach_pending()
        assert content(store) == queues_of(OLD)
        disk.capacity_bytes = None
        assert store.attach_pending() == 1
        assert content(store) == queues_of(OLD, rows)


def test_a_damaged_payload_is_not_appended(tmp_path: Path) -> None:
    """Its checksum would be made anew, and the damage be taken for what was written."""
    _, shard = pending(tmp_path)
    flip_bit(shard, shard.stat().st_size - 3)
    with MessageStore.open(tmp_path, tiny()) as store:
        with pytest.raises(StoreCorrupt, match="checksum"):
            store.attach_pending()
        assert content(store) == queues_of(OLD)
    flip_bit(shard, shard.stat().st_size - 3)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(OLD, ROWS)


def test_a_store_that_does_not_force_forces_a_commit_before_its_manifest_goes(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    config = tiny(durability="os", flush_interval_ms=86_400_000)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append_batch(OLD)
        commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="q", wait_ms=0, disk=disk)
        store.attach_pending()
        left = disk.crash(Random(0), "none")
    with MessageStore.open(tmp_path, tiny(), disk=left) as store:
        assert content(store) == queues_of(OLD, ROWS)


def test_a_shard_that_an_attempt_has_begun_to_make_a_segment_of_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device was full in the middle; the next time the commit is taken for a small one."""
    disk = SimulatedDisk()
    rows = rows_of("x", 400, queues=200)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store, held(store):
        store.append_batch([("other", at, b"first") for at in range(50)])
        commit_shards(tmp_path, staged(tmp_path, rows, disk=disk), name="q", wait_ms=0, disk=disk)
        attaching(monkeypatch.setattr, as_segments=True)

        def fill(operation: Operation) -> None:
            if operation.path.suffix == ".shard" and operation.kind == "write":
                disk.capacity_bytes = 0

        disk.on_operation = fill
        with pytest.raises(StoreFull):
            store.attach_pending()
        disk.on_operation, disk.capacity_bytes = None, None
        attaching(monkeypatch.setattr, as_segments=False)
        assert store.attach_pending() == 1
        assert {key: found for key, found in content(store).items() if key[0] != "other"} == queues_of(rows)


def test_an_entry_in_frames_is_read_back_and_one_with_shards_is_refused() -> None:
    entry = AppliedCommit("q", 7, 11, 1234, 0, True, ((6, 5),), True)
    assert unpack_applied(pack_applied({entry.key: entry})) == {entry.key: entry}
    assert AppliedRecord.unpack(AppliedRecord(entry, ()).pack()) == AppliedRecord(entry, ())
    wrong = entry._replace(shards=1)
    with pytest.raises(ValueError, match="sense"):
        unpack_applied(pack_applied({wrong.key: wrong}))


def test_the_record_with_the_longest_history_has_room() -> None:
    entry = AppliedCommit("n" * 255, 1 << 61, 1, 1, 0, True, tuple((at, at) for at in range(64)), True)
    assert len(AppliedRecord(entry, ()).pack()) + 500 < parts.RECORD_BYTES
