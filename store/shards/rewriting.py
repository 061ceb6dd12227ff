"""Turns a staged shard into a segment: writes the heads of its frames, its footer, its header and its seal record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..device.write_behind import WriteBehind
from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Uint16s, Uint32s
from ..format.dues import NO_DUES, DueRange
from ..format.footer import FooterData
from ..format.layout import (
    FRAME_HEADER_BYTES,
    SEALED,
    FrameHeader,
    SealRecord,
    SegmentHeader,
    align_up,
    read_frame_header,
)
from ..format.records import LentTrims
from ..format.shard import ShardIndex
from ..segment.sealing import FooterNames, NewestFooters
from .writer import lasting_sum, length_bytes

Mark = tuple[int, int]
DAMAGED = "a shard's frame is damaged"
_LOW_BITS = np.arange(1 << 16, dtype=np.uint16)  # of 0, 1, 2 ..; sums wrap modulo 65,536


class SegmentPlace(NamedTuple):
    """The place of a segment in its lane's log.

    Attributes:
        names: the lane's streams, with those of the segment.
        firsts: int64 (streams,), the next offset of each; not copied, and changed after the segment was written.
        trimmed, applied: of the log up to here.
        mark: up to which position the log is durable.
        newest: the content of the newest footers before it; None if there are none.
    """

    header: SegmentHeader
    names: FooterNames
    firsts: Int64s
    trimmed: LentTrims
    applied: bytes
    mark: Mark
    newest: NewestFooters | None = None


def lasting_heads(file: LogFile, path: Path, index: ShardIndex) -> Iterator[tuple[FrameHeader, bytes]]:
    """Yield the header and columns of each frame of a shard, whose lasting bytes are whole. Raises StoreCorrupt.

    The other bytes may come from another lane or a lost attempt, so neither the chain nor the head's checksum is
    compared.
    """
    places = zip(index.footer.frame_position.tolist(), index.head_bytes.tolist(), index.sums.tolist(), strict=True)
    for position, size, known in places:
        raw = file.read(position, size)
        header = read_frame_header(raw, 0)
        if header is None or len(raw) != size or header.header_bytes != size:
            raise StoreCorrupt(DAMAGED, path, position)
        columns = raw[FRAME_HEADER_BYTES:]
        if lasting_sum(header, columns) != known:
            raise StoreCorrupt(DAMAGED, path, position)
        yield header, columns


def write_segment(disk: Disk, path: Path, index: ShardIndex, place: SegmentPlace, numbers: Uint32s) -> SealRecord:
    """Turn a shard's file into the segment at `place`, and force it. Returns its seal record.

    `numbers` (streams of the shard,): their numbers in the lane. It writes over the bytes of an earlier attempt. Raises
    StoreCorrupt, OSError.
    """
    file = disk.open(path)
    try:
        chain = place.header.chain
        behind = WriteBehind(file)
        for header, before, columns in _frames(file, path, index, numbers, place.firsts[numbers]):
            head, chain = placed(header, place, chain).seal(columns)
            file.write([head if columns != before else head[:FRAME_HEADER_BYTES]], header.position)
            behind.reached(header.position + header.header_bytes)
        data = _lane_footer(index, place, numbers, index.counts)
        record = finish_segment(file, place, data, index.data_end, chain)
        file.force()
        return record
    finally:
        file.close()


def write_ahead(disk: Disk, path: Path, index: ShardIndex, numbers: Uint32s, firsts: Int64s) -> None:
    """Write and force the columns of a shard's frames as they are if its streams go on at `firsts`, (streams,).

    Then `write_segment` writes only headers: 100 bytes for each frame, instead of some 10 for each message. If the
    streams have moved on by then, it writes the columns that differ. Raises StoreCorrupt, OSError.
    """
    file = disk.open(path)
    try:
        behind = WriteBehind(file)
        for header, before, columns in _frames(file, path, index, numbers, firsts):
            if columns != before:
                file.write([header.seal(columns)[0]], header.position)
            behind.reached(header.position + header.header_bytes)
        file.force()
    finally:
        file.close()


def _frames(
    file: LogFile, path: Path, index: ShardIndex, numbers: Uint32s, firsts: Int64s
) -> Iterator[tuple[FrameHeader, bytes, bytes]]:
    """Yield each frame of a shard: header, columns as they are, and as they should be. Raises StoreCorrupt."""
    footer, counts = index.footer, index.counts
    of_entry = np.empty(index.rows, np.uint32)
    lows = np.empty(index.rows, np.uint16)
    entries = footer.entries.astype(np.intp)  # converted once, not by each assignment
    of_entry[entries] = numbers.repeat(counts)
    begins = firsts - footer.start[:-1]
    lows[entries] = begins.astype(np.uint16).repeat(counts) + np.resize(_LOW_BITS, index.rows)
    for header, columns in lasting_heads(file, path, index):
        part = slice(header.first_entry, header.first_entry + header.count)
        yield header, columns, _columns(columns, of_entry[part], lows[part], length_bytes(header.flags))


def placed(header: FrameHeader, place: SegmentPlace, chain: int) -> FrameHeader:
    """The header of a frame at its place in the lane's log."""
    sequence, position = place.mark
    lane = place.header
    return header._replace(
        lane=lane.lane, sequence=lane.sequence, durable_sequence=sequence, durable_position=position, chain=chain
    )


def _columns(columns: bytes, numbers: Uint32s, lows: Uint16s, length_size: int) -> bytes:
    """A frame's columns with other stream numbers and offsets."""
    count = len(numbers)
    at = (4 + length_size) * count
    return b"".join([numbers.tobytes(), columns[4 * count : at], lows.tobytes(), columns[at + 2 * count :]])


def _lane_footer(index: ShardIndex, place: SegmentPlace, numbers: Uint32s, counts: Int64s) -> FooterData:
    """The shard's footer, with the lane's numbers of its streams."""
    footer = index.footer
    entries = footer.entries
    order = numbers.argsort()
    if bool((np.diff(order) < 0).any()):  # sorted by the lane's numbers, not by the shard's
        begins = footer.start.tolist()
        entries = np.concatenate([entries[begins[at] : begins[at + 1]] for at in order.tolist()])
    return lane_footer(
        place, numbers[order], counts[order], entries, footer.frame_position, footer.frame_entry, footer.frame_time,
        footer.frame_flags, footer.dues,
    )  # fmt: skip


def lane_footer(
    place: SegmentPlace, there: Uint32s, counts: Int64s, entries: Uint32s,
    positions: Uint32s, frame_entries: Uint32s, times: Int64s,
    flags: Uint16s, dues: DueRange = NO_DUES,
) -> FooterData:  # fmt: skip
    """The footer of a segment that has `counts` messages of the streams `there`, ascending; small if it may be."""
    newest, sequence, streams = place.newest, place.header.sequence, len(place.firsts)
    stream = None if newest is None else newest.small_rows(sequence, there, streams, place.trimmed)
    packed = presence = None
    if stream is not None:
        rows, trimmed = stream, place.trimmed.since
        names, topics, queues = place.names.of(rows)
    else:
        whole = place.names.whole()
        rows, trimmed = np.arange(streams, dtype=np.uint32), place.trimmed.whole()
        names, packed, (topics, queues) = list(whole.topics), whole.packed, whole.columns()
        presence = None if newest is None else newest.present.columns(streams, sequence)
    start = np.zeros(len(rows) + 1, np.int64)
    start[rows.searchsorted(there) + 1] = counts
    return FooterData(
        names, topics, queues, place.firsts[rows], start.cumsum().astype(np.uint32), entries,
        positions, frame_entries, times, flags, dues, trimmed, packed, place.applied, stream, presence,
    )  # fmt: skip


def finish_segment(file: LogFile, place: SegmentPlace, data: FooterData, data_end: int, chain: int) -> SealRecord:
    """Write footer, header and seal record around a segment's frames; nothing is forced. Raises OSError."""
    header, position = place.header, align_up(data_end)
    parts = data.parts(header.sequence)
    size = sum(map(len, parts))
    entries, streams, full = len(data.entries), len(place.firsts), int(data.stream is None)
    record = SealRecord(
        SEALED, header.sequence, data_end, chain, entries, position, size, streams, full, data.newest_ms
    )
    file.write(parts, position)
    file.truncate(position + size)
    file.write([header.pack(), record.pack()], 0)
    return record
