"""Tiers whose memory is a mapping of a file: a private one, and persistent memory.

A page of a file mapping that the file system has no space for kills the process when it is touched. So the space is
reserved at open, with posix_fallocate, and too little of it is an error there. The file has no name any more once it
is mapped: what a killed process leaves is nothing, and nobody can cut the file short under the mapping.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from abc import abstractmethod
from io import FileIO
from pathlib import Path

from .tier import Tier, touch_pages

MAP_SHARED_VALIDATE = 0x03  # Linux 4.15; flags that the file system does not know are then refused, not ignored
MAP_SYNC = 0x80000  # of a DAX file system: a store to the mapping is a store to the medium
REFUSED = {errno.EOPNOTSUPP, errno.EINVAL}


class FileTier(Tier):
    """A tier over a nameless file in `folder`."""

    name = "file"

    def __init__(self, size_bytes: int, folder: str | Path) -> None:
        self.folder = Path(os.path.realpath(folder))  # the working directory may change
        super().__init__(size_bytes)

    def _where(self) -> str:
        return f" in {self.folder}"

    def _acquire(self) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        if not self.folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder")
        path = self.folder / f"stratalog-tier-{secrets.token_hex(8)}"
        try:
            file = FileIO(path, "x+")  # an object from the beginning, that an interrupt does not leave open
        finally:
            path.unlink(missing_ok=True)
        with file:
            os.chmod(file.fileno(), 0o600)
            reserve(file.fileno(), self.size_bytes)
            return self._map(file.fileno())  # the mapping keeps the file

    @abstractmethod
    def _map(self, file: int) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        """Kind, memory and view of the mapped file, whose space is reserved."""


class PrivateFileTier(FileTier):
    """A MAP_PRIVATE file mapping with every page touched once: each page is then the process's own copy.

    The file is never written to after that, so there is no write-back; its use is a limit on anonymous memory or on
    the heap that does not count file mappings.
    """

    name = "private-file"

    def _map(self, file: int) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        mapped = mmap.mmap(file, self.size_bytes, flags=mmap.MAP_PRIVATE)
        view = memoryview(mapped)
        touch_pages(view)
        return "private", mapped, view

    def close(self) -> None:
        """Let go of the memory; without MADV_DONTNEED, which would bring the file's pages back."""
        self.memory, self.view = memoryview(b""), memoryview(bytearray())
        self.size_bytes, self.kind = 0, "off"


class PersistentMemoryTier(FileTier):
    """Persistent memory: a shared mapping of a file in `folder`, with MAP_SYNC where the file system has DAX.

    `kind` is "map-sync" or "shared": elsewhere the same code runs on a plain shared mapping. The cache is as volatile
    as the process, whatever the medium: the log is what is durable.
    """

    name = "persistent"
    is_persistent_memory = True

    def _map(self, file: int) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        kind = "map-sync"
        try:
            mapped = mmap.mmap(file, self.size_bytes, flags=MAP_SHARED_VALIDATE | MAP_SYNC)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            kind = "shared"
            mapped = mmap.mmap(file, self.size_bytes, flags=mmap.MAP_SHARED)
        return kind, mapped, memoryview(mapped)


def reserve(file: int, size_bytes: int) -> None:
    """Give a file its space. Raises OSError (ENOSPC) without having filled the disk for others."""
    status = os.fstatvfs(file)
    if status.f_bavail * status.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, f"only {status.f_bavail * status.f_frsize:,} bytes are free there")
    os.posix_fallocate(file, 0, size_bytes)
