"""Columns of the bulk wheel: the rows of a bucket, and a stable order by deadline."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

LEAST_ROWS = 16
GROWTH = 8  # a new block has an eighth of the rows that are there: little is unused, and no row is copied to grow
DIGIT_BITS = 16  # numpy sorts integers of 16 bits by radix


class Rows:
    """The timers of one bucket, in the order in which they came: 16 bytes each.

    Rows are arrays of shape (2, n): a line of deadlines, a line of ids.
    """

    __slots__ = ("_blocks", "_free", "queued", "rows", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.queued = False
        self.rows = 0
        self._blocks: list[Int64s] = []  # all are full but the last one
        self._free = 0  # rows at the end of the last block

    def __len__(self) -> int:
        return self.rows

    @property
    def memory_bytes(self) -> int:
        """What the columns occupy."""
        return sum(block.nbytes for block in self._blocks)

    def append(self, rows: Int64s) -> None:
        """Copy these rows behind the others."""
        count, free = rows.shape[1], self._free
        if free:
            begin = self._blocks[-1].shape[1] - free
            self._blocks[-1][:, begin : begin + count] = rows[:, :free]
        if count > free:
            size = max(LEAST_ROWS, count - free, self.rows // GROWTH)
            block = np.empty((2, size), np.int64)
            block[:, : count - free] = rows[:, free:]
            self._blocks.append(block)
            self._free = size - (count - free)
        else:
            self._free = free - count
        self.rows += count

    def lend(self, rows: Int64s) -> None:
        """Put these rows behind the others without a copy: they keep the whole array alive of which they are a part."""
        if self._free:
            self.append(rows)
        else:
            self._blocks.append(rows)
            self.rows += rows.shape[1]

    def take(self) -> Int64s:
        """All rows; the bucket is empty then."""
        blocks, free = self._blocks, self._free
        self._blocks, self._free, self.rows = [], 0, 0
        if not blocks:
            return np.empty((2, 0), np.int64)
        if free:
            blocks[-1] = blocks[-1][:, :-free]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def stable_order(values: Int64s) -> npt.NDArray[np.intp] | None:
    """The order that sorts the values and leaves equal ones as they are; None if they are in order.

    By radix, 16 bits at a time: numpy's own stable sort of 64-bit numbers takes five times as long.
    """
    if len(values) < 2 or bool((values[1:] >= values[:-1]).all()):
        return None
    least = values.min()
    spread = int(values.max()) - int(least)
    offsets = values.astype(np.uint64) - least.astype(np.uint64)  # modulo 2**64: right for any two of 64 bits
    order = np.argsort(offsets.astype(np.uint16), kind="stable")
    shift = DIGIT_BITS
    while spread >> shift:
        digit = (offsets >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += DIGIT_BITS
    return order


def as_int64(values: npt.ArrayLike, what: str) -> Int64s:
    """The values as one row of int64. Raises TypeError for other numbers, ValueError for what is too large."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"{what} are an array of one dimension, not of {given.ndim}")
    if not given.size:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise TypeError(f"{what} are integers, not {given.dtype}")
    if given.dtype.kind == "u" and int(given.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{what} are below 2**63, not {int(given.max())}")
    return given.astype(np.int64, copy=False)
