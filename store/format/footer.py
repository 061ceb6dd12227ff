"""Footers: the index of a sealed segment, written once, then searched.

A footer is read by system calls and never mapped. To touch a mapped page that the file does not have any more, or that
the device cannot read, ends the process; the same read is an error. See `device/leased.py` for the rule.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from .applied import check_applied
from .dues import DueRange
from .footer_data import (
    ENTRIES,
    ENTRY_BYTES,
    FIRST,
    FIXED,
    FIXED_BYTES,
    FRAME_BYTES,
    FRAME_ENTRY,
    FRAME_FLAGS,
    FRAME_POSITION,
    FRAME_TIME,
    HEADER_BYTES,
    HELD_PART,
    KINDS,
    NOT_TOLD,
    ORDER,
    PRESENT,
    PRESENT_START,
    SIZES,
    START,
    STREAM,
    STREAM_BYTES,
    SUMS_SHARE,
    TRIM_BYTES,
    FooterData,
    Presence,
    by_stream,
    pack_names,
)
from .hidden import MAX_HIDDEN_TOPIC_BYTES
from .layout import (
    DATA_START,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    KNOWN_FLAGS,
    LOST_ENTRY,
    MAX_OFFSET,
    SealRecord,
    checksum64,
)
from .records import StreamLow, Trimmed
from .stored_column import CHUNK_BYTES, CheckedSource, Source, StoredColumn

Column = memoryview | StoredColumn  # for single look-ups: a view's items cost a third of an array's


class _Content(NamedTuple):
    """The bytes of a footer in memory, to be read like a file."""

    content: bytes
    position: int

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return self.content[position - self.position : position - self.position + size]

    def size(self) -> int:
        """Their end."""
        return self.position + len(self.content)


class _Whole:
    """A column of a footer as an array. One that stays in the file is read anew each time: keep what you use twice."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __get__(self, footer: Footer, owner: type[Footer]) -> npt.NDArray[Any]:
        return footer.taken(self._number)


class Footer:
    """A footer that was read. Its header and stream and frame tables are checked when they are read.

    Their checksums are compared. In tables that are held the numbers are checked, too: whether they can be indexes,
    positions and offsets.

    `entries` is not checked as a whole, since that would load it: each entry that is looked up leads to a frame
    that must name the same stream and offset, which finds a wrong one. Call `check_entries` before all of it is used.

    Attributes:
        is_full: it has a row of each stream of the lane, by number; else `stream` has the number of each row's stream.
        tells_presence: it is full, and says where in its group each stream has messages.
        stored: the columns in the order of KINDS; those that are not held in memory stay in the file.
        memory_bytes: of those that are held.
    """

    stream_topic, stream_queue, first, start, entries = map(_Whole, range(5))
    frame_position, frame_entry, frame_time, frame_flags = map(_Whole, range(5, 9))
    trimmed_stream, trimmed_low, trimmed_hidden, stream = map(_Whole, range(9, 13))

    def __init__(
        self, source: Source | None, path: str, record: SealRecord, content: bytes = b"", room_bytes: int | None = None
    ) -> None:
        """Read it from a file; without one, from its `content` in memory.

        `room_bytes`: a footer that is larger than a part of this leaves its entries in the file, and its tables as well
        if they are larger than all of it. None: all of it is held, and so are its names once they were decoded.
        Raises StoreCorrupt, OSError.
        """
        self.path = path
        self.position = record.footer_position
        self._record = record
        self._keeps_names = room_bytes is None
        self._names: tuple[str, ...] | None = None
        self._is_checked = False
        if source is not None and self.position + record.footer_bytes > source.size():
            raise StoreCorrupt("the footer is cut short", path, self.position)
        is_held = source is None or room_bytes is None or HELD_PART * record.footer_bytes <= room_bytes
        if source is not None and is_held:
            content = source.read(self.position, record.footer_bytes)
        file = _Content(content, self.position) if is_held or source is None else source
        self._read_header(file, len(content) if is_held else None)
        self._tables = CheckedSource(file, path, self.position + self._body, self._tables_bytes, self._sums[0])
        self._rest = CheckedSource(file, path, self._tables.end, self._entries_bytes, self._sums[1])
        are_held = is_held or room_bytes is None or self._tables_bytes <= room_bytes
        self._held = self._tables.read(self._tables.position, self._tables_bytes) if are_held else b""
        applied_at, applied_bytes = self._applied
        self.applied = bytes(self._part(applied_at, applied_bytes))
        self.stored: list[npt.NDArray[Any] | StoredColumn] = []
        for number in range(len(KINDS)):
            self.stored.append(self._column(number, file, content if is_held else b""))
        self.memory_bytes = len(self.applied)
        if are_held:
            self._check_tables()
            self.memory_bytes = len(content) if is_held else self._tables_bytes
        self._check_applied()

    def _read_header(self, file: Source, size: int | None) -> None:
        """The header, and where each section lies; `size` of what was read, if all of it was."""
        head = bytes(file.read(self.position, HEADER_BYTES))
        if len(head) < HEADER_BYTES or (size is not None and self._record.footer_bytes != size):
            raise StoreCorrupt("the footer is cut short", self.path, self.position)
        if checksum64(head[:-8]) != struct.unpack_from("<Q", head, FIXED.size)[0]:
            raise StoreCorrupt("the footer's header is damaged", self.path, self.position)
        fixed = FIXED.unpack_from(head, 0)
        magic, version, full, self.topic_count, names, rows, entries, frames, trimmed, applied, told, *rest = fixed
        if (magic, version) != (FOOTER_MAGIC, FORMAT_VERSION) or full not in (0, 1) or (told and not full):
            raise StoreCorrupt("the footer is of an unknown version", self.path, self.position)
        self.is_full = bool(full)
        self.sequence, self.time_min_ms, self.time_max_ms, *dues, sums = rest
        self.dues, self._name_bytes = DueRange(*dues), names
        if self.sequence != self._record.sequence:  # of an earlier life of the file
            raise StoreCorrupt("the footer is another segment's", self.path, self.position)
        of_rows = (rows, rows, rows, rows + 1)
        self.tells_presence = self.is_full and told != NOT_TOLD
        present = (rows + 2, told) if self.tells_presence else (0, 0)
        of_stream = 0 if full else rows
        self._counts: tuple[int, ...] = (*of_rows, entries, *(frames,) * 4, *(trimmed,) * 3, of_stream, *present)
        self._places: dict[int, int] = {}  # where each column begins
        at = _round8(names)
        for number in ORDER:
            self._places[number] = at
            at += _round8(SIZES[number] * self._counts[number])
        self._applied = at, applied
        self._tables_bytes = self._places[ENTRIES] = at + _round8(applied)
        self._entries_bytes = _round8(SIZES[ENTRIES] * entries)
        counts = _chunks(self._tables_bytes), _chunks(self._entries_bytes)
        self._body = HEADER_BYTES + 8 * sum(counts)
        if self._body + self._tables_bytes + self._entries_bytes != self._record.footer_bytes:
            raise StoreCorrupt("the footer's sizes do not add up", self.path, self.position)
        packed = bytes(file.read(self.position + HEADER_BYTES, self._body - HEADER_BYTES))
        if checksum64(packed) != sums:
            raise StoreCorrupt("the footer is damaged", self.path, self.position + HEADER_BYTES)
        self._sums = packed[: 8 * counts[0]], packed[8 * counts[0] :]

    def _part(self, at: int, size: int) -> memoryview:
        """Some bytes of the tables: of memory, or of the file."""
        if self._held:
            return memoryview(self._held)[at : at + size]
        return memoryview(self._tables.read(self._tables.position + at, size))

    def _column(self, number: int, file: Source, content: bytes) -> npt.NDArray[Any] | StoredColumn:
        """A column in memory, or where it lies."""
        kind, count, at = KINDS[number], self._counts[number], self._places[number]
        held = memoryview(content)[self._body :] if number == ENTRIES else memoryview(self._held)
        if not count:
            return np.empty(0, kind)
        if held:
            return np.frombuffer(held, kind, count, at)
        # A look at an entry leads to a frame, which tells whether it is right.
        source = file if number == ENTRIES else self._tables
        return StoredColumn(source, self.path, self._tables.position + at, kind, count)

    def column(self, number: int) -> Column:
        """A column for single look-ups, by its number in KINDS."""
        column = self.stored[number]
        return column if isinstance(column, StoredColumn) else memoryview(column.data)

    def taken(self, number: int, rows: npt.NDArray[np.integer] | None = None) -> npt.NDArray[Any]:
        """The numbers of some rows of a column, or of all."""
        column = self.stored[number]
        if isinstance(column, StoredColumn):
            return column.part(0, len(column)) if rows is None else column.taken(rows)
        return column if rows is None else np.asarray(column[rows])

    def _check_tables(self) -> None:
        """Take for damage what no writer could have written, also if the checksums hold."""
        start, position, entry, numbers = self.start, self.frame_position, self.frame_entry, self.stream
        streams = (self.stream_topic < self.topic_count).all() and _all_within(self.first, 0, MAX_OFFSET)
        rows = _never_falls(start) and (start[0], start[-1]) == (0, self.entry_count)
        rows = rows and bool((numbers[1:] > numbers[:-1]).all())
        in_data = _never_falls(position) and _all_within(position, DATA_START, self._record.data_end - 1)
        if not (streams and rows):
            raise StoreCorrupt("the footer's table of streams makes no sense", self.path, self.position)
        if not (in_data and _never_falls(entry) and _all_within(entry, 0, self._record.entries)):
            raise StoreCorrupt("the footer's table of frames makes no sense", self.path, self.position)
        if (self.frame_flags & ~np.uint16(KNOWN_FLAGS)).any() or self.dues.least > self.dues.most:
            raise StoreCorrupt("the footer's flags or delivery times make no sense", self.path, self.position)
        if not self._trimmed_make_sense():
            raise StoreCorrupt("the footer's table of trimmed streams makes no sense", self.path, self.position)
        if self.presence is not None and not self.presence.makes_sense():
            raise StoreCorrupt("the footer's table of segments makes no sense", self.path, self.position)

    def _check_applied(self) -> None:
        try:
            check_applied(self.applied)
        except ValueError as error:
            raise StoreCorrupt(f"the footer's applied commits: {error}", self.path, self.position) from None

    def _trimmed_make_sense(self) -> bool:
        """Are they in order, each once, of streams that there are, and is none past its stream's end?"""
        numbers, low, hidden = self.trimmed_stream, self.trimmed_low, self.trimmed_hidden
        if not len(numbers):
            return True
        if not bool((np.diff(numbers.astype(np.int64)) > 0).all()) or not ((hidden >= 0) & (hidden <= low)).all():
            return False
        if not self.is_full:
            return True
        return int(numbers[-1]) < self.stream_count and bool((low <= self.next_offsets[numbers]).all())

    @property
    def presence(self) -> Presence | None:
        """Where in its group each stream has messages; None if the footer does not say."""
        return Presence(self.taken(PRESENT_START), self.taken(PRESENT)) if self.tells_presence else None

    @property
    def stream_count(self) -> int:
        """The number of rows: one a stream."""
        return self._counts[0]

    @property
    def numbers(self) -> npt.NDArray[np.uint32]:
        """The number of each row's stream, ascending."""
        return np.arange(self.stream_count, dtype=np.uint32) if self.is_full else self.stream

    def row_of(self, number: int) -> int:
        """The row of a stream, -1 if there is none."""
        if self.is_full:
            return number if number < self.stream_count else -1
        column = self.column(STREAM)
        row = bisect_left(column, number)
        return row if row < len(column) and column[row] == number else -1

    def rows_of(self, numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """The row of each of some streams; of one that has none, as many as there are rows, or more."""
        if self.is_full:
            return numbers
        streams = self.stream
        rows = streams.searchsorted(numbers)
        rows[streams.take(rows, mode="clip") != numbers if len(streams) else slice(None)] = len(streams)
        return rows

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Messages of each row, lost ones included."""
        ends = self.start.astype(np.int64)
        return np.asarray(ends[1:] - ends[:-1], np.int64)

    @property
    def entry_count(self) -> int:
        """The number of entries: the segment's messages, without those that a repair gave up for good."""
        return self._counts[ENTRIES]

    def check_entries(self) -> None:
        """Check what opening leaves unchecked: all entries, and the names."""
        if not self._held:
            self._check_whole()
        part = self._rest.read(self._rest.position, self._entries_bytes)
        entries = np.frombuffer(part, KINDS[ENTRIES], self.entry_count) if self.entry_count else np.empty(0, np.uint32)
        if not ((entries < self._record.entries) | (entries == LOST_ENTRY)).all():
            raise StoreCorrupt("the footer's entries do not agree with the frames", self.path, self.position)
        self.topics()
        self._is_checked = True

    def _check_whole(self) -> None:
        """The tables that were left in the file, which nobody has seen as a whole."""
        stored, self._held = self.stored, self._tables.read(self._tables.position, self._tables_bytes)
        try:
            self.stored = [
                stored[number] if number == ENTRIES else self._column(number, self._tables, b"")
                for number in range(len(KINDS))
            ]
            self._check_tables()
        finally:
            self.stored, self._held = stored, b""

    def check_entries_once(self) -> None:
        """As `check_entries`, but what was found whole is not read another time."""
        if not self._is_checked:
            self.check_entries()

    def topics(self) -> list[str]:
        """The topic names, by index. Raises StoreCorrupt."""
        names = self._decoded() if self._names is None else self._names
        if self._keeps_names:
            self._names = tuple(names)
        return list(names)

    def _decoded(self) -> Sequence[str]:
        packed = self._part(0, self._name_bytes)
        most = max(1, self.topic_count * (MAX_HIDDEN_TOPIC_BYTES + 1))  # however much the bytes would become
        try:
            names = zlib.decompressobj().decompress(packed, most).decode().split("\0") if self.topic_count else []
        except (zlib.error, UnicodeDecodeError):
            names = []
        if len(names) != self.topic_count:
            raise StoreCorrupt("the footer's names cannot be decoded", self.path, self.position + HEADER_BYTES)
        return names

    @property
    def names_bytes(self) -> int:
        """Length of the packed names."""
        return int(self._name_bytes)

    @property
    def size_bytes(self) -> int:
        """Length of the footer."""
        return self._record.footer_bytes

    @property
    def next_offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each row's stream after the segment."""
        return np.asarray(self.first + self.counts, np.int64)

    @property
    def trimmed(self) -> Trimmed:
        """The lows of the streams that were trimmed, by stream number."""
        columns = self.trimmed_stream.tolist(), self.trimmed_low.tolist(), self.trimmed_hidden.tolist()
        return {number: StreamLow(low, hidden) for number, low, hidden in zip(*columns, strict=True)}

    def data(self) -> FooterData:
        """Everything as plain arrays."""
        return FooterData(
            self.topics(), self.stream_topic, self.stream_queue, self.first, self.start, self.entries,
            self.frame_position, self.frame_entry, self.frame_time, self.frame_flags, self.dues, self.trimmed,
            applied=self.applied, stream=None if self.is_full else self.stream,
            presence=self.presence,
        )  # fmt: skip


def names_in(footer: Footer | FooterData) -> list[tuple[str, int]]:
    """(topic, queue id) of the stream of each row of a footer: by number, if it is full. Raises StoreCorrupt."""
    topics = footer.topics() if isinstance(footer, Footer) else footer.topics
    named = [topics[index] for index in footer.stream_topic.tolist()]
    return list(zip(named, footer.stream_queue.tolist(), strict=True))


def _never_falls(values: npt.NDArray[np.integer]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _all_within(values: npt.NDArray[np.integer], low: int, high: int) -> bool:
    return not len(values) or (low <= int(values.min()) and int(values.max()) <= high)


def _chunks(size: int) -> int:
    return -(-size // CHUNK_BYTES)


def _round8(size: int) -> int:
    return (size + 7) & -8


__all__ = [
    "ENTRIES", "ENTRY_BYTES", "FIRST", "FIXED_BYTES", "FRAME_BYTES", "FRAME_ENTRY", "FRAME_FLAGS", "FRAME_POSITION",
    "FRAME_TIME", "HEADER_BYTES", "KINDS", "NOT_TOLD", "PRESENT", "PRESENT_START", "START", "STREAM", "STREAM_BYTES",
    "SUMS_SHARE", "TRIM_BYTES", "Column", "Footer", "FooterData", "Presence", "by_stream", "names_in", "pack_names",
]  # fmt: skip
