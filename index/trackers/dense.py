"""Slots as bitmaps: the form for times that many neighbouring entries share; and which form a slot takes.

A slot is a bitmap if its places are dense, and packed rows (see `blocks`) if they are sparse.
Measured elsewhere, 10 million entries with delays of up to 7 days take 10.7 bytes each as bitmaps; packed, 3 to 5. With
one delay for all, a bitmap takes 0.3 bytes an entry and less. So each slot of a batch gets the form with the smaller of
two estimates, in bytes:

    bitmap   480 (the object, its place in the table and in the queue), 40 for each 65,536 entries that it touches, and
             the less of 2 a row and 4 a stretch of consecutive entries
    packed   4, and 3 a row

A slot that has a bitmap already pays no 480.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from .places import BITMAP_BYTES, CONTAINER_BYTES, NO_ROWS, Rows, add_places, memory_bytes, places_in

SLOT_BYTES: Final = 480
PACKED_SLOT_BYTES: Final = 4
PACKED_ROW_BYTES: Final = 3
CONTAINER_BITS: Final = 16


class DenseSlots:
    """A bitmap of places for each time. They are taken from the first time on."""

    def __init__(self) -> None:
        self.rows = 0
        self.memory_bytes = 0
        self._slots: dict[int, BitMap64] = {}
        self._times: list[int] = []  # a heap

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, time_ms: int) -> bool:
        return time_ms in self._slots

    @property
    def head_ms(self) -> int | None:
        """The first time; None if there is no slot."""
        return self._times[0] if self._times else None

    def add(self, time_ms: int, ascending: Int64s) -> None:
        """Add places, which ascend and are in no slot."""
        bitmap = self._slots.get(time_ms)
        if bitmap is None:
            bitmap = self._slots[time_ms] = BitMap64()
            heappush(self._times, time_ms)
        else:
            self.memory_bytes -= slot_bytes(bitmap)
        add_places(bitmap, ascending)
        self.memory_bytes += slot_bytes(bitmap)
        self.rows += len(ascending)

    def take(self, until_ms: int, count: int) -> Rows:
        """Take whole slots until there are `count` rows, none of them later than `until_ms`."""
        parts: list[Rows] = []
        while count > 0 and self._times and self._times[0] <= until_ms:
            time_ms = heappop(self._times)
            bitmap = self._slots.pop(time_ms)
            self.memory_bytes -= slot_bytes(bitmap)
            places = places_in(bitmap)
            parts.append((np.full(len(places), time_ms), places))
            count -= len(places)
            self.rows -= len(places)
        if not parts:
            return NO_ROWS
        return np.concatenate([times for times, _ in parts]), np.concatenate([places for _, places in parts])

    def parts(self) -> Iterator[Rows]:
        """All rows, one slot after another. They stay."""
        for time_ms in sorted(self._times):
            places = places_in(self._slots[time_ms])
            yield np.full(len(places), time_ms), places

    def drop(self, dead: BitMap64) -> None:
        """Drop these places, wherever they are."""
        for time_ms, bitmap in list(self._slots.items()):
            if not bitmap.isdisjoint(dead):
                before = len(bitmap)
                self.memory_bytes -= slot_bytes(bitmap)
                bitmap.difference_update(dead)
                self.rows -= before - len(bitmap)
                if bitmap:
                    self.memory_bytes += slot_bytes(bitmap)
                else:
                    del self._slots[time_ms]
        self._times = sorted(self._slots)  # a sorted list is a heap


def slot_bytes(bitmap: BitMap64) -> int:
    """The memory of a slot, with its place in the table and in the queue."""
    return SLOT_BYTES - BITMAP_BYTES + memory_bytes(bitmap)


class Slots(NamedTuple):
    """The slots of ordered rows: their times, and the starts and ends of their rows."""

    times: Int64s
    begins: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]
    least_bytes: npt.NDArray[np.int64]  # as a bitmap that exists already
    packed_bytes: npt.NDArray[np.int64]


def slots_of(times: Int64s, places: Int64s, *, has_bitmaps: bool) -> Slots | None:
    """The slots of ordered rows, with both estimates for each; None if all of them are surely packed.

    `has_bitmaps`: some slots have a bitmap already.
    """
    is_new = np.ones(len(times), np.bool_)
    np.not_equal(times[1:], times[:-1], out=is_new[1:])
    begins = np.flatnonzero(is_new)
    ends = np.append(begins[1:], len(times))
    rows = ends - begins
    if not has_bitmaps and int(rows.max()) * PACKED_ROW_BYTES <= SLOT_BYTES:
        return None
    breaks, containers = is_new.copy(), is_new
    breaks[1:] |= places[1:] != places[:-1] + 1
    books = places >> CONTAINER_BITS
    containers[1:] |= books[1:] != books[:-1]
    stretches = np.add.reduceat(breaks, begins, dtype=np.int64)
    touched = np.add.reduceat(containers, begins, dtype=np.int64)
    return Slots(
        times[begins], begins, ends,
        CONTAINER_BYTES * touched + np.minimum(2 * rows, 4 * stretches),
        PACKED_SLOT_BYTES + PACKED_ROW_BYTES * rows,
    )  # fmt: skip
