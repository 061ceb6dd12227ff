"""The device as the store sees it: files that are written, forced and read by position.

Everything that the store writes goes through a `Disk`, so that tests can hand in one that loses, tears
and reorders what was not forced, or fails at the Nth call.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .descriptor import open_descriptor
from .mapped import MappedFile
from .os_file import REFUSED, Buffer, OsFile
from .shared_memory import SharedMemory


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
