"""A stream's chain: the leaves that its rows are in, and the blocks that its messages are in."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from .rows import LEAF_ROWS, Columns

TRIM = 512  # dead leaves and parts are removed when there are so many, and more than live ones


class DroppedParts(NamedTuple):
    """The parts that a chain has dropped, the oldest first; a block once for each part."""

    blocks: Sequence[int]
    leaves: Sequence[int]


NOTHING = DroppedParts((), ())
NO_LEAVES = array("i")  # copied in less than half the time that the constructor takes


class Chain:
    """The cached messages of one stream, in offset order.

    Their rows are in `leaves`, all but the last of them full. A *part* is a stretch of messages that begin in one
    block; a block may have several parts, in several chains, if its end was lent. A message may go on in the next
    blocks; then no message may begin in these.

    `version` is odd while rows are being taken away, and has a new value after that. So a reader needs no lock: it
    remembers the version, copies, and compares. To add rows, the chain writes the count of a leaf's rows last: a reader
    that finds a row finds its message.

    Invariants:
        * offsets ascend over the rows of all leaves;
        * parts begin in order, the first live one at `low` or below; messages below `low` are dropped.
    """

    __slots__ = ("_first_leaf", "_first_part", "_leaves", "_parts", "low", "version")

    def __init__(self, block: int, offset: int) -> None:
        """Begin with a first part: see `open_part`."""
        self._leaves = NO_LEAVES.__copy__()
        self._first_leaf = 0  # index of the first live one
        self._parts = array("q", (block, offset))  # of each: its block, and the offset after the message before it
        self._first_part = 0  # index of the first live one's block
        self.low = 0
        self.version = 0

    @property
    def parts(self) -> int:
        """Number of live parts."""
        return (len(self._parts) - self._first_part) // 2

    @property
    def blocks(self) -> Sequence[int]:
        """The block of each live part, oldest first."""
        return self._parts[self._first_part :: 2]

    @property
    def leaves(self) -> Sequence[int]:
        """The live leaves, oldest first."""
        return self._leaves[self._first_leaf :]

    def find(self, columns: Columns, offset: int, limit: int) -> list[tuple[int, int]]:
        """[low, high) of each stretch of neighbouring rows with `offset <= .. < offset + limit`.

        Garbage, or IndexError or ValueError, if rows are taken away meanwhile.
        """
        leaves, first, offsets, counts = self._leaves, self._first_leaf, columns.offsets, columns.counts
        end, offset = offset + limit, max(offset, self.low)
        index = max(bisect_right(leaves, offset, first, key=columns.firsts.__getitem__) - 1, first)
        found: list[tuple[int, int]] = []
        for leaf in leaves[index : index + limit + 1]:
            begin = leaf * LEAF_ROWS
            until = begin + counts[leaf]
            low = begin if found else bisect_left(offsets, offset, begin, until)
            high = until if offsets[until - 1] < end else bisect_left(offsets, end, low, until)
            if low < high:
                if found and found[-1][1] == low:
                    found[-1] = (found[-1][0], high)
                else:
                    found.append((low, high))
            if high < begin + LEAF_ROWS:
                break
        return found

    def open_part(self, block: int, offset: int) -> None:
        """Begin a part: the messages from `offset` on begin in `block`."""
        self._parts.append(block)
        self._parts.append(offset)

    def add_leaf(self, leaf: int) -> None:
        """Add a leaf for more rows; the leaves before are full."""
        self._leaves.append(leaf)

    def release(self, offset: int, columns: Columns) -> DroppedParts:
        """Drop the parts whose messages are all below `offset`.

        `low` moves to their end.
        """
        parts, until = self._parts, self._first_part
        if until < len(parts) and self._newest(columns) < offset:
            return self.release_all()
        while until + 3 < len(parts) and parts[until + 3] <= offset:
            until += 2
        return self._drop(until, columns)

    def release_oldest(self, columns: Columns) -> DroppedParts:
        """Drop the oldest part."""
        assert self._first_part < len(self._parts)
        return self._drop(self._first_part + 2, columns)

    def release_all(self) -> DroppedParts:
        """Drop everything. `low` stays: later messages are above it."""
        dropped = DroppedParts(self.blocks, self.leaves)
        self.version += 1
        del self._leaves[:], self._parts[:]
        self._first_leaf = self._first_part = 0
        self.version += 1
        return dropped

    def _newest(self, columns: Columns) -> int:
        leaf = self._leaves[-1]  # there is one while there are parts
        newest: int = columns.offsets[leaf * LEAF_ROWS + columns.counts[leaf] - 1]
        return newest

    def _drop(self, until: int, columns: Columns) -> DroppedParts:
        if until <= self._first_part:
            return NOTHING
        if until >= len(self._parts):
            return self.release_all()
        low, leaves, last = self._parts[until + 1], self._leaves, self._first_leaf
        while last + 1 < len(leaves) and columns.firsts[leaves[last + 1]] <= low:
            last += 1
        dropped = DroppedParts(self._parts[self._first_part : until : 2], leaves[self._first_leaf : last])
        self.version += 1
        self.low, self._first_leaf, self._first_part = low, last, until
        self._trim()
        self.version += 1
        return dropped

    def _trim(self) -> None:
        """Remove dead leaves and parts from the lists, so seldom that it costs nothing a row."""
        if self._first_leaf > max(TRIM, len(self._leaves) // 2):
            del self._leaves[: self._first_leaf]
            self._first_leaf = 0
        if self._first_part > max(TRIM, len(self._parts) // 2):
            del self._parts[: self._first_part]
            self._first_part = 0
