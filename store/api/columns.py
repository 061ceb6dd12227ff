"""Appending columns: n messages without an object a message."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..format.blobs import Int64s, gathered
from ..format.layout import MAX_FRAME_MESSAGES
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.streams import Stream
from ..log.ticket import BatchTicket
from .base import OpenStore
from .batch_ticket import GroupsTicket
from .batches import AsyncBatch, Part, offsets_of
from .column_checks import check_columns
from .stream_table import StreamTable, table_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    BytesColumn = tuple[npt.ArrayLike, ReadableBuffer]

Streams = Sequence[tuple[str, int]]


class ColumnAppends(OpenStore):
    """The calls that append columns."""

    _stream_table = StreamTable(())  # of the newest call

    @abstractmethod
    def _stream(self, topic: object, queue_id: object) -> Stream:
        """The stream of a name, made at first use."""

    def append_columns(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: ReadableBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> Int64s:
        """Append n messages given as columns; return their offsets when all are durable.

        Messages of one queue keep the order of the rows. As `append_batch`, a call is not a transaction.

        Args:
            streams: a table of (topic, queue id) pairs. One that no row names is not looked at. The store knows a tuple
                again that the next call has as well, and does not look its names up.
            stream_index: integers (n), each message's index into `streams`.
            lengths: integers (n), bytes of each payload.
            payload: the payloads back to back: any contiguous buffer of bytes (bytes, bytearray, memoryview, numpy
                uint8, mmap, an Arrow buffer). It is copied once, while the call lasts. If another thread changes it
                meanwhile, some messages have the old bytes and some the new ones, and the store stays sound.
            keys: (lengths, buffer), as the payloads; the length -1 is no key, 0 an empty one.
            properties: the same; each is JSON of an object whose values are strings, or -1 for none.
            deliver_at_ms: integers (n), ms since the epoch; -1 is none.

        Returns: int64 (n), the offset of each message, in the order of the rows.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: an argument or a row is wrong, and no row is stored. If a row
                is, the error's text and its `row` have its number, counted from 0.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some messages may be stored.
        """
        parts = self._column_parts(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        _put(parts)
        return offsets_of(parts)

    def submit_columns(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: ReadableBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> BatchTicket:
        """Hand n messages over as columns and return a ticket; `ticket.result()` waits for their offsets.

        The call waits only while the publish buffer is full. The store holds `payload` until the ticket is done, and
        copies it at a moment of its choice: do not write to it before. All other columns are copied in the call.

        Args: as for `append_columns`.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: as for `append_columns`; no row is stored.
            PublishBufferFull, StorePoisoned, StoreClosed: some messages may be stored. The ticket raises later errors.
        """
        parts = self._column_parts(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        _put(parts)
        return GroupsTicket(parts, self._queues[0].listeners)

    def append_columns_async(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: ReadableBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> asyncio.Future[Int64s]:
        """`append_columns` for coroutines: hand n messages over and return a Future of their offsets.

        While the publish buffer is full, parts of the columns wait in order. The store holds `payload` as
        `submit_columns` does. A cancelled call may be stored in part.

        Args: as for `append_columns`.

        Raises: as `append_batch_async`.
        """
        loop = asyncio.get_running_loop()
        parts = self._column_parts(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        batch = AsyncBatch(loop, parts)
        batch.put(self.config.append_timeout_ms / 1000)
        return batch.future

    def _column_parts(
        self, streams: object, stream_index: object, lengths: object, payload: object, keys: object,
        properties: object, deliver_at_ms: object,
    ) -> list[Part]:  # fmt: skip
        """Columns, checked, in groups; nothing is handed over yet."""
        limit = self.config.max_message_bytes
        table = self._stream_table
        if not table.is_of(streams):
            table = table_of(streams)
        found = check_columns(
            len(table.given), stream_index, lengths, payload, keys, properties, deliver_at_ms, limit
        )
        self._check_open()
        if not len(found.lengths):
            return []
        resolved = table.resolve(found.stream_index, self._find_or_make)
        self._stream_table = table
        rows = ColumnRows(
            resolved.streams, resolved.stream_index, resolved.numbers, found.lengths, [found.payload],
            found.payload.nbytes, found.times_ms, found.keys, found.properties,
        )  # fmt: skip
        if resolved.lanes is None:
            return [Part(None, _cut(rows, found.payload, self.config.max_frame_bytes))]
        return _cut_by_lane(rows, found.payload, resolved.lanes, self.config.max_frame_bytes)

    def _find_or_make(self, topic: str, queue_id: int) -> Stream:
        return self._streams.get(topic, queue_id) or self._stream(topic, queue_id)


def _put(parts: list[Part]) -> None:
    for part in parts:
        for group in part.groups:
            group.stream.queue.put(group)


def _cut_by_lane(rows: ColumnRows, payload: memoryview, lanes: Int64s, limit_bytes: int) -> list[Part]:
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
        parts.append(Part(picked, _cut(_with_used_streams(mine), data, limit_bytes)))
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
    """The same with a table of the streams that have a message: a frame must not name others for the first time."""
    if rows.stream_index is None:
        return rows
    used, index = np.unique(rows.stream_index, return_inverse=True)
    return rows._replace(streams=[rows.streams[at] for at in used.tolist()], stream_index=index)
