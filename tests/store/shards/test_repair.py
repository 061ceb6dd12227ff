"""Attached segments and commits in damaged stores, and shards that are damaged before they are attached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import MessageStore, ReplayDiffers, StoreCorrupt, commit_shards, verify_folder

from ..helpers import flip_bit, frames_of, seal_of, segment_paths, tiny
from .helpers import content, queues_of, rows_of, staged

ROWS = rows_of("x", 120)
OLD = rows_of("old", 30)


def with_commits(path: Path) -> None:
    """Appended messages, two commits of a query, and more messages; closed."""
    for batch in (1, 2):
        with MessageStore.open(path, tiny()) as store:
            store.append_batch(OLD)
        commit_shards(path, staged(path, ROWS), name="q", batch=batch)
    with MessageStore.open(path, tiny()) as store:
        store.append_batch(OLD)


def damage_footer(file: Path) -> None:
    record = seal_of(file)
    assert record is not None
    flip_bit(file, record.footer_position + record.footer_bytes // 2)


def sealed_paths(path: Path) -> list[Path]:
    records = [(file, seal_of(file)) for file in segment_paths(path)]
    return [file for file, record in records if record is not None and record.footer_bytes]


@pytest.mark.usefixtures("both_ways")
def test_every_footer_can_be_damaged_and_repaired(tmp_path: Path) -> None:
    """Of records, shards and others alike: messages, offsets and commits are those that they were."""
    with_commits(tmp_path)
    for file in sealed_paths(tmp_path):
        damage_footer(file)
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert content(store) == queues_of(OLD, ROWS, OLD, ROWS, OLD)
    assert not commit_shards(tmp_path, staged(tmp_path, ROWS), name="q", batch=2).is_new
    assert not commit_shards(tmp_path, staged(tmp_path, ROWS), name="q", batch=1).is_new
    with pytest.raises(ReplayDiffers):
        commit_shards(tmp_path, staged(tmp_path, OLD), name="q", batch=2)
    assert verify_folder(tmp_path).damages == []


@pytest.mark.usefixtures("as_segments")
def test_a_reader_makes_a_damaged_footer_of_an_attached_segment_again(tmp_path: Path) -> None:
    with_commits(tmp_path)
    damage_footer(sealed_paths(tmp_path)[2])
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert content(store) == queues_of(OLD, ROWS, OLD, ROWS, OLD)


@pytest.mark.usefixtures("as_segments")
def test_damaged_payload_of_an_attached_segment_is_an_error_with_its_place(tmp_path: Path) -> None:
    with_commits(tmp_path)
    file = sealed_paths(tmp_path)[2]
    start = int(frames_of(file)[0].starts()[3])
    flip_bit(file, start)
    with MessageStore.open(tmp_path, tiny()) as store, pytest.raises(StoreCorrupt, match=file.name):
        content(store)
    assert [(place.file, place.position) for place in verify_folder(tmp_path).places] == [(str(file), start)]
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [loss.messages for loss in store.losses] == [1]


def pending(path: Path) -> list[Path]:
    """A store with a commit that waits; its shard's files."""
    with MessageStore.open(path, tiny()) as store:
        store.append_batch(OLD)
        attacher = store._running.attacher
        assert attacher is not None
        with attacher._attaching:
            shards = staged(path, ROWS)
            commit_shards(path, shards, name="q", wait_ms=0)
            attacher._stopped = True
    return sorted((path / "incoming" / shards[0].folder).iterdir())


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("which", ["head", "index", "no shard", "no index", "cut"])
def test_a_shard_that_is_damaged_before_it_is_attached_changes_nothing(tmp_path: Path, which: str) -> None:
    """The store opens, and says so; the commit stays, and is attached when its files are back."""
    index, shard = pending(tmp_path)
    damaged = index if "index" in which else shard
    kept = damaged.read_bytes()
    change: dict[str, Callable[[], object]] = {
        "head": lambda: flip_bit(shard, 8192 + 90 + 4 * len(ROWS)),
        "index": lambda: flip_bit(index, 300),
        "no shard": shard.unlink,
        "no index": index.unlink,
        "cut": lambda: os.truncate(shard, 8300),
    }
    change[which]()
    with MessageStore.open(tmp_path, tiny()) as store:
        with pytest.raises(StoreCorrupt, match="shard"):
            store.attach_pending()
        store.append(*OLD[0])
        assert content(store) == queues_of(OLD, OLD[:1])
        assert "shard" in str(store._upkeep.last_error)
    damaged.write_bytes(kept)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(OLD, OLD[:1], ROWS)
    assert verify_folder(tmp_path).damages == []


def test_a_damaged_manifest_is_an_error_and_stays(tmp_path: Path) -> None:
    pending(tmp_path)
    manifest = next((tmp_path / "incoming").glob("*.manifest"))
    flip_bit(manifest, 20)
    with MessageStore.open(tmp_path, tiny()) as store, pytest.raises(StoreCorrupt, match="manifest"):
        store.attach_pending()
    flip_bit(manifest, 20)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert content(store) == queues_of(OLD, ROWS)
