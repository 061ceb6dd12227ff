"""What tasks have left is swept whatever hinders the commits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, StoreFull, commit_shards
from stratalog.store.shards import attacher as attacher_module
from stratalog.store.shards.attacher import Attacher
from stratalog.store.testing import SimulatedDisk

from ..helpers import flip_bit, tiny, until
from .helpers import content, held, queues_of, rows_of, staged

DAYS_S = 3 * 24 * 3600.0
ROWS = rows_of("x", 400, queues=50)


def attacher_of(store: MessageStore) -> Attacher:
    found = store._running.attacher
    assert found is not None
    return found


def make_old(folder: Path) -> Path:
    """As if nobody had touched it for days."""
    then = time.time() - DAYS_S
    for one in (folder, *folder.iterdir()):
        os.utime(one, (then, then))
    return folder


@pytest.mark.parametrize("which", ["shard", "index", "damaged"])
def test_leftovers_are_swept_while_a_commit_waits(tmp_path: Path, which: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, held(store):
        attacher = attacher_of(store)
        left = make_old(tmp_path / "incoming" / staged(tmp_path, ROWS)[0].folder)
        shards = staged(tmp_path, ROWS)
        commit_shards(tmp_path, shards, name="a", wait_ms=0)
        waiting = make_old(tmp_path / "incoming" / shards[0].folder)
        if which == "damaged":
            flip_bit(next(waiting.glob("*.shard")), 8192 + 16)
        else:
            next(waiting.glob("*." + which)).unlink()
        make_old(waiting)
        attacher._sweep_at = 0.0  # as if 10 minutes were over
        with pytest.raises(StoreCorrupt):
            attacher.attach_and_sweep()
        until(lambda: not left.exists())  # the background may have begun to sweep just before
        assert waiting.exists()


def test_leftovers_are_swept_by_a_clock_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = []
    monkeypatch.setattr(attacher_module, "sweep", lambda *_, **__: swept.append(1))
    with MessageStore.open(tmp_path, tiny()) as store, held(store):
        attacher = attacher_of(store)
        store._upkeep.lookers.clear()  # the background would sweep before this test does
        swept.clear()
        attacher._sweep_at = 0.0
        for name in "abc":
            commit_shards(tmp_path, staged(tmp_path, rows_of(name, 5)), name=name, wait_ms=0)
            attacher.attach_and_sweep()
        assert swept == [1]


class Aging(SimulatedDisk):
    """A disk that says how old a folder is."""

    old: frozenset[str] = frozenset()

    def age_s(self, path: Path) -> float:
        return DAYS_S if path.name in self.old else 0.0


def test_what_is_swept_on_a_full_disk_lets_the_commit_through(tmp_path: Path) -> None:
    disk = Aging()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store, held(store):
        attacher = attacher_of(store)
        left = [staged(tmp_path, ROWS, disk=disk)[0].folder for _ in range(9)]
        commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="a", wait_ms=0, disk=disk)
        fill(disk)
        attacher._sweep_at = 0.0
        with pytest.raises(StoreFull):
            store.attach_pending()
        disk.old = frozenset(left)
        with pytest.raises((StoreFull, OSError)):
            attacher.attach_and_sweep()
        attacher.attach_and_sweep()
        assert content(store) == queues_of(ROWS)


def fill(disk: SimulatedDisk) -> None:
    """No byte more has room."""
    disk.capacity_bytes = disk.used_bytes()
