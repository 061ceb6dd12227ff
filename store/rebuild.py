"""The index of a scanned segment, made anew from its frames: a footer, or the table of one that stays open.

A frame has only the low 16 bits of its messages' offsets. Each stream's offsets go on from the segment before,
so the low bits are a check; after a repair they also say how many messages are missing in between.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from .errors import StoreCorrupt
from .footer import FooterData, by_stream
from .format import DATA_START, LOST_ENTRY, WIDE_NUMBERS
from .frame import Frame
from .lane_streams import Name
from .repair import Repair
from .rows import Row, Rows
from .table import OpenTable, entry_rows

Offsets = npt.NDArray[np.int64]
Entries = npt.NDArray[np.uint32]

MOST_ENTRIES = 1 << 27  # of a repaired segment, lost ones included: its footer has 512 MiB then


class _FrameColumns(TypedDict):
    """The columns of a footer that have one element a frame."""

    frame_position: npt.NDArray[np.uint32]
    frame_entry: npt.NDArray[np.uint32]
    frame_time: npt.NDArray[np.int64]


@dataclass
class ScanColumns:
    """The columns of a scanned segment, in log order; one list element a frame."""

    numbers: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    lows: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    next_entry: int = 0
    _begins: list[int] = field(default_factory=list)  # entry number of each frame's first message
    _lost: list[Entries] = field(default_factory=list)

    def add(self, frame: Frame, count: int, good: npt.NDArray[np.bool_] | None) -> None:
        """Add the first `count` messages of a frame; those that are not `good` become lost entries."""
        if good is not None:
            self._lost.append((np.flatnonzero(~good) + self.next_entry).astype(np.uint32))
        self.numbers.append(frame.numbers[:count])
        self.lows.append(frame.lows[:count])
        self.frames.append(frame)
        self._begins.append(self.next_entry)
        self.next_entry += count

    def streams(self) -> int:
        """How many streams the messages take part in, at least: the highest number is one less."""
        numbers = self.all_numbers()
        return int(numbers.max()) + 1 if len(numbers) else 0

    def all_numbers(self) -> npt.NDArray[np.uint32]:
        """The stream number of each message."""
        return np.concatenate(self.numbers or [np.empty(0, np.uint32)])

    def all_lows(self) -> npt.NDArray[np.uint16]:
        """The low bits of the offset of each message."""
        return np.concatenate(self.lows or [np.empty(0, np.uint16)])

    def entries(self) -> Entries:
        """The entry numbers of all messages, LOST_ENTRY for the lost ones."""
        total = sum(map(len, self.numbers))
        entries = np.arange(total, dtype=np.uint32)
        if total != self.next_entry:  # a repair has left some out
            counts = np.array([len(part) for part in self.numbers], np.int64)
            entries += np.repeat(np.array(self._begins) - counts.cumsum() + counts, counts).astype(np.uint32)
        if self._lost:
            entries[np.isin(entries, np.concatenate(self._lost))] = LOST_ENTRY
        return entries


def index_columns(
    columns: ScanColumns,
    names: list[Name],
    next_offsets: list[int],
    ends: Offsets | None,
    repair: Repair,
    path: Path,
) -> FooterData:
    """Sort a scan's messages by stream; the footer of the segment.

    Args:
        columns: what was scanned.
        names: the lane's streams by number, all that occur in the columns and in `ends` among them.
        next_offsets: where each of them goes on.
        ends: where each must end, if the next segment's footer tells.
        repair: decides about offsets that jump.
        path: the segment's file, for errors.

    Raises StoreCorrupt if offsets jump and no repair is allowed.
    """
    numbers: npt.NDArray[np.unsignedinteger] = columns.all_numbers()
    if len(names) <= 1 << 16:
        numbers = numbers.astype(np.uint16)  # sorted in one pass
    order = by_stream(numbers)
    counts = np.bincount(numbers, minlength=len(names))
    start = np.zeros(len(names) + 1, np.int64)
    counts.cumsum(out=start[1:])
    first = np.array(next_offsets, np.int64)
    entries, lows = columns.entries()[order], columns.all_lows()[order]
    # Only 16 bits of an offset are in a frame, so 16 bits are compared.
    expected = (first - start[:-1]).astype(np.uint16).repeat(counts)
    expected += np.arange(len(order), dtype=np.uint32).astype(np.uint16)
    jumps = bool((expected != lows).any())
    if jumps:
        repair.on_damage("an offset does not follow the one before", path, DATA_START)
    if jumps or ends is not None:
        last = first.copy()
        if ends is not None:
            last[: len(ends)] = ends
        entries, start = _fill_gaps(entries, lows, start, first, last, path)
    return _footer_data(columns.frames, names, first, start, entries)


def _footer_data(
    frames: list[Frame], names: list[Name], first: Offsets, start: Offsets, entries: Entries
) -> FooterData:
    topics = {topic: index for index, topic in enumerate(dict.fromkeys(topic for topic, _ in names))}
    return FooterData(
        list(topics),
        np.array([topics[topic] for topic, _ in names], np.uint32),
        np.array([queue_id for _, queue_id in names], np.uint32),
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
    }


def _fill_gaps(
    entries: Entries, lows: npt.NDArray[np.uint16], start: Offsets, first: Offsets, ends: Offsets, path: Path
) -> tuple[Entries, Offsets]:
    """Put LOST_ENTRY where a queue's offsets jump, or end before `ends`; entries, and where each stream's begin.

    A jump is known by its low 16 bits. Where a footer was lost together with more than 65,535 messages of a queue
    in one stretch, that is too little: what follows then gets too low offsets.
    """
    counts = np.diff(start)
    streams = np.flatnonzero(counts)
    due = lows.astype(np.int64)
    due[1:] = lows[:-1].astype(np.int64) + 1
    due[start[streams]] = first[streams]
    places = (1 + ((lows - due) & 0xFFFF)).cumsum()  # of each message, counted through all streams from 1
    reached = np.concatenate([np.zeros(1, np.int64), places])
    filled = np.maximum(reached[start[1:]] - reached[start[:-1]], ends - first)
    begins = np.zeros(len(start), np.int64)
    filled.cumsum(out=begins[1:])
    if begins[-1] > MOST_ENTRIES:
        raise StoreCorrupt("the offsets make no sense", path, DATA_START)
    result = np.full(begins[-1], LOST_ENTRY, np.uint32)
    result[places - 1 + (begins[:-1] - reached[start[:-1]]).repeat(counts)] = entries
    return result, begins


def index_by_footer(columns: ScanColumns, footer: FooterData, next_offsets: list[int]) -> FooterData | None:
    """The segment's own footer once more, without the messages that the scan did not find.

    It knows every offset, however many messages are lost; those between `next_offsets`, where the segment before
    ends, and its own first ones are lost as well. None if the frames say otherwise: it is not theirs.
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
    kept = np.full(len(footer.entries), LOST_ENTRY, np.uint32)
    kept[places] = found[listed]
    first = footer.first.copy()
    first[: len(next_offsets)] = next_offsets
    start = np.zeros(len(first) + 1, np.int64)
    (footer.next_offsets - first).cumsum(out=start[1:])
    data = replace(footer, first=first, start=start.astype(np.uint32), **_frame_columns(columns.frames))
    data.entries = np.full(start[-1], LOST_ENTRY, np.uint32)
    data.entries[start[streams] + offsets - first[streams]] = kept
    return data


def open_table(frames: list[Frame], data: FooterData) -> OpenTable:
    """The table of a segment that is gone on with: its frames, indexed by `data`. Nothing was lost of it."""
    assert not (data.entries == LOST_ENTRY).any()
    given: dict[int, Row] = {}
    for number in np.flatnonzero(data.counts).tolist():
        part = data.entries[data.start[number] : data.start[number + 1]]
        entries: array[int] = array("I")
        entries.frombytes(part.tobytes())
        given[number] = (int(data.first[number]), entries)
    count = sum(len(frame.lengths) for frame in frames)
    table = OpenTable(rows=Rows(data.next_offsets, given, count))
    for frame in frames:
        header = frame.header
        lengths, checksums = array("I", frame.lengths.tolist()), array("I", frame.checksums.tolist())
        rows = entry_rows(frame.starts().tolist(), lengths, checksums)
        numbers = frame.head.columns[: (4 if header.flags & WIDE_NUMBERS else 2) * header.count]
        table.add_frame(header.position, header.time_ms, header.flags, numbers, rows)
    table.visible = table.entries
    assert table.rows.indexed == table.entries
    return table
