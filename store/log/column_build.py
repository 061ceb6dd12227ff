"""A frame built of arrays: for requests of which at least one has columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from ..format.column_frame import FrameColumns, message_checksums, narrow
from ..format.footer import TRIM_BYTES
from ..format.layout import ATOMIC
from ..segment.footer_room import share_of_frame
from ..segment.open_table import EntryRows, entry_columns
from .atomic_group import are_atomic
from .batch import hand_out, last_ends
from .column_group import ColumnGroup, ColumnRows, joined, parts_of
from .frame_ids import FrameIds, fill_all, ids_in
from .request import Request
from .room import define, make_room, note_records
from .sizer import cost_bytes
from .streams import NOT_DEFINED
from .trims import count_trims
from .writes import PendingFrame
from .written_lane import WrittenLane


def have_columns(requests: Sequence[Request]) -> bool:
    """Whether a request has columns: then the frame is built of arrays."""
    return ColumnGroup in set(map(type, requests))


def build_columns(lane: WrittenLane, requests: Sequence[Request]) -> int:
    """Do what `LaneMachine.build` does, in arrays."""
    parts = parts_of(requests)
    ids = ids_in(requests)
    if ids:
        parts.append(records_of(ids))
    make_room(
        lane, sum([part.bytes_bound() for part in parts]), lambda: share_of(parts) + TRIM_BYTES * count_trims(requests)
    )
    fresh = any([part.undefined() for part in parts])
    defined = define(lane, [stream for part in parts for stream in part.streams]) if fresh else []
    rows = joined(parts)
    numbers = narrow(rows.known_numbers())
    offsets = lane.offsets.give_column(numbers)
    if ids:
        fill_all(ids, offsets, lane.now_ms())
    first_entry = lane.table.entries
    columns = FrameColumns(numbers, rows.lengths, offsets, rows.times_ms, rows.keys, rows.properties, defined)
    ends = rows.lengths.cumsum()

    def pack(stored: bytes | memoryview, position: int) -> tuple[bytes, EntryRows]:
        checksums = message_checksums(stored, rows.lengths)
        return columns.packed(checksums), entry_columns(ends - rows.lengths + position, rows.lengths, checksums)

    is_atomic = bool(ids) or are_atomic(requests)
    flags = columns.flags | ATOMIC if is_atomic else columns.flags
    payload = lane.put_frame(
        flags, columns.size_bytes, len(ends), rows.payloads, rows.payload_bytes, pack, is_own=False
    )  # fmt: skip
    hand_out(requests, offsets, plain=False)  # records of ids come last, and belong to no request
    # An atomic frame is shown and answered as a whole.
    placed = array("q", [lane.tail] * len(ends) if is_atomic else (ends + payload).tobytes())
    lane.unissued.add(last_ends(requests, placed))
    cost = sum(map(cost_bytes, requests))
    lane.under_way.add_frame(PendingFrame(requests, placed, lane.tail, first_entry, lane.table, cost, None, ids))
    lane.counters.count(len(ends), len(ids) + note_records(lane, requests))
    lane.counters.payload_bytes += rows.payload_bytes
    return 0


def records_of(ids: Sequence[FrameIds]) -> ColumnRows:
    """The records of a frame's ids, which `fill_all` writes later."""
    sizes = [len(one.record) for one in ids]
    streams = [one.target.stream for one in ids]
    return ColumnRows(
        streams,
        np.arange(len(ids)),
        None,
        np.array(sizes, np.int64),
        [memoryview(one.record) for one in ids],
        sum(sizes),
    )


def share_of(parts: Sequence[ColumnRows]) -> int:
    """An upper bound of the bytes that one frame of these adds to its segment's footer."""
    new = {stream for part in parts if part.undefined() for stream in part.streams if stream.number == NOT_DEFINED}
    return share_of_frame(sum([len(part.lengths) for part in parts]), [stream.topic for stream in new])
