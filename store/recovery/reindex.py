"""The index of a scanned segment, made anew from its frames: a footer, or the table of one that stays open.

A frame has only the low 16 bits of its messages' offsets. Each stream's offsets go on from the segment before,
so the low bits are a check; in a repair `placement` uses them to place what follows a gap.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TypedDict

import numpy as np

from ..format.arrays import Bools, Int64s, Numbers, Uint16s, Uint32s
from ..format.dues import NO_DUES, DueRange
from ..format.footer import FooterData, by_stream
from ..format.frame import Frame, numbers_bytes
from ..format.layout import DATA_START, LOST_ENTRY
from ..segment.open_table import OpenTable, entry_rows
from ..segment.postings import OpenRows, Row
from .name_list import NameList
from .placement import NO_OFFSET, OffsetBounds, PlacedMessages, place
from .repair import Repair

MOST_LEFT_OUT = 1 << 24  # offsets of a segment whose queues are not known: they cost four bytes each in its footer
MOST_ENTRIES = 1 << 27  # of a repaired segment, lost ones included: its footer has 512 MiB then


class _FrameColumns(TypedDict):
    """The columns of a footer that have one element a frame, and the range of the delivery times."""

    frame_position: Uint32s
    frame_entry: Uint32s
    frame_time: Int64s
    frame_flags: Uint16s
    dues: DueRange


@dataclass
class ScanColumns:
    """The columns of a scanned segment, in log order; one list element a frame."""

    numbers: list[Uint32s] = field(default_factory=list)
    lows: list[Uint16s] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    next_entry: int = 0
    _begins: list[int] = field(default_factory=list)  # entry number of each frame's first message
    _lost: list[Uint32s] = field(default_factory=list)

    def add(self, frame: Frame, count: int, good: Bools | None) -> None:
        """Add the first `count` messages of a frame; those that are not `good` become lost entries."""
        if good is not None:
            self._lost.append((np.flatnonzero(~good) + self.next_entry).astype(np.uint32))
        self.numbers.append(frame.numbers[:count])
        self.lows.append(frame.lows[:count])
        self.frames.append(frame)
        self._begins.append(self.next_entry)
        self.next_entry += count

    def streams(self) -> int:
        """The number of streams that the messages take part in, at least: the highest number is one less."""
        numbers = self.all_numbers()
        return int(numbers.max()) + 1 if len(numbers) else 0

    def all_numbers(self) -> Uint32s:
        """The stream number of each message."""
        return np.concatenate(self.numbers or [np.empty(0, np.uint32)])

    def all_lows(self) -> Uint16s:
        """The low bits of the offset of each message."""
        return np.concatenate(self.lows or [np.empty(0, np.uint16)])

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(map(len, self.numbers))

    def missing(self) -> Int64s:
        """The number of messages of the segment before each one that were left out."""
        counts = np.array([len(part) for part in self.numbers], np.int64)
        return np.repeat(np.array(self._begins, np.int64) - counts.cumsum() + counts, counts)

    def entries(self) -> Uint32s:
        """The entry numbers of all messages, LOST_ENTRY for the lost ones."""
        total = sum(map(len, self.numbers))
        entries = np.arange(total, dtype=np.uint32)
        if total != self.next_entry:  # a repair has left some out
            entries += self.missing().astype(np.uint32)
        if self._lost:
            entries[np.isin(entries, np.concatenate(self._lost))] = LOST_ENTRY
        return entries


def index_columns(
    columns: ScanColumns, names: NameList, bounds: OffsetBounds, repair: Repair, path: Path
) -> tuple[FooterData, bool]:
    """Sort a scan's messages by stream; the footer of the segment, and whether all of its offsets are sure.

    Args:
        columns: what was scanned.
        names: the lane's streams by number, all that occur in the columns and in `bounds` among them.
        bounds: where they go on, and where they end if that is known.
        repair: decides about offsets that jump.
        path: the segment's file, for errors.

    Raises StoreCorrupt if offsets jump and no repair is allowed.
    """
    numbers: Numbers = columns.all_numbers()
    if len(names) <= 1 << 16:
        numbers = numbers.astype(np.uint16)  # sorted in one pass
    order = by_stream(numbers)
    counts = np.bincount(numbers, minlength=len(names))
    start = np.zeros(len(names) + 1, np.int64)
    counts.cumsum(out=start[1:])
    first = bounds.first
    entries, lows = columns.entries()[order], columns.all_lows()[order]
    # Only 16 bits of an offset are in a frame, so 16 bits are compared.
    expected = (first - start[:-1]).astype(np.uint16).repeat(counts)
    expected += np.arange(len(order), dtype=np.uint32).astype(np.uint16)
    jumps = bool((expected != lows).any()) or NO_OFFSET in first
    if jumps:
        repair.on_break("an offset does not follow the one before", path, DATA_START)
    sure = True
    if jumps or bounds.ends is not None or bounds.before or columns.next_entry != len(order):
        placed = _place(lows, columns.missing()[order], start, bounds)
        first, sure = placed.first, placed.is_sure
        entries, start = _spread(entries, start, placed)
    return _footer_data(columns.frames, names, first, start, entries), sure


def _footer_data(frames: list[Frame], names: NameList, first: Int64s, start: Int64s, entries: Uint32s) -> FooterData:
    topics, topic_of, queue_of = names.columns()
    return FooterData(
        topics,
        topic_of,
        queue_of,
        first,
        start.astype(np.uint32),
        entries,
        **_frame_columns(frames),
    )


def _frame_columns(frames: list[Frame]) -> _FrameColumns:
    headers = [frame.header for frame in frames]
    return {
        "frame_position": np.array([header.position for header in headers], np.uint32),
        "frame_entry": np.array([header.first_entry for header in headers], np.uint32),
        "frame_time": np.array([header.time_ms for header in headers], np.int64),
        "frame_flags": np.array([header.flags for header in headers], np.uint16),
        "dues": reduce(DueRange.joined, (frame.dues for frame in frames), NO_DUES),
    }


def _place(lows: Uint16s, missing: Int64s, start: Int64s, bounds: OffsetBounds) -> PlacedMessages:
    """Place a segment's messages. Ends are ignored if they leave out more than a footer can say."""
    placed = place(lows, missing, start, bounds)
    if placed.counts.sum() <= MOST_ENTRIES:
        return placed
    placed = place(lows, missing, start, OffsetBounds(bounds.first, lows=bounds.lows))
    counts = np.diff(start)
    if placed.counts.sum() > MOST_ENTRIES:
        placed = replace(placed, counts=counts, places=np.arange(len(lows)) - start[:-1].repeat(counts))
    return replace(placed, is_sure=False)


def _spread(entries: Uint32s, start: Int64s, placed: PlacedMessages) -> tuple[Uint32s, Int64s]:
    """Put entries into their places, and LOST_ENTRY into the others. Returns them, and where each stream's begin."""
    begins = np.zeros(len(start), np.int64)
    placed.counts.cumsum(out=begins[1:])
    result = np.full(begins[-1], LOST_ENTRY, np.uint32)
    result[placed.places + begins[:-1].repeat(np.diff(start))] = entries
    return result, begins


def leave_out(data: FooterData, offsets: int) -> FooterData | None:
    """The footer with `offsets` more offsets left out at the end of each stream; None if they are too many for that."""
    if offsets * len(data.first) > MOST_LEFT_OUT:
        return None
    before = data.start.astype(np.int64)
    entries = np.insert(data.entries, before[1:].repeat(offsets), LOST_ENTRY)
    start = before + offsets * np.arange(len(before))
    return replace(data, entries=entries, start=start.astype(np.uint32))


def index_by_footer(columns: ScanColumns, footer: FooterData, begins: list[int]) -> FooterData | None:
    """The segment's own footer once more, without the messages that the scan did not find.

    It knows every offset, however many messages are lost; those between `begins`, where the segment before ends, and
    its own first ones are lost as well. None if the frames say otherwise: it is not theirs. None, too, if more messages
    are lost than a footer can say.
    """
    entries = columns.entries()
    good = entries != LOST_ENTRY
    found, numbers, lows = entries[good], columns.all_numbers()[good], columns.all_lows()[good]
    order = np.argsort(footer.entries, kind="stable")
    at = np.searchsorted(footer.entries, found, sorter=order)
    listed = at < len(order)
    places = order[at[listed]]
    listed[listed] = footer.entries[places] == found[listed]  # the others were given up by an earlier repair
    places = order[at[listed]]
    streams = np.arange(len(footer.first)).repeat(footer.counts)
    offsets = footer.first[streams] + np.arange(len(streams)) - footer.start.astype(np.int64)[streams]
    if (streams[places] != numbers[listed]).any() or (offsets[places] & 0xFFFF != lows[listed]).any():
        return None
    first = np.array(begins, np.int64)
    first = np.where(first == NO_OFFSET, footer.first, first)
    if (footer.next_offsets - first).sum() > MOST_ENTRIES:
        return None
    kept = np.full(len(footer.entries), LOST_ENTRY, np.uint32)
    kept[places] = found[listed]
    start = np.zeros(len(first) + 1, np.int64)
    (footer.next_offsets - first).cumsum(out=start[1:])
    data = replace(footer, first=first, start=start.astype(np.uint32), **_frame_columns(columns.frames))
    data.entries = np.full(start[-1], LOST_ENTRY, np.uint32)
    data.entries[start[streams] + offsets - first[streams]] = kept
    return data


def open_table(frames: list[Frame], data: FooterData) -> OpenTable:
    """The table of a segment that is appended to again: its frames, indexed by `data`. It has lost nothing."""
    assert not (data.entries == LOST_ENTRY).any()
    given: dict[int, Row] = {}
    for number in np.flatnonzero(data.counts).tolist():
        part = data.entries[data.start[number] : data.start[number + 1]]
        entries: array[int] = array("I")
        entries.frombytes(part.tobytes())
        given[number] = (int(data.first[number]), entries)
    count = sum(len(frame.lengths) for frame in frames)
    table = OpenTable(rows=OpenRows(data.next_offsets, given, count))
    for frame in frames:
        header = frame.header
        lengths, checksums = array("I", frame.lengths.tolist()), array("I", frame.checksums.tolist())
        rows = entry_rows(frame.starts().tolist(), lengths, checksums)
        numbers = frame.head.columns[: numbers_bytes(header.flags, header.count)]
        table.add_frame(header.position, header.time_ms, header.flags, numbers, rows)
    table.dues = data.dues
    table.visible = table.entries
    assert table.rows.indexed == table.entries
    return table


def lost_count(data: FooterData) -> int:
    """The number of messages that a footer has given up."""
    return int(np.count_nonzero(data.entries == LOST_ENTRY))
