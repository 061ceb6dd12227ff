"""The first offsets of many streams in a lane's sealed segments, by columns of the footers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import FIRST, START, STREAM
from .index import Index
from .sealed import SealedSegment

ROWS_A_STREAM = 8  # rows of small footers that may be read for each stream that is asked for


def firsts_in(sealed: Sequence[SealedSegment], numbers: Int64s) -> Int64s | None:
    """(n,) The answer of `Groups.first_from` for each stream, -1 where that is None.

    None for all if footers are damaged, or the small ones before the first full one have too many rows: then each
    stream must be searched for. Raises OSError.
    """
    found = np.full(len(numbers), -1, np.int64)
    left = np.arange(len(numbers))
    rows = ROWS_A_STREAM * len(numbers)
    try:
        for one in sealed:
            index = one.index
            index.used, rows = True, rows - (0 if one.record.full else index.streams)
            if rows < 0:
                return None
            told = _first_offsets(index, numbers[left])
            found[left] = told
            left = left[told < 0]
            if one.record.full or not len(left):
                break
    except StoreCorrupt:
        return None
    return found


def _first_offsets(index: Index, numbers: Int64s) -> Int64s:
    """(n,) the first offset of each stream by one footer: -1 without messages there, 0 if a full footer has no row."""
    footer = index.footer
    if footer.is_full:
        known = numbers < index.streams
        found = np.zeros(len(numbers), np.int64)
        found[known] = footer.taken(FIRST, numbers[known])
        return found
    found = np.full(len(numbers), -1, np.int64)
    if not index.streams:
        return found
    rows = np.minimum(footer.taken(STREAM).searchsorted(numbers), index.streams - 1)
    starts = footer.taken(START).astype(np.int64)
    there = (footer.taken(STREAM)[rows] == numbers) & (starts[rows + 1] > starts[rows])
    found[there] = footer.taken(FIRST, rows[there])
    return found
