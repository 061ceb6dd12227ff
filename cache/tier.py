"""A tier: one contiguous piece of memory, of whatever kind, in which the cache keeps blocks.

Tiers differ in how they get their memory, and in the errors of that, which all come at open: later, touching a tier's
memory never fails. Every page is touched at open as well: on a virtual machine the first touch of 8 KiB has taken
20 us, and filling them takes one.

A touch of a mapped page kills the process (SIGBUS) if the file system has no space for it. So the space of a tier's
file is reserved at open. The file loses its name once it is mapped: a killed process leaves no file, and nobody can cut
the file short under the mapping.
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

from ..portable import POSIX_ALONE, take_space
from .container import available_bytes
from .errors import CacheUnusable

PAGE_BYTES = mmap.PAGESIZE
LARGE_BYTES = 16 << 20  # smaller sizes are not checked
MAP_SHARED_VALIDATE = 0x03  # Linux 4.15; with it, flags that the file system does not know are refused, not ignored
MAP_SYNC = 0x80000  # of a DAX file system: a store to the mapping is a store to the medium
REFUSED = {errno.EOPNOTSUPP, errno.EINVAL}  # of MAP_SYNC

Acquired = tuple[str, mmap.mmap | bytearray]  # the kind, and the memory


class Tier:
    """`size_bytes` of memory, zero at first.

    Attributes:
        name: "heap", "off-heap", "private-file" or "persistent".
        kind: the kind of memory in use, if one name can have several ("map-sync", "shared" ..).
        size_bytes: the given size; 0 turns the tier off.
        memory: for readers. A slice is bytes or a view: `bytes(memory[low:high])` is a copy in either case.
        view: for the writer.

    Invariants:
        * `len(memory) == len(view) == size_bytes` until it is closed;
        * `view` and `memory` are the same memory.
    """

    def __init__(self, name: str, size_bytes: int, folder: str | Path | None = None) -> None:
        """`folder` has the file of a "private-file" or a "persistent" tier."""
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
        """True if its memory is slower than DRAM: then it is used last."""
        return self.name == "persistent"

    def close(self) -> None:
        """Free the memory. A reader under way keeps its memory alive, and finds zeros or old bytes."""
        memory = self.memory
        # A reader may use a view, so nothing is unmapped here: the last reference does that. Only anonymous pages are
        # freed at once: those of a file would be read from it again.
        if self.name == "off-heap" and not isinstance(memory, memoryview) and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)
        self.memory, self.view = memoryview(b""), memoryview(bytearray())
        self.size_bytes, self.kind = 0, "off"


def _heap(size_bytes: int, _folder: Path) -> Acquired:
    """A bytearray, from the allocator of the process."""
    check_available(size_bytes)
    found = bytearray(size_bytes)
    touch_pages(found)
    return "bytearray", found


def _off_heap(size_bytes: int, _folder: Path) -> Acquired:
    """An anonymous private mapping, with huge pages advised: when closed, it goes back to the system as a whole."""
    check_available(size_bytes)
    mapped = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kind = "huge-pages" if advise_huge_pages(mapped) else "small-pages"
    touch_pages(mapped)
    return kind, mapped


def _private_file(size_bytes: int, folder: Path) -> Acquired:
    """A MAP_PRIVATE file mapping with every page touched once: each page is then the process's own copy.

    The file is never written to after that, so there is no write-back. It is useful if a limit on anonymous memory or
    on the heap does not count file mappings.
    """
    with nameless_file(size_bytes, folder) as file:
        mapped = mmap.mmap(file.fileno(), size_bytes, flags=mmap.MAP_PRIVATE)
    touch_pages(mapped)
    return "private", mapped


def _persistent(size_bytes: int, folder: Path) -> Acquired:
    """Persistent memory: a shared mapping of a file, with MAP_SYNC if the file system has DAX.

    The kind is "map-sync" or "shared": without DAX it is a plain shared mapping. The cache is as volatile as the
    process, whatever the medium: only the log is durable.
    """
    with nameless_file(size_bytes, folder) as file:
        if not POSIX_ALONE:  # the flags are Linux's
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
    """A file with reserved space and without a name. A mapping keeps it."""
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder")
    path = folder / f"stratalog-tier-{secrets.token_hex(8)}"
    try:
        file = FileIO(path, "x+")  # an object from the beginning: an interrupt does not leave it open
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
    """Give a file its space. Raises OSError (ENOSPC), and then leaves the disk's space to others."""
    status = os.fstatvfs(file)
    if status.f_bavail * status.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, f"only {status.f_bavail * status.f_frsize:,} bytes are free there")
    take_space(file, size_bytes)


def check_available(size_bytes: int) -> None:
    """Raise MemoryError if touching so many bytes would have the system end a process."""
    if size_bytes >= LARGE_BYTES and size_bytes > (available := available_bytes()):
        raise MemoryError(f"only {available:,} bytes are available")


def advise_huge_pages(mapped: mmap.mmap) -> bool:
    """Ask for huge pages; False if the system has none. They save page faults and translations."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    try:
        mapped.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return False
    return True


def touch_pages(memory: mmap.mmap | bytearray) -> None:
    """Write one byte of every page unchanged, so that each page exists (and, in a private mapping, is its own)."""
    pages = np.frombuffer(memory, np.uint8)[::PAGE_BYTES]
    pages |= 0
