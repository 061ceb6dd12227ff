"""The end of a bulk read within a limit: the ends of micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Uint32s
from ..format.footer import Footer
from ..format.layout import DATA_START, LOST_ENTRY
from ..read.scan import row_numbers, row_offsets
from ..read.wanted import Bounds, ScanFilter
from ..segment.sealed import SealedSegment
from .plan import LogPosition
from .planning import LaneLook, Source, entries_between, open_columns, position_of

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class ScanLimit:
    """The most that a read may take.

    Attributes:
        rows: wanted messages.
        size_bytes: bytes of the log with wanted messages, about, in whole frames; one frame at least.
    """

    rows: int = NO_LIMIT
    size_bytes: int = NO_LIMIT


class LimitedEnd(NamedTuple):
    """An end within a limit.

    Attributes:
        ends: by lane.
        rows, size_bytes: how much of the limit was taken; 0 where there is no limit.
    """

    ends: dict[int, LogPosition]
    rows: int
    size_bytes: int


def limited_ends(
    looks: Mapping[int, LaneLook], wanted: ScanFilter, start: Mapping[int, LogPosition],
    end: Mapping[int, LogPosition] | None, limit: ScanLimit,
) -> LimitedEnd:  # fmt: skip
    """The ends at which all lanes together reach the limit. A lane with less than its share leaves the rest to others.

    A lane that rests (see `_Walk.rests`) ends where it starts.
    """
    ends = {lane: look.end if end is None else end.get(lane, look.end) for lane, look in looks.items()}
    ends = {lane: max(one, start.get(lane, one)) for lane, one in ends.items()}
    walks = {
        lane: _Walk(look, wanted, start.get(lane, look.begin), min(ends[lane], look.end))
        for lane, look in looks.items()
    }
    resting = {lane for lane, walk in walks.items() if lane in start and walk.rests()}
    ends |= {lane: start[lane] for lane in resting}
    if limit == ScanLimit():
        return LimitedEnd(ends, 0, 0)
    walks = {lane: walk for lane, walk in walks.items() if lane not in resting}
    sizes = {lane: walk.run(limit) for lane, walk in walks.items()}
    rows_left, bytes_left = limit.rows, limit.size_bytes
    waiting = sorted(walks, key=lambda lane: sizes[lane].rows)
    found = {lane: ends[lane] for lane in resting}
    for at, lane in enumerate(waiting):
        lanes = len(waiting) - at
        took = walks[lane].run(ScanLimit(max(1, rows_left // lanes), max(1, bytes_left // lanes)))
        if rows_left <= 0 or bytes_left <= 0:
            took = _WalkEnd(walks[lane].start, 0, 0)
        found[lane] = took.end
        rows_left, bytes_left = rows_left - took.rows, bytes_left - took.size_bytes
    return LimitedEnd(found, limit.rows - rows_left, limit.size_bytes - bytes_left)


@dataclass(frozen=True, slots=True)
class _WalkEnd:
    """The result of a walk: where it ended, and how much it took."""

    end: LogPosition
    rows: int
    size_bytes: int


class _Walk:
    """Walks a lane's segments from one position towards another, as far as a limit allows."""

    def __init__(self, look: LaneLook, wanted: ScanFilter, start: LogPosition, end: LogPosition) -> None:
        self._look, self._wanted = look, wanted
        self.start, self._end = start, end

    @cached_property
    def _bounds(self) -> Bounds:
        """The bounds of all streams; a lane without news needs none."""
        return self._look.bounds(self._wanted)

    def rests(self) -> bool:
        """Whether no wanted message came after the start, so that the walk stays there.

        Only if start and end are in one segment: into a later segment a read moves on also without messages. So a start
        is never far from the log's end, and retention does not overtake it; and no other segment is looked at.
        """
        if self.start.segment != self._end.segment:
            return False
        for source, count in reversed(self._look.sources):  # it is the newest segment, or near it
            if source.segment.sequence == self.start.segment:
                entries = entries_between(self.start.segment, count, self.start, self._end)
                return entries[0] >= entries[1] or not self._has_wanted(source, entries)
            if source.segment.sequence < self.start.segment:
                break
        return self.start == self._end  # a store without a segment

    def _has_wanted(self, source: Source, entries: tuple[int, int]) -> bool:
        """Whether any of some entries is wanted. Unwanted streams cost next to nothing."""
        try:
            if isinstance(source, SealedSegment):
                footer = source.footer
                there = bool(self._bounds.counts(footer.first, footer.next_offsets, footer.numbers).any())
            else:
                there = bool((self._bounds.highs[source.table.numbers_between(*entries)] > 0).any())
            return there and len(self._wanted_entries(source, entries)[0]) > 0
        except StoreCorrupt:  # the read reports it
            return True

    def run(self, limit: ScanLimit) -> _WalkEnd:
        """Walk. Returns the end."""
        at, rows, size = self.start, 0, 0
        for source, count in self._look.sources:
            entries = entries_between(source.segment.sequence, count, self.start, self._end)
            if entries[0] >= entries[1]:
                continue
            step = self._step(source, entries, ScanLimit(limit.rows - rows, limit.size_bytes - size), first=not rows)
            rows, size, at = rows + step.rows, size + step.size_bytes, step.end
            if at.entry < entries[1] or rows >= limit.rows or size >= limit.size_bytes:
                break
        return _WalkEnd(at, rows, size)

    def _step(self, source: Source, entries: tuple[int, int], left: ScanLimit, *, first: bool) -> _WalkEnd:
        """Walk through one segment. `first`: nothing was taken before, so something has to be."""
        try:
            whole = self._whole(source, entries, left)
            if whole is not None:
                return whole
            entry_numbers, positions, begins, data_end = self._wanted_entries(source, entries)
        except StoreCorrupt:  # the read reports it
            return _WalkEnd(position_of(source, entries[1]), 0, 0)
        total = len(entry_numbers)
        if not total:  # there may be no frame either: a repair gave all of them up
            return _WalkEnd(position_of(source, entries[1]), 0, 0)
        low = int(positions[max(0, int(begins.searchsorted(entries[0], side="right")) - 1)])
        share = total / (entries[1] - entries[0])
        end = entries[1]
        if total > left.rows:
            end = int(entry_numbers[left.rows])
        if total and (data_end - low) * share > left.size_bytes:
            frame = int(positions.searchsorted(low + left.size_bytes / share, side="right")) - 1
            if first:  # the frame after the first wanted message
                frame = max(frame, int(begins.searchsorted(entry_numbers[0], side="right")))
            if frame < len(begins):
                end = min(end, max(entries[0], int(begins[frame])))
        rows = int(entry_numbers.searchsorted(end))
        high = int(begins.searchsorted(end))
        stop = int(positions[high]) if high < len(positions) else data_end
        return _WalkEnd(position_of(source, end), rows, int(max(0, stop - low) * share) if rows else 0)

    def _whole(self, source: Source, entries: tuple[int, int], left: ScanLimit) -> _WalkEnd | None:
        """Take a whole sealed segment if the limit has room for it; that is known without a look at its messages."""
        if not isinstance(source, SealedSegment) or entries != (0, source.record.entries) or self._wanted.has_times:
            return None
        footer = source.footer
        rows = int(self._bounds.counts(footer.first, footer.next_offsets, footer.numbers).sum())
        size = (source.record.data_end - DATA_START) * rows // source.record.entries
        if rows > left.rows or size > left.size_bytes:
            return None
        return _WalkEnd(position_of(source, entries[1]), rows, size)

    def _wanted_entries(self, source: Source, entries: tuple[int, int]) -> tuple[Int64s, Uint32s, Uint32s, int]:
        """The wanted entries of some, ascending; each frame's position and first entry; the end of the frames."""
        if isinstance(source, SealedSegment):
            footer = source.footer
            found = _of_footer(footer, self._bounds)
            positions, begins, times = footer.frame_position, footer.frame_entry, footer.frame_time
            data_end = source.record.data_end
        else:
            (positions, begins, times), numbers, firsts, data_end = open_columns(
                source.table, entries[1], len(self._look.table)
            )
            found = _of_numbers(numbers, firsts, self._bounds)
        found = found[(found >= entries[0]) & (found < entries[1])]
        if self._wanted.has_times and len(found):
            found = found[self._wanted.of_times(times[begins.searchsorted(found, side="right") - 1])]
        return found, positions, begins, max(data_end, DATA_START)


def _of_footer(footer: Footer, bounds: Bounds) -> Int64s:
    """The wanted entries of a sealed segment, ascending."""
    offsets, numbers, entries = row_offsets(footer), row_numbers(footer), footer.entries
    there = (offsets >= bounds.lows[numbers]) & (offsets < bounds.highs[numbers]) & (entries != LOST_ENTRY)
    return np.sort(entries[there].astype(np.int64))


def _of_numbers(numbers: Int64s, firsts: Int64s, bounds: Bounds) -> Int64s:
    """The wanted entries of a segment that is not sealed; `numbers` (messages,) are the stream numbers in log order."""
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(firsts))
    starts = counts.cumsum() - counts
    offsets = np.empty(len(numbers), np.int64)
    offsets[order] = np.arange(len(numbers)) + np.repeat(firsts - starts, counts)
    return np.flatnonzero((offsets >= bounds.lows[numbers]) & (offsets < bounds.highs[numbers]))
