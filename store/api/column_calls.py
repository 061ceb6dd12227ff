"""The calls that append columns, as a user sees them: names, arguments and promises. `ColumnAppender` does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ..format.arrays import Int64s
from ..log.ticket import BatchTicket
from .columns import ColumnAppender

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    # numpy's arrays are buffers, but their types say so from Python 3.12 on only.
    AnyBuffer = ReadableBuffer | npt.NDArray[Any]
    BytesColumn = tuple[npt.ArrayLike, AnyBuffer]

Streams = Sequence[tuple[str, int]]


class ColumnCalls:
    """Passes each call on to the store's part that appends columns. It has no state of its own."""

    _columns: ColumnAppender

    def append_columns(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: AnyBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> Int64s:
        """Append n messages given as columns; return their offsets when all are durable.

        Messages of one queue keep the order of the rows. As `append_batch`, a call is not a transaction.

        Args:
            streams: a table of (topic, queue id) pairs. One that no row names is not looked at. If the next call has
                the same tuple, the store does not look its names up again.
            stream_index: integers (n), each message's index into `streams`.
            lengths: integers (n), bytes of each payload.
            payload: the payloads back to back: any contiguous buffer of bytes (bytes, bytearray, memoryview, numpy
                uint8, mmap, an Arrow buffer). It is copied once, while the call lasts. If another thread changes it
                meanwhile, some messages have the old bytes and some the new ones, and the store stays sound.
            keys: (lengths, buffer), as the payloads; the length -1 is no key, 0 an empty one.
            properties: (lengths, buffer), each JSON of an object whose values are strings; the length -1 is none.
            deliver_at_ms: integers (n), ms since the epoch; -1 is none.

        Returns: int64 (n), the offset of each message, in the order of the rows.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: an argument or a row is wrong, and no row is stored. If a row
                is, the error's text and its `row` have its number, counted from 0.
            TopicFull: the subscriptions of one of the topics keep too much, see `configure_topic`; no row is stored.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some messages may be stored.
        """
        return self._columns.append(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)

    def submit_columns(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: AnyBuffer,
        keys: BytesColumn | None = None,
        properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> BatchTicket:
        """Hand n messages over as columns and return a ticket; `ticket.result()` waits for their offsets.

        The call waits only while the publish buffer is full. The store holds `payload` until the ticket is done, and
        copies it at a moment of its choice: do not write to it before. All other columns are copied in the call.

        Args: as for `append_columns`.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage, TopicFull: as for `append_columns`; no row is stored.
            PublishBufferFull, StorePoisoned, StoreClosed: some messages may be stored. The ticket raises later errors.
        """
        return self._columns.submit(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)

    def append_columns_async(
        self,
        streams: Streams,
        stream_index: npt.ArrayLike,
        lengths: npt.ArrayLike,
        payload: AnyBuffer,
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
        return self._columns.append_async(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
