"""The device as the store sees it: files that are written, forced and read by position.

Everything that the store writes goes through a `Disk`, so that tests can hand in one that loses, tears
and reorders what was not forced, or fails at the Nth call. `LogFile` and `Disk` are all that it asks for, and mypy
compares each file and disk with them: no code looks whether one has an ability.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...portable import POSIX_ALONE
from .log_file import LogFile, RangeReads
from .mapped import Mapped, MappedFile
from .os_file import OsFile
from .shared_memory import SharedMemory

if TYPE_CHECKING or not POSIX_ALONE:  # the operating system's file system
    from .linux_disk import LinuxDisk as OsDisk
else:
    from .posix_disk import PosixDisk as OsDisk

__all__ = ["Disk", "OsDisk", "ReadingDisk", "takes_direct"]


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


class ReadingDisk(OsDisk):
    """A disk to look at stores with: files are opened for reading, so it may be mounted read-only."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return OsFile(path, create=False, direct=direct, write=False)

    def map(self, path: Path, size_bytes: int, bell_at: int) -> MappedFile:
        return MappedFile(path, size_bytes, bell_at, write=False)
