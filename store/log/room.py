"""Whether a lane's open segment has room for a frame, and what grows with it: the lane's part of each footer.

Invariants:
    * a segment keeps the room of its footer, up to a quarter of it: sealing takes no space;
    * a frame that may have messages of users is built only while the lane's reserve stands ready;
    * frames that end before `WrittenLane.fits_until` fit into the open segment. It is 0 once that segment has ended,
      or the lane has got a stream or a trim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..format.frame import Definition
from ..format.layout import BLOCK_BYTES, DATA_START, align_up
from ..segment.footer_room import MOST_SHARE, table_bytes
from .request import Request
from .streams import NOT_DEFINED, Stream
from .written_lane import WrittenLane


def make_room(lane: WrittenLane, frame_bytes: int, share: Callable[[], int], left_bytes: int | None = None) -> None:
    """Have an open segment with room for a frame of up to that size. Raises StoreFull; then nothing has changed.

    `share`: what the frame adds to the footer. With `left_bytes` a record may take the reserve: see `wanted_segment`.
    """
    reserve = lane.for_records
    if lane.tail + frame_bytes <= lane.fits_until and left_bytes is None and (reserve is None or reserve.is_ready):
        return  # as with most frames
    size = wanted_segment(lane, frame_bytes, share, left_bytes)
    if size:
        make, left = (lane.next_segment, 0) if left_bytes is None else (lane.reserve_segment, left_bytes)
        following = make(lane, size + left)
        if lane.segment is not None:
            lane.finish(lane.segment)
        lane.begin(following)


def wanted_segment(lane: WrittenLane, frame_bytes: int, share: Callable[[], int], left_bytes: int | None) -> int:
    """0 if a frame fits into the open segment, else the least size of the next one. Raises StoreFull.

    Args:
        share: how many bytes the frame adds to the segment's footer at the most.
        left_bytes: None for appends: the reserve stands ready when this returns. A number for a record that found no
            space so: it takes the reserve, and leaves so many bytes of it to others.
    """
    segment, reserve, fixed = lane.segment, lane.for_records, lane.footer_room.fixed_bytes
    room, footer = -1, fixed + table_bytes(lane.table)
    if segment is not None and segment.base is not None:
        room = segment.header.capacity_bytes - align_up(lane.tail - segment.base + frame_bytes)
        is_ready = left_bytes is None and (reserve is None or reserve.is_ready)
        spare = room - footer - MOST_SHARE * frame_bytes
        if is_ready and spare >= 0:
            # Each byte of a later frame takes itself and its share of the footer; a block's rest may be lost once more.
            lane.fits_until = lane.tail + frame_bytes + (spare - BLOCK_BYTES) // (1 + MOST_SHARE)
            return 0
    most_footer = lane.config.segment_bytes >> 2
    left = left_bytes if left_bytes and reserve is not None and not reserve.size_bytes else 0
    # The reserve stood ready when held frames began: the rest of them is not refused.
    if left_bytes is None and reserve is not None and not lane.under_way.is_holding:
        reserve.secure(fixed)
    added = share()
    if room >= min(footer + added, most_footer) + left:
        return 0
    return DATA_START + align_up(frame_bytes) + min(fixed + added, most_footer)


def define(lane: WrittenLane, streams: Sequence[Stream]) -> list[Definition]:
    """Give numbers to the streams that have none."""
    defined = []
    for stream in streams:
        if stream.number == NOT_DEFINED:
            stream.number = len(lane.streams)
            lane.streams.append(stream)
            defined.append(Definition(stream.number, stream.topic, stream.queue_id))
    lane.offsets.grow(len(lane.streams))
    lane.look_at_footer()
    return defined


def note_records(lane: WrittenLane, requests: Sequence[Request]) -> int:
    """A frame of these requests was built: how many records it has."""
    count = lane.trims.note(requests)
    if count:
        lane.look_at_footer()
    return count
