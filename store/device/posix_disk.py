"""The file system of any POSIX system. Linux's own (`linux_disk`) is this one with more."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

from ...portable import REFUSED, force_names
from ..format.layout import BLOCK_BYTES
from .descriptor import open_folder
from .log_file import RangeReads
from .mapped import MappedFile
from .posix_file import NoRangeReads, PosixFile
from .shared_memory import SharedMemory

OF_OTHERS = (errno.EACCES, errno.EPERM, errno.EROFS)  # of a folder that is not of our making: its owner's, the system's


class PosixDisk:
    """The file system of any POSIX system. `Disk` has the contracts."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> PosixFile:
        return PosixFile(path, create=create, direct=direct)

    def open_to_read(self, path: Path) -> PosixFile:
        """Open a file of a store that this process writes; for reading alone."""
        if type(self).open is not PosixDisk.open:  # a disk that has files of its own
            return self.open(path)
        return PosixFile(path, create=False, direct=False, write=False)

    def range_reads(self) -> RangeReads:
        """None that give anything."""
        return NoRangeReads()

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
                try:
                    self.force_folder(path)
                except OSError as error:
                    if error.errno not in OF_OTHERS:
                        raise

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
        """None: there is no memory without a name that others find. They read the files."""
        return None

    def find_shared(self, pid: int, name: str) -> SharedMemory | None:
        """None: see `make_shared`."""
        return None

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def safe_block_bytes(self, path: Path) -> int:
        """4,096: no write goes past the page cache."""
        return BLOCK_BYTES

    def force_folder(self, folder: Path) -> None:
        owner = open_folder(folder)
        try:
            force_names(owner.fileno())
        finally:
            owner.close()
