"""The part of a store that appends columns: n messages without an object a message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..config import MOST_MESSAGE_BYTES
from ..format.arrays import Int64s
from ..format.rows import Rows
from ..log.column_group import ColumnGroup, ColumnRows
from ..log.streams import FindOrMake, Stream
from ..log.ticket import BatchTicket
from ..topics.full import FullTopics
from .batch_ticket import GroupsTicket
from .batches import BatchPart, offsets_of
from .column_checks import check_columns
from .shared import Shared
from .stream_table import StreamTable, table_of


class ColumnAppender:
    """The part of a store that appends columns: `ColumnCalls` passes its calls on to it."""

    def __init__(self, shared: Shared, find_or_make: FindOrMake, make: FindOrMake, full: FullTopics) -> None:
        """`make` also gives the streams of queues that their topics do not have."""
        self._shared = shared
        self._full = full
        self._find_or_make = find_or_make
        self._make = make
        self._stream_table = StreamTable(())  # of the newest call

    def append(self, *columns: object) -> Int64s:
        """Append; return the offsets when all are durable."""
        parts = self.parts(*columns)
        _put(parts)
        return offsets_of(parts)

    def append_again(self, *columns: object) -> Int64s:
        """`append` of messages that the store has taken before: neither a size limit that is lower by now nor the
        topic's number of queues holds for them."""
        parts = self.parts(*columns, limit_bytes=MOST_MESSAGE_BYTES, find_or_make=self._make)
        _put(parts)
        return offsets_of(parts)

    def submit(self, *columns: object) -> BatchTicket:
        """Hand over; return the ticket."""
        parts = self.parts(*columns)
        _put(parts)
        return GroupsTicket(parts, self._shared.queues[0].listeners)

    def append_async(self, *columns: object) -> asyncio.Future[Int64s]:
        """Hand over; return the Future."""
        asyncio.get_running_loop()  # it raises before anything is handed over
        return self._shared.batches.put(self.parts(*columns))

    def parts(
        self, streams: object, stream_index: object, lengths: object, payload: object, keys: object,
        properties: object, deliver_at_ms: object, *, limit_bytes: int | None = None,
        find_or_make: FindOrMake | None = None,
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
        resolved = table.resolve(found.numbers, find_or_make or self._find_or_make)
        if self._full:
            names: list[Any] = [table.given[at] for at in np.unique(found.numbers).tolist()]
            self._full.check([topic for topic, _ in names])
        self._stream_table = table
        is_numbered = resolved.numbers is not None
        index = resolved.numbers if is_numbered else resolved.stream_index
        assert index is not None
        rows = found._replace(numbers=index)
        limit = self._shared.frame_bytes
        if resolved.lanes is None:
            return [BatchPart(None, _groups(resolved.streams, rows, limit, is_numbered=is_numbered))]
        parts = []
        for lane in sorted({stream.lane.index for stream in resolved.streams}):
            picked = np.flatnonzero(resolved.lanes == lane)  # copied, to lie together
            streams = [one for one in resolved.streams if one.lane.index == lane] if is_numbered else resolved.streams
            parts.append(BatchPart(picked, _groups(streams, rows.take(picked), limit, is_numbered=is_numbered)))
        return parts


def _put(parts: list[BatchPart]) -> None:
    for part in parts:
        for group in part.groups:
            group.stream.lane.queue.put(group)


def _groups(streams: Sequence[Stream], rows: Rows, limit_bytes: int, *, is_numbered: bool) -> list[ColumnGroup]:
    """The messages of one lane, in groups that fit into a frame."""
    return [ColumnGroup(ColumnRows.of(streams, part, is_numbered=is_numbered)) for part in rows.cut(limit_bytes)]
