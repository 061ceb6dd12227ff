"""The first pass over a lane: finds sealed segments with lost footers, and the content of their frames.

Each segment is looked at by itself, in any process. Of a segment without a whole footer all payloads are read and all
checksums compared: so the conclusions of `placing` are as sure as recovery's own scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk, ReadingDisk
from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Uint32s
from ..format.frame import Definition
from ..format.layout import DATA_START, UNDECODABLE, SealRecord, SegmentHeader, kept_messages
from ..format.records import RECORD_BYTES, RECORD_MAGIC
from ..live.files import FollowedSegment, log_start, read_shared
from ..recovery.repair import whole_footer
from ..segment.files import segment_numbers
from ..segment.scanner import FrameScanner, ScannedFrame, chunks_of

_MAGIC = np.frombuffer(RECORD_MAGIC, "<u4")
_NONE = np.empty(0, np.int64)


class SegmentAt(NamedTuple):
    """A sealed segment: its place, lane and store; `size_bytes` of its frames."""

    folder: str
    lane: int
    store_id: bytes
    sequence: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """The result of a look at a sealed segment.

    Attributes:
        at: the segment.
        header, record: its first two blocks.
        is_whole: the footer is whole; then the attributes below are empty.
        problem: why no footer can be made of the frames, or None.
        numbers, counts: int64 (n) the streams with messages, ascending, and how many messages each has.
        names: the streams that its frames name for the first time.
        records: (stream, data) of messages that may be records: their stream decides.
    """

    at: SegmentAt
    header: SegmentHeader
    record: SealRecord
    is_whole: bool = False
    problem: str | None = None
    numbers: Int64s = field(default_factory=lambda: _NONE)
    counts: Int64s = field(default_factory=lambda: _NONE)
    names: tuple[Definition, ...] = ()
    records: tuple[tuple[int, bytes], ...] = ()


class LaneSegments(NamedTuple):
    """The sealed segments of a lane, ascending; `begins_at`: the number of the log's first segment."""

    folder: Path
    begins_at: int
    sealed: list[SegmentAt]


def sealed_segments(disk: Disk, folder: Path, lane: int, store_id: bytes) -> LaneSegments:
    """The sealed segments of a lane's log. Two blocks of each file are read. Raises OSError."""
    begins_at, found = log_start(disk, folder, lane, store_id), []
    for number in segment_numbers(disk, folder):
        if number < max(1, begins_at):
            continue
        file = read_shared(disk, folder, lane, store_id, number)
        if file.record is not None and file.is_sealed:
            found.append(SegmentAt(str(folder), lane, store_id, number, file.record.data_end - DATA_START))
    return LaneSegments(folder, begins_at, found)


def look_at_segment(at: SegmentAt, disk: Disk | None = None) -> SegmentLook:
    """Look at one segment. It changes nothing. Raises StoreCorrupt if the segment changed meanwhile, OSError."""
    used = disk or ReadingDisk()
    file = read_shared(used, Path(at.folder), at.lane, at.store_id, at.sequence)
    header, record = file.header, file.record
    if record is None or not file.is_sealed:
        raise StoreCorrupt("a sealed segment is sealed no more; somebody else changes the store", file.path, 0)
    if header is None:
        raise StoreCorrupt("a segment's header is damaged", file.path, 0)
    segment = FollowedSegment(used, Path(at.folder), header, grows=False)
    try:
        if whole_footer(segment, record) is not None:
            return SegmentLook(at, header, record, is_whole=True)
        if header.is_rebuilt:
            return SegmentLook(at, header, record, problem="a repair wrote its header")
        return _scanned(at, segment, record)
    finally:
        segment.close()


def _scanned(at: SegmentAt, segment: FollowedSegment, record: SealRecord) -> SegmentLook:
    """The content of the segment's frames, if each of its bytes is right."""
    numbers: list[Uint32s] = []
    names: list[Definition] = []
    records: list[tuple[int, bytes]] = []
    count, problem = 0, None
    with chunks_of(segment.open_sequential(), record.data_end) as reader:
        scanner = FrameScanner.after_header(reader, segment.header)
        try:
            while (found := scanner.next()) is not None:
                header = found.frame.header
                kept = kept_messages(record, header)
                if found.whole < kept or header.first_entry != count:
                    problem = f"a message is damaged at byte {header.position}"
                    break
                numbers.append(found.frame.numbers[:kept])
                names += found.frame.definitions()
                records += _records(found, kept)
                count += kept
        except UNDECODABLE as error:
            problem = f"a frame cannot be decoded ({error})"
    if problem is None and (scanner.chain, count) != (record.chain, record.entries):
        problem = f"a frame is damaged or missing at byte {scanner.position}"
    if problem is not None:
        return SegmentLook(at, segment.header, record, problem=problem)
    there, counts = np.unique(np.concatenate([_NONE, *numbers]), return_counts=True)
    return SegmentLook(
        at, segment.header, record, numbers=there.astype(np.int64), counts=counts.astype(np.int64),
        names=tuple(names), records=tuple(records),
    )  # fmt: skip


def _records(found: ScannedFrame, kept: int) -> list[tuple[int, bytes]]:
    """The messages that begin like a record."""
    frame = found.frame
    lengths = frame.lengths[:kept].astype(np.int64)
    begins = lengths.cumsum() - lengths
    rows = np.flatnonzero(lengths >= RECORD_BYTES)
    if not len(rows):
        return []
    payload = np.frombuffer(found.payload, np.uint8)
    heads = payload[begins[rows, None] + np.arange(len(RECORD_MAGIC))].view("<u4").ravel()
    places = rows[heads == _MAGIC].tolist()
    return [(int(frame.numbers[row]), bytes(found.payload[begins[row] : begins[row] + lengths[row]])) for row in places]
