"""Frames in memory: a batch becomes one, and one is read back, in columns."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.extras import Extras
from .arrays import Uint32s
from .blobs import Blobs, ExtraColumns
from .dues import DueRange, due_range, required_bytes
from .joint import joint_bytes
from .layout import (
    FRAME_HEADER_BYTES,
    HAS_DUE,
    HAS_KEYS,
    HAS_PROPERTIES,
    HAS_STREAMS,
    NO_BYTES,
    NO_TIME,
    WIDE_LENGTHS,
    WIDE_NUMBERS,
    FrameHead,
    FrameHeader,
    check_frame_head,
    checksum64,
    read_frame_header,
)

_DEFINITION = struct.Struct("<IIH")
_TIME = struct.Struct("<q")
_LENGTH = struct.Struct("<I")
FEW_BLOBS = 64  # below it a loop is quicker than arrays
_SIZE_OF = {NO_BYTES: 0}.get  # (length, length): a blob's size, without a step of the interpreter
_NO_EXTRAS = Extras(None, None, None)


class Definition(NamedTuple):
    """A stream's number given to its name."""

    number: int
    topic: str
    queue_id: int


class Columns(NamedTuple):
    """The encoded columns of a batch: flags, all columns as they lie on disk, and the two that `OpenTable` needs."""

    flags: int
    packed: bytes
    lengths: array[int]  # "I"
    checksums: array[int]  # "I"


def numbers_bytes(flags: int, count: int) -> int:
    """Length of a frame's first column, the stream numbers."""
    return (4 if flags & WIDE_NUMBERS else 2) * count


def column_bytes_bound(count: int, extras: Sequence[Extras], new_topics: Iterable[str]) -> int:
    """An upper bound of a frame's header and columns in bytes, before it is built; a topic for each new stream."""
    optional = sum(len(extra.key or b"") + len(extra.properties or b"") for extra in extras)
    bound = FRAME_HEADER_BYTES + 14 * count + sum(_DEFINITION.size + len(topic.encode()) for topic in new_topics) + 4
    return bound + (16 * count + optional if extras else 0)


def encode_columns(
    numbers: Sequence[int],
    datas: Sequence[bytes],
    sizes: Sequence[int],
    offsets: array[int],
    extras: Sequence[Extras | None] | None,
    defined: Sequence[Definition],
) -> Columns:
    """Columns of a batch, one element a message.

    With `array` and its slices: a batch of a dozen messages costs a third of what numpy takes to begin, and
    one of a thousand no more.
    """
    lengths = array("I", sizes)
    flags = 0
    if max(numbers, default=0) > 0xFFFF:
        flags |= WIDE_NUMBERS
    if max(sizes, default=0) > 0xFFFF:
        flags |= WIDE_LENGTHS
    checksums = array("I", array("Q", map(checksum64, datas)).tobytes())[::2]
    parts = [
        array("I" if flags & WIDE_NUMBERS else "H", numbers).tobytes(),
        (lengths if flags & WIDE_LENGTHS else array("H", sizes)).tobytes(),
        array("H", offsets.tobytes())[::4].tobytes(),
        checksums.tobytes(),
    ]
    if extras is not None:
        flags |= _encode_extras(extras, parts)
    if defined:
        flags |= HAS_STREAMS
        parts.append(encode_definitions(defined))
    return Columns(flags, b"".join(parts), lengths, checksums)


def _encode_extras(extras: Sequence[Extras | None], parts: list[bytes]) -> int:
    flags = 0
    rows = [extra or _NO_EXTRAS for extra in extras]
    if any(row.due_ms is not None for row in rows):
        flags |= HAS_DUE
        parts.append(array("q", [NO_TIME if row.due_ms is None else row.due_ms for row in rows]).tobytes())
    for flag, values in (
        (HAS_KEYS, [row.key for row in rows]),
        (HAS_PROPERTIES, [row.properties for row in rows]),
    ):
        if any(value is not None for value in values):
            flags |= flag
            parts.append(array("I", [NO_BYTES if value is None else len(value) for value in values]).tobytes())
            parts.append(b"".join([value for value in values if value]))
    return flags


def encode_definitions(defined: Sequence[Definition]) -> bytes:
    """The column of the streams that a frame names for the first time."""
    parts = [struct.pack("<I", len(defined))]
    for number, topic, queue_id in defined:
        name = topic.encode()
        parts.append(_DEFINITION.pack(number, queue_id, len(name)) + name)
    return b"".join(parts)


@dataclass(slots=True)
class Frame:
    """A frame read back. Arrays have one element a message; positions are in the segment.

    Attributes:
        head: the header with the packed columns (`layout.FrameHead`).
        lows: the low 16 bits of each message's offset.
        extras_at: where the optional columns begin in the packed ones.
    """

    head: FrameHead
    numbers: Uint32s
    lengths: Uint32s
    lows: npt.NDArray[np.uint16]
    checksums: Uint32s
    extras_at: int

    @property
    def header(self) -> FrameHeader:
        """The fixed part."""
        return self.head.header

    @property
    def dues(self) -> DueRange:
        """The range of the messages' delivery times."""
        return due_range(self.header.flags, self.header.count, self.head.columns)

    @property
    def payload_start(self) -> int:
        """Position in the segment of the first payload byte."""
        return self.header.position + self.header.header_bytes

    def starts(self) -> npt.NDArray[np.int64]:
        """Positions of the payloads in the segment."""
        ends = self.lengths.cumsum(dtype=np.int64)
        return np.asarray(ends - self.lengths + self.payload_start, np.int64)

    def extras(self) -> ExtraColumns:
        """The optional columns, one element a message."""
        return _Optional(self.head, self.extras_at).extra_columns()

    def optional(self) -> OptionalColumns:
        """The optional columns, to be decoded message by message."""
        return _Optional(self.head, self.extras_at).columns_by_row()

    def definitions(self) -> list[Definition]:
        """The streams that this frame names for the first time."""
        return _Optional(self.head, self.extras_at).definitions() if self.header.flags & HAS_STREAMS else []


def decode_head(header: FrameHeader, raw: bytes) -> Frame | None:
    """The frame whose first `header_bytes` are `raw`, if its checksum holds and its sizes agree.

    All columns are checked here, the optional ones included: a `Frame` can be decoded without another check.
    """
    head = check_frame_head(header, raw)
    return None if head is None else frame_of(head)


def frame_of(head: FrameHead) -> Frame | None:
    """The frame of a head whose checksum is not looked at here, if its sizes agree."""
    header, columns = head.header, head.columns
    count = header.count
    number_type, number_bytes = ("<u4", 4) if header.flags & WIDE_NUMBERS else ("<u2", 2)
    length_type, length_bytes = ("<u4", 4) if header.flags & WIDE_LENGTHS else ("<u2", 2)
    if (number_bytes + length_bytes + 6) * count > len(columns):
        return None
    at = number_bytes * count
    numbers = np.frombuffer(columns, number_type, count)
    lengths = np.frombuffer(columns, length_type, count, at)
    at += length_bytes * count
    lows = np.frombuffer(columns, "<u2", count, at)
    checksums = np.frombuffer(columns, "<u4", count, at + 2 * count)
    if int(lengths.sum(dtype=np.int64)) != header.payload_bytes:
        return None
    frame = Frame(
        head, numbers.astype(np.uint32), lengths.astype(np.uint32), lows, checksums, at + 6 * count
    )  # fmt: skip
    return frame if _Optional(head, frame.extras_at).are_whole() else None


def decode_at(view: memoryview | bytes, at: int) -> Frame | None:
    """The frame head at `at` of `view`, checked; None if there is none or it is not whole."""
    header = read_frame_header(view, at)
    if header is None:
        return None
    return decode_head(header, bytes(view[at : at + header.header_bytes]))


def optional_of(head: FrameHead) -> OptionalColumns | None:
    """The optional columns of a frame, for a reader that has the others already; None if they are damaged.

    A third of the time that the whole frame takes.
    """
    columns = _Optional(head, required_bytes(head.header.flags, head.header.count))
    try:
        found = columns.columns_by_row()
    except (ValueError, OverflowError, struct.error):  # something lies past the end
        return None
    return found if columns.at <= len(head.columns) else None


class _Places(NamedTuple):
    """A column of blobs: where its lengths begin, and where each blob does, with the end of the last (count + 1,)."""

    lengths_at: int
    begins: memoryview


class OptionalColumns:
    """The optional columns of a frame. One message's are decoded at a cost that does not grow with the frame."""

    __slots__ = ("_bytes", "_due", "_keys", "_properties")

    def __init__(self, columns: bytes, due: int | None, keys: _Places | None, properties: _Places | None) -> None:
        self._bytes = columns
        self._due = due
        self._keys = keys
        self._properties = properties

    @property
    def size_bytes(self) -> int:
        """Memory of the columns and of the places in them."""
        return len(self._bytes) + sum(column.begins.nbytes + 200 for column in (self._keys, self._properties) if column)

    @property
    def has_dues(self) -> bool:
        """Whether some message may have a delivery time."""
        return self._due is not None

    @property
    def has_blobs(self) -> bool:
        """Whether some message may have a key or properties."""
        return self._keys is not None or self._properties is not None

    def due_ms(self, at: int) -> int:
        """The delivery time of the message `at` of the frame; NO_TIME for none."""
        found: int = NO_TIME if self._due is None else _TIME.unpack_from(self._bytes, self._due + 8 * at)[0]
        return found

    def row(self, at: int) -> Extras:
        """The optional columns of the message `at` of the frame."""
        due = self.due_ms(at)
        return Extras(None if due == NO_TIME else due, self._blob(self._keys, at), self._blob(self._properties, at))

    def _blob(self, column: _Places | None, at: int) -> bytes | None:
        if column is None:
            return None
        begin, end = column.begins[at], column.begins[at + 1]
        if begin == end and _LENGTH.unpack_from(self._bytes, column.lengths_at + 4 * at)[0] == NO_BYTES:
            return None
        return self._bytes[begin:end]


class _Optional:
    """Walks the optional columns of a frame, in their order on disk."""

    def __init__(self, head: FrameHead, extras_at: int) -> None:
        self.count = head.header.count
        self.flags = head.header.flags
        self.columns = head.columns
        self.at = extras_at

    def are_whole(self) -> bool:
        """Do they end where the header says that they do?"""
        try:
            if self.flags & HAS_STREAMS:
                self.definitions()
            else:
                self._pass_extras()
        except (ValueError, struct.error):  # something lies past the end, or is not UTF-8
            return False
        return self.at + joint_bytes(self.flags, self.columns) == len(self.columns)

    def _pass_extras(self) -> None:
        """Move past them without making objects."""
        if self.flags & HAS_DUE:
            self.at += 8 * self.count
        for flag in (HAS_KEYS, HAS_PROPERTIES):
            if self.flags & flag:
                lengths = self._blob_lengths()
                self.at += int(lengths.sum(dtype=np.int64, where=lengths != NO_BYTES))

    def columns_by_row(self) -> OptionalColumns:
        begin = self.at
        due = 0 if self.flags & HAS_DUE else None
        if due is not None:
            self.at += 8 * self.count
        keys = self._places(begin) if self.flags & HAS_KEYS else None
        properties = self._places(begin) if self.flags & HAS_PROPERTIES else None
        return OptionalColumns(self.columns[begin : self.at], due, keys, properties)

    def extra_columns(self) -> ExtraColumns:
        times = None
        if self.flags & HAS_DUE:
            times = np.frombuffer(self.columns, "<i8", self.count, self.at)
            self.at += 8 * self.count
        keys = self._column() if self.flags & HAS_KEYS else None
        properties = self._column() if self.flags & HAS_PROPERTIES else None
        return ExtraColumns(self.count, times, keys, properties)

    def _column(self) -> Blobs:
        lengths = self._blob_lengths().view(np.int32).astype(np.int64)  # NO_BYTES becomes -1
        begin, self.at = self.at, self.at + int(lengths.sum(where=lengths > 0))
        return Blobs(lengths, memoryview(self.columns)[begin : self.at])

    def _blob_lengths(self) -> Uint32s:
        lengths: Uint32s = np.frombuffer(self.columns, "<u4", self.count, self.at)
        self.at += 4 * self.count
        return lengths

    def _places(self, begin: int) -> _Places:
        """A column of blobs; places are counted from `begin`."""
        lengths_at, count = self.at - begin, self.count
        if count <= FEW_BLOBS:
            self.at += 4 * count
            few = struct.unpack_from(f"<{count}I", self.columns, begin + lengths_at)
            ends = array("I", accumulate(map(_SIZE_OF, few, few), initial=self.at - begin))
            self.at = begin + ends[-1]
            return _Places(lengths_at, memoryview(ends))
        lengths = self._blob_lengths()
        begins = np.zeros(count + 1, np.uint32)
        np.multiply(lengths, lengths != NO_BYTES, out=begins[1:])
        begins[0] = self.at - begin
        begins = begins.cumsum(dtype=np.uint32)
        self.at = begin + int(begins[-1])
        return _Places(lengths_at, memoryview(begins.data))

    def definitions(self) -> list[Definition]:
        self._pass_extras()
        (count,) = struct.unpack_from("<I", self.columns, self.at)
        self.at += 4
        found = []
        for _ in range(count):
            number, queue_id, size = _DEFINITION.unpack_from(self.columns, self.at)
            self.at += _DEFINITION.size
            found.append(Definition(number, self.columns[self.at : self.at + size].decode(), queue_id))
            self.at += size
        return found
