"""The ring of recent frames: the buffer that frames are built in, written from and read back from.

A lane's log positions map onto one anonymous, page-aligned mapping, lap after lap. So a frame is
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
from typing import NamedTuple

from ..format.layout import BLOCK_BYTES
from .prefault import provide

SMALL_BYTES = 1024
WARM_STEP_BYTES = 2 << 20
LEAST_GROWTH_BYTES = 1 << 20
NOWHERE = 1 << 62  # a lane position that no log reaches


class Span(NamedTuple):
    """A copy of some of a ring's bytes, in which all messages were compared with their checksums.

    Attributes:
        begin, end: lane positions.
        memory: the bytes between them, which stay as they are.
    """

    begin: int
    end: int
    memory: memoryview


class Ring:
    """Circular memory image of the newest `size_bytes` of a lane's log.

    Positions are *lane positions*: they only grow, over all segments of one opening of the store.

    A ring may grow: where a lap ends, it goes on into memory past its end whose pages were provided meanwhile. So no
    byte is moved, and a place that a reader has found stays valid.

    Attributes:
        low: bytes at or above this position are intact.
        shape: (origin, size, memory); position p lies at (p - origin) % size of this memory. Replaced as a whole, so a
            reader that takes it once never mixes a place of one memory with the bytes of another.
        size_bytes, limit_bytes: the size now, and at the most.
        warm: bytes, from the memory's beginning, whose pages are there.

    Invariants:
        * `low` is at least `end` of the highest reservation minus the size;
        * `reserve` runs before anything is overwritten, so a reader that finds its position still at or
          above `low` *after* copying has copied intact bytes;
        * each shape since a position was reserved maps it to the same byte of memory. Before a shape comes that would
          not, `low` is raised past that position.
    """

    is_own = True  # this process fills it
    span: Span | None = None  # of a ring that another process fills: a copy of the newest frames, if it has one

    def __init__(self, size_bytes: int, limit_bytes: int = 0) -> None:
        """`limit_bytes` may be less than the size: then the ring does not grow. Raises OSError without memory."""
        assert size_bytes % BLOCK_BYTES == limit_bytes % BLOCK_BYTES == 0
        self.low = 0
        self._map = _memory(size_bytes, limit_bytes)
        self.size_bytes = self._first_bytes = size_bytes
        self.limit_bytes = len(self._map)
        self.shape = 0, size_bytes, self._map
        self._begin = 0
        self._lap_end = size_bytes
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(self._map)
        self.memory = self._view.toreadonly()
        self.warm = 0

    def begin(self, position: int) -> None:
        """Start at this position, a block's; nothing before it is in the ring."""
        self.low = self._begin = position
        self.shape = position, self.size_bytes, self._map
        self._lap_end = position + self.size_bytes

    def warm_up(self, until: int) -> None:
        """Have the kernel provide the pages for positions below `until`, up to the first size.

        The first touch of a page costs up to milliseconds on a virtual machine; a builder that meets it
        holds up every producer. Contents stay as they are. A hint: where it fails, pages come when touched.
        """
        until = min(until - self._begin, self._first_bytes)
        while self.warm < until:
            self._provide(self._first_bytes)

    def written(self, tail: int) -> int:
        """Bytes of the log that went through the ring, whose newest position is `tail`."""
        return tail - self._begin

    @property
    def can_grow(self) -> bool:
        """The pages of the first size are there, and not those of all that it may have."""
        return self._first_bytes <= self.warm < self.limit_bytes

    @property
    def grown_bytes(self) -> int:
        """Bytes past the first size whose pages are there."""
        return max(0, self.warm - self._first_bytes)

    def grow(self) -> None:
        """Provide some more pages; the ring goes on into them when its lap ends. One thread may call it."""
        if self.can_grow:
            self._provide(self.limit_bytes)

    def _provide(self, end: int) -> None:
        """The next pages, without the interpreter lock."""
        size = min(WARM_STEP_BYTES, end - self.warm)
        provide(self._address + self.warm, size)
        self.warm += size

    def reserve(self, end: int) -> None:
        """Give up what must be overwritten so that positions up to `end` can be filled."""
        while end > self._lap_end:
            self._next_lap()
        self.low = max(self.low, end - self.size_bytes)

    def _next_lap(self) -> None:
        """The lap goes on past the end, if pages are there; else the next one begins."""
        size, at = min(self.warm, self.limit_bytes), self._lap_end - self.size_bytes
        if size - self.size_bytes < LEAST_GROWTH_BYTES:
            self._lap_end += self.size_bytes
            return
        self.low = max(self.low, at)  # what is left of the lap before has no place by the new shape
        self.shape = at, size, self._map
        self._lap_end = at + size
        self.size_bytes = size

    def fill(self, position: int, parts: Sequence[bytes | memoryview], size: int) -> None:
        """Copy `parts`, `size` bytes in all, to `position`. The range must be reserved.

        Raises RuntimeError for parts of another size: a frame must not say what it does not have.
        """
        at, room = self._place(position)
        if size < SMALL_BYTES * len(parts):
            parts = [b"".join(parts)]  # one call less for each part beats one copy less
        if size <= room:
            self._map.seek(at)
            # One C loop, one copy each: no slice objects, and no joined copy in between.
            deque(map(self._map.write, parts), maxlen=0)
            _check_filled(self._map.tell() - at, size)
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
        _check_filled(room + self._map.tell(), size)

    def zero(self, low: int, high: int) -> None:
        """Fill [low, high) with zeros, up to the end of a block: so it does not lie across the ring's end."""
        at, _ = self._place(low)
        self._map[at : at + high - low] = bytes(high - low)

    def parts(self, low: int, high: int) -> list[memoryview]:
        """[low, high) as one view, or two where it wraps, for a write. Raises RuntimeError if it is no such range."""
        if not 0 <= high - low <= self.size_bytes:
            raise RuntimeError(f"a ring of {self.size_bytes} bytes was asked for {low} to {high}")
        at, room = self._place(low)
        size = high - low
        if size <= room:
            return [self._view[at : at + size]]
        return [self._view[at : at + room], self._view[: size - room]]

    def copy(self, position: int, size: int) -> bytes:
        """A copy of the bytes; intact only if `position >= low` still holds afterwards."""
        origin, whole, memory = self.shape
        at = (position - origin) % whole
        end = at + size
        return memory[at:end] if end <= whole else memory[at:whole] + memory[: end - whole]

    def view_of(self, position: int, size: int) -> bytes | memoryview:
        """The bytes as a view, to read only, or as a copy where they lie across the ring's end."""
        at, room = self._place(position)
        return self.memory[at : at + size] if size <= room else self.copy(position, size)

    def copies(self, base: int, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """A copy of each range, `base` added to its start; intact under the same condition. Starts ascend."""
        origin, size, memory = self.shape
        shift = (base + starts[0] - origin) % size - starts[0]
        if starts[-1] + lengths[-1] + shift > size:
            return [self.copy(base + start, length) for start, length in zip(starts, lengths, strict=True)]
        return [memory[(at := start + shift) : at + length] for start, length in zip(starts, lengths, strict=True)]

    def note_read(self, messages: int) -> None:
        """Note that messages were read in columns. Only a ring of another process counts them, for its `span`."""

    def _place(self, position: int) -> tuple[int, int]:
        """Where a position lies in the memory, and the bytes from there to the ring's end."""
        origin, size, _ = self.shape
        at = (position - origin) % size
        return at, size - at

    def close(self) -> None:
        """Give the memory back. A reader under way finds its bytes overtaken; the mapping goes with the last."""
        self.low = NOWHERE
        self.warm = 0
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _check_filled(filled: int, size: int) -> None:
    if filled != size:
        raise RuntimeError(f"a frame of {size} bytes was given {filled}")


def _memory(size_bytes: int, limit_bytes: int) -> mmap.mmap:
    """Addresses for the ring at its largest, else as it is at first. Pages come when touched."""
    try:
        return mmap.mmap(-1, max(size_bytes, limit_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        if limit_bytes <= size_bytes:
            raise
    return _memory(size_bytes, 0)
