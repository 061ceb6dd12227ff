"""The heads of frames as readers fetch them, each proved to be the one that was asked for.

A head's checksum says that it is whole, not whose it is. A wrong place, in a ring or in a file, may have a whole frame
of other messages. So a frame is taken only if it names its own lane, segment and position; and one of an open table
only if it has the very messages of that table.
"""

from __future__ import annotations

from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.dues import required_bytes
from ..format.layout import (
    FrameHead,
    check_frame_head,
    read_frame_header,
)
from .open_table import CHECKSUM, OpenTable
from .segment import Segment


def head_at(segment: Segment, ring: Ring | None, position: int, guess_bytes: int, end: int) -> FrameHead | None:
    """The head of the segment's frame that begins at `position`; None if there is none.

    `guess_bytes` are read at first, and never more than up to `end`. Raises OSError.
    """
    for source in _sources(ring):
        head = _head_in(segment, source, position, guess_bytes, end)
        if head is not None:
            return head
    return None


def _sources(ring: Ring | None) -> tuple[Ring | None, ...]:
    """The places to look for a frame. If another process's ring is wrong, the file decides: it is the log."""
    return (ring,) if ring is None or ring.is_own else (ring, None)


def _head_in(segment: Segment, ring: Ring | None, position: int, guess_bytes: int, end: int) -> FrameHead | None:
    raw, _ = segment.fetch(ring, position, guess_bytes)
    header, mine = read_frame_header(raw, 0), segment.header
    if header is None or (header.lane, header.sequence, header.position) != (mine.lane, mine.sequence, position):
        return None
    if len(raw) < header.header_bytes <= end - position:
        raw, _ = segment.fetch(ring, position, header.header_bytes)
    return check_frame_head(header, raw[: header.header_bytes])


def head_of_table(segment: Segment, ring: Ring | None, table: OpenTable, frame: int) -> FrameHead:
    """The head of a frame of an open segment's table, with the very messages of the table. Raises StoreCorrupt."""
    position, first = table.frame_position[frame], table.frame_entry[frame]
    end = table.flat[3 * first]  # where the payload begins: it has messages
    for source in _sources(ring):
        head = _head_in(segment, source, position, end - position, end)
        if head is not None and _is_of_table(table, frame, head):
            return head
    segment.check_open()
    raise StoreCorrupt("a frame's header is damaged", segment.path, position)


def _is_of_table(table: OpenTable, frame: int, head: FrameHead) -> bool:
    """Whether it is the table's frame of this number: its time, its flags, and its messages by their checksums."""
    header, first = head.header, table.frame_entry[frame]
    count = min(header.count, table.entries - first)  # recovery may have cut off its last messages
    end = required_bytes(header.flags, header.count)  # of the checksums, the last of them
    begin = end - 4 * header.count
    found = memoryview(head.columns)[begin : begin + 4 * count].cast("I")
    known = table.flat[3 * first + CHECKSUM : 3 * (first + count) : 3]
    told = first, table.frame_time[frame], table.frame_flags[frame]
    return (header.first_entry, header.time_ms, header.flags) == told and found == known
