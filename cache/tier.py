"""A tier: one contiguous piece of memory that the cache keeps blocks in, wherever it comes from.

Tiers differ in how their memory is had, and in what can go wrong with that, all of which happens at open: later,
touching a tier's memory never fails. Every page is touched at open as well: on a virtual machine the first touch of
8 KiB has taken 20 us, where filling them takes one.

A page of a file mapping that the file system has no space for kills the process when it is touched (SIGBUS). So the
space of a tier's file is reserved at open. The file has no name any more once it is mapped: what a killed process
leaves is nothing, and nobody can cut the file short under the mapping.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import numpy as np

from .container import available_bytes
from .errors import CacheUnusable

PAGE_BYTES = mmap.PAGESIZE
LARGE_BYTES = 16 << 20  # for less nobody is asked
MAP_SHARED_VALIDATE = 0x03  # Linux 4.15; flags that the file system does not know are then refused, not ignored
MAP_SYNC = 0x80000  # of a DAX file system: a store to the mapping is a store to the medium
REFUSED = {errno.EOPNOTSUPP, errno.EINVAL}

Acquired = tuple[str, mmap.mmap | bytearray]  # the kind, and the memory


class Tier:
    """`size_bytes` of memory, zero at first.

    Attributes:
        name: "heap", "off-heap", "private-file" or "persistent".
        kind: what is really active, where one name can be several things ("map-sync", "shared" ..).
        size_bytes: as asked for; 0 is a tier that is off.
        memory: for readers. A slice is bytes or a view: `bytes(memory[low:high])` is a copy in either case.
        view: for the one who fills, writable.

    Invariants:
        * `len(memory) == len(view) == size_bytes` until it is closed;
        * what is behind `view` and `memory` is the same memory.
    """

    def __init__(self, name: str, size_bytes: int, folder: str | Path | None = None) -> None:
        """`folder` is where a "private-file" and a "persistent" tier have their file."""
        self.name = name
        self.size_bytes = size_bytes
        self.kind = "off"
        self.memory: mmap.mmap | memoryview = memoryview(b"")
        self.view = memoryview(bytearray())
        if size_bytes:
            try:
                self.kind, memory = ACQUIRE[name](size_bytes, Path(folder or "."))
            except (OSError, MemoryError, ValueError, OverflowError) as error:
                where = "" if folder is None else f" in {os.path.realpath(folder)}"
                raise CacheUnusable(
                    f"the {name} tier cannot have {size_bytes:,} bytes{where}: {error}. "
                    "Make it smaller, make room, or turn it off with a size of 0."
                ) from error
            self.view = memoryview(memory)
            self.memory = self.view if isinstance(memory, bytearray) else memory
        assert len(self.view) == size_bytes

    @property
    def is_persistent_memory(self) -> bool:
        """Its memory is slower than DRAM: it is used last."""
        return self.name == "persistent"

    def close(self) -> None:
        """Let go of the memory. A reader under way keeps what it looks at alive, and finds zeros or old bytes."""
        memory = self.memory
        # Views may be in use by a reader, so nothing is unmapped here: the last reference does it. Only anonymous
        # pages go at once: those of a file would come back from it when they are read.
        if self.name == "off-heap" and not isinstance(memory, memoryview) and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)
        self.memory, self.view = memoryview(b""), memoryview(bytearray())
        self.size_bytes, self.kind = 0, "off"


def _heap(size_bytes: int, _folder: Path) -> Acquired:
    """A bytearray: from the allocator of the process, as any other object."""
    check_available(size_bytes)
    found = bytearray(size_bytes)
    touch_pages(found)
    return "bytearray", found


def _off_heap(size_bytes: int, _folder: Path) -> Acquired:
    """An anonymous private mapping, huge pages advised: given back to the system as a whole when it is closed."""
    check_available(size_bytes)
    mapped = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kind = "huge-pages" if advise_huge_pages(mapped) else "small-pages"
    touch_pages(mapped)
    return kind, mapped


def _private_file(size_bytes: int, folder: Path) -> Acquired:
    """A MAP_PRIVATE file mapping with every page touched once: each page is then the process's own copy.

    The file is never written to after that, so there is no write-back; its use is a limit on anonymous memory or on
    the heap that does not count file mappings.
    """
    with nameless_file(size_bytes, folder) as file:
        mapped = mmap.mmap(file.fileno(), size_bytes, flags=mmap.MAP_PRIVATE)
    touch_pages(mapped)
    return "private", mapped


def _persistent(size_bytes: int, folder: Path) -> Acquired:
    """Persistent memory: a shared mapping of a file, with MAP_SYNC where the file system has DAX.

    The kind is "map-sync" or "shared": elsewhere the same code runs on a plain shared mapping. The cache is as volatile
    as the process, whatever the medium: the log is what is durable.
    """
    with nameless_file(size_bytes, folder) as file:
        try:
            return "map-sync", mmap.mmap(file.fileno(), size_bytes, flags=MAP_SHARED_VALIDATE | MAP_SYNC)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        return "shared", mmap.mmap(file.fileno(), size_bytes, flags=mmap.MAP_SHARED)


ACQUIRE: dict[str, Callable[[int, Path], Acquired]] = {
    "heap": _heap,
    "off-heap": _off_heap,
    "private-file": _private_file,
    "persistent": _persistent,
}


def nameless_file(size_bytes: int, folder: Path) -> FileIO:
    """A file with its space that has no name any more. A mapping keeps it."""
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder")
    path = folder / f"stratalog-tier-{secrets.token_hex(8)}"
    try:
        file = FileIO(path, "x+")  # an object from the beginning, that an interrupt does not leave open
    finally:
        path.unlink(missing_ok=True)
    try:
        os.chmod(file.fileno(), 0o600)
        reserve(file.fileno(), size_bytes)
    except BaseException:
        file.close()
        raise
    return file


def reserve(file: int, size_bytes: int) -> None:
    """Give a file its space. Raises OSError (ENOSPC) without having filled the disk for others."""
    status = os.fstatvfs(file)
    if status.f_bavail * status.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, f"only {status.f_bavail * status.f_frsize:,} bytes are free there")
    os.posix_fallocate(file, 0, size_bytes)


def check_available(size_bytes: int) -> None:
    """Raises MemoryError where touching so much would have the system end a process."""
    if size_bytes >= LARGE_BYTES and size_bytes > (available := available_bytes()):
        raise MemoryError(f"only {available:,} bytes are available")


def advise_huge_pages(mapped: mmap.mmap) -> bool:
    """Ask for huge pages; False where the system has none. They save page faults and translations."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    try:
        mapped.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return False
    return True


def touch_pages(memory: mmap.mmap | bytearray) -> None:
    """Write one byte of every page, as it is, so that each page is there (and, in a private mapping, its own)."""
    pages = np.frombuffer(memory, np.uint8)[::PAGE_BYTES]
    pages |= 0
