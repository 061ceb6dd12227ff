"""Writes one shard: frames of columns, as `append_columns` makes them, in a file of their own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..device.write_behind import WriteBehind
from ..format.arrays import Int64s, Numbers, Uint32s
from ..format.column_frame import WHOLE_CHECKSUM_BELOW_BYTES, FrameColumns, message_checksums
from ..format.dues import NO_DUES, due_range
from ..format.footer import FooterData, by_stream
from ..format.layout import DATA_START, FRAME_HEADER_BYTES, HAS_PAYLOAD_CHECKSUM, WIDE_LENGTHS, FrameHeader, checksum64
from ..format.rows import Rows
from ..format.shard import INDEX_SUFFIX, SHARD_CHAIN, SHARD_SUFFIX, Shard, pack_index

_LASTING = struct.Struct("<IIQQQqQ")
_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)

Streams = Sequence[tuple[str, int]]


class ShardFile:
    """A shard of one lane that takes rows, one frame a call, until it is finished.

    Memory: 4 bytes for each message of its index, and a few dozen for each frame and stream.
    """

    def __init__(self, disk: Disk, folder: Path, name: str, store_id: bytes, lane: int) -> None:
        """`folder` exists. Raises OSError."""
        self._disk = disk
        self._folder = folder
        self._name = name
        self._store_id = store_id
        self._lane = lane
        self._path = folder / (name + SHARD_SUFFIX)
        self._streams: dict[tuple[str, int], int] = {}
        self._last: tuple[Streams, Int64s] = ((), np.zeros(0, np.int64))  # the newest frame's streams and their numbers
        self._hashes = np.zeros(64, np.uint64)  # of the streams, by number
        self._counts = np.zeros(64, np.int64)  # messages of each stream, by number
        self._numbers: list[Uint32s] = []
        self._headers: list[FrameHeader] = []
        self._sums: list[int] = []
        self._dues = NO_DUES
        self._chain = SHARD_CHAIN
        self._rows = self._payload_bytes = self._rows_sum = 0
        self.end = DATA_START
        self._file = disk.open(self._path, create=True)
        self._behind = WriteBehind(self._file)
        self._file.write([bytes(DATA_START)], 0)

    def add(self, streams: Streams, rows: Rows, time_ms: int) -> None:
        """Write a frame of these messages; `streams`, of which some may be unused, is the table of their `numbers`.

        Raises OSError; then the shard cannot be used any more.
        """
        places = self._numbers_of(streams)[rows.numbers]
        numbers, no_offsets = places.astype(np.uint32), np.zeros(len(places), np.int64)
        columns = FrameColumns(numbers, rows.lengths, no_offsets, rows.times_ms, rows.keys, rows.properties, ())
        flags, whole, count, size = columns.flags, 0, len(numbers), rows.payload.nbytes
        if size < WHOLE_CHECKSUM_BELOW_BYTES * count:
            flags |= HAS_PAYLOAD_CHECKSUM
            whole = checksum64(rows.payload)
        checksums = message_checksums(rows.payload, rows.lengths)
        packed = columns.packed(checksums)
        header = FrameHeader(
            flags, self._lane, FRAME_HEADER_BYTES + len(packed), count, size, self._rows, 0, self.end, time_ms,
            0, 0, self._chain, whole,
        )  # fmt: skip
        head, self._chain = header.seal(packed)
        self._file.write([head, rows.payload], self.end)
        self._headers.append(header)
        self._sums.append(lasting_sum(header, packed))
        self._numbers.append(numbers)
        self._dues = self._dues.joined(due_range(flags, count, packed))
        counts = np.bincount(places)
        self._counts[: len(counts)] += counts
        self._rows_sum += self._hash(rows, numbers, checksums)
        self._rows += count
        self._payload_bytes += size
        self.end = header.end
        self._behind.reached(self.end)

    def _numbers_of(self, streams: Streams) -> Int64s:
        """(streams,) the shard's number of each stream."""
        last, numbers = self._last
        if streams is last or streams == last:  # true for nearly each frame of a bulk load
            return numbers
        known, given = self._streams, []
        for stream in streams:
            number = known.get(stream)
            if number is None:
                number = known[stream] = len(known)
                if number == len(self._hashes):
                    self._hashes = np.concatenate([self._hashes, np.zeros(number, np.uint64)])
                    self._counts = np.concatenate([self._counts, np.zeros(number, np.int64)])
                self._hashes[number] = checksum64(stream[0].encode(), seed=stream[1])
            given.append(number)
        self._last = streams, np.array(given, np.int64)
        return self._last[1]

    def _hash(self, rows: Rows, numbers: Uint32s, checksums: Uint32s) -> int:
        """The sum of the rows' hashes: of stream, payload, delivery time, and the lengths of key and properties."""
        of_row = checksums.astype(np.uint64) << np.uint64(32) | rows.lengths.astype(np.uint64)
        of_row = (of_row ^ self._hashes[numbers]) * _MIX[0]
        for values in (
            rows.times_ms, None if rows.keys is None else rows.keys.lengths,
            None if rows.properties is None else rows.properties.lengths,
        ):  # fmt: skip
            if values is not None:
                of_row = (of_row ^ of_row >> np.uint64(29)) * _MIX[1] + values.astype(np.uint64) * _MIX[2]
        return int((of_row ^ of_row >> np.uint64(32)).sum(dtype=np.uint64))

    def finish(self) -> Shard:
        """Force the shard and its index; the folder is not forced yet. Raises OSError."""
        self._file.truncate(self.end)
        self._file.force()
        self._file.close()
        index = pack_index(
            self._store_id, self._lane, self._rows, self.end, self._payload_bytes, self._rows_sum,
            self._footer().parts(0), [header.header_bytes for header in self._headers], self._sums,
        )  # fmt: skip
        write_forced(self._disk, self._folder / (self._name + INDEX_SUFFIX), index)
        total = self._rows_sum & (1 << 64) - 1
        return Shard(
            self._folder.name, self._name, self._lane, self._rows, self._payload_bytes, self.end, total,
            checksum64(index),
        )  # fmt: skip

    def _footer(self) -> FooterData:
        names, headers = list(self._streams), self._headers
        topics = {topic: index for index, topic in enumerate(dict.fromkeys(topic for topic, _ in names))}
        numbers: Numbers = np.concatenate(self._numbers or [np.zeros(0, np.uint32)])
        if len(names) <= 1 << 16:
            numbers = numbers.astype(np.uint16)  # sorted in one pass
        start = np.zeros(len(names) + 1, np.uint32)
        start[1:] = self._counts[: len(names)].cumsum()
        return FooterData(
            list(topics),
            np.array([topics[topic] for topic, _ in names], np.uint32),
            np.array([queue_id for _, queue_id in names], np.uint32),
            np.zeros(len(names), np.int64),
            start,
            by_stream(numbers).astype(np.uint32),
            np.array([header.position for header in headers], np.uint32),
            np.array([header.first_entry for header in headers], np.uint32),
            np.array([header.time_ms for header in headers], np.int64),
            np.array([header.flags for header in headers], np.uint16),
            self._dues,
        )

    def close(self) -> None:
        """Close the file. A second call does no harm."""
        self._file.close()


def write_forced(disk: Disk, path: Path, content: bytes) -> None:
    """Make a file of these bytes, and force it; its name is not forced yet. Raises OSError."""
    file: LogFile = disk.open(path, create=True)
    try:
        file.write([content], 0)
        file.truncate(len(content))
        file.force()
    finally:
        file.close()


def lasting_sum(header: FrameHeader, columns: bytes) -> int:
    """The checksum of a frame head's lasting bytes, which attaching does not change; stream numbers have 4 bytes."""
    count = header.count
    lows = (4 + length_bytes(header.flags)) * count
    fields = _LASTING.pack(
        header.flags, count, header.payload_bytes, header.first_entry, header.position, header.time_ms,
        header.payload_checksum,
    )  # fmt: skip
    return checksum64(b"".join([fields, columns[4 * count : lows], columns[lows + 2 * count :]]))


def length_bytes(flags: int) -> int:
    """The number of bytes of each length in a frame."""
    return 4 if flags & WIDE_LENGTHS else 2
