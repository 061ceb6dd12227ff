"""A frame built message by message: for requests without columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..format.frame import Definition, column_bytes_bound, encode_columns
from ..format.layout import ATOMIC
from ..segment.footer_room import share_of_frame
from ..segment.open_table import EntryRows, entry_rows
from .atomic_group import are_atomic
from .batch import columns_of, extras_of, given_extras, hand_out, last_ends
from .frame_ids import FrameIds, fill_all, split
from .request import Request
from .room import define, make_room, note_records
from .sizer import cost_bytes
from .streams import NOT_DEFINED
from .trims import count_trims
from .writes import PendingFrame
from .written_lane import WrittenLane


def build_rows(
    lane: WrittenLane, requests: Sequence[Request], left_bytes: int | None, *, plain: bool, more_flags: int = 0,
    joint: bytes = b"",
) -> None:  # fmt: skip
    """Do what `LaneMachine.build` does, for at least one message. `plain`: each request is one.

    `more_flags`: of a part of a round; `joint`: the column of its first frame.
    """
    streams, datas, sizes = columns_of(requests, plain)
    given = all_given = given_extras(requests, plain)
    ids: list[FrameIds] = []
    if given or not plain:
        ids, given = split(requests, all_given, plain)
    if ids:  # one record more for each topic: the requests keep their columns, and the frame gets longer ones
        streams, sizes = [*streams, *[one.target.stream for one in ids]], [*sizes, *[len(one.record) for one in ids]]
    extras = [*extras_of(requests), *[None] * len(ids)] if given else None
    numbers = [stream.number for stream in streams]
    fresh = {stream for stream in streams if stream.number == NOT_DEFINED} if NOT_DEFINED in numbers else set()
    payload_bytes = sum(sizes)
    topics = [stream.topic for stream in fresh]
    bound = column_bytes_bound(len(streams), given, topics) + payload_bytes + len(joint)
    make_room(lane, bound, lambda: share_of_frame(len(streams), topics, count_trims(requests)), left_bytes)

    defined: list[Definition] = []
    if fresh:
        defined = define(lane, streams)
        numbers = [stream.number for stream in streams]
    first_entry = lane.table.entries
    offsets = lane.offsets.give(numbers)
    if ids:
        fill_all(ids, offsets, lane.now_ms())
        datas = [*datas, *[bytes(one.record) for one in ids]]
    columns = encode_columns(numbers, datas, sizes, offsets, extras, defined)
    packed = columns.packed

    def pack(_: bytes | memoryview, position: int) -> tuple[bytes, EntryRows]:
        starts = accumulate(sizes[:-1], initial=position)
        return packed, entry_rows(starts, columns.lengths, columns.checksums)

    is_atomic = bool(ids) or (not plain and are_atomic(requests))
    flags = columns.flags | ATOMIC if is_atomic else columns.flags
    if more_flags:
        flags, packed = flags | more_flags, packed + joint
    payload = lane.put_frame(flags, len(packed), len(datas), datas, payload_bytes, pack, is_own=True)
    # An atomic frame is shown and answered as a whole.
    ends = [lane.tail] * len(sizes) if is_atomic else [*accumulate(sizes, initial=payload)][1:]
    hand_out(requests, offsets[: -len(ids)] if ids else offsets, plain)
    lane.unissued.add((ends[: -len(ids)] if ids else ends) if plain else last_ends(requests, ends))
    if ids and not plain:
        cost = sum(map(cost_bytes, requests))
    else:
        records_bytes = sum([len(one.record) for one in ids])
        cost = payload_bytes - records_bytes + sum([extra.size_bytes for extra in all_given])
    simple = payload if plain and not given and not ids else None
    lane.under_way.add_frame(PendingFrame(requests, ends, lane.tail, first_entry, lane.table, cost, simple, ids))
    lane.counters.count(len(streams), len(ids) + (0 if plain else note_records(lane, requests)))
    lane.counters.payload_bytes += payload_bytes
