"""The operating system's files: O_DIRECT and its absence, short writes, sizes."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreUnusable
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.log_file import Buffer
from stratalog.store.device.os_file import OsFile
from stratalog.store.segment.writer import prewrite

from .helpers import SHM, memory_folder, run_child, start, tiny, until

pytestmark = pytest.mark.disk

BLOCK = 4096


def aligned(content: bytes) -> memoryview:
    """The bytes in page-aligned memory, as O_DIRECT wants them."""
    view = memoryview(mmap.mmap(-1, len(content)))
    view[:] = content
    return view


@pytest.mark.parametrize("direct", [False, True])
def test_what_is_written_is_read(tmp_path: Path, direct: bool) -> None:
    file = OsFile(tmp_path / "f", create=True, direct=direct)
    file.write([aligned(b"a" * BLOCK), aligned(b"b" * 2 * BLOCK)], BLOCK)
    file.force()
    reader = OsFile(tmp_path / "f", create=False, direct=False)
    assert reader.size() == 4 * BLOCK
    assert reader.read(0, BLOCK) == bytes(BLOCK)
    assert reader.read(BLOCK, 3 * BLOCK) == b"a" * BLOCK + b"b" * 2 * BLOCK
    assert reader.read(3 * BLOCK, 9 * BLOCK) == b"b" * BLOCK
    assert reader.read(9 * BLOCK, 10) == b""
    file.close()
    file.close()
    reader.close()


def test_a_read_that_comes_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    file = OsFile(tmp_path / "f", create=False, direct=False)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 7), at))
    assert file.read(10, 50) == bytes(range(10, 60))
    assert file.read(90, 50) == bytes(range(90, 100))
    assert file.read(100, 5) == b""
    assert file.read(5, 0) == b""


def test_write_that_direct_io_refuses_falls_back(tmp_path: Path) -> None:
    """An unaligned write is EINVAL with O_DIRECT (where the file system has it): then it goes without."""
    file = OsFile(tmp_path / "f", create=True, direct=True)
    file.write([b"unaligned"], 3)
    assert OsFile(tmp_path / "f", create=False, direct=False).read(0, 20) == b"\0\0\0unaligned"
    file.write([aligned(b"x" * BLOCK)], BLOCK)
    assert file.size() == 2 * BLOCK


@pytest.mark.linux
def test_two_writes_at_once_that_direct_io_refuses_both_fall_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some file systems do at the first write: the second finds that the first has left direct I/O already."""
    file = OsFile(tmp_path / "f", create=True, direct=True)
    file.direct = True  # also where this file system refused it at once
    write, inside, refused = os.pwritev, threading.Barrier(2), list[int]()

    def pwritev(fd: int, parts: list[bytes], position: int, flags: int) -> int:
        if threading.get_ident() in refused:
            return write(fd, parts, position, flags)
        refused.append(threading.get_ident())
        if inside.wait(60) == 1:
            until(lambda: not file.direct)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "pwritev", pwritev)
    workers = [start(file.write, [bytes([at + 1]) * BLOCK], at * BLOCK) for at in range(2)]
    for worker in workers:
        worker.join()
    assert (tmp_path / "f").read_bytes() == b"\1" * BLOCK + b"\2" * BLOCK
    file.close()


@pytest.mark.skipif(not SHM.is_dir(), reason="needs a tmpfs at /dev/shm")
@pytest.mark.parametrize("direct_io", [None, False])
def test_store_works_on_a_tmpfs(direct_io: bool | None) -> None:
    with memory_folder() as folder:
        for _ in range(2):
            with MessageStore.open(folder, tiny(direct_io=direct_io)) as store:
                offset = store.append("t", 0, b"x" * 5000)
                assert store.read("t", 0, offset)[0].data == b"x" * 5000
                assert isinstance(store.stats()["log"]["direct_io"], bool)


class RefusingDisk(OsDisk):
    """A file system without O_DIRECT, which it says at the opening of a file or at the first use of one."""

    def __init__(self, when: str) -> None:
        self.when = when

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        if self.when == "open":
            return OsFile(path, create=create, direct=False)
        return _RefusingFile(path, create=create, direct=direct)


class _RefusingFile(OsFile):
    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        if self.direct:
            self._leave_direct()  # what EINVAL leads to
        super().write(parts, position, force=force)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        if self.direct:
            self._leave_direct()
        return super().read_into(views, position)


@pytest.mark.parametrize("when", ["open", "use"])
def test_direct_io_that_the_file_system_refuses_is_an_error_only_where_it_is_insisted_on(
    tmp_path: Path, when: str
) -> None:
    disk = RefusingDisk(when)
    for _ in range(2):  # a new folder, and a store
        with pytest.raises(StoreUnusable, match="O_DIRECT"):
            MessageStore.open(tmp_path, tiny(direct_io=True), disk=disk)
        for direct_io in (None, False):
            with MessageStore.open(tmp_path, tiny(direct_io=direct_io), disk=disk) as store:
                assert store.stats()["log"]["direct_io"] is False
                store.append("t", 0, b"x" * 5000)
                assert store.stats()["log"]["direct_io"] is False


@pytest.mark.parametrize("direct_io", [None, True, False])
def test_direct_io_is_reported_as_it_is(tmp_path: Path, direct_io: bool | None) -> None:
    """Right after the opening, of a new store, of one that goes on in a segment, and of one that does not."""
    file = OsFile(tmp_path / "probe", create=True, direct=True)
    file.write([aligned(bytes(BLOCK))], 0)
    has, path = file.direct, tmp_path / "store"
    if direct_io and not has:
        pytest.skip("this file system takes no O_DIRECT: another test has that")
    for _ in range(3):
        with MessageStore.open(path, tiny(direct_io=direct_io)) as store:
            for _ in range(2):
                assert store.stats()["log"]["direct_io"] is (has and direct_io is not False)
                store.append("t", 0, b"x")
    with MessageStore.open(path, tiny(durability="os")) as store:
        assert store.stats()["log"]["direct_io"] is False


@pytest.mark.linux
def test_direct_io_is_reported_to_have_ended_where_a_write_was_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        segment = store._lanes[0].segment
        assert segment is not None
        file = segment.writer.file
        assert isinstance(file, OsFile)
        file._leave_direct()
        assert store.stats()["log"]["direct_io"] is False


SHORT_WRITE = """
import resource, signal, sys
from pathlib import Path
from stratalog.store.device.os_file import OsFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = OsFile(Path(sys.argv[1]), create=True, direct=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
try:
    file.write([b"a" * 4096, b"b" * 4096], 0)
except OSError as error:
    print(error.errno, file.size())
"""


def test_short_write_is_an_error_of_the_device(tmp_path: Path) -> None:
    done = run_child(SHORT_WRITE, str(tmp_path / "f"))
    assert done.stdout.split() == ["27", "6000"], done.stderr  # EFBIG


def test_prewrite_takes_its_space_and_is_zeros(tmp_path: Path) -> None:
    path = tmp_path / "f"
    prewrite(OsDisk(), path, 300 << 10, direct=True)
    assert path.read_bytes() == bytes(300 << 10)
    assert os.stat(path).st_blocks * 512 >= 300 << 10


def test_prewrite_from_a_position_keeps_what_is_before(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 2 * BLOCK)
    prewrite(OsDisk(), path, 4 * BLOCK, direct=False, begin=BLOCK)
    assert path.read_bytes() == b"x" * BLOCK + bytes(3 * BLOCK)


def test_folders_are_listed_made_renamed_and_removed(tmp_path: Path) -> None:
    disk = OsDisk()
    assert disk.list(tmp_path / "none") == []
    disk.make_folder(tmp_path / "a" / "b")
    disk.make_folder(tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "y", create=True).close()
    disk.rename(tmp_path / "a" / "y", tmp_path / "a" / "x")
    disk.force_folder(tmp_path / "a")
    assert disk.list(tmp_path / "a") == ["b", "x"]
    disk.remove(tmp_path / "a" / "x")
    assert disk.list(tmp_path / "a") == ["b"]
