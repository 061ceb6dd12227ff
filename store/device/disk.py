"""The device as the store sees it: files that are written, forced and read by position.

Everything that the store writes goes through a `Disk`, so that tests can hand in one that loses, tears
and reorders what was not forced, or fails at the Nth call.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from .descriptor import open_descriptor
from .mapped import MappedFile
from .shared_memory import SharedMemory

Buffer = bytes | bytearray | memoryview
RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)  # 0 where it is missing: then a force follows the write
# What a kernel, file system or sandbox answers to a call, or a flag of one, that it does not have. Nothing was done.
REFUSED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM})
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class LogFile(Protocol):
    """One open file. Errors are OSError; after a failed write or force nothing is retried."""

    direct: bool

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        """Write all parts, back to back, at `position`; returns when the kernel has them.

        With `force`, returns when these bytes (not those of earlier writes) are on the device.
        """

    def force(self) -> None:
        """Return when everything written before the call is on the device."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def will_need(self, position: int, size: int) -> None:
        """A hint that a range is read soon."""

    def is_cached(self, position: int) -> bool:
        """Whether a byte can be read without the device; True where that cannot be told."""

    def size(self) -> int:
        """Length of the file in bytes."""

    def is_in_place(self) -> bool:
        """True if the path that the file was opened by still leads to it."""

    def truncate(self, size: int) -> None:
        """Cut or grow the file to `size` bytes."""

    def reserve(self, size: int) -> None:
        """Take space on the device for the first `size` bytes, or raise OSError."""

    def close(self) -> None:
        """Let go of the file."""


class Disk(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> LogFile:
        """Open a file for reading and writing."""

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; none if there is no such folder."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents durably; one that exists is made durable, with its parents."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a folder; not durable before `force_folder`."""

    def link(self, old: Path, new: Path) -> None:
        """Give a file that was forced a second name, in any folder; not durable before `force_folder`."""

    def remove(self, path: Path) -> None:
        """Remove a file; not durable before `force_folder`."""

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder; it may come back after a power cut."""

    def force_folder(self, folder: Path) -> None:
        """Make new, renamed and removed names of a folder durable."""

    def free_bytes(self, folder: Path) -> int:
        """What new files of a folder may take; others may be quicker."""


def takes_direct(disk: Disk, path: Path) -> bool:
    """Whether the file system of a file (of a page at least) takes O_DIRECT: at its opening, and when it is used.

    It is read for that, since a full disk has no room for trying a write.
    """
    file = disk.open(path, direct=True)
    try:
        read_into = getattr(file, "read_into", None)
        if file.direct and read_into is not None:
            read_into([memoryview(mmap.mmap(-1, mmap.PAGESIZE))], 0)
        return file.direct
    finally:
        file.close()


@contextlib.contextmanager
def _refusable() -> Iterator[None]:
    """Go on behind the block if the system refuses a call of it."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSED:
            raise


class OsFile:
    """A `LogFile` of the operating system, with O_DIRECT where the file system takes it."""

    is_leasable = False  # nobody but the store opens the file for writing
    _fd = -1
    _force_flag = RWF_DSYNC  # 0 once the system has refused it

    def __init__(self, path: Path, *, create: bool, direct: bool, write: bool = True) -> None:
        self.path = path
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= os.O_CREAT if create else 0
        self.direct = direct and hasattr(os, "O_DIRECT")
        if self.direct:
            try:
                self._owner = open_descriptor(path, flags | os.O_DIRECT)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
                self.direct = False
        if not self.direct:
            self._owner = open_descriptor(path, flags)
        self._fd = self._owner.fileno()

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        total = sum(map(len, parts))
        # One system call in place of two: each return from the kernel waits for the interpreter lock.
        flags = self._force_flag if force else 0
        direct = self.direct  # as of now: another thread may leave it during the call
        try:
            done = os.pwritev(self._fd, parts, position, flags)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            done, flags = self._write_plainly(error, parts, position, flags, direct=direct)
        if done < total:
            while done < total:
                done += self._write_rest(parts, position, done)
            flags = 0
        if force and not flags:
            self.force()

    def _write_plainly(
        self, refusal: OSError, parts: Sequence[Buffer], position: int, flags: int, *, direct: bool
    ) -> tuple[int, int]:
        """Write without what the system may have refused, one thing after the other: the bytes that it took, and the
        flags that it took them with. Nothing of what was refused was written.
        """
        if direct and refusal.errno == errno.EINVAL:
            # Some file systems take O_DIRECT at open and refuse it at the first write.
            self._leave_direct()
            with _refusable():
                return os.pwritev(self._fd, parts, position, flags), flags
        if flags:
            with _refusable():
                done = os.pwritev(self._fd, parts, position)
                self._force_flag = 0
                return done, 0
        self._leave_direct()
        done = os.pwrite(self._fd, b"".join(parts), position)  # Python's pwritev is the call with flags in any case
        self._force_flag = 0
        return done, 0

    def _write_rest(self, parts: Sequence[Buffer], position: int, done: int) -> int:
        """Write on after a short write; the kernel then says why it was short, if there is a reason."""
        rest = memoryview(b"".join(parts))[done:]
        self._leave_direct()  # the rest need not be aligned
        count = os.pwrite(self._fd, rest, position + done)
        if count == 0:
            raise OSError(errno.EIO, "the device took no more bytes", str(self.path))
        return count

    def _leave_direct(self) -> None:
        if self.direct:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            self.direct = False

    def force(self) -> None:
        os.fdatasync(self._fd)

    def read(self, position: int, size: int) -> bytes:
        chunk = os.pread(self._fd, size, position)
        if len(chunk) == size:
            return chunk
        chunks: list[bytes] = [chunk]
        position += len(chunk)
        size -= len(chunk)
        while chunk and size > 0:
            chunk = os.pread(self._fd, size, position)
            chunks.append(chunk)
            position += len(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        """Read into `views` from `position`; the number of bytes read."""
        direct = self.direct
        try:
            return os.preadv(self._fd, views, position)
        except OSError as error:
            if error.errno != errno.EINVAL or not direct:
                raise
            self._leave_direct()  # unaligned, or refused by the file system
            return os.preadv(self._fd, views, position)

    def will_need(self, position: int, size: int) -> None:
        """Ask the kernel to bring a range into the page cache; it does so beside us."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def is_cached(self, position: int) -> bool:
        try:
            os.preadv(self._fd, [bytearray(1)], position, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # the file system does not know the flag
            return True
        return True

    def drop_cached(self, position: int, size: int) -> None:
        """Tell the kernel that a range is not needed in the page cache (R24)."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def fileno(self) -> int:
        """The file descriptor, for mapping."""
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def is_in_place(self) -> bool:
        mine = os.fstat(self._fd)
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        with _refusable():  # then the zeros that are written next take the space
            os.posix_fallocate(self._fd, 0, size)

    def share(self) -> bool:
        """Keep the file from being used again for another segment while this object is open. False: it is too late.

        The lock belongs to the open file, and to the mappings that are made of it.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_shared(self) -> bool:
        """Whether another process keeps the file from being used again."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def read_alone(self) -> None:
        """Have the kernel read nothing but what is asked for."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def sequential(self) -> OsFile:
        """The same file opened once more, past the page cache where possible; also after a rename."""
        return OsFile(Path(f"/proc/self/fd/{self._fd}"), create=False, direct=True, write=False)

    def close(self) -> None:
        # Where it is not called, the owner does it: when the last reader who is inside a call lets go of the file.
        self._fd = -1
        self._owner.close()


class OsDisk:
    """The operating system's file system."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return OsFile(path, create=create, direct=direct)

    def open_to_read(self, path: Path) -> OsFile:
        """Open a file of a store that this process writes; for reading alone, so that it can be leased."""
        if type(self).open is not OsDisk.open:  # a disk that has files of its own
            return self.open(path)
        file = OsFile(path, create=False, direct=False, write=False)
        file.is_leasable = True
        return file

    def list(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            self.force_folder(path.parent)
        if not missing:  # its maker may have died before it forced the names on the way
            for path in folder.parents:
                with contextlib.suppress(PermissionError):  # one that only its owner may read is not of our making
                    self.force_folder(path)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in (*REFUSED, errno.EMLINK, errno.EXDEV):
                raise
            shutil.copyfile(old, new)  # a file system without second names: the same, for the price of a copy
            copied = self.open(new)
            copied.force()
            copied.close()

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_folder(self, folder: Path) -> None:
        os.rmdir(folder)

    def age_s(self, path: Path) -> float:
        """Seconds since a file, or a folder with its files, was written to; 0 where it is gone."""
        try:
            paths = [path, *path.iterdir()] if path.is_dir() else [path]
            return time.time() - max(one.stat().st_mtime for one in paths)
        except FileNotFoundError:
            return 0.0

    def map(self, path: Path, size_bytes: int, bell_at: int) -> MappedFile:
        """Map the first bytes of a file; `bell_at` is the word that may be slept on. Raises OSError."""
        return MappedFile(path, size_bytes, bell_at, write=True)

    def make_shared(self, name: str, size_bytes: int) -> SharedMemory | None:
        """Memory for readers in other processes, by `SharedMemory.make`."""
        return SharedMemory.make(name, size_bytes)

    def find_shared(self, pid: int, name: str) -> SharedMemory | None:
        """That of another process, by `SharedMemory.find`. Raises BlockingIOError."""
        return SharedMemory.find(pid, name)

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def force_folder(self, folder: Path) -> None:
        owner = open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(owner.fileno())
        finally:
            owner.close()


class ReadingDisk(OsDisk):
    """The same for those who only look: files are opened for reading, so it may be mounted read-only."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return OsFile(path, create=False, direct=direct, write=False)

    def map(self, path: Path, size_bytes: int, bell_at: int) -> MappedFile:
        return MappedFile(path, size_bytes, bell_at, write=False)
