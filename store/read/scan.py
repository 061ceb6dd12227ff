"""Reading the whole store in log order, a batch a frame."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Integers, Numbers
from ..format.footer import Footer
from ..format.frame import Frame
from ..format.layout import HAS_EXTRAS, LOST_ENTRY
from ..log.lane import Lane
from ..log.streams import NOT_DEFINED
from ..log.write import OpenSegment
from ..segment.checksums import wrong_messages
from ..segment.groups import briefly
from ..segment.placed_frames import DISAGREES, WRONG_BYTES, PlacedFrames
from ..segment.scanner import ChunkBuffers, ChunkReader
from ..segment.sealed import SealedSegment
from .message import MessageBatch
from .wanted import ALL, Lows, ScanFilter, StreamTable, bounds_of

NO_OFFSET = -1


class _Wanted(NamedTuple):
    """What a scan gives of a lane.

    Attributes:
        lows, highs: (streams,) the offsets of each: lows .. highs - 1, none of a hidden one. None: all of all.
        times: which times.
    """

    lows: Int64s | None
    highs: Int64s | None
    times: ScanFilter

    @classmethod
    def of(cls, lane: Lane, wanted: ScanFilter) -> _Wanted:
        """Of the streams that a lane has now."""
        trimmed = lane.lows.column(lane.streams)
        hidden = [stream.number for stream in lane.hidden if stream.number != NOT_DEFINED]
        if trimmed is None and not hidden and wanted.is_all_queues:
            return cls(None, None, wanted)
        lows = None if trimmed is None else Lows(np.arange(len(trimmed)), trimmed)
        bounds = bounds_of(wanted, StreamTable.of(_names(lane)), lows)
        return cls(bounds.lows, bounds.highs, wanted)

    def leave_out(self, offsets: Int64s, numbers: Integers) -> None:
        """Take out the offsets that are not wanted."""
        if self.lows is not None and self.highs is not None:
            unwanted = offsets < self.lows.take(numbers, mode="clip")
            unwanted |= offsets >= self.highs.take(numbers, mode="clip")
            offsets[unwanted] = NO_OFFSET

    def is_in(self, sealed: SealedSegment) -> bool:
        """Whether a segment may have something of it: its footer tells. Raises OSError."""
        times = self.times
        if times.start_ms is not None and sealed.record.newest_ms < times.start_ms:
            return False
        if times.is_all_queues and times.end_ms is None:
            return True
        try:
            with briefly(sealed):
                footer = sealed.footer
                if not times.wants_time(footer.time_min_ms, footer.time_max_ms):
                    return False
                if self.lows is None or self.highs is None:
                    return True
                numbers, first = footer.numbers, footer.first
                ends = np.minimum(first + footer.counts, self.highs.take(numbers, mode="clip"))
                return bool((ends > np.maximum(first, self.lows.take(numbers, mode="clip"))).any())
        except StoreCorrupt:
            return True  # whoever reads it says so


class LaneSnapshot:
    """The durable part of a lane's log at one moment: a prefix of the log, or what is wanted of it.

    Segments are held until the scan has passed them. So retention takes nothing away from a scan: what it removes
    meanwhile keeps its file until then.
    """

    def __init__(self, lane: Lane, wanted: ScanFilter = ALL) -> None:
        self._lane = lane
        view = lane.view
        # The newest first: a message of a segment is durable after all of the segments before, so where one is seen
        # of a segment, all of those before it are seen as well.
        opened = [(one, one.table.visible) for one in reversed(view.open)]
        self._sources: deque[_Source] = deque([*((one, 0) for one in view.sealed), *reversed(opened)])
        # Taken after the view: so it hides all records and hidden streams of the view.
        self._wanted = _Wanted.of(lane, wanted)

    def by_segment(self) -> list[LaneSnapshot]:
        """A snapshot of each segment alone: damage in one does not hide what is in the others."""
        parts = []
        for source in self._sources:
            part = copy.copy(self)
            part._sources = deque([source])
            parts.append(part)
        return parts

    @property
    def only(self) -> SealedSegment | OpenSegment:
        """The first segment that is left to read."""
        return self._sources[0][0]

    def batches(self) -> Iterator[MessageBatch]:
        """The messages in log order, a batch a frame. Raises StoreCorrupt. Only once."""
        names = _names(self._lane)
        buffers = ChunkBuffers()
        ahead = self._begun(buffers)
        try:
            while ahead is not None:
                part, ahead = ahead, None
                try:
                    ahead = self._begun(buffers)  # now: the device does not wait at the border
                    names = names if len(names) == len(self._lane.streams) else _names(self._lane)
                    yield from part.batches(names)
                finally:
                    part.close()
        finally:
            if ahead is not None:
                ahead.close()

    def _begun(self, buffers: ChunkBuffers) -> _Part | None:
        """The next segment that may have something that is wanted. Raises OSError."""
        while self._sources:
            source, visible = self._sources.popleft()
            if isinstance(source, OpenSegment) or self._wanted.is_in(source):
                return _Part(source, visible, buffers, self._wanted)
        return None


_Source = tuple[SealedSegment | OpenSegment, int]


class _Part:
    """A segment that is being read from front to back; of an open one, the first `visible` messages.

    What is durable of an open one was noted before its file is read: what is written meanwhile may be missing
    in a chunk that was read too early.
    """

    def __init__(
        self, source: SealedSegment | OpenSegment, visible: int, buffers: ChunkBuffers, wanted: _Wanted
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._visible = visible
        self._file = source.segment.open_sequential()
        self._reader = ChunkReader(self._file, self._file.size(), buffers)
        self._reader.begin()
        self._frames = PlacedFrames(self._reader, source.segment.header, source.segment.path)

    def batches(self, names: tuple[tuple[str, int], ...]) -> Iterator[MessageBatch]:
        """A batch a frame. Raises StoreCorrupt."""
        source = self._source
        if isinstance(source, SealedSegment):
            footer = checked_footer(source)
            positions, entries = footer.frame_position.tolist(), footer.frame_entry.tolist()
            offsets = sealed_offsets(source, footer)
            if self._wanted.lows is not None:
                self._wanted.leave_out(offsets, sealed_numbers(source, footer))
        else:
            positions, entries = source.table.frame_position.tolist(), source.table.frame_entry.tolist()
            offsets = _open_offsets(source, self._visible)
            if self._wanted.lows is not None and len(offsets):
                self._wanted.leave_out(offsets, source.table.numbers_between(0, len(offsets)))
        done = 0
        for position, first in zip(positions, entries, strict=False):
            if isinstance(source, OpenSegment) and first >= len(offsets):
                return
            frame = self._frames.frame(position, first)
            if not _are_lost(offsets[done:first]):
                raise self._frames.damage(DISAGREES, position)
            done = first + frame.header.count
            part = offsets[first:done]  # fewer than the frame has, where recovery has cut a torn one
            time_ms = frame.header.time_ms
            if len(part) and self._wanted.times.wants_time(time_ms, time_ms) and not self._has_nothing(part):
                yield _batch(self._frames, frame, part, names)
        if not _are_lost(offsets[done:]):
            raise self._frames.damage("the table of frames does not name all frames", 0)

    def _has_nothing(self, offsets: Int64s) -> bool:
        """Whether nothing of a frame is wanted. What a repair gave up makes an empty batch, as ever."""
        return self._wanted.lows is not None and _are_lost(offsets)

    def close(self) -> None:
        """End reading."""
        self._reader.close()
        self._file.close()


def _names(lane: Lane) -> tuple[tuple[str, int], ...]:
    return tuple([(stream.topic, stream.queue_id) for stream in list(lane.streams)])


def checked_footer(sealed: SealedSegment) -> Footer:
    """A segment's footer, of which all is checked, or what is made of the frames instead. Raises StoreCorrupt."""
    index = sealed.index
    if not index.is_remade:
        try:
            index.footer.check_entries()
        except StoreCorrupt as error:
            sealed.distrust(error.what)
            index = sealed.index
    if index.is_remade and (index.footer.entries == LOST_ENTRY).any():
        raise sealed.damaged()  # only the damaged footer knows whether a repair gave these messages up
    return index.footer


def sealed_offsets(sealed: SealedSegment, footer: Footer) -> Int64s:
    """Offset in its queue of each entry of the segment, NO_OFFSET for lost ones."""
    offsets = np.full(sealed.record.entries, NO_OFFSET, np.int64)
    values, kept = row_offsets(footer), footer.entries != LOST_ENTRY
    offsets[footer.entries[kept]] = values[kept]
    return offsets


def sealed_numbers(sealed: SealedSegment, footer: Footer) -> Int64s:
    """Stream number of each entry of the segment; 0 for lost ones."""
    numbers = np.zeros(sealed.record.entries, np.int64)
    kept = footer.entries != LOST_ENTRY
    numbers[footer.entries[kept]] = row_numbers(footer)[kept]
    return numbers


def row_offsets(footer: Footer) -> Int64s:
    """Offset of each row of a footer, in the order of its `entries`."""
    starts = footer.start.astype(np.int64)
    offsets: Int64s = np.repeat(footer.first - starts[:-1], np.diff(starts)) + np.arange(len(footer.entries))
    return offsets


def row_numbers(footer: Footer) -> Numbers:
    """Stream number of each row of a footer, in the order of its `entries`."""
    starts = footer.start.astype(np.int64)
    return footer.numbers.repeat(starts[1:] - starts[:-1])


def _are_lost(offsets: Int64s) -> bool:
    """Nothing is passed over but what a repair gave up."""
    return not len(offsets) or bool((offsets == NO_OFFSET).all())


def _open_offsets(opened: OpenSegment, visible: int) -> Int64s:
    """The offsets of an open segment's first `visible` entries."""
    offsets = np.full(visible, NO_OFFSET, np.int64)
    for first, row in opened.table.all_rows():
        entries = np.frombuffer(row[:], np.uint32)
        shown = entries < visible
        offsets[entries[shown]] = first + np.flatnonzero(shown)
    return offsets


def _batch(frames: PlacedFrames, frame: Frame, offsets: Int64s, names: tuple[tuple[str, int], ...]) -> MessageBatch:
    """The frame's messages that `offsets` covers, lost ones left out, each with its checksum verified."""
    header, payload, count = frame.header, frames.payload(frame), len(offsets)
    kept = np.flatnonzero(offsets != NO_OFFSET)
    wrong = wrong_messages(frame, payload, kept)
    if len(wrong):
        raise frames.damage(WRONG_BYTES, int(frame.starts()[wrong[0]]))
    lengths = frame.lengths[:count].astype(np.int64)
    positions = lengths.cumsum() - lengths
    times = np.full(count, header.time_ms, np.int64)
    numbers = frame.numbers[:count]
    if int(numbers.max()) >= len(names):
        raise frames.damage("a frame's stream was never defined", header.position)
    extras = frame.extras() if header.flags & HAS_EXTRAS else None
    if len(kept) < count:
        positions, lengths, offsets = positions[kept], lengths[kept], offsets[kept]
        times, numbers = times[kept], numbers[kept]
    if extras is not None and len(positions) < len(extras):
        extras = extras.take(kept)
    return MessageBatch(payload, positions, lengths, offsets, times, numbers, names, extras)
