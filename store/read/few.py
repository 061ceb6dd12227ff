"""The way of `read` and `read_batch` to a few messages of a queue, as in a queue that is spread over the log.

The bytes come as those of `get_range` do. Their times are their frames', which are found by the messages' positions: so
no head of a frame is asked for, and there is no object a run.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from ..device.buffers import BufferPool
from ..errors import StoreCorrupt
from ..log.streams import Stream
from .frame_times import times_of
from .lane_places import LanePlaces
from .message import Message, MessageBatch, plain_messages
from .parts import Part, find_parts
from .straight import MOST_MESSAGES, Straight


class Few:
    """Reads by the table of the lane's places, else by parts as `Straight` does. Any number of threads may use it.

    It is a shortcut: `Reader` has the contract. Messages with optional columns are left to the long way.
    """

    def __init__(self, straight: Straight, buffers: BufferPool) -> None:
        self._straight = straight
        self._buffers = buffers

    def read(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> list[Message] | None:
        """The messages that there are, up to `limit`. None also if they have more than `max_bytes`."""
        fetched = self._fetched(stream, offset, limit, max_bytes)
        if fetched is None:
            return None
        datas, times = fetched
        return plain_messages(stream.topic, stream.queue_id, range(offset, offset + len(datas)), datas.values(), times)

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch | None:
        """The messages that there are, up to `limit`. None also if they have more than `max_bytes`."""
        fetched = self._fetched(stream, offset, limit, max_bytes)
        if fetched is None:
            return None
        datas, times = [*fetched[0].values()], fetched[1]
        lengths = [*map(len, datas)]
        ends = [*accumulate(lengths, initial=0)]
        count, size = len(datas), ends.pop()
        columns = np.array(ends + lengths + [*range(offset, offset + count)] + times, np.int64).reshape(4, count)
        return MessageBatch(
            self._buffers.joined(datas, size), columns[0], columns[1], columns[2], columns[3],
            np.zeros(count, np.uint32), [(stream.topic, stream.queue_id)],
        )  # fmt: skip

    def _fetched(
        self, stream: Stream, offset: int, limit: int, max_bytes: int
    ) -> tuple[dict[int, bytes], list[int]] | None:
        """The messages' bytes, by their index, and times."""
        if stream.number < 0 or not 0 < limit <= MOST_MESSAGES or offset < stream.low:
            return None
        try:
            fetched = self._of_table(stream, offset, limit)
            if fetched is None:
                fetched = self._of_parts(stream, offset, limit, max_bytes)
        except (OSError, StoreCorrupt):
            return None
        return None if fetched is None or sum(map(len, fetched[0].values())) > max_bytes else fetched

    def _of_table(self, stream: Stream, offset: int, limit: int) -> tuple[dict[int, bytes], list[int]] | None:
        """By the table of the lane's places."""
        lane = stream.lane
        table: LanePlaces | None = lane.held.places.get(lane.index)
        if table is None:
            return None
        view = lane.view
        found: dict[int, bytes] = {}
        if not table.copied(stream, offset, limit, found) or not found:
            return None
        times = times_of(view, table.places(stream.number, offset, len(found)))
        return None if times is None else (found, times)

    def _of_parts(
        self, stream: Stream, offset: int, limit: int, max_bytes: int
    ) -> tuple[dict[int, bytes], list[int]] | None:
        """By the tables of the segments. Raises OSError, StoreCorrupt."""
        lane = stream.lane
        view = lane.view
        parts = find_parts(lane, view, stream.number, offset, limit)
        if parts is None or _size(parts) > max_bytes:
            return None
        places = [(segment, flat[3 * entry]) for segment, flat, entries, _ in parts for entry in entries]
        times = times_of(view, places)
        fetched = None if times is None else self._straight.fetched(lane.ring, parts)
        if times is None or fetched is None:
            return None
        found, is_past_cache = fetched
        if not is_past_cache and not (view.open and parts[0][0] is view.open[-1].segment):
            self._straight.tables.missed(stream, offset)
        return found, times


def _size(parts: list[Part]) -> int:
    return sum([flat[3 * entry + 1] for _, flat, entries, _ in parts for entry in entries])
