"""Footers: the index of a sealed segment, written once, mapped and searched without loading it."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64

from ..errors import StoreCorrupt
from .applied import check_applied
from .hidden import MAX_HIDDEN_TOPIC_BYTES
from .layout import (
    DATA_START,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    KNOWN_FLAGS,
    LOST_ENTRY,
    MAX_OFFSET,
    NO_DUES,
    DueRange,
    SealRecord,
    checksum64,
)
from .records import Low, Trimmed, TrimmedColumns

# On disk: the two columns of names, first, start, entries, the four columns of frames, the three of trimmed streams.
KINDS = ("<u4", "<u4", "<i8", "<u4", "<u4", "<u4", "<u4", "<i8", "<u2", "<u4", "<i8", "<i8")
if TYPE_CHECKING:
    from ..device.disk import LogFile

_FIXED = struct.Struct("<8sIIIIIIIIQqqqq")
_SECTIONS = 13
_SUMS = struct.Struct(f"<{_SECTIONS + 1}Q")
HEADER_BYTES = _FIXED.size + _SUMS.size


@dataclass(slots=True)
class FooterData:
    """The content of a footer, as arrays. s streams, m entries, f frames; see the format's text for each."""

    topics: list[str]
    stream_topic: npt.NDArray[np.uint32]
    stream_queue: npt.NDArray[np.uint32]
    first: npt.NDArray[np.int64]
    start: npt.NDArray[np.uint32]
    entries: npt.NDArray[np.uint32]
    frame_position: npt.NDArray[np.uint32]
    frame_entry: npt.NDArray[np.uint32]
    frame_time: npt.NDArray[np.int64]
    frame_flags: npt.NDArray[np.uint16]
    dues: DueRange = NO_DUES
    trimmed: Trimmed = field(default_factory=dict)  # of the streams that were trimmed
    packed_names: bytes | None = None  # what `pack_names` makes of the topics, if that is known
    applied: bytes = b""  # commits that the lane has, as `pack_applied` makes them

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Messages of each stream in the segment, lost ones included."""
        ends = self.start.astype(np.int64)
        return ends[1:] - ends[:-1]

    @property
    def next_offsets(self) -> npt.NDArray[np.int64]:
        """Each stream's offset after the segment."""
        return self.first + self.counts

    def parts(self, sequence: int) -> list[bytes | memoryview]:
        """The footer's bytes, in pieces that are written back to back: large arrays are not copied."""
        names = self.packed_names if self.packed_names is not None else pack_names(self.topics)
        columns: tuple[npt.NDArray[np.integer], ...] = (
            self.stream_topic, self.stream_queue, self.first, self.start, self.entries,
            self.frame_position, self.frame_entry, self.frame_time, self.frame_flags, *_trimmed_columns(self.trimmed),
        )  # fmt: skip
        arrays = [column.astype(kind, copy=False) for column, kind in zip(columns, KINDS, strict=True)]
        times = self.frame_time
        low, high = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        sections = [memoryview(names), *(_bytes_of(part) for part in arrays)]
        fixed = _FIXED.pack(
            FOOTER_MAGIC, FORMAT_VERSION, len(self.topics), len(names), len(self.first), len(self.entries),
            len(times), len(self.trimmed), len(self.applied), sequence, low, high, *self.dues,
        )  # fmt: skip
        parts: list[bytes | memoryview] = []
        sums = []
        for section in sections:
            padding = bytes(_round8(len(section)) - len(section))
            checksum = xxh3_64(section)
            checksum.update(padding)
            sums.append(checksum.intdigest())
            parts += (section, padding)
        head = fixed + struct.pack(f"<{_SECTIONS}Q", *sums)
        if self.applied:
            parts += (self.applied, bytes(_round8(len(self.applied)) - len(self.applied)))
        return [head, struct.pack("<Q", checksum64(head)), *parts]

    def pack(self, sequence: int) -> bytes:
        """The footer's bytes."""
        return b"".join(self.parts(sequence))


def pack_names(topics: Iterable[str]) -> bytes:
    """The section of topic names."""
    return zlib.compress(b"\0".join(topic.encode() for topic in topics), 6)


def by_stream(numbers: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.intp]:
    """The order that sorts messages by their stream numbers and keeps the log's order in each stream.

    numpy sorts 16 bits by counting, in a fraction of the time that it takes for 32.
    """
    order = np.argsort(numbers.astype(np.uint16, copy=False), kind="stable")
    if numbers.itemsize > 2:
        high = (numbers >> 16).astype(np.uint16)
        if high.any():
            return order[np.argsort(high[order], kind="stable")]
    return order


class Footer:
    """A mapped footer. Its header and stream and frame tables are checked when it is opened.

    Not only their checksums: also that the numbers in them can be relied on as indexes, positions and offsets.

    `entries` is not checked as a whole, since that would load it: each entry that is looked up leads to a frame
    that must name the same stream and offset, which finds a wrong one. `check_entries` is for who takes all of it.
    """

    def __init__(self, file: LogFile | None, path: str, record: SealRecord, content: bytes = b"") -> None:
        """Of a file; without one, of its `content` in memory."""
        self.path = path
        self.position = record.footer_position
        self._record = record
        if file is not None and self.position + record.footer_bytes > file.size():
            raise StoreCorrupt("the footer is cut short", path, self.position)
        self._bytes = memoryview(content) if file is None else _map(file, record)
        self._check_header()
        fixed = _FIXED.unpack_from(self._bytes, 0)
        _, _, self.topic_count, self._name_bytes, streams, entries, frames, trimmed, applied, *rest = fixed
        self.sequence, low, high, *dues = rest
        self.time_min_ms, self.time_max_ms, self.dues = low, high, DueRange(*dues)
        self._sums = _SUMS.unpack_from(self._bytes, _FIXED.size)
        sizes = (self._name_bytes, *(4 * streams,) * 2, 8 * streams, 4 * (streams + 1), 4 * entries)
        of_frames, of_trimmed = (*(4 * frames,) * 2, 8 * frames, 2 * frames), (4 * trimmed, *(8 * trimmed,) * 2)
        if HEADER_BYTES + sum(map(_round8, (*sizes, *of_frames, *of_trimmed, applied))) != len(self._bytes):
            raise StoreCorrupt("the footer's sizes do not add up", path, self.position)
        self._at = HEADER_BYTES + _round8(self._name_bytes)
        self._section = 1
        self._is_checked = False
        self.stream_topic = self._array(KINDS[0], streams)
        self.stream_queue = self._array(KINDS[1], streams)
        self.first = self._array(KINDS[2], streams)
        self.start = self._array(KINDS[3], streams + 1)
        self.entries = self._array(KINDS[4], entries, check=False)
        self.frame_position = self._array(KINDS[5], frames)
        self.frame_entry = self._array(KINDS[6], frames)
        self.frame_time = self._array(KINDS[7], frames)
        self.frame_flags = self._array(KINDS[8], frames)
        self.trimmed_stream = self._array(KINDS[9], trimmed)
        self.trimmed_low = self._array(KINDS[10], trimmed)
        self.trimmed_hidden = self._array(KINDS[11], trimmed)
        self.applied = bytes(self._bytes[self._at : self._at + applied])
        self._check_tables()

    def _check_header(self) -> None:
        head = bytes(self._bytes[:HEADER_BYTES])
        if len(head) < HEADER_BYTES or self._record.footer_bytes != len(self._bytes):
            raise StoreCorrupt("the footer is cut short", self.path, self.position)
        if checksum64(head[:-8]) != _SUMS.unpack_from(head, _FIXED.size)[-1]:
            raise StoreCorrupt("the footer's header is damaged", self.path, self.position)
        magic, version, _, _, _, _, _, _, _, sequence, *_ = _FIXED.unpack_from(head, 0)
        if (magic, version) != (FOOTER_MAGIC, FORMAT_VERSION):
            raise StoreCorrupt("the footer is of an unknown version", self.path, self.position)
        if sequence != self._record.sequence:  # of an earlier life of the file
            raise StoreCorrupt("the footer is another segment's", self.path, self.position)

    def _array(self, kind: str, count: int, *, check: bool = True) -> npt.NDArray[Any]:
        size = _round8(np.dtype(kind).itemsize * count)
        if check:
            self._check_section(self._section, self._at, size)
        values = np.frombuffer(self._bytes, kind, count, self._at)
        self._at += size
        self._section += 1
        return values

    def _check_section(self, index: int, at: int, size: int) -> None:
        if checksum64(self._bytes[at : at + size]) != self._sums[index]:
            raise StoreCorrupt("the footer is damaged", self.path, self.position + at)

    def _check_tables(self) -> None:
        """What nobody could have written is damage, whatever the checksums say."""
        start, position, entry = self.start, self.frame_position, self.frame_entry
        streams = (self.stream_topic < self.topic_count).all() and _all_within(self.first, 0, MAX_OFFSET)
        rows = _never_falls(start) and (start[0], start[-1]) == (0, len(self.entries))
        in_data = _never_falls(position) and _all_within(position, DATA_START, self._record.data_end - 1)
        if not (streams and rows):
            raise StoreCorrupt("the footer's table of streams makes no sense", self.path, self.position)
        if not (in_data and _never_falls(entry) and _all_within(entry, 0, self._record.entries)):
            raise StoreCorrupt("the footer's table of frames makes no sense", self.path, self.position)
        if (self.frame_flags & ~np.uint16(KNOWN_FLAGS)).any() or self.dues.least > self.dues.most:
            raise StoreCorrupt("the footer's flags or delivery times make no sense", self.path, self.position)
        if not self._trimmed_make_sense():
            raise StoreCorrupt("the footer's table of trimmed streams makes no sense", self.path, self.position)
        try:
            check_applied(self.applied)
        except ValueError as error:
            raise StoreCorrupt(f"the footer's applied commits: {error}", self.path, self.position) from None

    def _trimmed_make_sense(self) -> bool:
        """Are they of streams that there are, in order, each once, and is none behind its stream's end?"""
        numbers, low, hidden = self.trimmed_stream, self.trimmed_low, self.trimmed_hidden
        if not len(numbers):
            return True
        if not bool((np.diff(numbers.astype(np.int64)) > 0).all()) or int(numbers[-1]) >= len(self.first):
            return False
        return bool(((hidden >= 0) & (hidden <= low) & (low <= self.next_offsets[numbers])).all())

    def check_entries(self) -> None:
        """Check what opening leaves unchecked: all entries, and the names."""
        at = HEADER_BYTES + _round8(self._name_bytes)
        for item, count in ((4, len(self.first)), (4, len(self.first)), (8, len(self.first)), (4, len(self.start))):
            at += _round8(item * count)
        self._check_section(5, at, _round8(4 * len(self.entries)))
        if not ((self.entries < self._record.entries) | (self.entries == LOST_ENTRY)).all():
            raise StoreCorrupt("the footer's entries do not agree with the frames", self.path, self.position)
        self.topics()
        self._is_checked = True

    def check_entries_once(self) -> None:
        """The same, for a reader who comes again and again: what was found whole is not read another time."""
        if not self._is_checked:
            self.check_entries()

    def topics(self) -> list[str]:
        """The topic names, by index. Raises StoreCorrupt."""
        self._check_section(0, HEADER_BYTES, _round8(self._name_bytes))
        packed = self._bytes[HEADER_BYTES : HEADER_BYTES + self._name_bytes]
        most = max(1, self.topic_count * (MAX_HIDDEN_TOPIC_BYTES + 1))  # however much the bytes would become
        try:
            names = zlib.decompressobj().decompress(packed, most).decode().split("\0") if self.topic_count else []
        except (zlib.error, UnicodeDecodeError):
            names = []
        if len(names) != self.topic_count:
            raise StoreCorrupt("the footer's names cannot be decoded", self.path, self.position + HEADER_BYTES)
        return names

    @property
    def size_bytes(self) -> int:
        """Length of the footer."""
        return len(self._bytes)

    @property
    def next_offsets(self) -> npt.NDArray[np.int64]:
        """Each stream's offset after the segment."""
        ends = self.start.astype(np.int64)
        return np.asarray(self.first + ends[1:] - ends[:-1], np.int64)

    @property
    def trimmed(self) -> Trimmed:
        """Where the streams that were trimmed begin, by stream number."""
        columns = self.trimmed_stream.tolist(), self.trimmed_low.tolist(), self.trimmed_hidden.tolist()
        return {number: Low(low, hidden) for number, low, hidden in zip(*columns, strict=True)}

    def data(self) -> FooterData:
        """Everything as plain arrays."""
        return FooterData(
            self.topics(), self.stream_topic, self.stream_queue, self.first, self.start, self.entries,
            self.frame_position, self.frame_entry, self.frame_time, self.frame_flags, self.dues, self.trimmed,
            applied=self.applied,
        )  # fmt: skip


def _trimmed_columns(trimmed: Trimmed) -> tuple[npt.NDArray[np.integer], ...]:
    """The columns of trimmed streams: numbers, ascending, and for each its low and up to where it is not listed."""
    columns = TrimmedColumns.of(trimmed)
    return columns.numbers, columns.low, columns.hidden


def _never_falls(values: npt.NDArray[np.integer]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _all_within(values: npt.NDArray[np.integer], low: int, high: int) -> bool:
    return not len(values) or (low <= int(values.min()) and int(values.max()) <= high)


def _map(file: LogFile, record: SealRecord) -> memoryview:
    """The footer's bytes, mapped where the file can be mapped."""
    fileno = getattr(file, "fileno", None)
    if fileno is None:
        return memoryview(file.read(record.footer_position, record.footer_bytes))
    begin = record.footer_position & -mmap.ALLOCATIONGRANULARITY
    skip = record.footer_position - begin
    mapped = mmap.mmap(fileno(), skip + record.footer_bytes, prot=mmap.PROT_READ, offset=begin)
    return memoryview(mapped)[skip:]


def _round8(size: int) -> int:
    return (size + 7) & -8


def _bytes_of(part: npt.NDArray[np.generic]) -> memoryview:
    """An array's bytes, not copied; an array of nothing cannot be cast."""
    return np.ascontiguousarray(part).data.cast("B") if len(part) else memoryview(b"")
