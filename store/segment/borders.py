"""Where many streams of a lane stand at the borders of its sealed segments, by columns of their footers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import FIRST, START, STREAM
from .groups import briefly
from .index import Index
from .sealed import SealedSegment

ROWS_A_STREAM = 8  # rows of small footers that may be read for each stream that is asked for


def offsets_after(
    sealed: Sequence[SealedSegment], end: int, known: tuple[int, npt.NDArray[np.int64]] | None = None
) -> npt.NDArray[np.int64] | None:
    """(streams,) the offsets that follow the first `end` segments, by their files; None if damage hides them.

    `known`: the number of a segment, and the offsets that follow it: then footers are read of later segments alone.
    """
    begin, offsets = end - 1, None
    while begin >= 0 and not sealed[begin].record.full:
        if known is not None and len(known[1]) and sealed[begin].segment.sequence == known[0] + 1:
            offsets = known[1].copy()
            break
        begin -= 1
    if begin < 0:
        return None
    for one in sealed[begin:end]:
        with briefly(one):
            index = one.in_file()
            if index is None:
                return None
            footer = index.footer
            if footer.is_full or offsets is None:
                offsets = footer.next_offsets
            else:
                if len(offsets) < one.record.streams:
                    offsets = grown(offsets, one.record.streams)
                offsets[footer.stream] = footer.next_offsets
    return offsets


def offsets_before(
    sealed: Sequence[SealedSegment], begin: int, after_all: Callable[[], npt.NDArray[np.int64] | None]
) -> npt.NDArray[np.int64] | None:
    """(streams,) the offsets with which the segment at an index begins; `after_all` gives those after all segments.

    Of damaged segments the newest is made again first, so that calls do not nest. None if damage hides it.
    """
    end = begin
    while end < len(sealed) and not (sealed[end].record.full and sealed[end].in_file() is not None):
        end += 1
    offsets = after_all() if end == len(sealed) else sealed[end].footer.first
    if offsets is None:
        return None
    offsets = np.array(offsets, np.int64)
    for one in reversed(sealed[begin:end]):
        with briefly(one):
            try:
                footer = one.footer
            except StoreCorrupt:
                return None
            numbers = footer.numbers
            if len(numbers) and numbers[-1] >= len(offsets):
                offsets = grown(offsets, int(numbers[-1]) + 1)
            offsets[numbers] = footer.first
    return offsets


def grown(offsets: npt.NDArray[np.int64], streams: int) -> npt.NDArray[np.int64]:
    """A copy for at least `streams` streams: later ones begin at 0."""
    column = np.zeros(max(streams, len(offsets)), np.int64)
    column[: len(offsets)] = offsets
    return column


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
