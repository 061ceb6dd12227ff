"""Latencies as a distribution: an HdrHistogram, which keeps every value to three digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .contest import IntArray

LEAST_NS, MOST_NS, DIGITS = 1, 600_000_000_000, 3
MARKS = (50.0, 99.0, 99.9)
MISSING = "latencies need the package hdrhistogram: pip install 'stratalog[bench]', or pip install hdrhistogram"


class NoHistogram(Exception):
    """The package of the histograms is not installed; the sentence says what to do."""


class Latencies:
    """A distribution of nanoseconds. Values above ten minutes count as ten minutes. Raises NoHistogram."""

    def __init__(self) -> None:
        try:
            from hdrh.histogram import HdrHistogram  # noqa: PLC0415  # an extra: most measurements need none
        except ImportError:
            raise NoHistogram(MISSING) from None
        self._histogram: Any = HdrHistogram(LEAST_NS, MOST_NS, DIGITS)

    def add(self, latencies_ns: Sequence[int] | IntArray) -> None:
        """Count these values; never inside a timed part."""
        rounded, counts = np.unique(np.clip(latencies_ns, LEAST_NS, MOST_NS).astype(np.int64), return_counts=True)
        for value, count in zip(rounded.tolist(), counts.tolist(), strict=True):
            self._histogram.record_value(value, count)

    @property
    def count(self) -> int:
        """The number of values."""
        found: int = self._histogram.get_total_count()
        return found

    def at_us(self, percent: float) -> float:
        """The latency that so many percent of all values do not exceed, in microseconds; 0 without values."""
        found: int = self._histogram.get_value_at_percentile(percent)
        return found / 1e3 if self.count else 0.0

    def marks_us(self) -> dict[str, float]:
        """ "p50", "p99", "p99.9" and "max" in microseconds."""
        marks = {f"p{percent:g}": self.at_us(percent) for percent in MARKS}
        return {**marks, "max": self._histogram.get_max_value() / 1e3 if self.count else 0.0}


def exact_marks_us(latencies_ns: IntArray) -> dict[str, float]:
    """ "p50", "p99" and "p99.9" in microseconds, of values that are all at hand: exact, and it needs no package."""
    found = np.percentile(latencies_ns, MARKS) / 1e3 if len(latencies_ns) else np.zeros(len(MARKS))
    return {f"p{percent:g}": value for percent, value in zip(MARKS, found.tolist(), strict=True)}
