"""The device as the store sees it: files that are written, forced and read by position.

Everything that the store writes goes through a `Disk`, so that tests can hand in one that loses, tears
and reorders what was not forced, or fails at the Nth call. `LogFile` and `Disk` are all that it asks for, and mypy
compares each file and disk with them: no code looks whether one has an ability.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import time
from pathlib import Path
from typing import Protocol

from .blocks import device_block_bytes
from .descriptor import open_descriptor
from .direct_reads import DirectReads
from .log_file import LogFile, RangeReads
from .mapped import Mapped, MappedFile
from .os_file import REFUSED, OsFile
from .shared_memory import SharedMemory


class Disk(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> LogFile:
        """Open a file for reading and writing."""

    def open_to_read(self, path: Path) -> LogFile:
        """Open a file of a store for reading alone, so that it can be leased where this process writes the store."""

    def range_reads(self) -> RangeReads:
        """Reads of many ranges at once past the page cache."""

    def map(self, path: Path, size_bytes: int, bell_at: int) -> Mapped:
        """Map the first bytes of a file; `bell_at` is the word that may be slept on. Raises OSError."""

    def make_shared(self, name: str, size_bytes: int) -> SharedMemory | None:
        """Memory for readers in other processes; None where there is none."""

    def find_shared(self, pid: int, name: str) -> SharedMemory | None:
        """Another process's memory; None if there is none. Raises BlockingIOError if it cannot be had right now."""

    def age_s(self, path: Path) -> float:
        """Seconds since a file, or a folder with its files, was written to; 0 where it is gone, or if unknown."""

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
        """Bytes that new files of a folder may take; another program may take them first."""

    def safe_block_bytes(self, path: Path) -> int:
        """The size of writes past the page cache to a file that harm nothing beside them: 512 or 4,096."""


def takes_direct(disk: Disk, path: Path) -> bool:
    """Whether the file system of a file (of a page at least) takes O_DIRECT: at its opening, and when it is used.

    It is read for that, since a full disk has no room for trying a write.
    """
    file = disk.open(path, direct=True)
    try:
        if file.direct:
            file.read_into([memoryview(mmap.mmap(-1, mmap.PAGESIZE))], 0)
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

    def range_reads(self) -> DirectReads:
        """The kernel's asynchronous reads."""
        return DirectReads()

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
            shutil.copyfile(old, new)  # a file system without second names: a copy does as well
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
        """The memory of another process, by `SharedMemory.find`. Raises BlockingIOError."""
        return SharedMemory.find(pid, name)

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def safe_block_bytes(self, path: Path) -> int:
        """The device's own block, by `blocks.device_block_bytes`."""
        return device_block_bytes(path)

    def force_folder(self, folder: Path) -> None:
        owner = open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(owner.fileno())
        finally:
            owner.close()


class ReadingDisk(OsDisk):
    """A disk to look at stores with: files are opened for reading, so it may be mounted read-only."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return OsFile(path, create=False, direct=direct, write=False)

    def map(self, path: Path, size_bytes: int, bell_at: int) -> MappedFile:
        return MappedFile(path, size_bytes, bell_at, write=False)
