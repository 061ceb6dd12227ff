"""The shortest way of `read_batch`: small messages that the newest segment and the ring have, of one queue.

This is how a consumer reads that keeps up with its writer, in the writer's process or another one. It takes as few
steps as it can: a process that sleeps between its calls finds little of its code in the processor's caches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from ..device.buffers import BufferPool
from ..device.ring import Ring
from ..format.arrays import Int64s
from ..format.layout import HAS_EXTRAS, checksum64
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..segment.open_table import CHECKSUM, LENGTH, POSITION, OpenTable, Uint32s
from .message import MessageBatch
from .sources import LOW_32, ReadCounters

FEW_MESSAGES = 48  # arrays cost more up to here
MOST_MESSAGES = 1 << 16
SMALL_BYTES = 1024  # of a message: of larger ones a copy less counts for more than a step


class Recent:
    """Reads from the newest segment and the ring. Any number of threads may use it.

    It is a shortcut: `Reader` has the contract. It answers None also for messages outside of these two, for optional
    columns, and where a call has more than `max_bytes`.
    """

    def __init__(self, counters: ReadCounters, buffers: BufferPool) -> None:
        self._counters = counters
        self._buffers = buffers

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch | None:
        """The messages that there are, up to `limit`."""
        opened = stream.lane.view.open
        row = opened[-1].table.row(stream.number) if opened else None
        if row is None or offset < row[0] or offset < stream.low or limit > MOST_MESSAGES:
            return None
        begin = offset - row[0]
        entries = row[1][begin : begin + limit]
        if not entries:
            return None
        fetch = self._few if len(entries) <= FEW_MESSAGES else self._many
        return fetch(stream, opened[-1], offset, entries, max_bytes)

    def _few(
        self, stream: Stream, opened: OpenSegment, offset: int, entries: array[int], max_bytes: int
    ) -> MessageBatch | None:
        """Of few messages: lists, a copy and a checksum for each."""
        (segment, table), ring = opened, stream.lane.ring
        flat, base = table.flat, segment.base
        places = [3 * entry for entry in entries]
        begins, lengths = [flat[at] for at in places], [flat[at + 1] for at in places]
        size = sum(lengths)
        if base is None or size > max_bytes or base + begins[0] < ring.low:
            return None
        datas = ring.copies(base, begins, lengths)
        if base + begins[0] < ring.low:  # overtaken while it was copied
            return None
        if [whole & LOW_32 for whole in map(checksum64, datas)] != [flat[at + 2] for at in places]:
            return None
        times = _times_of_few(table, entries)
        if times is None:
            return None
        count = len(datas)
        self._count(count, size)
        positions = list(accumulate(lengths, initial=0))[:-1]
        columns = np.array((positions, lengths, range(offset, offset + count), times), np.int64)
        return MessageBatch(
            self._buffers.joined(datas, size), columns[0], columns[1], columns[2], columns[3],
            np.zeros(count, np.uint32), [(stream.topic, stream.queue_id)],
        )  # fmt: skip

    def _many(
        self, stream: Stream, opened: OpenSegment, offset: int, entries: array[int], max_bytes: int
    ) -> MessageBatch | None:
        """Of more messages: arrays; bytes of the ring's `span` if it has one, which needs no copy and no checksum."""
        segment, table = opened
        index = np.frombuffer(entries, np.uint32)
        rows, base = table.rows_of(index), segment.base
        lengths = rows[:, LENGTH].astype(np.int64)
        ends = lengths.cumsum()
        size, times, ring = ends.item(-1), _times(table, entries, index), stream.lane.ring
        if base is None or times is None or size > max_bytes or size >= SMALL_BYTES * len(rows):
            return None
        ring.note_read(len(rows))
        oldest, span = base + rows.item(0), ring.span
        if span is not None and span.begin <= oldest and base + rows.item(-3) + rows.item(-2) <= span.end:
            self._count(len(rows), size)
            positions = rows[:, POSITION].astype(np.int64) + (base - span.begin)
            return _batch(span.memory, positions, lengths, stream, offset, times)
        datas = _copies(ring, base, rows)
        if datas is None:
            return None
        sums = np.array([*map(checksum64, datas)], np.uint64).astype(np.uint32)
        if (sums != rows[:, CHECKSUM]).any():
            return None
        self._count(len(datas), size)
        return _batch(self._buffers.joined(datas, size), ends - lengths, lengths, stream, offset, times)

    def _count(self, messages: int, size: int) -> None:
        counters = self._counters
        counters.messages += messages
        counters.recent_messages += messages
        counters.bytes += size
        counters.recent_bytes += size


def _copies(ring: Ring, base: int, rows: Uint32s) -> list[bytes] | None:
    """The messages of these rows, of a segment that begins at `base`; None if the ring has lost one of them."""
    oldest = base + rows.item(0)
    if oldest < ring.low:
        return None
    datas = ring.copies(base, rows[:, POSITION].tolist(), rows[:, LENGTH].tolist())
    return datas if oldest >= ring.low else None  # else overtaken while it was copied


def _batch(
    buffer: memoryview, positions: Int64s, lengths: Int64s, stream: Stream, offset: int, times: Int64s
) -> MessageBatch:
    count = len(lengths)
    return MessageBatch(
        buffer, positions, lengths, np.arange(offset, offset + count), times, np.zeros(count, np.uint32),
        [(stream.topic, stream.queue_id)],
    )  # fmt: skip


def _times(table: OpenTable, entries: array[int], index: Uint32s) -> Int64s | None:
    """When each was put into the log; None if one of them has optional columns."""
    first, last = entries[0], entries[-1]
    begins = table.frame_entry
    low = bisect_right(begins, first) - 1
    high = bisect_right(begins, last, low)
    for flags in table.frame_flags[low:high]:
        if flags & HAS_EXTRAS:
            return None
    if high - low == 1:
        return np.full(len(entries), table.frame_time[low])
    frames = np.frombuffer(begins[low:high], np.uint32).searchsorted(index, side="right")
    return np.frombuffer(table.frame_time[low:high], np.int64).take(frames - 1)


def _times_of_few(table: OpenTable, entries: array[int]) -> list[int] | None:
    """When each of a few was put into the log, as a list; None if one of them has optional columns."""
    begins, times, flags = table.frame_entry, table.frame_time, table.frame_flags
    at, following, found = -1, 0, []
    for entry in entries:
        if entry >= following:
            at = bisect_right(begins, entry, at + 1) - 1
            following = begins[at + 1] if at + 1 < len(begins) else table.entries
            if flags[at] & HAS_EXTRAS:
                return None
            time_ms = times[at]
        found.append(time_ms)
    return found
