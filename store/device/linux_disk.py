"""Linux's file system: that of any POSIX system, with all that Linux has beyond it."""

from __future__ import annotations

import os
from pathlib import Path

from .blocks import device_block_bytes
from .descriptor import open_descriptor
from .direct_reads import DirectReads
from .linux_file import LinuxFile
from .log_file import RangeReads
from .posix_disk import PosixDisk
from .shared_memory import SharedMemory


class LinuxDisk(PosixDisk):
    """The file system of Linux. `Disk` has the contracts."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> LinuxFile:
        return LinuxFile(path, create=create, direct=direct)

    def open_to_read(self, path: Path) -> LinuxFile:
        """Open a file of a store that this process writes; for reading alone, so that it can be leased."""
        if type(self).open is not LinuxDisk.open:  # a disk that has files of its own
            return self.open(path)
        file = LinuxFile(path, create=False, direct=False, write=False)
        file.is_leasable = True
        return file

    def range_reads(self) -> RangeReads:
        """The kernel's asynchronous reads."""
        return DirectReads()

    def make_shared(self, name: str, size_bytes: int) -> SharedMemory | None:
        """Memory for readers in other processes, by `SharedMemory.make`."""
        return SharedMemory.make(name, size_bytes)

    def find_shared(self, pid: int, name: str) -> SharedMemory | None:
        """The memory of another process, by `SharedMemory.find`. Raises BlockingIOError."""
        return SharedMemory.find(pid, name)

    def safe_block_bytes(self, path: Path) -> int:
        """The device's own block, by `blocks.device_block_bytes`."""
        return device_block_bytes(path)

    def force_folder(self, folder: Path) -> None:
        owner = open_descriptor(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(owner.fileno())
        finally:
            owner.close()
