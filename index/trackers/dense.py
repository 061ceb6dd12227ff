"""Slots as bitmaps: the form for times that many neighbouring entries share."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
from pyroaring import BitMap64

from ..columns import Int64s
from .bitmaps import BITMAP_BYTES, add_places, memory_bytes, places_of
from .density import SLOT_BYTES
from .places import NO_ROWS, Rows


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
        """Places, which ascend and are in no slot."""
        bitmap = self._slots.get(time_ms)
        if bitmap is None:
            bitmap = self._slots[time_ms] = BitMap64()
            heappush(self._times, time_ms)
        else:
            self.memory_bytes -= slot_bytes(bitmap)
        add_places(bitmap, ascending)
        self.memory_bytes += slot_bytes(bitmap)
        self.rows += len(ascending)

    def _pop(self) -> Rows:
        time_ms = heappop(self._times)
        bitmap = self._slots.pop(time_ms)
        self.memory_bytes -= slot_bytes(bitmap)
        places = places_of(bitmap)
        self.rows -= len(places)
        return np.full(len(places), time_ms), places

    def take(self, until_ms: int, count: int) -> Rows:
        """Whole slots until there are so many rows, none of them later than this."""
        parts: list[Rows] = []
        while count > 0 and self._times and self._times[0] <= until_ms:
            parts.append(self._pop())
            count -= len(parts[-1][0])
        if not parts:
            return NO_ROWS
        return np.concatenate([times for times, _ in parts]), np.concatenate([places for _, places in parts])

    def parts(self) -> Iterator[Rows]:
        """Take all rows, a slot after another."""
        while self._times:
            yield self._pop()

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
    """What a slot occupies, its place in the table and in the queue included."""
    return SLOT_BYTES - BITMAP_BYTES + memory_bytes(bitmap)
