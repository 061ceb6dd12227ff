"""A segment that grows, as another process follows it: its frames become an open table."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.frame import Definition, Frame, frame_of, numbers_bytes
from ..format.layout import DATA_START, JOINT, MORE, REST, FrameHead, FrameHeader, SealRecord, align_up, checksum64
from ..format.records import RECORD_BYTES, Record, StreamLow, Trimmed, add_low
from ..log.streams import Stream
from ..log.write import OpenSegment, VisibleEntries
from ..segment.evidence import Mark, mark_of
from ..segment.open_table import OpenTable
from ..segment.scanner import FrameScanner
from .files import FollowedSegment, TailReader
from .followed_ring import FollowedRing
from .plain_frames import decode_plain, is_plain

BROKEN = "a frame is damaged or missing"
TOGETHER = 64  # frames that are taken together

Learn: TypeAlias = Callable[[list[Definition], "int | None", FrameHeader], None]


class LastPart(NamedTuple):
    """The part of a round that a log ends with: its first frame, and where the last one ends."""

    first: Frame
    end: int


class Tail:
    """The frames of one segment up to a durable position, along their chain.

    Invariants:
        * no frame is looked at that does not begin below the position: its head is durable, as a message after it is;
        * `table.visible` counts the messages that end at or below the position;
        * payloads are not read here, but those of records. Each reader compares the checksum of what it reads.
    """

    def __init__(
        self, segment: FollowedSegment, ring: FollowedRing, firsts: Int64s, learn: Learn,
        records: Stream, take_lows: Callable[[Trimmed], None],
    ) -> None:  # fmt: skip
        """A tail of which nothing is taken yet.

        Args:
            ring: what is in memory of the lane's newest bytes.
            firsts (streams,): each stream's next offset at the segment's beginning.
            learn: is called with the streams that a frame defines, the highest stream number of its messages, if it has
                any, and its header; or with the same of some frames that define none.
            records: the lane's stream of records.
            take_lows: is called with what durable records say.
        """
        self._ring = ring
        self._records = records
        self._take_lows = take_lows
        self._with_records: list[Frame] = []  # frames whose records are not all durable yet
        self.segment = segment
        self._learn = learn
        self.table = OpenTable(firsts)
        self.firsts = firsts
        self._reader = TailReader(segment, ring)
        header = segment.header
        lane, sequence, block = header.lane, header.sequence, header.block_bytes
        self._scanner = FrameScanner(self._reader, lane, sequence, DATA_START, header.chain, block)
        self._last: tuple[int, Sequence[int]] = (0, ())  # of the newest frame: its first entry, the messages' ends

    def again(self) -> Tail:
        """A tail of this segment, from its beginning."""
        return Tail(self.segment, self._ring, self.firsts, self._learn, self._records, self._take_lows)

    @property
    def opened(self) -> OpenSegment:
        """The segment as readers want it."""
        return OpenSegment(self.segment, self.table)

    @property
    def sequence(self) -> int:
        """The number of the segment."""
        return self.segment.sequence

    @property
    def chain(self) -> int:
        """The checksum of the newest frame."""
        return self._scanner.chain

    def next_offsets(self, streams: int) -> Int64s:
        """(streams,) the next offset of each stream after all that was taken here."""
        following = np.zeros(streams, np.int64)
        following[: len(self.firsts)] = self.firsts
        following += np.bincount(self.table.numbers(), minlength=streams)
        return following

    def advance(self, position: int | None) -> list[VisibleEntries]:
        """Take the frames up to a durable position, None for all that the segment has.

        Returns what can be seen now and could not before. Raises StoreCorrupt.
        """
        block = self._scanner.block_bytes
        self._reader.size_bytes = self._reader.file.size() if position is None else align_up(position, block)
        end = self._reader.size_bytes if position is None else position
        while self._scanner.position < end:
            heads: list[FrameHead] = []
            try:
                self._walk(heads, end, all_are=position is not None)
            finally:
                self._take_all(heads)
            if len(heads) < TOGETHER:
                break
        return self._show(end)

    def _walk(self, heads: list[FrameHead], end: int, *, all_are: bool) -> None:
        """Add some frames that follow on the chain below `end` to `heads`; `all_are` there. Raises StoreCorrupt."""
        scanner = self._scanner
        while scanner.position < end and len(heads) < TOGETHER:
            head = self._next(end) if all_are else scanner.following()
            if head is None:
                break
            scanner.step(head)
            heads.append(head)

    def retry(self) -> bool:
        """Read what follows once more, from the device; False if there is nothing on the chain."""
        self._reader.forget()
        return self._scanner.following() is not None

    def _next(self, end: int) -> FrameHead | None:
        """The frame that follows below a durable position. None there is damage, unless it can only be padding."""
        head = self._scanner.following()
        if head is None and self._scanner.padded < end:
            self._reader.forget()
            head = self._scanner.following()
            if head is None:
                raise StoreCorrupt(BROKEN, self.segment.path, self._scanner.position)
        return head

    def _take_all(self, heads: Sequence[FrameHead]) -> None:
        """Take frames that were walked over. The walk goes back to one that makes no sense. Raises StoreCorrupt."""
        at = 0
        try:
            while at < len(heads):
                following = at
                while following < len(heads) and is_plain(heads[following]):
                    following += 1
                if following > at:
                    self._take_plain(heads[at:following])
                else:
                    self._take(heads[at])
                    following += 1
                at = following
        finally:
            if at < len(heads):
                self._scanner.resume(heads[at].header)

    def _take_plain(self, heads: Sequence[FrameHead]) -> None:
        found, table = decode_plain(heads), self.table
        if found is None:
            raise StoreCorrupt(BROKEN, self.segment.path, heads[0].header.position)
        headers = [head.header for head in heads]
        self._check_entries(headers)
        highest, has_records = found.has(self._records.number)
        self._learn([], highest, headers[0])
        table.add_frames(
            [header.position for header in headers], [header.first_entry for header in headers],
            [header.time_ms for header in headers], [header.flags for header in headers], found.packed, found.rows,
        )  # fmt: skip
        self._last = headers[-1].first_entry, found.last_ends
        if self.segment.base is not None:
            self._ring.take_whole(self.segment.base, heads)
        if has_records:
            for frame in filter(None, map(frame_of, heads)):
                self._note_frame(frame)

    def _take(self, head: FrameHead) -> None:
        frame, header, table = frame_of(head), head.header, self.table
        if frame is None:
            raise StoreCorrupt(BROKEN, self.segment.path, header.position)
        self._check_entries([header])
        self._learn(frame.definitions(), int(frame.numbers.max(initial=0)) if header.count else None, header)
        starts = frame.starts()
        rows = array("I", np.array((starts, frame.lengths, frame.checksums), np.uint32).T.tobytes())
        numbers = head.columns[: numbers_bytes(header.flags, header.count)]
        table.dues = table.dues.joined(frame.dues)
        table.add_frame(header.position, header.time_ms, header.flags, numbers, rows)
        self._last = header.first_entry, (starts + frame.lengths).tolist()
        self._note_frame(frame)

    def _check_entries(self, headers: Sequence[FrameHeader]) -> None:
        entries = self.table.entries
        for header in headers:
            if header.first_entry != entries:
                raise StoreCorrupt("a frame's entry number is wrong", self.segment.path, header.position)
            entries += header.count

    def _note_frame(self, frame: Frame) -> None:
        if self._records.number >= 0 and (frame.numbers == self._records.number).any():
            self._with_records.append(frame)

    def _show(self, end: int) -> list[VisibleEntries]:
        first, ends = self._last
        before = self.table.visible
        visible = first + bisect_right(ends, end)
        if visible <= before:
            return []
        self.table.visible = visible
        if self._with_records:
            self._note_records(visible)
        return [(self.table, before, visible)]

    def _note_records(self, visible: int) -> None:
        """Take what the records among the first `visible` messages say. A damaged one says nothing."""
        trimmed: dict[int, StreamLow] = {}
        for frame in self._with_records:
            good = np.arange(frame.header.count) < visible - frame.header.first_entry
            starts = frame.starts()
            for at in np.flatnonzero(good & (frame.numbers == self._records.number)).tolist():
                if frame.lengths[at] == RECORD_BYTES:  # those of commits are longer, and say nothing to readers
                    data = self._reader.view(int(starts[at]), RECORD_BYTES)
                    record = Record.unpack(data)
                    if record is not None and checksum64(data) & 0xFFFFFFFF == frame.checksums[at]:
                        add_low(trimmed, record.number, record.effect)
        self._with_records = [frame for frame in self._with_records if _end_entry(frame) > visible]
        self._take_lows(trimmed)

    def proved(self, record: SealRecord | None) -> tuple[Mark, int, LastPart | None]:
        """The highest mark in the frames after those that were taken, the chain after the last of them, and the part of
        a round that it ends, if it does.

        They are looked at and not taken. Only for a log that nobody writes to. The seal `record` is a mark, too: of the
        last frame's end, if all frames are there, and not of what was filled in after it.
        """
        self._reader.size_bytes = self._reader.file.size()
        scanner, mark, last = self._scanner, (0, 0), list[Frame]()
        stood = scanner.position, scanner.chain
        try:
            while (frame := scanner.next_frame()) is not None:
                mark = max(mark, mark_of(frame.header))
                last = [*last[:1], frame] if frame.header.flags & REST else [frame]
            if record is not None:
                is_all = scanner.chain == record.chain
                mark = max(mark, (self.sequence, scanner.position if is_all else record.data_end))
            is_part = last and last[0].header.flags & JOINT and not last[-1].header.flags & MORE
            return mark, scanner.chain, LastPart(last[0], last[-1].header.end) if is_part else None
        finally:
            scanner.position, scanner.chain = stood


def _end_entry(frame: Frame) -> int:
    return frame.header.first_entry + frame.header.count
