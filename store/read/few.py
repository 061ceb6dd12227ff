"""The way of `read_batch` to a few messages of a queue, as in a queue that is spread over the log.

The bytes come as those of `get_range` do. Their times are their frames', which are found by the messages' positions: so
no head of a frame is asked for, and there is no object a run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..device.buffers import BufferPool
from ..errors import StoreCorrupt
from ..format.layout import HAS_EXTRAS
from ..log.streams import Stream
from ..log.write import View
from ..segment.open_table import POSITION
from ..segment.segment import Segment
from .message import MessageBatch
from .parts import Part, column, find_parts
from .straight import Straight


class Few:
    """Reads from the ring and the device. Any number of threads may use it.

    It answers only for messages that are whole and in their places; else the answer is None, as that of `Straight`.
    """

    def __init__(self, straight: Straight, buffers: BufferPool) -> None:
        self._straight = straight
        self._buffers = buffers

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch | None:
        """The messages that there are, up to `limit`. None also if they have more than `max_bytes`."""
        if limit <= 0:
            return None
        lane = stream.lane
        view = lane.view
        try:
            parts = find_parts(lane, view, stream.number, offset, limit)
            times = None if parts is None else _times(view, parts)
            if parts is None or times is None or _size(parts) > max_bytes:
                return None
            fetched = self._straight.fetched(lane.ring, parts)
        except (OSError, StoreCorrupt):
            return None
        if fetched is None:
            return None
        datas = [*fetched[0].values()]
        lengths = [*map(len, datas)]
        ends = [*accumulate(lengths, initial=0)]
        count, size = len(datas), ends.pop()
        columns = np.array(ends + lengths + [*range(offset, offset + count)] + times, np.int64).reshape(4, count)
        return MessageBatch(
            self._buffers.joined(datas, size), columns[0], columns[1], columns[2], columns[3],
            np.zeros(count, np.uint32), [(stream.topic, stream.queue_id)],
        )  # fmt: skip


def _size(parts: list[Part]) -> int:
    return sum([flat[3 * entry + 1] for _, flat, entries, _ in parts for entry in entries])


def _times(view: View, parts: list[Part]) -> list[int] | None:
    """When each message was put into the log; None if one of them has optional columns. Raises StoreCorrupt."""
    found: list[int] = []
    for segment, flat, entries, _ in parts:
        positions, times, flags = _frames(view, segment)
        for at in column(flat, entries, POSITION):
            # A message without bytes may end where the next frame begins, but none begins where its own one does.
            frame = bisect_left(positions, at) - 1
            if frame < 0 or flags[frame] & HAS_EXTRAS:
                return None
            found.append(times[frame])
    return found


def _frames(view: View, segment: Segment) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """The positions, times and flags of the frames of a view's segment. Raises StoreCorrupt."""
    sealed, sequence = view.sealed, segment.sequence
    if sealed and sequence <= sealed[-1].segment.sequence:
        at = sequence - sealed[0].segment.sequence  # as long as no segment between them was given up
        if at >= len(sealed) or sealed[at].segment is not segment:
            at = bisect_left(sealed, sequence, key=lambda one: one.segment.sequence)
        footer = sealed[at].footer
        return footer.frame_position.data, footer.frame_time.data, footer.frame_flags.data
    (table,) = [table for opened, table in view.open if opened is segment]
    return table.frame_position, table.frame_time, table.frame_flags
