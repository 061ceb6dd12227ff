"""Finds messages by footers alone: a read that wants no byte of a message reads no frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..device.disk import Disk
from ..format.arrays import Int64s
from ..format.footer import Footer
from ..read.scan import NO_OFFSET
from ..read.wanted import ScanFilter
from .batch import NO_LENGTH, ScanBatch
from .opened import opened
from .plan import FrameRange, frames_of

BATCH_ROWS = 1 << 16


class PlaceReader:
    """The messages of one range of a sealed segment: their streams, offsets and times. Making it opens the file."""

    def __init__(self, disk: Disk, one: FrameRange, wanted: ScanFilter) -> None:
        """Raises StoreCorrupt, FooterDamaged, OSError."""
        self._range, self._wanted = one, wanted
        self._segment, sealed = opened(disk, one, wanted)
        assert sealed is not None, "the frames of what is not sealed have to be read"
        self._sealed = sealed

    def close(self) -> None:
        """Close the file."""
        self._segment.close()

    def batches(self) -> Iterator[ScanBatch]:
        """Yield the wanted messages in log order, up to `BATCH_ROWS` a batch."""
        _, footer, streams, bounds = self._sealed
        low, high = self._entries(footer)
        if low >= high:
            return
        offsets, numbers = _offsets_and_numbers(footer, low, high)
        times = _times(footer, low, high)
        kept = (offsets != NO_OFFSET) & (offsets >= bounds.lows[numbers]) & (offsets < bounds.highs[numbers])
        kept &= self._wanted.of_times(times)
        if not kept.all():
            offsets, numbers, times = offsets[kept], numbers[kept], times[kept]
        index = numbers.astype(np.uint32)
        for begin in range(0, len(offsets), BATCH_ROWS):
            rows = slice(begin, begin + BATCH_ROWS)
            unknown = np.full(len(offsets[rows]), NO_LENGTH, np.int64)
            yield ScanBatch(streams, index[rows], offsets[rows], times[rows], unknown, None)

    def _entries(self, footer: Footer) -> tuple[int, int]:
        """(first, end) entry of the range, without those that have no frame any more."""
        begins, (low, high) = footer.frame_entry, self._range.entries
        first, end = frames_of(begins, (low, high))
        return (max(low, int(begins[first])), high) if first < end else (high, high)


# Columns of the range alone: a segment may be cut into many ranges, and have 30 million entries.


def _offsets_and_numbers(footer: Footer, low: int, high: int) -> tuple[Int64s, Int64s]:
    """(high - low,) twice: offset, and row in the footer, of the entries from `low` on; NO_OFFSET, 0 for lost ones."""
    rows = np.flatnonzero((footer.entries >= low) & (footer.entries < high))
    starts = footer.start.astype(np.int64)
    counts = np.diff(rows.searchsorted(starts))
    at = footer.entries[rows] - np.uint32(low)
    offsets, numbers = np.full(high - low, NO_OFFSET, np.int64), np.zeros(high - low, np.int64)
    offsets[at] = (footer.first - starts[:-1]).repeat(counts) + rows
    numbers[at] = np.arange(len(footer.first)).repeat(counts)
    return offsets, numbers


def _times(footer: Footer, low: int, high: int) -> Int64s:
    """(high - low,) the time of each entry's frame; undefined for entries of a frame that a repair gave up."""
    begins = footer.frame_entry.astype(np.int64)
    first = max(0, int(begins.searchsorted(low, side="right")) - 1)
    end = int(begins.searchsorted(high))
    edges = np.concatenate([[low], begins[first + 1 : end], [high]])
    return footer.frame_time[first:end].repeat(np.diff(edges))
