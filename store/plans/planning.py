"""Plans a bulk read: which frames of which segments have wanted messages. Footers decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.lane_start import read_compacted
from ..errors import LogOvertaken, StoreCorrupt
from ..format.arrays import Int64s, Integers, Uint32s
from ..format.footer import Footer
from ..format.layout import DATA_START, LOST_ENTRY, MAX_DATA_END, UNKNOWN
from ..log.lane import Lane
from ..log.write import OpenSegment
from ..read.scan import sealed_numbers
from ..read.wanted import Bounds, Lows, ScanFilter, StreamTable, bounds_of
from ..segment.open_table import LENGTH, POSITION, OpenTable
from ..segment.sealed import SealedSegment
from .plan import UNKNOWN_COUNT, FrameRange, KnownFrames, LogPosition, ScanDamage, ScanPart, ScanPlan, frames_of

Source = SealedSegment | OpenSegment
FrameColumns = tuple[Uint32s, Uint32s, Int64s]  # positions, first entries, times
ROW_BYTES = 40  # of a message in a batch without its payload, about
FEW_PIECES = 1.25  # a range is cut only if it is larger than a part by this factor


class LaneLook:
    """The durable part of a lane's log at one moment, for planning. The lane belongs to a read-only store.

    Attributes:
        sources: its segments, the oldest first, each with the number of its messages.
        begin, end: of the log.
        table: the lane's streams.
    """

    def __init__(self, lane: Lane, store_id: bytes, known: StreamTable | None = None, *, payload: bool = True) -> None:
        """`known`: the table of an earlier look. `payload`: whether payloads are read; else they do not count."""
        self._lane = lane
        self._store_id = store_id
        self._payload = payload
        view = lane.view
        # The newest first: a message of a segment is durable only after all of the segments before.
        opened: list[tuple[Source, int]] = [(one, one.table.visible) for one in reversed(view.open)]
        sealed: list[tuple[Source, int]] = [(one, one.record.entries) for one in view.sealed]
        self.sources = [*sealed, *reversed(opened)]
        streams = list(lane.streams)
        if known is not None and len(known) == len(streams):
            self.table = known  # streams are only added, and keep their numbers
        else:
            self.table = StreamTable.of([(stream.topic, stream.queue_id) for stream in streams])
        column = lane.lows.column(streams)  # after the sources, so at least as new
        numbers = np.zeros(0, np.int64) if column is None else np.flatnonzero(column)
        self._trimmed = None if column is None else Lows(numbers, column[numbers])
        self.begin = self.end = LogPosition(1, 0, 0)
        if self.sources:
            self.begin = position_of(self.sources[0][0], 0)
            self.end = position_of(*self.sources[-1])

    def bounds(self, wanted: ScanFilter) -> Bounds:
        """The wanted offsets of each stream."""
        return bounds_of(wanted, self.table, self._trimmed)

    def ranges(
        self, wanted: ScanFilter, start: LogPosition | None, end: LogPosition | None, part_bytes: int
    ) -> Iterator[FrameRange]:
        """Yield the frames between two positions that may have wanted messages."""
        bounds = self.bounds(wanted)
        for source, count in self.sources:
            entries = entries_between(source.segment.sequence, count, start, end)
            if entries[0] < entries[1]:
                yield from self._of_segment(source, entries, wanted, bounds, part_bytes)

    def check_compacted(self, disk: Disk, start: LogPosition) -> None:
        """Raise LogOvertaken if a compaction has replaced the log since the position was taken, gaps allowed or not."""
        lane = self._lane
        if start.segment < self.begin.segment and start.segment < read_compacted(
            disk, lane.folder, lane.index, self._store_id
        ):
            raise LogOvertaken(
                f"lane {lane.index} of {lane.folder.parent} was compacted since the read came to segment "
                f"{start.segment}, which is gone. Offsets are as they were: begin a new read, or a new query with a "
                f"new checkpoint, at the offsets where this one was (`starting`), or at the end"
            )

    def check_start(self, start: LogPosition) -> None:
        """Raise LogOvertaken if messages after the position are gone."""
        if not self.sources:
            return
        if UNKNOWN_COUNT not in (start.messages, self.end.messages) and start.messages > self.end.messages:
            raise LogOvertaken(
                f"lane {self._lane.index} of {self._lane.folder.parent} has {self.end.messages} messages, and the read "
                f"goes on after {start.messages}: the store is older than the position. If it was restored from a "
                f"copy, begin a new read or query; if it was not closed, open it once, which recovers its end"
            )
        header = self.sources[0][0].segment.header
        if start.segment >= header.sequence:
            return
        count = header.messages_before
        is_counted = start.messages != UNKNOWN_COUNT and count != UNKNOWN
        if is_counted and count == start.messages:
            return  # the segment of the position had no more
        lost = f"{count - start.messages} messages" if is_counted else "messages"
        raise LogOvertaken(
            f"retention removed {lost} of lane {self._lane.index} of {self._lane.folder.parent} before they were read: "
            f"the log now begins with segment {header.sequence}, and the read goes on in segment {start.segment}; keep "
            f"more (retention_bytes, retention_ms), read sooner, or go on after the gap with on_lost=skip"
        )

    def _of_segment(
        self, source: Source, entries: tuple[int, int], wanted: ScanFilter, bounds: Bounds, part_bytes: int
    ) -> Iterator[FrameRange]:
        if isinstance(source, OpenSegment):
            yield from self._of_open(source, entries, wanted, bounds, part_bytes)
            return
        try:
            index = source.index
            if not index.is_remade:
                yield from self._of_footer(source, index.footer, entries, wanted, bounds, part_bytes)
            elif (index.footer.entries == LOST_ENTRY).any():
                raise source.damaged()  # only the damaged footer knows whether a repair gave these messages up
            else:
                yield from self._of_remade(source, index.footer, entries, wanted, bounds, part_bytes)
        except StoreCorrupt as error:
            size = source.record.data_end - DATA_START
            yield self._range(source, entries, size, damaged=ScanDamage.of(error))

    def _range(
        self, source: Source, entries: tuple[int, int], size_bytes: int, trimmed: Lows | None = None,
        known: KnownFrames | None = None, damaged: ScanDamage | None = None,
    ) -> FrameRange:  # fmt: skip
        """`trimmed`: the streams that are trimmed into the segment. A range carries no others."""
        segment, lane = source.segment, self._lane
        rebuilt = None
        if known is not None and isinstance(source, SealedSegment):
            rebuilt = ScanDamage.of(source.damaged())
        return FrameRange(
            str(lane.folder), lane.index, segment.sequence, self._store_id, entries, size_bytes, trimmed, known,
            damaged, rebuilt,
        )  # fmt: skip

    def _trimmed_into(self, firsts: Int64s, following: Int64s, footer: Footer | None = None) -> Lows | None:
        """The streams of which a segment with these offsets has messages below their first offset."""
        trimmed = self._trimmed
        if trimmed is None:
            return None
        numbers, lows = trimmed.numbers, trimmed.offsets
        rows = numbers if footer is None else footer.rows_of(numbers)
        known = rows < len(firsts)
        rows, numbers, lows = rows[known], numbers[known], lows[known]
        hit = (firsts[rows] < lows) & (firsts[rows] < following[rows])
        return Lows(numbers[hit], lows[hit]) if hit.any() else None

    def _read_share(self, data_end: int, messages: int) -> float:
        """The share of a segment's bytes that counts."""
        return 1.0 if self._payload else min(1.0, ROW_BYTES * messages / max(1, data_end - DATA_START))

    # -- sealed segments ------------------------------------------------------------------------------

    def _of_footer(
        self, source: SealedSegment, footer: Footer, entries: tuple[int, int], wanted: ScanFilter, bounds: Bounds,
        part_bytes: int,
    ) -> Iterator[FrameRange]:  # fmt: skip
        following = footer.next_offsets
        messages = int((following - footer.first).sum())
        matching = int(bounds.counts(footer.first, following, footer.numbers).sum())
        if not matching or not wanted.wants_time(footer.time_min_ms, footer.time_max_ms):
            return
        frames = _frames_wanted(footer.frame_entry, footer.frame_time, entries, wanted)
        positions = footer.frame_position.astype(np.int64)
        share = matching / messages * self._read_share(source.record.data_end, messages)
        trimmed = self._trimmed_into(footer.first, following, footer)
        for first, end, size in _cut(positions, source.record.data_end, frames, part_bytes / share):
            own = _clipped(entries, footer.frame_entry, first, end)
            yield self._range(source, own, max(1, int(size * share)), trimmed)

    def _of_remade(
        self, source: SealedSegment, footer: Footer, entries: tuple[int, int], wanted: ScanFilter, bounds: Bounds,
        part_bytes: int,
    ) -> Iterator[FrameRange]:  # fmt: skip
        """Ranges of a segment with a damaged footer; they carry the content of the footer made from the frames."""
        numbers = sealed_numbers(source, footer)
        frames = footer.frame_position, footer.frame_entry, footer.frame_time
        yield from self._of_known(
            source, frames, numbers, footer.first, source.record.data_end, entries, wanted, bounds, part_bytes
        )

    # -- segments without a footer --------------------------------------------------------------------

    def _of_open(
        self, source: OpenSegment, entries: tuple[int, int], wanted: ScanFilter, bounds: Bounds, part_bytes: int
    ) -> Iterator[FrameRange]:
        frames, numbers, firsts, data_end = open_columns(source.table, entries[1], len(self.table))
        yield from self._of_known(source, frames, numbers, firsts, data_end, entries, wanted, bounds, part_bytes)

    def _of_known(
        self, source: Source, frames: FrameColumns, numbers: Int64s, firsts: Int64s,
        data_end: int, entries: tuple[int, int], wanted: ScanFilter, bounds: Bounds, part_bytes: int,
    ) -> Iterator[FrameRange]:  # fmt: skip
        """Ranges that carry frames without a footer; `numbers` (messages,) are the stream numbers in log order."""
        positions, begins, times = frames
        counts = np.bincount(numbers, minlength=len(firsts))
        matching = int(bounds.counts(firsts, firsts + counts[: len(firsts)]).sum())
        if not matching:
            return
        chosen = _frames_wanted(begins, times, entries, wanted)
        share = matching / len(numbers) * self._read_share(data_end, len(numbers))
        trimmed = self._trimmed_into(firsts, firsts + counts[: len(firsts)])
        for first, end, size in _cut(positions.astype(np.int64), data_end, chosen, part_bytes / share):
            begin = int(begins[first])
            stop = int(begins[end]) if end < len(begins) else len(numbers)
            there = np.unique(numbers[begin:stop])
            offsets = firsts[there] + np.bincount(numbers[:begin], minlength=len(firsts))[there]
            known = KnownFrames(
                positions[first:end], begins[first:end], self.table, there,
                offsets, int(positions[end]) if end < len(positions) else data_end,
            )  # fmt: skip
            own = _clipped(entries, begins, first, end)
            yield self._range(source, own, max(1, int(size * share)), trimmed, known)

    def rescued(self, one: FrameRange, wanted: ScanFilter, error: StoreCorrupt) -> FrameRange:
        """`one`, whose footer is damaged, found by its segment's frames. Raises `error` if that is not possible."""
        bounds = self.bounds(wanted)
        for source, _ in self.sources:
            if source.segment.sequence == one.sequence and isinstance(source, SealedSegment):
                source.distrust(error.what)
                for found in self._of_segment(source, one.entries, wanted, bounds, MAX_DATA_END):
                    return found
        raise error


def _clipped(entries: tuple[int, int], begins: Uint32s, first: int, end: int) -> tuple[int, int]:
    """The part of some entries that lies in the frames first .. end - 1."""
    high = int(begins[end]) if end < len(begins) else entries[1]
    return max(entries[0], int(begins[first])), min(entries[1], high)


def plan_of(
    store: Path, looks: Mapping[int, LaneLook], wanted: ScanFilter, part_bytes: int,
    start: Mapping[int, LogPosition] | None, end: Mapping[int, LogPosition] | None,
) -> ScanPlan:  # fmt: skip
    """The parts between two ends, each of about `part_bytes`."""
    plan = ScanPlan(str(store))
    for lane, look in looks.items():
        plan.end[lane] = look.end if end is None else end.get(lane, look.end)
        ranges: list[FrameRange] = []
        size_bytes = 0
        for one in look.ranges(wanted, None if start is None else start.get(lane), plan.end[lane], part_bytes):
            if ranges and size_bytes + one.size_bytes > part_bytes:
                plan.parts.append(ScanPart(plan.store, wanted, tuple(ranges)))
                ranges, size_bytes = [], 0
            ranges.append(one)
            size_bytes += one.size_bytes
        if ranges:
            plan.parts.append(ScanPart(plan.store, wanted, tuple(ranges)))
    return plan


def open_columns(table: OpenTable, end: int, streams: int) -> tuple[FrameColumns, Int64s, Int64s, int]:
    """The first `end` entries of a segment that is not sealed.

    Returns their frames; each one's stream number; (streams,) the first offset of each stream here; and the end of the
    last entry's frame.
    """
    count = int(np.frombuffer(table.frame_entry[:], np.uint32).searchsorted(end))
    frames = (
        np.frombuffer(table.frame_position[:count], np.uint32),
        np.frombuffer(table.frame_entry[:count], np.uint32),
        np.frombuffer(table.frame_time[:count], np.int64),
    )
    firsts, known = np.zeros(streams, np.int64), table.first_offsets()
    firsts[: len(known)] = known[:streams]
    last = table.columns(end - 1, end)[0].tolist()
    return frames, table.numbers(0, count)[:end].astype(np.int64), firsts, last[POSITION] + last[LENGTH]


def position_of(source: Source, entries: int) -> LogPosition:
    """The place after the first `entries` messages of a segment."""
    header = source.segment.header
    before = header.messages_before
    return LogPosition(header.sequence, entries, UNKNOWN_COUNT if before == UNKNOWN else before + entries)


def entries_between(sequence: int, count: int, start: LogPosition | None, end: LogPosition | None) -> tuple[int, int]:
    """(first, end) of a segment's entries that lie between two positions."""
    first, last = 0, count
    if start is not None and sequence <= start.segment:
        first = start.entry if sequence == start.segment else count
    if end is not None and sequence >= end.segment:
        last = min(count, end.entry) if sequence == end.segment else 0
    return first, last


def _frames_wanted(begins: Integers, times: Int64s, entries: tuple[int, int], wanted: ScanFilter) -> tuple[int, int]:
    """(first, end) of the frames that have the entries and, of these, a wanted time."""
    first, end = frames_of(begins, entries)
    if wanted.has_times:
        found = np.flatnonzero(wanted.of_times(times[first:end]))
        if not len(found):
            return first, first
        first, end = first + int(found[0]), first + int(found[-1]) + 1
    return first, end


def _cut(
    positions: Int64s, data_end: int, frames: tuple[int, int], part_bytes: float
) -> Iterator[tuple[int, int, int]]:
    """Yield (first frame, end frame, bytes) of pieces of one size, each of at most `part_bytes`, about."""
    first, end = frames
    if first >= end:
        return
    low = int(positions[first])
    high = int(positions[end]) if end < len(positions) else data_end
    pieces = max(1, int(np.ceil((high - low) / part_bytes / FEW_PIECES)))
    borders = positions.searchsorted([low + (high - low) * piece // pieces for piece in range(1, pieces)])
    edges = sorted({first, *borders.clip(first, end).tolist(), end})
    for left, right in pairwise(edges):
        stop = int(positions[right]) if right < len(positions) else data_end
        yield left, right, stop - int(positions[left])
