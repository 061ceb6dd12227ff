"""The folder `incoming`: whose shards are whose, the order of manifests, and what is removed when."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    ShardWriter,
    abort_shards,
    commit_shards,
    sweep_shards,
)
from stratalog.store.device.disk import OsDisk
from stratalog.store.shards.committing import committing
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.faults import Operation

from ..helpers import tiny
from .helpers import content, queues_of, rows_of, staged


def test_shards_that_a_waiting_commit_has_are_refused_to_another_one(tmp_path: Path) -> None:
    rows, more = rows_of("x", 20), rows_of("y", 5)
    with MessageStore.open(tmp_path, tiny()) as store:
        attacher = store._running.attacher
        assert attacher is not None
        with attacher._attaching:
            shards = staged(tmp_path, rows)
            commit_shards(tmp_path, shards, name="a", wait_ms=0)
            for name, batch in (("b", None), ("a", 1)):
                with pytest.raises(InvalidMessage, match="transaction 'a'"):
                    commit_shards(tmp_path, shards, name=name, batch=batch, wait_ms=0)
            assert not commit_shards(tmp_path, shards, name="a", wait_ms=0).is_new
        store.attach_pending()
        commit_shards(tmp_path, staged(tmp_path, more), name="c", wait_ms=0)
        store.attach_pending()
        assert content(store) == queues_of(rows, more)


@pytest.mark.parametrize("transaction", ["999999999999", "20261123013400"])
def test_commits_stay_in_order_whatever_the_transaction_is_called(tmp_path: Path, transaction: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        attacher = store._running.attacher
        assert attacher is not None
        with attacher._attaching:
            for batch in range(6):
                shards = staged(tmp_path, [("t", 0, b"%d" % batch)], transaction=transaction)
                commit_shards(tmp_path, shards, name="q", batch=batch, wait_ms=0)
            names = sorted(file.name for file in (tmp_path / "incoming").glob("*.manifest"))
            assert [int(name.split("-")[0]) for name in names] == [1, 2, 3, 4, 5, 6]
        store.attach_pending()
        assert content(store)["t", 0] == [b"%d" % batch for batch in range(6)]


@pytest.mark.parametrize("how", ["sweep", "abort"])
def test_shards_are_not_removed_while_somebody_commits(tmp_path: Path, how: str) -> None:
    """Else a commit that has looked at its shards would be durable without them."""
    MessageStore.open(tmp_path, tiny()).close()
    shards = staged(tmp_path, rows_of("x", 9))
    folder = tmp_path / "incoming" / shards[0].folder
    done = threading.Event()

    def remove() -> None:
        if how == "sweep":
            sweep_shards(tmp_path, older_than_s=-1)
        else:
            abort_shards(tmp_path, shards)
        done.set()

    with committing(OsDisk(), tmp_path):
        thread = threading.Thread(target=remove)
        thread.start()
        assert not done.wait(0.3)  # what waits for the lock takes no time without it
        assert folder.exists()
    thread.join()
    assert not folder.exists()


def test_the_folder_of_a_task_without_rows_goes_when_it_is_finished(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    with ShardWriter(tmp_path) as writer:
        assert writer.finish() == ()
        assert writer.finish() == ()
    assert commit_shards(tmp_path, (), name="a").is_attached
    assert [one.name for one in (tmp_path / "incoming").iterdir()] == ["LOCK"]


@pytest.mark.parametrize("lanes", [1, 3])
def test_table_of_streams_is_looked_at_anew_unless_it_is_the_same_tuple(tmp_path: Path, lanes: int) -> None:
    once = (*[("t", queue) for queue in range(5)], ("", 5))
    changed = [("t", 0), ("t", 1)]
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        with ShardWriter(tmp_path) as writer:
            writer.append_columns(once, [0, 1], [1, 1], b"ab")
            writer.append_columns(once, [4, 0], [1, 1], b"cd")
            writer.append_columns(once, [], [], b"")
            with pytest.raises(InvalidTopic, match="row 1"):
                writer.append_columns(once, [2, 5], [1, 1], b"--")
            writer.append_columns(changed, [1, 0], [1, 1], b"ef")
            changed[1] = ("u", 7)
            writer.append_columns(changed, [1, 0], [1, 1], b"gh")
            writer.append_columns(tuple(changed), [1], [1], b"i")
            inside: Any = (["t", 0], ["t", 1])
            writer.append_columns(inside, [0], [1], b"j")
            inside[0][1] = 4
            writer.append_columns(inside, [0], [1], b"k")
            commit_shards(tmp_path, writer.finish(), name="a", wait_ms=0)
        store.attach_pending()
        assert content(store) == {
            ("t", 0): [b"a", b"d", b"f", b"h", b"j"], ("t", 1): [b"b", b"e"], ("t", 4): [b"c", b"k"],
            ("u", 7): [b"g", b"i"],
        }  # fmt: skip


def test_shards_go_before_their_manifest(tmp_path: Path) -> None:
    """Else another commit could name them in between, and would be durable without them."""
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        shards = staged(tmp_path, rows_of("x", 9), disk=disk)
        left: list[list[Path]] = []

        def look(operation: Operation) -> None:
            if operation.kind == "remove" and operation.path.suffix == ".manifest":
                left.append([file for file in disk.files() if file.parent.name == shards[0].folder])

        disk.on_operation = look
        commit_shards(tmp_path, shards, name="a", wait_ms=0, disk=disk)
        store.attach_pending()
        disk.on_operation = None
        assert left == [[]]
