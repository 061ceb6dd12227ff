"""The shortest way of `read_batch`: few messages that the newest segment and the ring have, of one queue.

This is how a consumer reads that keeps up with its writer, in the writer's process or another one. It takes as few
steps as it can: a process that sleeps between its calls finds little of its code in the processor's caches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from ..device.buffers import BufferPool
from ..device.ring import Span
from ..format.layout import HAS_EXTRAS, checksum64
from ..log.streams import Stream
from ..log.write import OpenSegment, View
from ..segment.open_table import LENGTH, POSITION, OpenTable
from .bulk import batch_of
from .frame_times import times_of_many
from .log_bytes import LOW_32
from .message import MessageBatch
from .read_counters import ReadCounters

FEW_MESSAGES = 48  # arrays cost more up to here
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
        view = stream.lane.view
        row = view.open[-1].table.row(stream.number) if view.open else None
        if row is None or offset < row[0] or offset < stream.low:
            return None
        begin = offset - row[0]
        span = stream.lane.ring.span
        entries = row[1][begin : begin + (limit if span is not None else min(limit, FEW_MESSAGES + 1))]
        if 0 < len(entries) <= FEW_MESSAGES:
            return self._few(stream, view.open[-1], offset, entries, max_bytes)
        return None if span is None or not entries else self._of_span(stream, view, span, offset, entries, max_bytes)

    def _of_span(
        self, stream: Stream, view: View, span: Span, offset: int, entries: array[int], max_bytes: int
    ) -> MessageBatch | None:
        """Of many small messages: those of a ring's `span`, without a copy and a checksum."""
        (segment, table), base = view.open[-1], view.open[-1].segment.base
        rows = table.rows_of(np.frombuffer(entries, np.uint32))
        lengths = rows[:, LENGTH].astype(np.int64)
        size = int(lengths.sum())
        if base is None or size > max_bytes or size >= SMALL_BYTES * len(rows):
            return None
        if base + rows.item(0) < span.begin or span.end < base + rows.item(-3) + rows.item(-2):
            return None
        times = times_of_many(view, segment, rows[:, POSITION])
        if times is None:
            return None
        stream.lane.ring.note_read(len(rows))
        self._counters.count_recent(len(rows), size)
        positions = rows[:, POSITION].astype(np.int64) + (base - span.begin)
        return batch_of(stream, offset, span.memory, (positions, lengths, times))

    def _few(
        self, stream: Stream, opened: OpenSegment, offset: int, entries: array[int], max_bytes: int
    ) -> MessageBatch | None:
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
        self._counters.count_recent(count, size)
        positions = list(accumulate(lengths, initial=0))[:-1]
        columns = np.array((positions, lengths, range(offset, offset + count), times), np.int64)
        return MessageBatch(
            self._buffers.joined(datas, size), columns[0], columns[1], columns[2], columns[3],
            np.zeros(count, np.uint32), [(stream.topic, stream.queue_id)],
        )  # fmt: skip


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
