"""A stream's chain of blocks, and the rows that say where in them its messages are (R15)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

WORDS = 2  # a row in `places`: address, and length | tag << 32
LOW_32 = 0xFFFFFFFF
TRIM_ROWS = 512  # dead rows and parts are kept until there are so many, and more than live ones


class Chain:
    """The cached messages of one stream, in offset order: a *row* each, in columns of 24 bytes.

    Rows and parts have numbers that only grow. A *part* is a stretch of rows whose messages begin in one block; a
    block may have several parts, in several chains, when its end was lent out (R18). A message may go on in the next
    blocks, whose parts then may have no rows.

    `version` is odd while rows are being taken away, and never the same again after that. So a reader needs no lock:
    it remembers the version, copies, and looks again. The columns grow the other way round, offsets last: whoever
    finds an offset finds its place, and its bytes.

    Invariants:
        * `len(places) == WORDS * len(offsets)` outside of `add`;
        * offsets ascend; parts begin in order, the first live one at `low_row`.
    """

    __slots__ = (
        "_first_part", "begins", "blocks", "dropped_rows", "last_block", "low_row", "offsets", "places", "version"
    )

    def __init__(self) -> None:
        self.offsets = array("q")
        self.places = array("q")
        self.blocks = array("i")  # of each part
        self.begins = array("q")  # each part's first row
        self.last_block = -1  # of the newest part, -1 if there is none
        self._first_part = 0  # index of the first live part
        self.dropped_rows = 0  # rows that are no longer in the columns
        self.low_row = 0  # the first live row
        self.version = 0

    @property
    def high_row(self) -> int:
        """Behind the last row."""
        return self.dropped_rows + len(self.offsets)

    @property
    def parts(self) -> int:
        """Number of live parts."""
        return len(self.blocks) - self._first_part

    @property
    def first_block(self) -> int:
        """The block of the oldest part."""
        return self.blocks[self._first_part]

    def find(self, offset: int, limit: int) -> tuple[int, int]:
        """Indexes [low, high) into the columns of the rows with `offset <= .. < offset + limit`."""
        offsets = self.offsets
        low = bisect_left(offsets, offset, self.low_row - self.dropped_rows)
        return low, bisect_left(offsets, offset + limit, low, min(len(offsets), low + limit))

    def row_of(self, offset: int) -> int:
        """The number of the first live row at `offset` or behind it."""
        return self.dropped_rows + bisect_left(self.offsets, offset, self.low_row - self.dropped_rows)

    def would_release(self, offset: int) -> bool:
        """Whether releasing what is below `offset` frees anything: a look without a lock, yes when in doubt."""
        try:
            row, first = self.row_of(offset), self._first_part + 1
            return self.begins[first] <= row if first < len(self.begins) else row >= self.high_row
        except (IndexError, ValueError):
            return True

    def open_part(self, block: int, row: int) -> None:
        """The rows from `row` on begin in `block`."""
        assert not self.parts or self.begins[-1] <= row
        self.blocks.append(block)
        self.begins.append(row)
        self.last_block = block

    def add(self, offsets: memoryview, places: memoryview) -> None:
        """New rows, as bytes of their columns; their parts are there already, and their bytes too."""
        self.places.frombytes(places)
        self.offsets.frombytes(offsets)

    def add_one(self, offset: int, address: int, word: int) -> None:
        """One new row: half the price of `add`."""
        self.places.append(address)
        self.places.append(word)
        self.offsets.append(offset)

    def release(self, row: int) -> Sequence[int]:
        """Drop the parts that end at or before `row`, and give their blocks, oldest first."""
        last = bisect_right(self.begins, row, self._first_part) - 1  # the part that `row` is in, or follows
        until = len(self.blocks) if row >= self.high_row else max(last, self._first_part)
        return self._drop(until)

    def release_oldest(self) -> Sequence[int]:
        """Drop the oldest part, and give its block."""
        assert self.parts
        return self._drop(self._first_part + 1)

    def _drop(self, until: int) -> Sequence[int]:
        if until <= self._first_part:
            return ()
        dropped = self.blocks[self._first_part : until]
        self.version += 1
        self.low_row = self.begins[until] if until < len(self.begins) else self.high_row
        self._first_part = until
        self._trim()
        self.version += 1
        return dropped

    def _trim(self) -> None:
        """Cut dead rows and parts off the columns, seldom enough that it costs nothing a row."""
        dead = self.low_row - self.dropped_rows
        if dead == len(self.offsets) or dead > max(TRIM_ROWS, len(self.offsets) // 2):
            del self.offsets[:dead]
            del self.places[: WORDS * dead]
            self.dropped_rows = self.low_row
        if not self.parts:
            self.last_block = -1
        if not self.parts or self._first_part > max(TRIM_ROWS, len(self.blocks) // 2):
            del self.blocks[: self._first_part]
            del self.begins[: self._first_part]
            self._first_part = 0
