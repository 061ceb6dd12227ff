"""Rows of the cached messages: columns for all streams together, in leaves of a few rows each.

A few array operations write a batch of messages of as many streams; with columns for each stream this would take a loop
over the streams. A stream has a list of leaves, and is touched once in `LEAF_ROWS` messages.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LEAF_ROWS = 8
MOST_BYTES = (1 << 32) - 1  # of a message: lengths have 32 bits
FIRST_LEAVES = 256


class Columns(NamedTuple):
    """Row `leaf * LEAF_ROWS + slot` of each column. Readers read them without a lock.

    Attributes:
        offsets: int64.
        addresses: int64, the start of the payload.
        lengths, tags: uint32.
        counts: int8, a leaf: the number of its visible rows. Written after these rows.
        firsts: int64, a leaf: the offset of its first row.
    """

    offsets: memoryview
    addresses: memoryview
    lengths: memoryview
    tags: memoryview
    counts: memoryview
    firsts: memoryview


class RowSpace:
    """Takes and gives leaves; writes rows. Not safe for threads: the cache's lock guards it.

    Invariants:
        * a leaf is free, or in the list of one chain;
        * rows of a leaf are written once between `take` and `give`, from its first on;
        * `columns` is replaced as a whole when there are more leaves. The old ones stay as they were, and in them a
          leaf may have the rows of an earlier chain: a reader checks afterwards that its columns are in use.
    """

    def __init__(self) -> None:
        self._fresh = 0  # the first leaf that was never taken
        self._given = array("i")
        rows = FIRST_LEAVES * LEAF_ROWS
        self._rows: list[npt.NDArray[np.signedinteger | np.unsignedinteger]] = [
            np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.uint32), np.zeros(rows, np.uint32)
        ]  # fmt: skip
        self._counts: npt.NDArray[np.signedinteger | np.unsignedinteger] = np.zeros(FIRST_LEAVES, np.int8)
        self.columns = self._seen()

    def _seen(self) -> Columns:
        offsets, addresses, lengths, tags = (column.data for column in self._rows)
        return Columns(offsets, addresses, lengths, tags, self._counts.data, offsets[::LEAF_ROWS])

    def _grow(self, leaves: int) -> None:
        columns = [*self._rows, self._counts]
        # Untouched zeros take no memory yet.
        longer = [np.zeros(len(column) // len(self._counts) * leaves, column.dtype) for column in columns]
        for column, grown in zip(columns, longer, strict=True):
            grown[: len(column)] = column
        *self._rows, self._counts = longer
        self.columns = self._seen()

    @property
    def taken(self) -> int:
        """The number of leaves in use."""
        return self._fresh - len(self._given)

    def take(self, count: int) -> Ints:
        """Take leaves (count,), without visible rows."""
        back = min(count, len(self._given))
        leaves = np.arange(self._fresh - back, self._fresh - back + count)
        if back:
            leaves[:back] = self._given[-back:]
            del self._given[-back:]
        self._fresh += count - back
        if self._fresh > len(self._counts):
            self._grow(max(self._fresh, 2 * len(self._counts)))
        return leaves

    def give(self, leaf: int) -> None:
        """Take a leaf back: a reader of its rows finds out afterwards."""
        self._counts[leaf] = 0
        self._given.append(leaf)

    def write(self, rows: Ints, offsets: Ints, addresses: Ints, lengths: Ints, tags: Ints) -> None:
        """Fill rows, all (n,). They are not visible before `show`."""
        for column, values in zip(self._rows, (offsets, addresses, lengths, tags), strict=True):
            column[rows] = values

    def counts(self, leaves: Ints) -> Ints:
        """(n,) the number of visible rows of each leaf."""
        return self._counts[leaves].astype(np.int64)

    def show(self, leaves: Ints, counts: Ints) -> None:
        """Make `counts` rows of each leaf visible."""
        assert not len(counts) or 0 < int(counts.min()) <= int(counts.max()) <= LEAF_ROWS
        self._counts[leaves] = counts
