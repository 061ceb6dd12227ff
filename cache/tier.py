"""A tier: one contiguous piece of memory that the cache keeps blocks in, wherever it comes from (R13).

Everything above this file is one code path. Tiers differ in how their memory is had, and in what can go wrong with
that, all of which happens at open: later, touching a tier's memory never fails (no SIGBUS from a full disk).
"""

from __future__ import annotations

import ctypes
import mmap
from abc import ABC, abstractmethod

import numpy as np

from .errors import CacheUnusable, InvalidCacheConfig

PAGE_BYTES = mmap.PAGESIZE
WARM_STEP_BYTES = 2 << 20
MADV_POPULATE_WRITE = 23  # Linux 5.14; not in the mmap module, whose madvise keeps the interpreter lock

try:
    _LIBC: ctypes.CDLL | None = ctypes.CDLL(None)
except (OSError, TypeError):
    _LIBC = None


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

    def warm_up(self, until: int) -> None:
        """Have the pages of the first `until` bytes there before they are written to. A hint; contents stay."""
        assert until >= 0  # most tiers have all of their pages from the start, or leave it to the system

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
        view = memoryview(bytearray(self.size_bytes))
        return "bytearray", view, view


class OffHeapTier(Tier):
    """An anonymous private mapping, huge pages advised: given back to the system as a whole when it is closed."""

    name = "off-heap"

    def _acquire(self) -> tuple[str, mmap.mmap | memoryview, memoryview]:
        mapped = mmap.mmap(-1, self.size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._warm = 0
        return "huge-pages" if advise_huge_pages(mapped) else "small-pages", mapped, memoryview(mapped)

    def warm_up(self, until: int) -> None:
        """In large steps, without the interpreter lock: the first touch of a page would hold everybody up."""
        until = min(until, self.size_bytes)
        if _LIBC is None or until <= self._warm:
            return
        address = address_of(self.view)
        while self._warm < until:
            size = min(WARM_STEP_BYTES, self.size_bytes - self._warm)
            _LIBC.madvise(ctypes.c_void_p(address + self._warm), ctypes.c_size_t(size), MADV_POPULATE_WRITE)
            self._warm += size


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


def address_of(view: memoryview) -> int:
    """The address of a view's first byte, for messages and for tests of alignment."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
