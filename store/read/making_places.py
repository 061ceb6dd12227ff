"""Making the table of a lane's places, of what the lane and its sealed segments know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.leased import WINDOW_BYTES
from ..format.arrays import Int64s
from ..format.footer import by_stream
from ..log.lane import Lane
from ..log.write import OpenSegment, View
from ..segment.index import KeptPlaces
from ..segment.open_table import LENGTH, Uint32s
from ..segment.segment import Segment
from .lane_places import ROW_BYTES, STREAM_BYTES, LanePlaces
from .named_rows import Layout, NamedRows
from .read_counters import ReadCounters

NAMES_PART = 4  # of the table at most: names of more topics would leave too little room for rows


class _Part(NamedTuple):
    """The messages of a segment, by stream and in log order.

    Attributes:
        firsts, counts: (streams,) of each stream, the first offset and the number of messages.
        numbers, places: (n,) stream numbers, (n, 3) position, length and checksum.
    """

    segment: Segment
    firsts: Int64s
    counts: Int64s
    numbers: npt.NDArray[np.unsignedinteger]
    places: Uint32s


def _index_bytes(lane: Lane) -> int:
    """Of a table: what it takes without a row."""
    return STREAM_BYTES * (len(lane.streams) + 1)


def least_bytes(lane: Lane, view: View) -> int:
    """Of a table of the open segments, or the newest sealed one, without names: known before anything is made."""
    messages = sum([one.table.visible for one in view.open])
    if not view.open and view.sealed:
        messages = view.sealed[-1].record.entries
    return _index_bytes(lane) + ROW_BYTES * messages


def make_places(
    lane: Lane, view: View, counters: ReadCounters, most_bytes: int, layout: Layout | None = None
) -> LanePlaces | None:
    """The table of as many of the newest segments as its size allows, and whose places are held; None: of none.

    `view`: the lane's. `layout`: of its queues, if they are to be found by name.
    """
    parts: list[_Part] = []
    if layout is not None and layout.size_bytes > min(most_bytes // NAMES_PART, most_bytes - least_bytes(lane, view)):
        layout = None
    left = most_bytes - _index_bytes(lane) - (0 if layout is None else layout.size_bytes)
    growing = 0
    for number, opened in enumerate(reversed(view.open), 1):
        part = _open_part(opened)
        if number == 1 or len(part.numbers) < opened.table.entries:  # of an older one the last write may be under way
            growing = number
        left -= ROW_BYTES * len(part.numbers)
        if left < 0:
            return None
        parts.append(part)
    for sealed in reversed(view.sealed):
        kept = sealed.kept
        left -= ROW_BYTES * sealed.record.entries
        if left < 0 or kept is None:
            break
        parts.append(_sealed_part(sealed.segment, kept))
    if not parts:
        return None
    parts.reverse()
    numbers = np.concatenate([part.numbers for part in parts], dtype=np.uint32)
    rows = np.empty((len(numbers), 4), np.uint32)
    which = np.arange(len(parts), dtype=np.uint32).repeat([len(part.numbers) for part in parts])
    rows[:, 1:] = np.concatenate([part.places for part in parts])
    rows[:, 0] = np.where(rows[:, 1 + LENGTH] > WINDOW_BYTES, which + np.uint32(len(parts)), which)
    index, is_cut = _index_of(parts)
    order = by_stream(numbers)
    if is_cut.any():
        order = order[~is_cut[numbers[order]]]
    segments = [part.segment for part in parts]
    names = None if layout is None else NamedRows.of(lane, layout, index)
    return LanePlaces(
        segments, lane.index_memory, counters, growing=growing, index=index, rows=rows[order], names=names
    )


def _sealed_part(segment: Segment, kept: KeptPlaces) -> _Part:
    _, first, start, entries, flat = kept.columns
    firsts = np.frombuffer(first, np.int64)
    starts = np.frombuffer(start, np.uint32).astype(np.int64)
    counts = starts[1:] - starts[:-1]
    if kept.numbers is not None:
        there = np.frombuffer(kept.numbers, np.uint32)
        few, some = counts, firsts
        counts = np.zeros(int(there[-1]) + 1 if len(there) else 0, np.int64)
        firsts = np.zeros(len(counts), np.int64)
        counts[there], firsts[there] = few, some
    numbers = np.arange(len(counts), dtype=np.uint32).repeat(counts)
    places = np.frombuffer(flat, np.uint32).reshape(-1, 3)[np.frombuffer(entries, np.uint32)]
    return _Part(segment, firsts, counts, numbers, places)


def _open_part(opened: OpenSegment) -> _Part:
    """The messages of an open segment that readers may see."""
    segment, table = opened
    firsts, count = table.first_offsets(), table.visible
    if not count:
        nothing = np.empty(0, np.uint32)
        return _Part(segment, firsts, np.zeros(len(firsts), np.int64), nothing, np.empty((0, 3), np.uint32))
    numbers = table.numbers_between(0, count)
    order = by_stream(numbers)
    counts = np.bincount(numbers, minlength=len(firsts))
    firsts = np.concatenate([firsts, np.zeros(len(counts) - len(firsts), np.int64)])  # later streams begin at 0
    return _Part(segment, firsts, counts, numbers[order], table.columns(0, count)[order])


def _index_of(parts: Sequence[_Part]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """(2 * streams + 2,): at 2 n the first row of stream n, at 2 n + 1 the number that makes a row of an offset of it
    (row = number + offset). And (streams,): True for a stream with a gap in its offsets, which has no rows.
    """
    streams = max([len(part.counts) for part in parts])
    first, following, count = np.full(streams, -1, np.int64), np.zeros(streams, np.int64), np.zeros(streams, np.int64)
    is_cut = np.zeros(streams, bool)
    for part in parts:
        known = len(part.counts)
        has, begun = part.counts > 0, first[:known] >= 0
        is_cut[:known] |= has & begun & (part.firsts[:known] != following[:known])
        first[:known] = np.where(has & ~begun, part.firsts[:known], first[:known])
        following[:known] = np.where(has, part.firsts[:known] + part.counts, following[:known])
        count[:known] += part.counts
    count[is_cut] = 0
    index = np.zeros(2 * streams + 2, np.int64)
    index[2::2] = count.cumsum()
    index[1:-1:2] = index[:-2:2] - first
    return index, is_cut
