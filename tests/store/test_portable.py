"""The POSIX twin of the device: a store works with it, also where no name of Linux's is there, and promises as much."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from stratalog import portable
from stratalog.store import MessageStore, StoreClosed, StorePoisoned, StoreReader
from stratalog.store.device import descriptor as descriptors
from stratalog.store.device import exchange as exchanging
from stratalog.store.device import mapped
from stratalog.store.device.disk import Disk
from stratalog.store.device.posix_disk import PosixDisk
from stratalog.store.device.posix_file import PosixFile
from stratalog.store.live import calls, follower

from ..faults.inject import strace, why_not
from ..seeds import draw_seed
from .helpers import PATIENCE_S, ROOT, start, tiny, until

KILLS = 2
LINUX_CALLS = [
    "pwrite64", "fsync",  # these two are POSIX's
    "pwritev", "pwritev2", "preadv", "preadv2", "fdatasync", "fallocate", "fadvise64", "sync_file_range", "io_setup",
    "io_submit", "io_getevents", "memfd_create", "mincore", "renameat2", "epoll_create1", "eventfd2",
]  # fmt: skip
POSIX = {**os.environ, portable.SWITCH: portable.POSIX}
OPEN = "import sys; from stratalog import MessageStore; MessageStore.open(sys.argv[1]).close()"
# A part of the suite that is quick, by what the twin does otherwise: files, locks, readers in other processes, tiers.
PART = (
    "tests/store/test_disk.py", "tests/store/test_lock.py", "tests/store/test_read_only.py",
    "tests/store/test_figures_page.py", "tests/cache/test_tier.py",
)  # fmt: skip


# -- a process without Linux's names ------------------------------------------------------------------


def life(folder: Path, acknowledged: int) -> tuple[int, int]:
    """Kill a process on a Mac after so many words; how many messages it found, and how many were acknowledged."""
    command = [sys.executable, "-m", "tests.store.elsewhere", str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        words = [child.stdout.readline().split() for _ in range(1 + acknowledged)]
        child.kill()
        words += [line.split() for line in child.stdout if line.endswith("\n")]  # what it said before it was killed
        assert words[0], child.stderr.read()
        assert all(words), child.stderr.read()
    assert [word for word, _ in words] == ["there", *["acknowledged"] * (len(words) - 1)]
    return int(words[0][1]), int(words[-1][1])


@pytest.mark.disk  # memory's folder is among the hidden ones
def test_a_store_works_without_any_name_of_linux_and_loses_nothing_by_kills(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(draw_seed()), 0
    for _ in range(KILLS):
        found, said = life(tmp_path / "store", chance.randrange(1, 40))
        assert acknowledged <= found <= said
        acknowledged = said
    with MessageStore.open(tmp_path / "store") as store:  # the format is one
        assert store.queue_bounds("told", 0) == (0, KILLS)


@pytest.mark.disk
def test_the_kernel_is_asked_for_no_call_that_linux_alone_has(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    log = tmp_path / "log"
    done = subprocess.run(
        [*strace(log, LINUX_CALLS), sys.executable, "-m", "tests.store.elsewhere", str(tmp_path / "store"), "3"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "acknowledged 30", done.stderr
    calls = {line.split("(")[0].split()[-1] for line in log.read_text().splitlines() if "resumed" not in line}
    assert calls == {"pwrite64", "fsync"}


@pytest.mark.parametrize(
    ("choice", "system", "error"),
    [
        ("macos", "linux", "STRATALOG_DEVICE is 'macos', and it can be 'linux' or 'posix'"),
        ("linux", "darwin", "STRATALOG_DEVICE is 'linux', and this system is 'darwin'"),
    ],
)
def test_a_wrong_choice_is_an_error_of_the_opening(tmp_path: Path, choice: str, system: str, error: str) -> None:
    program = f"import numpy, sys; sys.platform = {system!r}; {OPEN}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")], env={**os.environ, portable.SWITCH: choice},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"StoreUnusable: {error}" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "store").exists()


@pytest.mark.skipif(portable.POSIX_ALONE, reason="this run is one with the twin")
def test_a_part_of_the_suite_passes_with_the_twin() -> None:
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-x", "-p", "no:cacheprovider", *PART]
    done = subprocess.run(command, env=POSIX, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1]


# -- its files ----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PosixFile]:
    opened = PosixDisk().open(tmp_path / "file", create=True, direct=True)
    yield opened
    opened.close()


def test_a_store_on_the_twin_s_disk_is_read_by_the_system_s_and_the_other_way_round(tmp_path: Path) -> None:
    disks: list[Disk | None] = [PosixDisk(), None]
    for number, disk in enumerate(disks * 2):
        with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            for _ in range(40):
                store.append("t", 0, b"%d" % number * 500)
            found = store.read("t", 0, 0, max_messages=500, max_bytes=1 << 20)
            assert [int(message.data[:1]) for message in found] == [at // 40 for at in range(40 * number + 40)]


def test_a_file_asks_for_no_direct_writes_and_says_what_it_does_not_have(file: PosixFile) -> None:
    assert not file.direct
    file.reserve(1 << 20)
    assert file.size() == 0
    assert not file.begin_write_back(0, 4096)
    assert not file.populate(0, 4096)
    assert file.is_cached(0)
    with pytest.raises(OSError, match="no lease"):
        file.lease()
    disk = PosixDisk()
    assert disk.make_shared("name", 4096) is None and disk.find_shared(1, "name") is None
    assert disk.range_reads().is_refused and disk.range_reads().read([(file, 0, 1)]) is None


def test_a_short_write_goes_on_and_a_device_that_takes_nothing_is_an_error(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, room = os.pwrite, 30
    monkeypatch.setattr(os, "pwrite", lambda number, data, at: whole(number, data[: min(7, max(0, room - at))], at))
    content = bytes(range(20))
    file.write([content[:5], b"", memoryview(content)[5:]], 3)
    assert file.read(3, 100) == content
    with pytest.raises(OSError, match="took no more bytes"):
        file.write([content], 20)
    first, rest = bytearray(8), bytearray(100)
    assert file.read_into([memoryview(first), memoryview(rest)], 3) == 27
    assert bytes(first + rest[:12]) == content[:8] + content[8:17] + content[:3]


def test_a_file_that_was_renamed_or_removed_is_opened_again_and_stays_locked(file: PosixFile, tmp_path: Path) -> None:
    file.write([b"content"], 0)
    other = PosixDisk().open(tmp_path / "file")
    assert file.share() and other.is_shared()
    os.rename(tmp_path / "file", tmp_path / "renamed")
    again = file.sequential()
    os.unlink(tmp_path / "renamed")
    file.close()
    assert again.read(0, 100) == b"content"
    assert other.is_shared(), "the second descriptor has the lock of the first"
    again.close()
    assert not other.is_shared()


# -- its forces ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the device is asked for, on a Mac."""
    calls: list[str] = []
    monkeypatch.setattr(portable, "POSIX_ALONE", True)
    monkeypatch.setattr(portable, "FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda number, command: calls.append(f"full sync {command}"))
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("fsync"))
    return calls


def answer(monkeypatch: pytest.MonkeyPatch, calls: list[str], number: int) -> None:
    def refuse(*_: int) -> None:
        calls.append("refused")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", refuse)


def test_every_force_of_a_mac_reaches_the_medium(file: PosixFile, asked: list[str], tmp_path: Path) -> None:
    file.write([b"x"], 0)
    assert asked == []
    file.write([b"x"], 0, force=True)
    file.force()
    PosixDisk().force_folder(tmp_path)
    assert asked == ["full sync 51"] * 3


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS])
def test_a_file_system_without_full_sync_is_forced_as_it_can_be(
    file: PosixFile, asked: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    answer(monkeypatch, asked, number)
    file.force()
    assert asked == ["refused", "fsync"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_full_sync_that_fails_is_the_error_and_nothing_is_asked_again(
    file: PosixFile, asked: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    answer(monkeypatch, asked, number)
    with pytest.raises(OSError) as caught:
        file.force()
    assert caught.value.errno == number
    assert asked == ["refused"]


def test_a_store_is_poisoned_by_a_failed_full_sync(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny(), disk=PosixDisk()) as store:
        store.append("t", 0, b"x")
        with monkeypatch.context() as failing:
            answer(failing, asked, errno.EIO)
            with pytest.raises(StorePoisoned):
                store.append("t", 0, b"y")
        with pytest.raises(StorePoisoned):
            store.append("t", 0, b"z")
    assert asked.count("refused") == 1


# -- other processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("0F9C0B4E-31A7-4C0B-8F0E-9D2E6C5A7B10", bytes.fromhex("0F9C0B4E31A74C0B8F0E9D2E6C5A7B10")),
        ("", bytes(16)),
        ("no UUID", bytes(16)),
    ],
)
def test_the_start_of_a_mac_is_its_session_s_name_and_zeros_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, told: str, expected: bytes
) -> None:
    def call(name: bytes, found: ctypes.Array[ctypes.c_char], *_: object) -> int:
        assert name == b"kern.bootsessionuuid"
        found.value = told.encode()
        return 0

    monkeypatch.setattr(mapped, "POSIX_ALONE", True)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(sysctlbyname=call))
    assert mapped.boot_id() == expected
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
    assert mapped.boot_id() == bytes(16)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_close_ends_a_sleep_where_nobody_can_be_woken_by_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr(mapped, "_SLEEP", None)
    monkeypatch.setattr(mapped, "_RING", None)
    slept = threading.Event()
    poll = mapped.MappedFile._poll

    def polling(page: mapped.MappedFile, seen: int, patience_s: float) -> None:
        slept.set()
        poll(page, seen, patience_s)

    monkeypatch.setattr(mapped.MappedFile, "_poll", polling)
    for module in (calls, follower):
        monkeypatch.setattr(module, "PATIENCE_S", 0.6 * PATIENCE_S)
    store = MessageStore.open(tmp_path, tiny())
    offset = store.append("t", 0, b"x")
    until(slept.is_set)
    opened: StoreReader = store
    if read_only:
        slept.clear()
        opened = MessageStore.open(tmp_path, read_only=True)
        waiter = start(lambda: opened.read("t", 0, offset + 1, wait_ms=36_000_000))
        until(slept.is_set)
    closing = start(opened.close)
    until(lambda: not closing.thread.is_alive(), 0.3 * PATIENCE_S)
    closing.join()
    if read_only:
        with pytest.raises(StoreClosed):
            waiter.join()
    store.close()


# -- descriptors --------------------------------------------------------------------------------------


def test_a_descriptor_s_owner_closes_it_once_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_OWNER", descriptors._FileOwner)
    (tmp_path / "f").write_bytes(b"x")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dropped = descriptors.open_descriptor(tmp_path / "f", os.O_RDONLY)
        number = dropped.fileno()
        assert not os.get_inheritable(number)
        del dropped
        gc.collect()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
        closed = descriptors.open_descriptor(tmp_path / "f", os.O_RDONLY)
        number = closed.fileno()
        closed.close()
        other = os.open(tmp_path / "f", os.O_RDONLY)
        assert other == number, "the system gives the number to the next one"
        closed.close()
        assert closed.closed
        del closed
        assert os.read(other, 1) == b"x"
        os.close(other)
    assert warned == []
    with pytest.raises(FileNotFoundError):
        descriptors.open_descriptor(tmp_path / "nothing", os.O_RDONLY)


@pytest.mark.parametrize(("names", "here"), [(("renameat2",), -100), (("renameatx_np",), -2), ((), None)])
def test_two_folders_are_exchanged_by_the_call_that_the_system_has(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], here: int | None
) -> None:
    calls: list[tuple[object, ...]] = []

    class Library:
        def __init__(self, *_: object, **__: object) -> None:
            for name in names:
                setattr(self, name, lambda *given: calls.append(given))

    monkeypatch.setattr(ctypes, "CDLL", Library)
    if here is None:
        with pytest.raises(OSError) as caught:
            exchanging.exchange(Path("/a"), Path("/b"))
        assert caught.value.errno == errno.ENOSYS
    else:
        exchanging.exchange(Path("/a"), Path("/b"))
        assert [given[:4] for given in calls] == [(here, b"/a", here, b"/b")]
