"""Sealed segments: their footers are made here, and their messages are found here."""

from __future__ import annotations

import resource
import weakref
from array import array
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .disk import Disk
from .errors import StoreCorrupt
from .footer import Footer, FooterData
from .format import FRAME_HEADER_BYTES, LOST_ENTRY, SEALED, SealRecord, align_up, read_frame_header
from .frame import Frame, decode_head
from .ring import Ring
from .segment import Segment
from .streams import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .write import FullSegment

HEAD_ENTRIES_KEPT = 1 << 18  # of one segment: 5 MB
HEAD_ENTRIES = 20  # what a head costs beside its columns, in entries
HEAD_GUESS_BYTES = 4096


# Sealed segments with a mapped footer and an open file, two descriptors each, in the order of opening; one
# list for the process, as the limit on descriptors is.
OPENED: deque[weakref.ref[SealedSegment]] = deque()


class Head:
    """The columns of a frame as a reader wants them: one message's place is four quick look-ups."""

    __slots__ = ("checksums", "first_entry", "flags", "lengths", "lows", "numbers", "starts", "time_ms")

    def __init__(self, frame: Frame) -> None:
        self.first_entry = frame.header.first_entry
        self.flags = frame.header.flags
        self.time_ms = frame.header.time_ms
        self.numbers = array("I", frame.numbers.tobytes())
        self.lengths = array("I", frame.lengths.tobytes())
        self.lows = array("H", frame.lows.tobytes())
        self.checksums = array("I", frame.checksums.tobytes())
        self.starts = array("I", frame.starts().astype(np.uint32).tobytes())


class SealedSegment:
    """A segment that is found through its mapped footer.

    Only a bounded number of frame heads is held in memory; the rest is mapped.
    """

    def __init__(self, segment: Segment, record: SealRecord) -> None:
        self.segment = segment
        self.record = record
        self._footer: Footer | None = None
        self._held_entries = 0
        self._heads: OrderedDict[int, Head] = OrderedDict()

    @property
    def footer(self) -> Footer:
        """The footer, mapped and checked at first use. Raises StoreCorrupt."""
        footer = self._footer
        if footer is None:
            footer = self._footer = Footer(self.segment.data, str(self.segment.path), self.record)
            self._limit_open()
        return footer

    def _limit_open(self) -> None:
        """Have the segment that was opened first let go of its descriptors when there are too many."""
        OPENED.append(weakref.ref(self))
        most = min(512, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
        while len(OPENED) > most:
            oldest = OPENED.popleft()()
            if oldest is not None and oldest is not self:
                oldest._footer = None
                oldest.segment.let_go()

    def first_of(self, number: int) -> tuple[int, int]:
        """(first offset, messages) of a stream in this segment."""
        first, begin, end = self.footer.row(number)
        return first, end - begin

    def find(self, number: int, offset: int, limit: int) -> npt.NDArray[np.uint32]:
        """Entry numbers of up to `limit` messages from `offset` on; the stream's row must contain it."""
        first, begin, end = self.footer.row(number)
        at = begin + offset - first
        return self.footer.entries[at : min(end, at + limit)]

    def head(self, ring: Ring | None, index: int) -> Head:
        """The head of the frame with this index in the footer. Raises StoreCorrupt."""
        found = self._heads.get(index)
        if found is None:
            frame = self.frame(ring, index)
            found = Head(frame)
            self._heads[index] = found
            self._held_entries += frame.header.count + HEAD_ENTRIES
            while self._held_entries > HEAD_ENTRIES_KEPT:
                try:
                    self._held_entries -= len(self._heads.popitem(last=False)[1].starts) + HEAD_ENTRIES
                except KeyError:
                    break  # another reader was faster
        return found

    def frame(self, ring: Ring | None, index: int) -> Frame:
        """The decoded frame with this index in the footer. Raises StoreCorrupt."""
        position = int(self.footer.frame_position[index])
        raw, _ = self.segment.fetch(ring, position, HEAD_GUESS_BYTES)
        header = read_frame_header(raw, 0)
        frame = None
        if header is not None and header.sequence == self.segment.sequence and header.position == position:
            if header.header_bytes > len(raw):
                raw, _ = self.segment.fetch(ring, position, header.header_bytes)
            frame = decode_head(header, raw[: header.header_bytes])
        if frame is None:
            raise StoreCorrupt("a frame's header is damaged", self.segment.path, position)
        return frame

    def frame_of(self, entry: int) -> int:
        """Index of the frame that holds an entry."""
        return int(self.footer.frame_entry.searchsorted(entry, side="right")) - 1

    def memory_bytes(self) -> int:
        """Memory that is not mapped: the decoded frame heads."""
        return sum(18 * len(head.starts) + 64 * 6 for head in list(self._heads.values()))

    def close(self) -> None:
        """Let go of the mapping and the files."""
        self._footer = None
        self._heads.clear()
        self._held_entries = 0
        self.segment.close()


def make_footer(
    rows: dict[int, tuple[int, array[int]]],
    streams: Sequence[Stream],
    before: FooterData | Footer | None,
    frames: tuple[array[int], array[int], array[int]],
) -> FooterData:
    """The footer of a segment.

    Args:
        rows: number -> (first offset, entry numbers) of the streams that have messages in it.
        streams: the lane's streams by number, at least all of those that the segment knows.
        before: the footer of the segment before; None for a lane's first.
        frames: positions, first entries and times of the frames.
    """
    count = len(streams)
    first = np.zeros(count, np.int64)
    if before is not None:
        known = len(before.first)
        first[:known] = before.next_offsets
    lengths = np.zeros(count, np.int64)
    numbers = sorted(rows)
    ordered = [rows[number] for number in numbers]
    if numbers:
        first[numbers] = [row[0] for row in ordered]
        lengths[numbers] = [len(row[1]) for row in ordered]
    start = np.zeros(count + 1, np.uint32)
    np.cumsum(lengths, out=start[1:])
    topics = {topic: index for index, topic in enumerate(dict.fromkeys(stream.topic for stream in streams))}
    return FooterData(
        list(topics),
        np.array([topics[stream.topic] for stream in streams], np.uint32),
        np.array([stream.queue_id for stream in streams], np.uint32),
        first,
        start,
        np.frombuffer(b"".join([row[1] for row in ordered]), np.uint32),
        np.frombuffer(frames[0], np.uint32),
        np.frombuffer(frames[1], np.uint32),
        np.frombuffer(frames[2], np.int64),
    )


def seal(
    disk: Disk, full: FullSegment, streams: Sequence[Stream], before: FooterData | Footer | None
) -> SealedSegment:
    """Write the footer, force it, then the seal record. The segment's frames must be forced already.

    Raises OSError; the segment then stays open, and is scanned at the next opening.
    """
    table, segment = full.table, full.segment
    data = make_footer(
        table.rows, streams, before, (table.frame_position, table.frame_entry, table.frame_time),
    )  # fmt: skip
    return write_footer(disk, segment, data, full.data_end, full.chain, table.entries)


def write_footer(
    disk: Disk, segment: Segment, data: FooterData, data_end: int, chain: int, entries: int
) -> SealedSegment:
    """Footer to disk and forced, then the record that points to it."""
    packed = data.pack(segment.sequence, entries)
    position = align_up(data_end)
    file = disk.open(segment.path)
    try:
        file.write([packed], position)
        file.truncate(position + len(packed))  # one sealed early gives back what it did not use
        file.force()
    finally:
        file.close()
    record = SealRecord(SEALED, segment.sequence, data_end, chain, entries, position, len(packed))
    segment.write_seal(record)
    segment.stop_writing()
    return SealedSegment(segment, record)


__all__ = ["FRAME_HEADER_BYTES", "LOST_ENTRY", "SealedSegment", "make_footer", "seal", "write_footer"]
