"""Scans the log of a lane by its frames with delivery times, sealed or open; all other frames cost a look at a flag."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.arrays import Bools, Indexes, Int64s
from ..format.delays import BEGIN, LogPlace
from ..format.dues import NO_DUES
from ..format.footer import Footer
from ..format.frame import Frame, decode_at
from ..format.layout import FRAME_HEADER_BYTES, HAS_DUE, LOST_ENTRY, NO_TIME, read_frame_header
from ..log.lane import Lane
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..read.finder import first_offset
from ..read.scan import NO_OFFSET, checked_footer, sealed_offsets
from ..segment.groups import index_of
from ..segment.open_table import OpenTable
from ..segment.sealed import SealedSegment
from ..segment.segment import Segment

STEP_MESSAGES = 1 << 16
GUESS_BYTES = 4096  # of a frame's head
FEW_STREAMS = 64  # at most so many are looked up; of more, all frames with delivery times are read


class DueRows(NamedTuple):
    """Messages with a delivery time, in log order: stream numbers, offsets and times, int64 (n) each.

    `sizes` (n): bytes on disk, with a share of the frame's columns. `written_ms` (n): when they were appended.
    """

    numbers: Int64s
    offsets: Int64s
    times_ms: Int64s
    sizes: Int64s
    written_ms: Int64s

    def take(self, rows: Indexes | Bools) -> DueRows:
        """Some of the messages, by row."""
        return DueRows(*[column[rows] for column in self])


_NONE = np.empty(0, np.int64)
NO_ROWS = DueRows(_NONE, _NONE, _NONE, _NONE, _NONE)


class DuePart(NamedTuple):
    """The messages of some frames.

    Attributes:
        end: the place after them.
        damaged: frames among them, or whole segments, that were passed over: their columns or footers are damaged.
    """

    rows: DueRows
    end: LogPlace
    damaged: int = 0


class _Sealed(NamedTuple):
    """The wanted frames and entries of a sealed segment.

    Attributes:
        frames: those with delivery times that have wanted messages, ascending, by their numbers in the footer.
        offsets: of each entry; NO_OFFSET for a lost or unwanted one.
    """

    sequence: int
    footer: Footer  # another footer, made from the frames, may number the frames otherwise
    frames: Indexes
    offsets: Int64s


class DueScan:
    """A place in the log of a lane, and the scan from there. Not safe for threads.

    Give, then take (see `index.trackers.tracker`): `look` finds the next messages and leaves the place as it is; `move`
    passes them, after the caller has put them where they belong.

    Attributes:
        place: all messages before it were given. It is never after the end of the durable messages.
        damaged: frames, and whole segments, that were passed over: their columns or footers are damaged.
    """

    def __init__(
        self, lane: Lane, place: LogPlace = BEGIN, streams: Callable[[], Sequence[Stream]] | None = None
    ) -> None:
        """`streams` gives the current streams of this lane that must be found; None: all.

        If they are few, frames without their messages are passed over. New streams may come meanwhile: a stream exists
        before its first message is visible.
        """
        self.lane = lane
        self.place = place
        self.damaged = 0
        self._streams = streams
        self._sealed: _Sealed | None = None  # while a segment is scanned

    def _wanted(self) -> list[int] | None:
        """The numbers of the wanted streams; None: all, or too many to look up."""
        streams = None if self._streams is None else self._streams()
        if streams is None or len(streams) > FEW_STREAMS:
            return None
        return [stream.number for stream in streams if stream.number >= 0]

    def is_at_end(self) -> bool:
        """Whether no durable message is after the place; it compares two numbers."""
        opened = self.lane.view.open
        if not opened:
            sealed = self.lane.view.sealed
            return not sealed or self.place >= (sealed[-1].segment.sequence, sealed[-1].record.entries)
        segment, table = opened[-1]
        return self.place == (segment.sequence, table.visible)

    def parts(self, due_after_ms: int) -> Iterator[DueRows]:
        """Yield the durable messages from the place on. A part is passed when the next one is asked for.

        Sealed segments in which no message is due after `due_after_ms` are passed over.
        """
        while (part := self.look(due_after_ms)) is not None:
            yield part.rows
            self.move(part)

    def move(self, part: DuePart) -> None:
        """Pass the newest part."""
        if part.end.sequence != self.place.sequence:
            self._sealed = None
        self.damaged += part.damaged
        self.place = part.end

    def look(self, due_after_ms: int) -> DuePart | None:
        """The messages of the next frames, maybe none, which stay the next ones until `move`; None at the end."""
        view = self.lane.view
        sequence = self.place.sequence
        at = bisect_left(view.sealed, sequence, key=lambda sealed: sealed.segment.sequence)
        if at < len(view.sealed):
            return self._look_sealed(view.sealed[at], due_after_ms)
        for index, opened in enumerate(view.open):
            if opened.segment.sequence < sequence:
                continue
            is_last = index == len(view.open) - 1  # read before the number of visible entries
            found = self._look_open(opened)
            if found is not None:
                return found
            if is_last or opened.table.visible < opened.table.entries:
                return None
            self.place = LogPlace(opened.segment.sequence + 1, 0)
        return None

    # -- sealed segments ------------------------------------------------------------------------------

    def _look_sealed(self, sealed: SealedSegment, due_after_ms: int) -> DuePart:
        sequence = sealed.segment.sequence
        next_segment = LogPlace(sequence + 1, 0)
        first = self.place.entry if self.place.sequence == sequence else 0
        try:
            footer = sealed.footer
            if footer.dues == NO_DUES or footer.dues.most <= due_after_ms or first >= sealed.record.entries:
                return DuePart(NO_ROWS, next_segment)
            if self._sealed is None or self._sealed.sequence != sequence:
                wanted = self._wanted()
                if wanted is not None and not any([sealed.first_of(number)[1] for number in wanted]):
                    return DuePart(NO_ROWS, next_segment)
                self._sealed = _sealed_of(sealed, checked_footer(sealed), wanted)
            return self._rows_of_sealed(sealed, first, self._sealed)
        except StoreCorrupt:  # the streams of its messages are not known
            return DuePart(NO_ROWS, next_segment, damaged=1)

    def _rows_of_sealed(self, sealed: SealedSegment, first: int, known: _Sealed) -> DuePart:
        begins = known.footer.frame_entry
        low = int(begins.searchsorted(first, side="right")) - 1
        high = int(begins.searchsorted(first + STEP_MESSAGES))
        frames = known.frames[slice(*known.frames.searchsorted((low, high)))]
        damaged: list[StoreCorrupt] = []
        rows = sealed_rows(sealed.segment, self.lane.ring, known.footer, frames, first, known.offsets, damaged)
        sequence = sealed.segment.sequence
        end = LogPlace(sequence, int(begins[high])) if high < len(begins) else LogPlace(sequence + 1, 0)
        return DuePart(rows, end, len(damaged))

    # -- open segments --------------------------------------------------------------------------------

    def _look_open(self, opened: OpenSegment) -> DuePart | None:
        segment, table = opened
        first = self.place.entry if self.place.sequence == segment.sequence else 0
        visible = table.visible
        if first >= visible:
            self.place = LogPlace(segment.sequence, first)
            return None
        begins = table.frame_entry
        low, high = bisect_right(begins, first) - 1, bisect_left(begins, visible)
        end = visible
        if begins[high - 1] - first > STEP_MESSAGES:
            high = max(low + 1, bisect_left(begins, first + STEP_MESSAGES))
            end = begins[high]
        parts, damaged, wanted = list[DueRows](), 0, self._wanted()
        for frame in _due_frames(table, low, high, wanted, (first, end)) if table.dues != NO_DUES else ():
            try:
                parts.append(self._rows_of_open(segment, table, frame, first, end, wanted))
            except StoreCorrupt:
                damaged += 1
        return DuePart(_joined(parts), LogPlace(segment.sequence, end), damaged)

    def _rows_of_open(
        self, segment: Segment, table: OpenTable, index: int, first: int, end: int, wanted: list[int] | None
    ) -> DueRows:
        frame = _frame_at(segment, self.lane.ring, table.frame_position[index])
        begin = frame.header.first_entry
        low, high = max(first, begin), min(end, begin + frame.header.count)
        offsets = np.full(high - low, NO_OFFSET, np.int64)
        for number in np.unique(frame.numbers[low - begin : high - begin]).tolist() if wanted is None else wanted:
            row = table.row(number)
            if row is None:  # a wanted stream whose first message comes later
                continue
            at = bisect_left(row[1], low)
            entries = np.array(row[1][at : bisect_left(row[1], high, at)], np.int64)
            offsets[entries - low] = row[0] + at + np.arange(len(entries))
        return _rows_of(frame, low - begin, offsets)


def _due_frames(table: OpenTable, low: int, high: int, wanted: list[int] | None, entries: tuple[int, int]) -> list[int]:
    """The frames low .. high - 1 with delivery times; with `wanted`, those that have `entries` of these streams."""
    flags = np.frombuffer(table.frame_flags[low:high], np.uint16)
    frames: list[int] = (low + np.flatnonzero(flags & HAS_DUE)).tolist()
    if wanted is None or not frames:
        return frames
    begins, theirs = table.frame_entry, set[int]()
    for number in wanted:
        row = table.row(number)
        if row is not None:
            there = row[1][bisect_left(row[1], entries[0]) : bisect_left(row[1], entries[1])]
            theirs.update([bisect_right(begins, entry) - 1 for entry in there])
    return [frame for frame in frames if frame in theirs]


def _sealed_of(sealed: SealedSegment, footer: Footer, wanted: Sequence[int] | None) -> _Sealed:
    """The wanted part of a segment. `footer` was checked. Raises StoreCorrupt."""
    if wanted is None:
        return _Sealed(sealed.segment.sequence, footer, due_frames(footer), sealed_offsets(sealed, footer))
    offsets = np.full(sealed.record.entries, NO_OFFSET, np.int64)
    rows = footer.rows_of(np.array(wanted, np.int64))
    firsts, start, all_entries = footer.first, footer.start, footer.entries  # each access may read a whole column
    for row in rows[rows < footer.stream_count].tolist():
        entries = all_entries[int(start[row]) : int(start[row + 1])]
        values, kept = int(firsts[row]) + np.arange(len(entries)), entries != LOST_ENTRY
        offsets[entries[kept]] = values[kept]
    theirs = footer.frame_entry.searchsorted(np.flatnonzero(offsets != NO_OFFSET), side="right") - 1
    return _Sealed(sealed.segment.sequence, footer, np.intersect1d(due_frames(footer), theirs), offsets)


def reached(lane: Lane, place: LogPlace, number: int) -> int:
    """The offset of a stream's first message at or after a place. Raises StoreCorrupt."""
    view = lane.view
    at = index_of(view.sealed, place.sequence) if view.sealed else 0
    if at < len(view.sealed):
        sealed = view.sealed[at]
        offset, count = sealed.first_of(number) if sealed.segment.sequence == place.sequence else (0, 0)
        if not count:
            return first_offset(lane, view, number, at)
        footer = sealed.footer
        begin = int(footer.start[footer.row_of(number)])
        return offset + int(np.searchsorted(footer.entries[begin : begin + count], place.entry))
    for segment, table in view.open:
        row = table.row(number) if segment.sequence >= place.sequence else None
        if row is not None:
            return row[0] + (bisect_left(row[1], place.entry) if segment.sequence == place.sequence else 0)
    return lane.offsets[number]


def due_frames(footer: Footer) -> Indexes:
    """The frames of a sealed segment that have delivery times, by their numbers in its footer, ascending."""
    return np.flatnonzero(footer.frame_flags & HAS_DUE)


def sealed_rows(
    segment: Segment, ring: Ring | None, footer: Footer, frames: Indexes, first: int, offsets: Int64s,
    damaged: list[StoreCorrupt] | None = None,
) -> DueRows:  # fmt: skip
    """The messages with a delivery time in some frames of a sealed segment, from the entry `first` on.

    Args:
        ring: of the lane, if the segment may be in it.
        frames: by their numbers in the footer; all of them have delivery times.
        offsets: of all entries of the segment; NO_OFFSET leaves one out.
        damaged: gets the error of each damaged frame, which is passed over; None: the error is raised.

    Raises StoreCorrupt, OSError.
    """
    parts = []
    for position in footer.frame_position[frames].tolist():
        try:
            frame = _frame_at(segment, ring, position)
        except StoreCorrupt as error:
            if damaged is None:
                raise
            damaged.append(error)
            continue
        begin = frame.header.first_entry
        skip = max(0, first - begin)
        parts.append(_rows_of(frame, skip, offsets[begin + skip : begin + frame.header.count]))
    return _joined(parts)


def _frame_at(segment: Segment, ring: Ring | None, position: int) -> Frame:
    raw, _ = segment.fetch(ring, position, GUESS_BYTES)
    header = read_frame_header(raw[:FRAME_HEADER_BYTES], 0)
    frame = None
    if header is not None and (header.sequence, header.position) == (segment.sequence, position):
        if len(raw) < header.header_bytes:
            raw, _ = segment.fetch(ring, position, header.header_bytes)
        frame = decode_at(raw, 0)
    if frame is None:
        segment.check_open()
        raise StoreCorrupt("a frame's header is damaged", segment.path, position)
    return frame


def _rows_of(frame: Frame, skip: int, offsets: Int64s) -> DueRows:
    """The messages with a delivery time of a frame, from the number `skip` on, one for each of `offsets`."""
    rows = slice(skip, skip + len(offsets))
    times = frame.extras().times_ms
    assert times is not None, "the frame's flags say so"
    times = times[rows]
    kept = (times != NO_TIME) & (offsets != NO_OFFSET)
    written = np.full(int(kept.sum()), frame.header.time_ms, np.int64)
    numbers = frame.numbers[rows][kept].astype(np.int64)
    sizes = frame.lengths[rows][kept].astype(np.int64) + frame.header.header_bytes // frame.header.count
    return DueRows(numbers, offsets[kept], times[kept], sizes, written)


def _joined(parts: list[DueRows]) -> DueRows:
    if len(parts) <= 1:
        return parts[0] if parts else NO_ROWS
    return DueRows(*map(np.concatenate, zip(*parts, strict=True)))
