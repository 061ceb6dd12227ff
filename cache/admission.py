"""Which messages go to the cache: those up to a size that is computed, not tuned.

A cache is best filled with small messages: the reads that are left are then few and large. Were the threshold too
low, capacity would stay empty; too high, and small messages would be turned away at the end. So it is set, batch by
batch, to where the bytes still expected below it are just what is still free.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .histogram import SizeHistogram

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
EVERYTHING = int(np.iinfo(np.int64).max)
CUT_PART = 64  # a batch is judged in pieces of at most this part of what is free


class Admission:
    """Says which messages of a batch to cache.

    With `expected_bytes`, the bytes of messages that will come in all, the threshold follows from what is free and
    from the sizes seen. Without, everything is admitted: the cache then is a window over what is newest.

    Attributes:
        threshold_bytes: messages up to this size are admitted now.
    """

    def __init__(self, expected_bytes: int | None = None) -> None:
        self._left_bytes = expected_bytes  # expected and not seen yet
        self.histogram = SizeHistogram()
        self.threshold_bytes = EVERYTHING

    def admit(self, sizes: Ints, free_bytes: int, largest_bytes: int = EVERYTHING) -> Mask:
        """(n,) which messages of `sizes` (n,) to cache, given what the cache could still take.

        `largest_bytes` is the size that has room in one piece, where what is free is in pieces.

        Where the threshold is computed, the bytes admitted are at most `free_bytes`.
        """
        if self._left_bytes is None:
            return np.ones(len(sizes), np.bool_)
        self.histogram.add(sizes)
        admitted = np.zeros(len(sizes), np.bool_)
        smallest = int(sizes.min(initial=EVERYTHING))
        begin = 0
        while begin < len(sizes):
            left = max(self._left_bytes, int(sizes[begin:].sum()))  # more may come than was expected
            self.threshold_bytes = min(self.histogram.largest_within(free_bytes, left), largest_bytes)
            some = slice(begin, self._cut(sizes, begin, free_bytes, smallest))
            admitted[some] = sizes[some] <= self.threshold_bytes
            begin = some.stop
            free_bytes -= int(sizes[some][admitted[some]].sum())
            assert free_bytes >= 0
            self._left_bytes = max(self._left_bytes - int(sizes[some].sum()), 0)
        return admitted

    def _cut(self, sizes: Ints, begin: int, free_bytes: int, smallest: int) -> int:
        """The end of the next piece: short enough that one threshold serves all of it."""
        if self.threshold_bytes < smallest:
            return len(sizes)
        ends = np.where(sizes[begin:] <= self.threshold_bytes, sizes[begin:], 0).cumsum()
        return begin + max(1, int(np.searchsorted(ends, free_bytes // CUT_PART, side="right")))
