"""Ordered rows in little memory: the form for times that few entries share.

A block has the rows of some slots (a slot is one time) in columns of the narrowest types that fit:

    steps      from each slot's time to the next one's, in units of 2**shift ms
    counts     of the slots' rows
    books      (ledger - first ledger) * spread + entry // 65,536, where spread is one more than the greatest quotient
    lows       entry % 65,536

With ledgers of 50,000 entries, and not more than 256 ledgers in a block, a row takes 3 bytes and a slot 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from ..columns import Int64s
from .places import ENTRY_BITS, MOST_ENTRY, NO_ROWS, Rows, books_of, places_of_books, spread_of

BLOCK_ROWS = 1 << 14
BLOCK_BYTES = 640  # of the objects of a block beside its columns
WIDTHS = (np.uint8, np.uint16, np.uint32)

Narrow = npt.NDArray[np.unsignedinteger] | Int64s


def narrow(values: Int64s) -> Narrow:
    """The values, none negative, as the narrowest type that holds them."""
    most = int(values.max()) if len(values) else 0
    for width in WIDTHS:
        if most <= np.iinfo(width).max:
            return cast(Narrow, values.astype(width))
    return values.copy()  # a view would keep a larger array alive


class Block:
    """Some ordered rows, at least one, packed."""

    __slots__ = ("books", "counts", "first_ledger", "first_time", "lows", "rows", "shift", "spread", "steps")

    def __init__(self, times: Int64s, places: Int64s) -> None:
        self.rows = len(times)
        self.first_time = int(times[0])
        cuts = np.flatnonzero(times[1:] != times[:-1]) + 1
        self.counts = narrow(np.diff(cuts, prepend=0, append=self.rows))
        steps = np.diff(times[cuts], prepend=self.first_time)
        common = int(np.bitwise_or.reduce(steps))
        self.shift = (common & -common).bit_length() - 1 if common else 0
        self.steps = narrow(steps >> self.shift)
        self.first_ledger = int(places.min()) >> ENTRY_BITS
        self.spread = spread_of(int((places & MOST_ENTRY).max()))
        books, self.lows = books_of(places, self.first_ledger, self.spread)
        self.books = narrow(books)

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes."""
        columns = (self.steps, self.counts, self.books, self.lows)
        return BLOCK_BYTES + sum(column.nbytes for column in columns)

    def unpacked(self) -> Rows:
        """Its rows."""
        slots = np.empty(len(self.counts), np.int64)
        slots[0] = self.first_time
        slots[1:] = (np.cumsum(self.steps, dtype=np.int64) << self.shift) + self.first_time
        times = np.repeat(slots, self.counts)
        return times, places_of_books(self.books, self.lows, self.first_ledger, self.spread)


class BlockRun:
    """Ordered rows in blocks. They are taken from the front; the memory of a taken block is free."""

    def __init__(self) -> None:
        self.rows = 0
        self.memory_bytes = 0
        self._blocks: deque[Block] = deque()
        self._open: Rows = NO_ROWS  # the rest of the first block, unpacked

    def append(self, times: Int64s, places: Int64s) -> None:
        """Append rows that follow those of the run."""
        for begin in range(0, len(times), BLOCK_ROWS):
            rows = slice(begin, begin + BLOCK_ROWS)
            block = Block(times[rows], places[rows])
            self._blocks.append(block)
            self.memory_bytes += block.memory_bytes
        self.rows += len(times)

    @property
    def head_ms(self) -> int | None:
        """The first row's time; None if the run is empty."""
        if len(self._open[0]):
            return int(self._open[0][0])
        return self._blocks[0].first_time if self._blocks else None

    def parts(self) -> Iterator[Rows]:
        """All rows, one block after another. They stay."""
        if len(self._open[0]):
            yield self._open
        for block in self._blocks:
            yield block.unpacked()

    def take(self, until_ms: int, count: int) -> Rows:
        """Take the first rows, at most `count`, none of them later than `until_ms`."""
        taken: list[Rows] = []
        left = count
        while left:
            if not len(self._open[0]):
                if not self._blocks or self._blocks[0].first_time > until_ms:
                    break
                block = self._blocks.popleft()
                self.memory_bytes -= block.memory_bytes
                self._open = block.unpacked()
            times, places = self._open
            end = min(left, int(np.searchsorted(times, until_ms, side="right")))
            taken.append((times[:end], places[:end]))
            self._open = times[end:], places[end:]
            self.rows -= end
            left -= end
            if end < len(times):
                break
        if len(taken) == 1:
            return taken[0]
        if not taken:
            return NO_ROWS
        return np.concatenate([part[0] for part in taken]), np.concatenate([part[1] for part in taken])
