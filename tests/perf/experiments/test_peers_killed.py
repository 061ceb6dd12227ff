"""The process that `bench peers` kills: it ends with its parent, writes no more than so much, and leaves no folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stratalog.perf.experiments import peers_recovery
from stratalog.perf.experiments.peers_recovery import _write, write_and_kill
from stratalog.perf.experiments.peers_work import QUEUES, PeerFailed
from stratalog.perf.peers.messages import Messages
from stratalog.perf.peers.peer import Peer
from stratalog.perf.peers.store import Store
from stratalog.perf.workload.contest import Sizes

WAIT_S = 60.0


@pytest.fixture
def messages() -> Messages:
    return Messages(5, Sizes.parse("small"))


def stuck(folder: Path, prepare_bytes: int) -> Peer:
    """An opening that does not come to an end."""
    time.sleep(10 * WAIT_S)
    raise AssertionError


class Tempting(Store):
    """A store that makes a temporary folder, as a peer with a server does."""

    def __init__(self, folder: Path, prepare_bytes: int = 0) -> None:
        folder.with_name("made").write_text(tempfile.mkdtemp())
        super().__init__(folder, prepare_bytes)


def writing(folder: Path, messages: Messages, most: int, parent: int) -> tuple[Any, Any]:
    """A writing process, and how many messages it has acknowledged."""
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Value("q", 0)
    child = context.Process(target=_write, args=(Store, folder, str(folder), messages, acknowledged, most, parent))
    child.start()
    return child, acknowledged


def test_process_is_killed_after_it_has_acknowledged_so_many_and_none_of_them_is_lost(
    tmp_path: Path, messages: Messages
) -> None:
    done = write_and_kill(Store, tmp_path, messages, 3000)
    assert done >= 3000
    with closing(Store(tmp_path)) as store:
        held = messages.check(store.read_all(), messages.shares(done, QUEUES), at_least=True)
    assert held >= done


def test_writing_process_that_ends_by_itself_is_a_failed_peer(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "file").write_bytes(b"no folder")
    with pytest.raises(PeerFailed, match="ended with 1 after 0"):
        write_and_kill(Store, tmp_path / "file", messages, 10)


def test_writing_process_that_acknowledges_nothing_is_a_failed_peer(
    tmp_path: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_recovery, "STUCK_S", 0.3)
    with pytest.raises(PeerFailed, match=r"nothing in 0.3 s, after 0 messages"):
        write_and_kill(stuck, tmp_path, messages, 10)


def test_temporary_folders_of_a_killed_process_are_removed(tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / "peer"
    folder.mkdir()
    write_and_kill(Tempting, folder, messages, 10)
    assert not Path((tmp_path / "made").read_text()).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "peer"]


def test_writing_process_ends_when_its_parent_is_gone(tmp_path: Path, messages: Messages) -> None:
    child, _ = writing(tmp_path, messages, 1 << 40, os.getpid() + 1)  # another one is its parent
    child.join(WAIT_S)
    assert child.exitcode == -signal.SIGKILL


def test_writing_process_writes_no_more_than_so_many(tmp_path: Path, messages: Messages) -> None:
    child, acknowledged = writing(tmp_path, messages, 1500, os.getpid())
    try:
        until = time.monotonic() + WAIT_S
        while acknowledged.value < 1500:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.2)
        assert acknowledged.value == 2000  # whole batches
    finally:
        child.kill()
        child.join()
