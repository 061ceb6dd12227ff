"""Reading a store that is mounted read-only, or is another user's, beside its writer and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from tests.store.helpers import PATIENCE_S, ROOT, tiny

from .mounts import tmpfs

NOBODY = 65_534
CHILD = """
import os, sys
from stratalog.store import MessageStore, StoreError

folder, user, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if user:
    os.setgid(user)
    os.setuid(user)
with MessageStore.open(folder, read_only=True) as reader:
    print("open", flush=True)
    at = 0
    while at < count:
        at += len(reader.read("t", 0, at, wait_ms=100_000))
    assert sum(len(batch) for batch in reader.scan()) == count
    assert reader.topics() == ["t"] and reader.queue_bounds("t", 0) == (0, count)
    try:
        open(folder + "/mine", "w")
    except OSError as error:
        print("read-only" if error.errno == 30 else "forbidden", flush=True)
    print(reader.stats()["live"]["current"], flush=True)
"""


def reader_of(folder: Path, user: int, count: int) -> subprocess.Popen[str]:
    """A process that reads so many messages as they come."""
    command = [sys.executable, "-c", CHILD, str(folder), str(user), str(count)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


def told_by(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    with child.stdout as said:
        output = said.read()  # not `communicate`: it leaves out what `readline` has read ahead
    assert child.wait(PATIENCE_S) == 0
    return output.split()


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder, and the same by a mount that is read-only."""
    with tmpfs(tmp_path / "disk", "64m") as disk:
        there = tmp_path / "there"
        there.mkdir()
        (disk / "home").mkdir()
        done = subprocess.run(
            ["mount", "--bind", str(disk / "home"), str(there)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"binding is not permitted: {done.stderr.strip()}")
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(there)], check=True)
            yield disk / "home", there
        finally:
            subprocess.run(["umount", "-l", str(there)], check=True)


def test_reader_of_a_read_only_mount_follows_and_is_woken(bound: tuple[Path, Path]) -> None:
    home, there = bound
    with MessageStore.open(home / "store", tiny()) as store:
        for number in range(40):
            store.append("t", 0, b"%d" % number * 500)
        child = reader_of(there / "store", 0, 80)
        for number in range(40):
            store.append("t", 0, b"%d" % number * 500)
        assert told_by(child) == ["read-only", "True"]


def test_closed_store_on_a_read_only_mount_without_a_lock(bound: tuple[Path, Path]) -> None:
    home, there = bound
    with MessageStore.open(home / "store", tiny()) as store:
        for number in range(80):
            store.append("t", 0, b"%d" % number * 500)
    (home / "store" / "LOCK").unlink()
    assert told_by(reader_of(there / "store", 0, 80)) == ["read-only", "True"]
    assert not (home / "store" / "LOCK").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("lock", [True, False], ids=["beside its writer", "without LOCK"])
def test_another_user_reads_what_may_be_read(lock: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="stratalog-") as name:
        home = Path(name)
        home.chmod(0o755)
        with MessageStore.open(home / "store", tiny()) as store:
            for number in range(80):
                store.append("t", 0, b"%d" % number * 500)
            if lock:
                assert told_by(reader_of(home / "store", NOBODY, 80)) == ["forbidden", "True"]
        if not lock:
            (home / "store" / "LOCK").unlink()
            assert told_by(reader_of(home / "store", NOBODY, 80)) == ["forbidden", "True"]
            assert not (home / "store" / "LOCK").exists()
