"""When messages were put into the log, by where they lie: the time of the frame around each, without its head."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from ..device.ring import NOWHERE
from ..format.arrays import Int64s
from ..format.footer import Column
from ..format.layout import HAS_EXTRAS
from ..log.write import OpenSegment, View
from ..segment.open_table import Uint32s
from ..segment.sealed import SealedSegment
from ..segment.segment import Segment

Frames: TypeAlias = "tuple[Numbers, Numbers, Numbers]"
Numbers: TypeAlias = "Column | array[int]"
NO_FRAMES: Frames = array("I"), array("q"), array("H")


def times_of(view: View, places: Iterable[tuple[Segment, int]]) -> list[int] | None:
    """When the messages at some positions of segments were put into the log. Raises StoreCorrupt.

    None if one of them has optional columns, or lies in a segment that the view does not have.
    """
    found: list[int] = []
    known: Segment | None = None
    positions, times, flags = NO_FRAMES
    begin = end = time_ms = 0
    for segment, at in places:
        if segment is not known:
            source = source_of(view, segment)
            if source is None:
                return None
            known, (positions, times, flags), end = segment, source.frames, 0
        # A message without bytes may end where the next frame begins, but none begins where its own one does.
        if not begin < at <= end:
            frame = bisect_left(positions, at)
            end = positions[frame] if frame < len(positions) else NOWHERE
            frame -= 1
            if frame < 0 or flags[frame] & HAS_EXTRAS:
                return None
            begin, time_ms = positions[frame], times[frame]
        found.append(time_ms)
    return found


def common_time(view: View, segment: Segment, first: int, last: int) -> int | None:
    """When all messages of a stream from one position of a segment to another were put into the log.

    Raises StoreCorrupt. None if they are of several frames, and where `times_of` gives None.
    """
    source = source_of(view, segment)
    if source is None:
        return None
    positions, times, flags = source.frames
    frame = bisect_left(positions, first)
    if not frame or flags[frame - 1] & HAS_EXTRAS or (frame < len(positions) and positions[frame] < last):
        return None
    return times[frame - 1]


def times_of_many(view: View, segment: Segment, positions: Uint32s) -> Int64s | None:
    """As `times_of`, of messages of one segment; their positions ascend, and there is one. Raises StoreCorrupt."""
    source = source_of(view, segment)
    if source is None:
        return None
    begins, times, flags = source.frames
    low = bisect_left(begins, int(positions[0])) - 1
    high = bisect_left(begins, int(positions[-1]), max(low, 0))
    if low < 0 or (np.asarray(flags[low:high]) & HAS_EXTRAS).any():
        return None
    if high - low == 1:
        return np.full(len(positions), times[low], np.int64)
    return np.asarray(times[low:high]).take(np.asarray(begins[low:high]).searchsorted(positions) - 1)


def source_of(view: View, segment: Segment) -> SealedSegment | OpenSegment | None:
    """What a view knows of a segment; None if it does not have that one."""
    sealed, sequence = view.sealed, segment.sequence
    if view.open and view.open[-1].segment is segment:  # most reads are of what was just written
        return view.open[-1]
    oldest, newest, count = sealed.span
    if sequence <= newest:
        at = sequence - oldest  # as long as no segment between them was given up
        one = sealed[at] if 0 <= at < count else sealed[-1]
        if one.segment is not segment:
            one = sealed[bisect_left(sealed, sequence, key=lambda one: one.segment.sequence)]
        return one if one.segment is segment else None
    for opened in view.open:
        if opened.segment is segment:
            return opened
    return None
