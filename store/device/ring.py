"""The ring of recent frames: the buffer that frames are built in, written from and read back from.

A lane's log positions map onto one anonymous, page-aligned mapping, position modulo size. So a frame is
copied once, from the caller's bytes into the ring; the device writes from there (O_DIRECT leaves nothing
in the page cache), what was just written is read from there, and the unaligned tail of a trimmed write is
already in place for the next one (R5).
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from ..format.layout import BLOCK_BYTES
from .prefault import provide

SMALL_BYTES = 1024
WARM_STEP_BYTES = 2 << 20
NOWHERE = 1 << 62  # a lane position that no log reaches


class Ring:
    """Circular memory image of the newest `size_bytes` of a lane's log.

    Positions are *lane positions*: they only grow, over all segments of one opening of the store.

    Invariants:
        * `low` is `end` of the highest reservation minus the size; bytes at or above it are intact;
        * `reserve` runs before anything is overwritten, so a reader that finds its position still at or
          above `low` *after* copying has copied intact bytes.
    """

    def __init__(self, size_bytes: int) -> None:
        assert size_bytes % BLOCK_BYTES == 0
        self.size_bytes = size_bytes
        self.low = 0
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(self._map)
        self.memory = self._view.toreadonly()
        self.recent = self._map  # for readers: position modulo size; the bytes of a slice are a copy
        self.warm = 0  # bytes, from the beginning, whose pages are there

    def warm_up(self, until: int) -> None:
        """Have the kernel provide the pages up to `until`, without the interpreter lock.

        The first touch of a page costs up to milliseconds on a virtual machine; a builder that meets it
        holds up every producer. Contents stay as they are. A hint: where it fails, pages come when touched.
        """
        until = min(until, self.size_bytes)
        while self.warm < until:
            size = min(WARM_STEP_BYTES, self.size_bytes - self.warm)
            provide(self._address + self.warm, size)
            self.warm += size

    def reserve(self, end: int) -> None:
        """Give up what must be overwritten so that positions up to `end` can be filled."""
        self.low = max(self.low, end - self.size_bytes)

    def fill(self, position: int, parts: Sequence[bytes | memoryview], size: int) -> None:
        """Copy `parts`, `size` bytes in all, to `position`. The range must be reserved."""
        at = position % self.size_bytes
        room = self.size_bytes - at
        if size < SMALL_BYTES * len(parts):
            parts = [b"".join(parts)]  # one call less for each part beats one copy less
        if size <= room:
            self._map.seek(at)
            # One C loop, one copy each: no slice objects, and no joined copy in between.
            deque(map(self._map.write, parts), maxlen=0)
            return
        ends = list(accumulate(map(len, parts)))
        whole = sum(end <= room for end in ends)
        self._map.seek(at)
        deque(map(self._map.write, parts[:whole]), maxlen=0)
        cut = room - (ends[whole - 1] if whole else 0)
        straddling = memoryview(parts[whole])
        self._map.write(straddling[:cut])
        self._map.seek(0)
        self._map.write(straddling[cut:])
        deque(map(self._map.write, parts[whole + 1 :]), maxlen=0)

    def zero(self, low: int, high: int) -> None:
        """Fill [low, high) with zeros, up to the end of a block: so it does not lie across the ring's end."""
        at = low % self.size_bytes
        self._map[at : at + high - low] = bytes(high - low)

    def parts(self, low: int, high: int) -> list[memoryview]:
        """[low, high) as one view, or two where it wraps, for a write."""
        assert 0 <= high - low <= self.size_bytes
        at = low % self.size_bytes
        size = high - low
        if at + size <= self.size_bytes:
            return [self._view[at : at + size]]
        return [self._view[at:], self._view[: at + size - self.size_bytes]]

    def copy(self, position: int, size: int) -> bytes:
        """A copy of the bytes; intact only if `position >= low` still holds afterwards."""
        at = position % self.size_bytes
        end = at + size
        if end <= self.size_bytes:
            return self._map[at:end]
        return self._map[at:] + self._map[: end - self.size_bytes]

    def look(self, position: int, size: int) -> bytes | memoryview:
        """The bytes as a view, to read only, or as a copy where they lie across the ring's end."""
        at = position % self.size_bytes
        end = at + size
        return self.memory[at:end] if end <= self.size_bytes else self.copy(position, size)

    def copies(self, base: int, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """A copy of each range, `base` added to its start; intact under the same condition. Starts ascend."""
        at = (base + starts[0]) % self.size_bytes
        shift = at - starts[0]
        if starts[-1] + lengths[-1] + shift > self.size_bytes:
            return [self.copy(base + start, length) for start, length in zip(starts, lengths, strict=True)]
        recent = self.recent
        return [recent[(at := start + shift) : at + length] for start, length in zip(starts, lengths, strict=True)]

    def close(self) -> None:
        """Give the memory back. A reader under way finds its bytes overtaken; the mapping goes with the last."""
        self.low = NOWHERE
        self._map.madvise(mmap.MADV_DONTNEED)
