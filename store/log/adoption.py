"""A lane takes over the log that recovery has found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import StoreCorrupt
from ..format.commit_names import CommitNames
from ..format.layout import GONE_TOPIC, align_up
from ..format.records import RECORDS_TOPIC, Trimmed
from ..segment.present import Present
from ..segment.sealed import SealedSegment
from .gone import take_numbers
from .offsets import NextOffsets
from .sealed_log import include
from .streams import Lows, Stream, StreamMap
from .trims import Trims
from .write import OpenSegment, View

if TYPE_CHECKING:
    from .written_lane import WrittenLane


@dataclass
class LaneLog:
    """What a lane's log has at an opening."""

    sealed: list[SealedSegment] = field(default_factory=list)
    resumable: tuple[OpenSegment, int, int] | None = None  # with its data end and chain
    streams: Iterable[tuple[str, int]] = ()  # topic and queue id, by number
    next_offsets: list[int] = field(default_factory=list)  # by number
    trimmed: Trimmed = field(default_factory=dict)  # of those that were trimmed
    settled: Trimmed = field(default_factory=dict)  # what the newest full footer says of them
    applied: bytes = b""  # the commits that the log has, as a footer has them
    last_chain: int = 0
    messages: int = 0  # of the log, lost ones included, or UNKNOWN
    present: Present | None = None  # after the newest full footer, if that is known


def adopt(lane: WrittenLane, found: LaneLog, streams: StreamMap) -> None:
    """Take over the log, before anything else. Users' streams go into `streams`.

    Appends begin in a segment of their own, or in the resumable one.
    """
    _adopt_streams(lane, found, streams)
    lane.offsets = NextOffsets(found.next_offsets)
    lane.messages_before, lane.commits = found.messages, CommitNames(found.applied)
    lane.groups.begin(found.sealed, found.present)
    for one in found.sealed:
        include(lane, one)
    _count_names(lane, found.sealed)
    lane.view = View().sealing(found.sealed, ())
    lane.chain = found.last_chain
    if found.resumable is not None:
        _resume(lane, *found.resumable)


def _adopt_streams(lane: WrittenLane, found: LaneLog, streams: StreamMap) -> None:
    """Give a lane the streams, by number, and what was trimmed of them; users' go into `streams`, too.

    Of two streams with one name the one with the higher number is the queue. The other one was gone when that was
    made, and the log ended before a full footer said so.
    """
    records, nobody = lane.lows.records, lane.nobody
    made, ids = lane.streams, dict[int, int]()  # one int for all queues with the same id
    for number, (topic, queue_id) in enumerate(found.streams):
        if topic == RECORDS_TOPIC:
            records.number = number
            made.append(records)
        elif topic == GONE_TOPIC:
            made.append(nobody)
        else:
            made.append(Stream(topic, ids.setdefault(queue_id, queue_id), lane, number))
    left_out = streams.add_all(stream for stream in made if stream is not records and stream is not nobody)
    trimmed = {number: low for number, low in found.trimmed.items() if number < len(made)}
    trimmed = {number: low for number, low in trimmed.items() if made[number] is not nobody}
    for number, low in trimmed.items():
        made[number].low, made[number].hidden = low
    take_numbers(left_out)
    lane.lows, lane.trims = Lows(records, trimmed), Trims(trimmed, found.settled)


def _count_names(lane: WrittenLane, sealed: Sequence[SealedSegment]) -> None:
    """Learn from the newest full footer how large the lane's part of the next one is."""
    full = next((one for one in reversed(sealed) if one.record.full), None)
    if full is not None:
        with contextlib.suppress(StoreCorrupt):  # if that is damaged, names are counted one by one
            lane.footer_room.begin(full.record.streams, full.footer.names_bytes)
    lane.look_at_footer()


def _resume(lane: WrittenLane, opened: OpenSegment, data_end: int, chain: int) -> None:
    """Append again to a segment that was cleanly closed, from the block after its end."""
    segment, lane.table = opened
    lane.take_blocks(segment)
    segment.writer.write_seal(None)  # from now on the log's end is unknown again
    segment.open_writer()  # now: its path certainly leads to it
    with contextlib.suppress(OSError):  # no space for what was reserved once: as it goes on, it may find some
        segment.writer.find_zeros(align_up(data_end))
    lane.segment, lane.chain, segment.base = segment, chain, 0
    lane.tail = lane.issued = align_up(data_end)
    lane.ring.begin(lane.tail)
    lane.marked = (segment.sequence, data_end)
    lane.under_way.resume(lane.tail, lane.marked)
    lane.view = lane.view._replace(open=(opened,))
