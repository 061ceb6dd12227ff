"""Where a store's files are: fixed when it is opened, whatever becomes of the way to them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stratalog.store import (
    MessageStore,
    StorePoisoned,
    StoreUnusable,
    inspect_folder,
    verify_folder,
)
from stratalog.store.testing import Fault, SimulatedDisk, TunedCacheConfig

from .helpers import KIB, flip_bit, scanned, segment_path, segment_paths, take_snapshot, tiny, until

ROLLING = 30  # messages of 10,000 bytes: several segments


def roll(store: MessageStore) -> None:
    for _ in range(ROLLING):
        store.append("t", 0, bytes(10_000))


def test_a_change_of_the_working_directory_leads_no_write_into_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        with MessageStore.open(tmp_path / name / "data", tiny()) as store:
            store.append("t", 0, name.encode())
    monkeypatch.chdir(tmp_path / "here")
    before = take_snapshot(tmp_path / "there")
    with MessageStore.open("data", tiny(retention_bytes=200 * KIB)) as store:
        monkeypatch.chdir(tmp_path / "there")
        roll(store)
        assert store.path == tmp_path / "here" / "data"
        assert store.get_range("t", 0, ROLLING, 1)[0] == bytes(10_000)
    assert take_snapshot(tmp_path / "there") == before
    with MessageStore.open(tmp_path / "here" / "data", tiny()) as store:
        assert store.queue_bounds("t", 0)[1] == ROLLING + 1


def test_a_link_that_changes_leads_no_write_into_another_store(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with MessageStore.open(tmp_path / name / "data", tiny()) as store:
            store.append("t", 0, name.encode())
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "first")
    before = take_snapshot(tmp_path / "second")
    with MessageStore.open(link / "data", tiny()) as store:
        link.unlink()
        link.symlink_to(tmp_path / "second")
        roll(store)
    assert take_snapshot(tmp_path / "second") == before
    with MessageStore.open(tmp_path / "first" / "data", tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, ROLLING + 1)


def test_a_repair_puts_its_copies_into_the_store_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with MessageStore.open(tmp_path / "data", tiny()) as store:
        roll(store)
    flip_bit(segment_path(tmp_path / "data", 1), 12_000)
    monkeypatch.chdir(tmp_path)
    with MessageStore.open("data", tiny(), repair=True) as store:
        (loss, *_) = store.losses
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert loss.quarantined_to is not None and Path(loss.quarantined_to).is_relative_to(tmp_path / "data")
        assert len(scanned(store)["t", 0]) == ROLLING - 1
    monkeypatch.chdir(tmp_path)
    assert verify_folder("data").ok
    assert inspect_folder("data")["totals"]["messages"] == ROLLING - 1


def test_a_cache_folder_is_fixed_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    config = tiny(cache=TunedCacheConfig(persistent_bytes=64 * KIB, persistent_folder="cache", block_bytes=4 * KIB))
    with MessageStore.open("data", config) as store:
        monkeypatch.chdir("/")
        store.append("t", 0, b"x")
        assert store.get_range("t", 0, 0, 1) == {0: b"x"}
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("what", ["segment", "lane", "store", "lock"])
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_files_that_are_taken_from_under_a_store_are_noticed_at_a_flush_or_in_a_pause(
    tmp_path: Path, what: str, how: str
) -> None:
    path = tmp_path / "data"
    store = MessageStore.open(path, tiny())
    store.append("t", 0, b"x")
    taken = {
        "segment": segment_paths(path)[0], "lane": path / "lane-00", "store": path, "lock": path / "LOCK",
    }[what]  # fmt: skip
    if how == "deleted":
        shutil.rmtree(taken) if taken.is_dir() else taken.unlink()
    else:
        taken.rename(tmp_path / "taken")
    if how == "replaced":
        shutil.copytree(tmp_path / "taken", taken) if what in ("store", "lane") else shutil.copy(
            tmp_path / "taken", taken
        )
    if what in ("segment", "lane"):
        with pytest.raises(StorePoisoned, match="moved, replaced or deleted"):
            store.flush()
    else:
        until(lambda: store.stats()["poisoned"] is not None)
    with pytest.raises(StorePoisoned, match="moved, replaced or deleted"):
        store.append("t", 0, b"y")
    before = take_snapshot(path) if path.exists() else {}
    store.close()
    assert (take_snapshot(path) if path.exists() else {}) == before


def test_a_store_whose_folder_was_replaced_begins_no_segment_in_the_other_one(tmp_path: Path) -> None:
    for name in ("data", "other"):
        with MessageStore.open(tmp_path / name, tiny()) as store:
            store.append("t", 0, name.encode())
    store = MessageStore.open(tmp_path / "data", tiny())
    (tmp_path / "data").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "data")
    before = take_snapshot(tmp_path / "data")
    with pytest.raises(StorePoisoned, match="moved, replaced or deleted"):
        roll(store)
    store.close()
    assert take_snapshot(tmp_path / "data") == before


def test_error_of_the_device_at_the_opening_is_told_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"store cannot be used as a store: .*injected"):
        MessageStore.open(tmp_path / "store", disk=SimulatedDisk([Fault("force", for_good=True)]))


def test_a_working_directory_that_is_no_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreUnusable, match="cannot be used as a store"):
        MessageStore.open("data")
