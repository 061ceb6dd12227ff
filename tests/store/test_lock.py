"""Who may open a folder: one store object at a time, and only what is a store or can become one."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    InvalidConfig,
    MessageStore,
    StoreConfig,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreUnusable,
    inspect_folder,
    look_into_folder,
    verify_folder,
)
from stratalog.store.device.folder import FolderLock
from stratalog.store.format.layout import DATA_START

from .disks import MortalDisk
from .helpers import ROOT, crash_copy, flip_bit, memory_folder, run_child, segment_path, tiny

OPEN = """
import sys
from stratalog import MessageStore, StoreError
try:
    MessageStore.open(sys.argv[1]).close()
    print("opened")
except StoreError as error:
    print(type(error).__name__, error)
"""
HOLD = """
import sys
from stratalog import MessageStore
store = MessageStore.open(sys.argv[1])
store.append("t", 0, b"x")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the folder open."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    yield child
    child.kill()
    child.communicate()


def test_second_object_of_the_process_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, asked = fcntl.flock, list[int]()

    def ask(descriptor: int, how: int) -> None:
        asked.append(how)
        flock(descriptor, how)

    with MessageStore.open(tmp_path, tiny()) as store:
        monkeypatch.setattr(fcntl, "flock", ask)
        for repair in (False, True):
            with pytest.raises(StoreLocked, match=str(os.getpid())):
                MessageStore.open(tmp_path, tiny(), repair=repair)
        once = [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB]  # the second: by no watcher
        assert asked == once * 2  # without waiting
        store.append("t", 0, b"x")
    MessageStore.open(tmp_path, tiny()).close()


def test_second_process_is_refused_at_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        done = run_child(OPEN, str(tmp_path))
        assert done.stdout.startswith("StoreLocked"), done
        assert store.append("t", 0, b"y") == 1
    assert run_child(OPEN, str(tmp_path)).stdout == "opened\n"


def test_folder_of_another_process_is_refused_and_names_it(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(StoreLocked, match=str(holder.pid)):
        MessageStore.open(tmp_path)


def test_death_of_the_process_frees_the_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with MessageStore.open(tmp_path) as store:
        assert store.read("t", 0)[0].data == b"x"


def test_failed_open_frees_the_folder(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    header = (tmp_path / "STORE").read_bytes()
    (tmp_path / "STORE").write_bytes(b"rubbish")
    for _ in range(2):
        with pytest.raises(StoreError, match="header"):
            MessageStore.open(tmp_path, tiny())
    (tmp_path / "STORE").write_bytes(header)
    MessageStore.open(tmp_path, tiny()).close()


def test_failed_open_leaves_no_file_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(10):
            store.append("t", 0, bytes(3000))
    flip_bit(segment_path(tmp_path, 1), DATA_START + 20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        with pytest.raises(StoreCorrupt):
            MessageStore.open(tmp_path, tiny())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


# -- who only looks -----------------------------------------------------------------------------------


@pytest.fixture(params=[errno.EROFS, errno.EACCES], ids=errno.errorcode.__getitem__)
def read_only(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed store of three messages; from then on the system lets no file be opened for writing, as on a read-only
    disk or in another user's folder."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        for _ in range(3):
            store.append("t", 0, b"x")
    really_open = os.open

    def refuse(path: Any, flags: int, *rest: int, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(request.param, os.strerror(request.param), str(path))
        return really_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    return tmp_path / "store"


def test_store_that_may_not_be_written_can_be_looked_at(read_only: Path) -> None:
    assert inspect_folder(read_only)["totals"]["messages"] == 3
    report = verify_folder(read_only)
    assert (report.messages, report.damages) == (3, [])
    with pytest.raises(StoreUnusable):
        MessageStore.open(read_only, tiny())


def test_who_may_not_write_is_locked_out_and_locks_too(read_only: Path) -> None:
    lock = FolderLock(read_only)
    lock.take(only_look=True)
    with pytest.raises(StoreLocked), look_into_folder(read_only):
        pass
    assert (inspect_folder(read_only)["open_in"] is None, verify_folder(read_only).is_live) == (False, True)
    lock.release()
    assert (inspect_folder(read_only)["open_in"] is None, verify_folder(read_only).is_live) == (True, False)


def test_store_without_a_lock_file_that_may_not_be_written_is_refused(read_only: Path) -> None:
    (read_only / "LOCK").unlink()
    with pytest.raises(StoreUnusable, match=r"Read-only|denied"):
        verify_folder(read_only)


# -- what is no store ---------------------------------------------------------------------------------


def refused(path: Any) -> None:
    with pytest.raises(StoreUnusable) as caught:
        MessageStore.open(path, tiny())
    assert len(str(caught.value)) > 20


def test_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file")
    refused(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file" / "store")
    refused(tmp_path / "file" / "a" / "b")


def test_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    refused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_folder_whose_store_is_being_made_is_locked_and_not_foreign(tmp_path: Path) -> None:
    """Its maker has the lock, and names of a half-made store are there."""
    (tmp_path / "lane-00").mkdir()
    (tmp_path / "lane-00" / "000000000001.seg").write_bytes(bytes(100))
    maker = FolderLock(tmp_path)
    maker.take()
    with pytest.raises(StoreLocked):
        MessageStore.open(tmp_path, tiny())
    maker.release()
    refused(tmp_path)
    maker.take()
    maker.release()


def test_folder_with_other_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    refused(tmp_path)


@pytest.mark.parametrize("path", [None, 1, b"bytes", "a\0b", "x" * 5000, "/proc/none/store", "/dev/null"], ids=ascii)
def test_path_that_cannot_be_a_folder_is_refused(path: object) -> None:
    refused(path)


def test_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    refused(tmp_path / "a")


OPEN_AS_NOBODY = """
import os, sys
from stratalog import MessageStore, StoreError
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # who may write everywhere
    os.chown("free", 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for path in ("free", "forbidden", "forbidden/store"):
    try:
        MessageStore.open(path).close()
        print("opened")
    except StoreError as error:
        print(type(error).__name__, error)
"""


def test_forbidden_folder_is_refused() -> None:
    with memory_folder() as above:
        above.chmod(0o755)  # a fixed path leads through it
        here = above / "here"
        for name, mode in ((here, 0o755), (here / "free", 0o755), (here / "forbidden", 0o555)):
            name.mkdir()
            name.chmod(mode)
        done = run_child(OPEN_AS_NOBODY, str(here))
    free, folder, below = done.stdout.splitlines()
    assert free == "opened", done
    assert folder == f"StoreUnusable {here}/forbidden cannot be used as a store: Permission denied"
    assert below == f"StoreUnusable {here}/forbidden/store cannot be used as a store: Permission denied"


def test_config_of_another_type_is_refused(tmp_path: Path) -> None:
    configs: tuple[Any, ...] = ({}, "small", 1, StoreConfig)
    for config in configs:
        with pytest.raises(InvalidConfig):
            MessageStore.open(tmp_path, config)


def test_missing_parents_are_made_and_links_followed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "a" / "b" / "store", tiny()) as store:
        store.append("t", 0, b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "store")
    with MessageStore.open(str(tmp_path / "link"), tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, 1)


def test_number_of_lanes_stays_that_of_the_folder(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=3)) as store:
        store.append("t", 0, b"x")
    for lanes in (None, 3):
        with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
            assert store.stats()["lanes"] == store.config.lanes == 3
            assert store.queue_bounds("t", 0) == (0, 1)


@pytest.mark.parametrize("lanes", [1, 4])
def test_another_number_of_lanes_than_the_folder_has_is_refused(tmp_path: Path, lanes: int) -> None:
    MessageStore.open(tmp_path, tiny(lanes=3)).close()
    with pytest.raises(InvalidConfig, match=f"has 3 lanes for good, and the config says {lanes}"):
        MessageStore.open(tmp_path, tiny(lanes=lanes))
    MessageStore.open(tmp_path, tiny()).close()


def test_new_store_has_one_lane_unless_told_otherwise(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.stats()["lanes"] == store.config.lanes == 1


# -- a crash while the store is made ------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


def test_crash_while_the_store_is_made_does_not_spoil_the_folder(tmp_path: Path) -> None:
    for calls in range(100):
        path = tmp_path / str(calls)
        disk = MortalDisk(calls, ("create", "make_folder", "rename", "force_folder"), Crash)
        try:
            store = MessageStore.open(path, tiny(lanes=2, prewrite_bytes=128 << 10), disk=disk)
        except Crash:
            left = crash_copy(path, tmp_path / f"{calls}-left") if path.exists() else tmp_path / f"{calls}-left"
        else:
            store.close()
            assert calls > 5
            return
        with MessageStore.open(left, tiny(lanes=2)) as store:
            assert store.append("t", 0, b"x") == 0
    pytest.fail("the store was never made")


def test_folder_on_a_full_disk_can_be_opened_and_a_failed_open_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MessageStore.open(tmp_path).close()

    def refused(*_given: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("stratalog.store.device.folder.os.pwrite", refused)  # the note of who has it
        MessageStore.open(tmp_path).close()
    gc.collect()  # what other tests have left
    descriptors = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr("stratalog.store.device.folder.fcntl.flock", refused)
        with pytest.raises(StoreUnusable, match="No space"):
            MessageStore.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    MessageStore.open(tmp_path).close()


def test_lock_that_the_system_does_not_take_back_ends_with_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        store.close()
    MessageStore.open(tmp_path).close()
