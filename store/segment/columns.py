"""Where many messages of a stream lie, in columns: looked up with a few array operations a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.ring import Ring
from ..format.layout import HAS_EXTRAS, LOST_ENTRY
from .head import ROW_COLUMNS
from .index import Index
from .open_table import OpenTable, Uint32s
from .segment import Segment

if TYPE_CHECKING:
    from .sealed import SealedSegment

Int64s = npt.NDArray[np.int64]
Frames = npt.NDArray[np.intp]


class Columns(NamedTuple):
    """n messages of a segment, in log order.

    Attributes:
        segment: where they are.
        rows: (n, 3) position, length and checksum of each.
        times: (n,) when each was put into the log, ms since the epoch.
    """

    segment: Segment
    rows: Uint32s
    times: Int64s


def open_columns(segment: Segment, table: OpenTable, entries: Uint32s) -> Columns | None:
    """Entries of an open segment, of which there is one; None if one of them has optional columns."""
    _, times, flags = table.frames_of(entries)
    if (flags & HAS_EXTRAS).any():
        return None
    return Columns(segment, table.rows_of(entries), times)


def sealed_columns(sealed: SealedSegment, ring: Ring, number: int, offset: int, end: int) -> Columns | None:
    """A stream's messages offset .. end - 1, as far as a sealed segment has them, which may be none.

    None where a message is lost or not in its place: `SealedSegment.run` says what is wrong. Raises StoreCorrupt.
    """
    index = sealed.index
    nothing = Columns(sealed.segment, np.empty((0, 3), np.uint32), np.empty(0, np.int64))
    at = index.row(number)
    if at < 0:
        return nothing
    row, limit, first = index.start[at], index.start[at + 1], index.first[at]
    if row == limit or offset >= first + limit - row:
        return nothing
    if offset < first:
        return None  # a gap that a repair left
    row -= first
    entries = np.frombuffer(index.entries[row + offset : min(row + end, limit)], np.uint32)
    footer = index.footer
    frames = footer.frame_entry.searchsorted(entries, side="right") - 1
    is_usual = frames.min() >= 0 and not (entries == LOST_ENTRY).any()
    if not is_usual or (footer.frame_flags[frames] & HAS_EXTRAS).any():
        return None
    kept = sealed.kept
    if kept is None:
        rows = _rows(sealed, index, ring, number, offset, entries, frames)
    else:
        kept.used = True
        rows = np.frombuffer(kept.flat, np.uint32).reshape(-1, 3).take(entries, axis=0)
    return None if rows is None else Columns(sealed.segment, rows, footer.frame_time[frames])


def _rows(
    sealed: SealedSegment, index: Index, ring: Ring, number: int, offset: int, entries: Uint32s, frames: Frames
) -> Uint32s | None:
    """The rows from the heads of the entries' frames; None where one of them is not this stream's."""
    parts: list[Uint32s] = []
    borders = np.flatnonzero(frames[1:] != frames[:-1]) + 1
    lows = [0, *borders.tolist()]
    for low, high in zip(lows, [*lows[1:], len(entries)], strict=True):
        head = sealed.head(index, ring, int(frames[low]))
        frame = np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))
        try:
            parts.append(frame.take(entries[low:high] - head.first_entry, axis=0))  # what is below wraps around
        except IndexError:
            return None
    rows = np.concatenate(parts)
    lowest = np.arange(offset, offset + len(rows)) & 0xFFFF
    if (rows[:, 0] != number).any() or (rows[:, 1] != lowest).any():
        return None
    return rows[:, 2:]
