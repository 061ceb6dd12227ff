"""A tier: one contiguous piece of memory that the cache keeps blocks in, wherever it comes from.

Everything above this file is one code path. Tiers differ in how their memory is had, and in what can go wrong with
that, all of which happens at open: later, touching a tier's memory never fails (no SIGBUS from a full disk). Every page
is touched at open as well: on a virtual machine the first touch of 8 KiB has taken 20 us, where filling them takes one.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod

import numpy as np

from .container import available_bytes
from .errors import CacheUnusable, InvalidCacheConfig

PAGE_BYTES = mmap.PAGESIZE
LARGE_BYTES = 16 << 20  # for less nobody is asked


class Tier(ABC):
    """`size_bytes` of memory, zero at first.

    Attributes:
        name: for counters: "heap", "off-heap", "private-file", "persistent".
        kind: what is really active, where one name can be several things ("map-sync", "shared" ..).
        size_bytes: as asked for; 0 is a tier that is off.
        memory: for readers. A slice is bytes or a view: `bytes(memory[low:high])` is a copy in either case.
        view: for the one who fills, writable.

    Invariants:
        * `len(memory) == len(view) == size_bytes` until it is closed;
        * what is behind `view` and `memory` is the same memory.
    """

    name = "tier"
    is_persistent_memory = False

    def __init__(self, size_bytes: int) -> None:
        if type(size_bytes) is not int or size_bytes < 0:
            raise InvalidCacheConfig(f"the {self.name} tier's size is a number of bytes, 0 or more, not {size_bytes!r}")
        self.size_bytes = size_bytes
        self.kind = "off"
        self.memory: mmap.mmap | memoryview = memoryview(b"")
        self.view = memoryview(bytearray())
        if size_bytes:
            try:
                self.kind, self.memory, self.view = self._acquire()
            except (OSError, MemoryError, ValueError, OverflowError) as error:
                raise CacheUnusable(
                    f"the {self.name} tier cannot have {size_bytes:,} bytes{self._where()}: {error}. "
                    "Make it smaller, make room, or turn it off with a size of 0."
                ) from error
        assert len(self.view) == size_bytes
        assert not self.view.readonly or not size_bytes

    @abstractmethod
    def _acquire(self) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        """(kind, memory, view). May raise OSError, MemoryError, ValueError or OverflowError."""

    def _where(self) -> str:
        """What to add to an error: " in FOLDER"."""
        return ""

    def close(self) -> None:
        """Let go of the memory. A reader under way keeps what it looks at alive, and finds zeros or old bytes."""
        memory = self.memory
        if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)
        # Views may be in use by a reader, so nothing is unmapped here: the last reference does it.
        self.memory, self.view = memoryview(b""), memoryview(bytearray())
        self.size_bytes, self.kind = 0, "off"


class HeapTier(Tier):
    """A bytearray: from the allocator of the process, as any other object."""

    name = "heap"

    def _acquire(self) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        check_available(self.size_bytes)
        view = memoryview(bytearray(self.size_bytes))
        touch_pages(view)
        return "bytearray", view, view


class OffHeapTier(Tier):
    """An anonymous private mapping, huge pages advised: given back to the system as a whole when it is closed."""

    name = "off-heap"

    def _acquire(self) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        check_available(self.size_bytes)
        mapped = mmap.mmap(-1, self.size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        kind, view = "huge-pages" if advise_huge_pages(mapped) else "small-pages", memoryview(mapped)
        touch_pages(view)
        return kind, mapped, view


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


def touch_pages(view: memoryview) -> None:
    """Write one byte of every page, as it is, so that each page is there (and, in a private mapping, its own)."""
    pages = np.frombuffer(view, np.uint8)[::PAGE_BYTES]
    pages |= 0
