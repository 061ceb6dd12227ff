"""The content of a footer, and its bytes.

Every section begins at a multiple of 8, counted from the end of the checksums
    header                   FIXED below, and its checksum
    checksums      c x u64   of each 16 KiB of the sections, those of the entries apart: one number is read and compared
                             without the rest
    names                    zlib-compressed, NUL-separated topic names of the rows
    stream_topic   s x u32   index into names } a row a stream: in a full footer of each that the lane knew when the
    stream_queue   s x u32   queue id         } segment was sealed, by number; in a small one of those in `stream`
    first          s x i64   offset of its first message here, or of its next one if it has none here
    start    (s + 1) x u32   its messages are entries[start[i]:start[i + 1]]
    frame_position f x u32   where each frame begins
    frame_entry    f x u32   entry number of its first message
    frame_time     f x i64   its time, ms since the epoch
    frame_flags    f x u16   its flags
    trimmed_stream t x u32   } of each stream that was ever trimmed, by the records (see `records`) of this segment
    trimmed_low    t x i64   } and, in a full footer, of all before it; in a small one, of those after the full one:
    trimmed_hidden t x i64   } its number, ascending; the first offset that stays; and the offset up to which its queue
                             is not listed, 0 if its topic was never deleted
    stream         s x u32   of a small footer: the number of each row's stream, ascending; those without messages here
                             are the ones that no footer before names, and that of the lane's records
    present_start (s+2) x u32 } of a full footer that tells it: stream i has messages in the segments that are so many
    present        p x u16   } before this one as present[present_start[i]:present_start[i + 1]] says, farthest first,
                             back to the full footer before; one more row: segments that may have messages of any
    applied                  the commits that the lane has (`applied`)
    entries        m x u32   entry numbers (0, 1, 2 .. in log order in the segment), by row, in offset order;
                             LOST_ENTRY for a message that a repair gave up
A row of a full footer with an empty topic is of a number whose stream is gone (`log.gone`). No queue gets that number.
The header has the range of the frames' times, and that of the messages' delivery times, NO_TIME twice if there are
none; where messages are lost, it may be wider than what is left.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import Int64s, Uint32s
from .dues import NO_DUES, DueRange
from .layout import FOOTER_MAGIC, FORMAT_VERSION, GONE_TOPIC, checksum64
from .records import Trimmed, TrimmedColumns
from .stored_column import CHUNK_BYTES

# On disk: the two columns of names, first, start, entries, the four columns of frames, the three of trimmed streams,
# the number of each row's stream, and the two of where in its group each stream has messages. The entries come last.
KINDS = ("<u4", "<u4", "<i8", "<u4", "<u4", "<u4", "<u4", "<i8", "<u2", "<u4", "<i8", "<i8", "<u4", "<u4", "<u2")
SIZES = tuple(np.dtype(kind).itemsize for kind in KINDS)
FIXED = struct.Struct("<8sIIIIIIIIIIQqqqqQ")  # the last one: the checksum of the chunks' checksums
HEADER_BYTES = FIXED.size + 8
FIRST, START, ENTRIES, FRAME_POSITION, FRAME_ENTRY, FRAME_TIME, FRAME_FLAGS = range(2, 9)  # of KINDS
STREAM, PRESENT_START, PRESENT = 12, 13, 14
ORDER = tuple(number for number in range(len(KINDS)) if number != ENTRIES)
HELD_PART = 8  # of the room: a footer up to this is held with its entries; the tables of others want the rest more
# What a footer takes at the most: for itself, the rounding of its sections and a little more to come; and for each.
NOT_TOLD = (1 << 32) - 1  # in place of the number of elements of `present`
FIXED_BYTES = HEADER_BYTES + 8 * (len(KINDS) + 2) + 1024
STREAM_BYTES, TRIM_BYTES, FRAME_BYTES, ENTRY_BYTES = 28, 20, 18, 4
SUMS_SHARE = CHUNK_BYTES // 8  # the checksums take a 2,048th of what they cover


class Presence(NamedTuple):
    """Where in its group each stream has messages, as a full footer has it; see the format's text."""

    start: npt.NDArray[np.uint32]
    steps: npt.NDArray[np.uint16]

    def makes_sense(self) -> bool:
        """Has each row the farthest segments first, each once?"""
        start, steps = self.start, self.steps
        if (start[1:] < start[:-1]).any() or (start[0], start[-1]) != (0, len(steps)):
            return False
        falls = steps[1:] < steps[:-1]
        falls[start[(start > 0) & (start < len(steps))].astype(np.int64) - 1] = True  # another row
        return bool(falls.all())


_NO_PRESENCE = Presence(np.empty(0, np.uint32), np.empty(0, np.uint16))


@dataclass(slots=True)
class FooterData:
    """The content of a footer, as arrays. s rows, m entries, f frames; see the format's text for each.

    A full one has a row for each stream of the lane, by number; a small one has those of some, `stream`.
    """

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
    stream: npt.NDArray[np.uint32] | None = None  # the number of each row's stream; None: of a full one
    presence: Presence | None = None  # of a full one; None: any segment of the group may have messages of any

    @property
    def numbers(self) -> npt.NDArray[np.uint32]:
        """The number of each row's stream, ascending."""
        return np.arange(len(self.first), dtype=np.uint32) if self.stream is None else self.stream

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Messages of each stream in the segment, lost ones included."""
        ends = self.start.astype(np.int64)
        return ends[1:] - ends[:-1]

    @property
    def next_offsets(self) -> npt.NDArray[np.int64]:
        """Each stream's offset after the segment."""
        return self.first + self.counts

    @property
    def newest_ms(self) -> int:
        """The newest time of the frames; 0 if there are none."""
        return int(self.frame_time.max()) if len(self.frame_time) else 0

    def parts(self, sequence: int) -> list[bytes | memoryview]:
        """The footer's bytes, in pieces that are written back to back: large arrays are not copied."""
        names = self.packed_names if self.packed_names is not None else pack_names(self.topics)
        stream = np.empty(0, np.uint32) if self.stream is None else self.stream
        present = _NO_PRESENCE if self.presence is None else self.presence
        kept = self._without_gone()
        told = NOT_TOLD if self.stream is None and self.presence is None else len(present.steps)
        columns: tuple[npt.NDArray[np.integer], ...] = (
            self.stream_topic, self.stream_queue, self.first, self.start, self.entries, self.frame_position,
            self.frame_entry, self.frame_time, self.frame_flags, kept.numbers, kept.low, kept.hidden, stream,
            *present,
        )  # fmt: skip
        arrays = [column.astype(kind, copy=False) for column, kind in zip(columns, KINDS, strict=True)]
        low = int(self.frame_time.min()) if len(self.frame_time) else 0
        sections = [memoryview(names), *(_bytes_of(arrays[number]) for number in ORDER), memoryview(self.applied)]
        tables = b"".join(part for section in sections for part in (section, bytes(-len(section) % 8)))
        entries = _bytes_of(arrays[ENTRIES])
        padding = bytes(-len(entries) % 8)
        sums = _sums_of(memoryview(tables)) + _sums_of(entries, padding)
        head = FIXED.pack(
            FOOTER_MAGIC, FORMAT_VERSION, self.stream is None, len(self.topics), len(names), len(self.first),
            len(self.entries), len(self.frame_time), len(kept), len(self.applied), told, sequence, low, self.newest_ms,
            *self.dues, checksum64(sums),
        )  # fmt: skip
        return [head, struct.pack("<Q", checksum64(head)), sums, tables, entries, padding]

    def _without_gone(self) -> TrimmedColumns:
        """The trimmed streams, in a full footer without those that are gone: no reader can find these any more."""
        columns = TrimmedColumns.of(self.trimmed)
        if self.stream is not None or GONE_TOPIC not in self.topics or not len(columns):
            return columns
        stays = self.stream_topic[columns.numbers] != self.topics.index(GONE_TOPIC)
        return TrimmedColumns(columns.numbers[stays], columns.low[stays], columns.hidden[stays])

    def pack(self, sequence: int) -> bytes:
        """The footer's bytes."""
        return b"".join(self.parts(sequence))


def begins_at(numbers: Uint32s, first: Int64s, ends: Int64s, *, is_full: bool) -> bool:
    """Do a footer's streams begin where the segment before has ended them, and new ones with 0?

    Args:
        numbers, first (rows,): of the footer, which has all streams of the lane if it `is_full`.
        ends (streams,): where the segment before has ended them; below 0 where that is unknown.
    """
    if is_full and len(ends) > len(numbers):
        return False
    known = numbers < len(ends)
    begins = np.zeros(len(numbers), np.int64)
    begins[known] = ends[numbers[known]]
    return not ((first != begins) & (begins >= 0)).any()


def pack_names(topics: Iterable[str]) -> bytes:
    """The section of topic names."""
    return zlib.compress(b"\0".join(topic.encode() for topic in topics), 6)


def _sums_of(part: memoryview, padding: bytes = b"") -> bytes:
    """The checksums of a part's chunks; the last one goes on to the end of the padding."""
    sums = []
    for at in range(0, len(part), CHUNK_BYTES):
        chunk = part[at : at + CHUNK_BYTES]
        is_last = at + CHUNK_BYTES >= len(part)
        sums.append(checksum64(bytes(chunk) + padding if is_last and padding else chunk))
    return struct.pack(f"<{len(sums)}Q", *sums)


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


def _bytes_of(part: npt.NDArray[np.generic]) -> memoryview:
    """An array's bytes, not copied; an array of nothing cannot be cast."""
    return np.ascontiguousarray(part).data.cast("B") if len(part) else memoryview(b"")
