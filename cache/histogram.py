"""A running histogram of message sizes, in bytes and not in messages: the admission threshold comes from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
STEPS_BITS = 6  # a power of two is cut into 64 classes: one is 1.6 % wide at most
STEPS = 1 << STEPS_BITS
CLASSES = 64 * STEPS
HALVE_BYTES = 1 << 50


class SizeHistogram:
    """Bytes seen, by class of message size; sizes under 64 have a class each.

    Besides its bytes a class has the smallest and the largest size seen in it: so messages of a single size keep that
    size (a class alone would blur it).

    Invariant: `bytes_seen.sum() == total_bytes`; in an empty class, `lowest` > `highest`.
    """

    def __init__(self, fade_bytes: int = HALVE_BYTES) -> None:
        """When `fade_bytes` were counted, all counts are halved: newer sizes then count more."""
        self.bytes_seen = np.zeros(CLASSES, np.float64)
        self.lowest = np.full(CLASSES, np.iinfo(np.int64).max, np.int64)
        self.highest = np.full(CLASSES, -1, np.int64)
        self.total_bytes = 0.0
        self._fade_bytes = fade_bytes

    def add(self, sizes: Ints) -> None:
        """Count messages of these sizes, (n,)."""
        if not len(sizes):
            return
        classes = class_of(sizes)
        self.bytes_seen += np.bincount(classes, weights=sizes, minlength=CLASSES)
        np.minimum.at(self.lowest, classes, sizes)
        np.maximum.at(self.highest, classes, sizes)
        self.total_bytes = float(self.bytes_seen.sum())
        if self.total_bytes > self._fade_bytes:
            self.bytes_seen /= 2
            self.total_bytes = float(self.bytes_seen.sum())

    def largest_within(self, free_bytes: float, expected_bytes: float) -> int:
        """The largest size s such that a message of s, and all smaller ones expected, have room.

        If `expected_bytes` more come with the sizes seen so far, the share of them in smaller messages is kept free:
        s + expected x share(sizes below s) <= free. Returns -1 if even the smallest does not fit, the largest
        integer if all fit. For sizes uniform on [0, M] this is M x sqrt(free / expected).
        """
        some = np.flatnonzero(self.highest >= 0)
        if not len(some):
            return int(free_bytes)
        share = self.bytes_seen[some] * (expected_bytes / max(self.total_bytes, 1.0))
        below = share.cumsum() - share
        fits = np.flatnonzero(self.lowest[some] + below <= free_bytes)
        if not len(fits):
            return -1
        last = int(fits[-1])
        low, high = int(self.lowest[some[last]]), int(self.highest[some[last]])
        left = free_bytes - low - float(below[last])
        if left >= share[last]:  # the whole class, and sizes up to the next one
            return high if last + 1 < len(some) else int(np.iinfo(np.int64).max)
        return low + int(left / share[last] * (high - low))


def class_of(sizes: Ints) -> Ints:
    """(n,) class of each size: exact below 64, then 64 classes a power of two."""
    _, exponent = np.frexp(sizes.astype(np.float64))  # size < 2**exponent, and >= half of that
    shift = np.maximum(exponent.astype(np.int64) - 1 - STEPS_BITS, 0)
    classes: Ints = (shift << STEPS_BITS) + (sizes >> shift)
    return classes
