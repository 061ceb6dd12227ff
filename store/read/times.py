"""Finding messages by the time at which they were put into the log."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.layout import LOST_ENTRY
from ..log.lane import Lane
from ..log.sealed_log import offset_after_sealed
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..segment.sealed import SealedSegment
from ..segment.sealed_segments import SealedSegments
from .scan import checked_footer


def offset_at(stream: Stream, time_ms: int) -> int:
    """The first offset, in offset order, of a message of `time_ms` or later; the next offset if there is none.

    Also where times go back: what is passed over ends too early, each segment by its own newest time, or has nothing of
    the stream. Raises StoreCorrupt at the first segment that may have the message, and of which damage hides some.
    """
    low = stream.low
    view, number = stream.lane.view, stream.number
    if number < 0:
        return 0
    next_offset = 0
    if view.sealed:
        found = _in_all_sealed(stream, view.sealed, time_ms, low)
        if found is not None:
            return found
        next_offset = offset_after_sealed(stream.lane, view, number)
    for opened in view.open:
        found, next_offset = _in_open(opened, number, time_ms, next_offset, low)
        if found is not None:
            return found
    return next_offset


def _in_all_sealed(stream: Stream, sealed: SealedSegments, time_ms: int, low: int) -> int | None:
    """The offset, if a sealed segment has it."""
    number, newest = stream.number, stream.lane.newest
    index = _where(stream.lane, sealed, number, low, -1)
    while (index := newest.first_since(sealed, index, time_ms)) < len(sealed):
        one = sealed[index]
        first, count = one.first_of(number)
        if count and first + count > low:
            found = _in_sealed(one, number, time_ms, low)
            if found is not None:
                return found
        # It goes on where the next offset is: in the next one, or after some that have nothing.
        index += 1
        if count == 0 or first + count > low:
            index = _where(stream.lane, sealed, number, max(low, first + count), index)
    return None


def _where(lane: Lane, sealed: SealedSegments, number: int, offset: int, index: int) -> int:
    """As `Groups.where`, from an index on; damage that hides it is met segment by segment."""
    try:
        return max(0, index, lane.groups.where(sealed, number, offset))
    except StoreCorrupt:
        return max(0, index)


def _in_sealed(sealed: SealedSegment, number: int, time_ms: int, low: int) -> int | None:
    footer = checked_footer(sealed)
    row = footer.row_of(number)
    first, (begin, end) = int(footer.first[row]), footer.start[row : row + 2].tolist()
    entries = footer.entries[begin:end]
    kept = np.flatnonzero(entries != LOST_ENTRY)
    kept = kept[kept.searchsorted(low - first) :]
    frames = footer.frame_entry.searchsorted(entries[kept], side="right") - 1
    at = _first_since(footer.frame_time[frames], time_ms)
    return None if at is None else first + int(kept[at])


def _in_open(opened: OpenSegment, number: int, time_ms: int, next_offset: int, low: int) -> tuple[int | None, int]:
    """The offset, if it is here and not below `low`, and the first offset after this segment."""
    row = opened.table.row(number)
    entries = None if row is None else row[1][:]  # a copy: it may become longer
    if row is None or not entries:
        return None, next_offset
    _, times, _ = opened.table.frames_of(np.frombuffer(entries, np.uint32))
    skipped = min(max(0, low - row[0]), len(times))
    at = _first_since(times[skipped:], time_ms)
    return None if at is None else row[0] + skipped + at, row[0] + len(entries)


def _first_since(times: npt.NDArray[np.int64], time_ms: int) -> int | None:
    late = times >= time_ms
    at = int(late.argmax()) if len(late) else 0
    return at if len(late) and late[at] else None
