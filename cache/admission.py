"""Decides which messages go to the cache: those up to a computed size.

A cache is best filled with small messages: then the remaining reads are few and large. With too low a threshold,
capacity would stay empty; with too high a one, there would be no room for small messages at the end. So the threshold
is set batch by batch to the size for which the bytes still expected below it just fill the free bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .histogram import SizeHistogram

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
EVERYTHING = int(np.iinfo(np.int64).max)
CUT_PART = 64  # a batch is judged in pieces of at most this part of the free bytes


class Admission:
    """Says which messages of a batch to cache.

    With `expected_bytes`, the bytes of all messages that will come, the threshold follows from the free bytes and
    from the sizes seen. Without, everything is admitted: the cache then is a window over the newest messages.

    Attributes:
        threshold_bytes: messages up to this size are admitted now.
    """

    def __init__(self, expected_bytes: int | None = None) -> None:
        self._left_bytes = expected_bytes  # expected and not seen yet
        self.histogram = SizeHistogram()
        self.threshold_bytes = EVERYTHING

    def admit(self, sizes: Ints, free_bytes: int, largest_bytes: int = EVERYTHING) -> Mask:
        """(n,) which messages of `sizes` (n,) to cache, given the bytes that the cache has free.

        `largest_bytes` is the largest size that fits in one piece, if the free bytes are in pieces.

        If the threshold is computed, the admitted bytes are at most `free_bytes`.
        """
        if self._left_bytes is None:
            return np.ones(len(sizes), np.bool_)
        self.histogram.add(sizes)
        admitted = np.zeros(len(sizes), np.bool_)
        smallest = int(sizes.min(initial=EVERYTHING))
        begin = 0
        while begin < len(sizes):
            left = max(self._left_bytes, int(sizes[begin:].sum()))  # more bytes may come than were expected
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
