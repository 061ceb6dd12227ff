"""Finding messages by the time at which they were put into the log."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..format.layout import LOST_ENTRY
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..segment.sealed import SealedSegment
from .scan import checked_footer


def offset_at(stream: Stream, time_ms: int) -> int:
    """The first offset, in offset order, of a message of `time_ms` or later; the next offset if there is none.

    Also where the clock was set back: every segment says its newest time, so only those that end too early are passed
    over. Raises StoreCorrupt at the first segment that may have the message, and of which damage hides some.
    """
    low = stream.low
    view, number = stream.lane.view, stream.number
    next_offset = 0
    if number < 0:
        return next_offset
    for sealed in view.sealed:
        first, count = sealed.first_of(number)
        # An index that was made again may have lost its newest message: it is no reason to pass the segment over.
        if count and first + count > low and (sealed.index.is_remade or sealed.footer.time_max_ms >= time_ms):
            found = _in_sealed(sealed, number, time_ms, low)
            if found is not None:
                return found
        next_offset = first + count
    for opened in view.open:
        found, next_offset = _in_open(opened, number, time_ms, next_offset, low)
        if found is not None:
            return found
    return next_offset


def _in_sealed(sealed: SealedSegment, number: int, time_ms: int, low: int) -> int | None:
    footer = checked_footer(sealed)
    first, (begin, end) = int(footer.first[number]), footer.start[number : number + 2].tolist()
    entries = footer.entries[begin:end]
    kept = np.flatnonzero(entries != LOST_ENTRY)
    kept = kept[kept.searchsorted(low - first) :]
    frames = footer.frame_entry.searchsorted(entries[kept], side="right") - 1
    at = _first_since(footer.frame_time[frames], time_ms)
    return None if at is None else first + int(kept[at])


def _in_open(opened: OpenSegment, number: int, time_ms: int, next_offset: int, low: int) -> tuple[int | None, int]:
    """The offset, if it is here and not below `low`, and the offset behind what is here."""
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
