"""The part of a store that appends columns: n messages without an object a message."""

from __future__ import annotations

import asyncio

import numpy as np

from ..config import MOST_MESSAGE_BYTES
from ..format.arrays import Int64s
from ..format.blobs import gathered
from ..format.layout import MAX_FRAME_MESSAGES
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.streams import FindOrMake
from ..log.ticket import BatchTicket
from .batch_ticket import GroupsTicket
from .batches import AsyncBatch, BatchPart, offsets_of
from .column_checks import check_columns
from .shared import Shared
from .stream_table import StreamTable, table_of


class ColumnAppender:
    """The part of a store that appends columns: `ColumnCalls` passes its calls on to it."""

    def __init__(self, shared: Shared, find_or_make: FindOrMake) -> None:
        self._shared = shared
        self._find_or_make = find_or_make
        self._stream_table = StreamTable(())  # of the newest call

    def append(self, *columns: object) -> Int64s:
        """Append; return the offsets when all are durable."""
        parts = self.parts(*columns)
        _put(parts)
        return offsets_of(parts)

    def append_again(self, *columns: object) -> Int64s:
        """`append` of messages that the store has taken before: a limit that is lower by now does not hold for them."""
        parts = self.parts(*columns, limit_bytes=MOST_MESSAGE_BYTES)
        _put(parts)
        return offsets_of(parts)

    def submit(self, *columns: object) -> BatchTicket:
        """Hand over; return the ticket."""
        parts = self.parts(*columns)
        _put(parts)
        return GroupsTicket(parts, self._shared.queues[0].listeners)

    def append_async(self, *columns: object) -> asyncio.Future[Int64s]:
        """Hand over; return the Future."""
        loop = asyncio.get_running_loop()
        batch = AsyncBatch(loop, self.parts(*columns))
        batch.put(self._shared.config.append_timeout_ms / 1000)
        return batch.future

    def parts(
        self, streams: object, stream_index: object, lengths: object, payload: object, keys: object,
        properties: object, deliver_at_ms: object, *, limit_bytes: int | None = None,
    ) -> list[BatchPart]:  # fmt: skip
        """Check columns and cut them into groups, to be handed over. `limit_bytes`: of a message; None: the setting."""
        limit = self._shared.config.max_message_bytes if limit_bytes is None else limit_bytes
        table = self._stream_table
        if not table.is_of(streams):
            table = table_of(streams)
        found = check_columns(len(table.given), stream_index, lengths, payload, keys, properties, deliver_at_ms, limit)
        self._shared.check_open()
        if not len(found.lengths):
            return []
        resolved = table.resolve(found.stream_index, self._find_or_make)
        self._stream_table = table
        rows = ColumnRows(
            resolved.streams, resolved.stream_index, resolved.numbers, found.lengths, [found.payload],
            found.payload.nbytes, found.times_ms, found.keys, found.properties,
        )  # fmt: skip
        if resolved.lanes is None:
            return [BatchPart(None, _cut(rows, found.payload, self._shared.frame_bytes))]
        return _cut_by_lane(rows, found.payload, resolved.lanes, self._shared.frame_bytes)


def _put(parts: list[BatchPart]) -> None:
    for part in parts:
        for group in part.groups:
            group.stream.lane.queue.put(group)


def _cut_by_lane(rows: ColumnRows, payload: memoryview, lanes: Int64s, limit_bytes: int) -> list[BatchPart]:
    """The messages in groups, of one lane each: `lanes` (n,). Those of a lane are copied to lie together."""
    ends = rows.lengths.cumsum()
    parts = []
    for lane in sorted({stream.lane.index for stream in rows.streams}):
        picked = np.flatnonzero(lanes == lane)
        data = memoryview(gathered(payload, ends - rows.lengths, rows.lengths, picked))
        mine = rows._replace(
            streams=rows.streams if rows.numbers is None else [one for one in rows.streams if one.lane.index == lane],
            stream_index=None if rows.stream_index is None else rows.stream_index[picked],
            numbers=None if rows.numbers is None else rows.numbers[picked],
            lengths=rows.lengths[picked],
            payloads=[data],
            payload_bytes=data.nbytes,
            times_ms=None if rows.times_ms is None else rows.times_ms[picked],
            keys=None if rows.keys is None else rows.keys.take(picked),
            properties=None if rows.properties is None else rows.properties.take(picked),
        )
        parts.append(BatchPart(picked, _cut(_with_used_streams(mine), data, limit_bytes)))
    return parts


def _cut(rows: ColumnRows, payload: memoryview, limit_bytes: int) -> list[ColumnGroup]:
    """The messages of one lane, in groups that fit into a frame."""
    sizes = rows.lengths
    for blobs in (rows.keys, rows.properties):
        if blobs is not None:
            sizes = sizes + np.maximum(blobs.lengths, 0)
    count = len(sizes)
    ends = sizes.cumsum()
    if count <= MAX_FRAME_MESSAGES and int(ends[-1]) <= limit_bytes:
        return [ColumnGroup(rows)]
    payload_ends = np.concatenate([[0], rows.lengths.cumsum()])
    groups = []
    begin = at_bytes = 0
    while begin < count:
        fitting = int(ends.searchsorted(at_bytes + limit_bytes, side="right"))
        end = min(max(fitting, begin + 1), begin + MAX_FRAME_MESSAGES, count)
        low, high = int(payload_ends[begin]), int(payload_ends[end])
        groups.append(ColumnGroup(_part(rows, begin, end, payload[low:high])))
        begin, at_bytes = end, int(ends[end - 1])
    return groups


def _part(rows: ColumnRows, begin: int, end: int, payload: memoryview) -> ColumnRows:
    part = ColumnRows(
        rows.streams,
        None if rows.stream_index is None else rows.stream_index[begin:end],
        None if rows.numbers is None else rows.numbers[begin:end],
        rows.lengths[begin:end],
        [payload],
        payload.nbytes,
        None if rows.times_ms is None else rows.times_ms[begin:end],
        None if rows.keys is None else rows.keys.part(begin, end),
        None if rows.properties is None else rows.properties.part(begin, end),
    )
    return _with_used_streams(part)


def _with_used_streams(rows: ColumnRows) -> ColumnRows:
    """Leave streams without a message out of the table: a frame must not name them for the first time."""
    if rows.stream_index is None:
        return rows
    used, index = np.unique(rows.stream_index, return_inverse=True)
    return rows._replace(streams=[rows.streams[at] for at in used.tolist()], stream_index=index)
