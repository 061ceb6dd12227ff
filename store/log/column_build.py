"""A frame built of arrays: for requests of which at least one has columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..format.arrays import Int64s
from ..format.column_frame import WHOLE_CHECKSUM_BELOW_BYTES, FrameColumns, message_checksums, narrow
from ..format.footer import TRIM_BYTES
from ..format.layout import FRAME_HEADER_BYTES, HAS_PAYLOAD_CHECKSUM, align_up, checksum64
from ..segment.footer_room import share_of_frame
from ..segment.open_table import entry_columns
from .batch import last_ends
from .column_group import ColumnGroup, ColumnRows, joined, parts_of
from .request import Group, Request, cost_bytes
from .room import define, note_records
from .streams import NOT_DEFINED
from .trims import count_trims
from .write import PendingFrame

if TYPE_CHECKING:
    from .lane import Lane


def have_columns(requests: Sequence[Request]) -> bool:
    """Whether a request has columns: then the frame is built of arrays."""
    return ColumnGroup in set(map(type, requests))


def build_columns(lane: Lane, requests: Sequence[Request]) -> int:
    """Do what `Lane.build` does, in arrays."""
    parts = parts_of(requests)
    lane.make_room(
        sum([part.bytes_bound() for part in parts]), lambda: share_of(parts) + TRIM_BYTES * count_trims(requests)
    )
    fresh = any([part.undefined() for part in parts])
    defined = define(lane, [stream for part in parts for stream in part.streams]) if fresh else []
    rows = joined(parts)
    numbers = narrow(rows.known_numbers())
    offsets = lane.offsets.give_column(numbers)
    first_entry = lane.table.entries
    columns = FrameColumns(numbers, rows.lengths, offsets, rows.times_ms, rows.keys, rows.properties, defined)
    ends = _put_columns(lane, columns, rows)
    _hand_out(requests, offsets)
    lane.unissued.add(last_ends(requests, ends))
    cost = sum(map(cost_bytes, requests))
    lane.under_way.add_frame(PendingFrame(requests, ends, lane.tail, first_entry, lane.table, cost, None))
    lane.counters.count(len(ends), note_records(lane, requests))
    lane.counters.payload_bytes += rows.payload_bytes
    return 0


def share_of(parts: Sequence[ColumnRows]) -> int:
    """An upper bound of the bytes that one frame of these adds to its segment's footer."""
    new = {stream for part in parts if part.undefined() for stream in part.streams if stream.number == NOT_DEFINED}
    return share_of_frame(sum([len(part.lengths) for part in parts]), [stream.topic for stream in new])


def _put_columns(lane: Lane, columns: FrameColumns, rows: ColumnRows) -> array[int]:
    """Copy the frame into the ring and its columns into the table; where each payload ends.

    The payloads come first, and the checksums are made of what is in the ring: a caller's buffer may change at any
    moment, and what is stored is sound in any case.
    """
    start, count, payload_bytes = lane.tail, len(rows.lengths), rows.payload_bytes
    payload = start + FRAME_HEADER_BYTES + columns.size_bytes
    end = payload + payload_bytes
    lane.reserve(align_up(end))
    lane.ring.fill(payload, rows.payloads, payload_bytes)
    stored, flags, whole = lane.ring.look(payload, payload_bytes), columns.flags, 0
    if payload_bytes < WHOLE_CHECKSUM_BELOW_BYTES * count:
        flags |= HAS_PAYLOAD_CHECKSUM
        whole = checksum64(stored)
    checksums = message_checksums(stored, rows.lengths)
    packed = columns.packed(checksums)
    header, head = lane.sealed_head(flags, packed, count, payload_bytes, whole)
    lane.ring.fill(start, [head], len(head))
    ends = rows.lengths.cumsum()
    starts = ends - rows.lengths + (header.position + header.header_bytes)
    lane.note_frame(header, packed, entry_columns(starts, rows.lengths, checksums), end)
    return array("q", (ends + payload).tobytes())


def _hand_out(requests: Sequence[Request], offsets: Int64s) -> None:
    """Tell each request its offset, or its offsets."""
    at = 0
    for request in requests:
        if isinstance(request, Group):
            request.offsets = offsets[at : at + request.count]
        elif request.count:
            request.offset = int(offsets[at])
        at += request.count
