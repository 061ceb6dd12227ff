"""What readers hold of a sealed segment: its footer with columns at hand, the heads of its frames, and its places.

A look-up goes from a stream and an offset to a row of the `Index`, from there to entries, and from each entry to the
head of its frame (`HeadRows`), which has the message's place. Once the heads of all frames are held, or where the open
table still knew the places, they are one table (`KeptPlaces`): then no head is decoded again.
"""

from __future__ import annotations

import struct
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from ..format.footer import (
    ENTRIES,
    FIRST,
    FRAME_ENTRY,
    FRAME_FLAGS,
    FRAME_POSITION,
    FRAME_TIME,
    PRESENT,
    PRESENT_START,
    START,
    STREAM,
    Column,
    Footer,
    FooterData,
)
from ..format.frame import Frame
from ..format.layout import HAS_EXTRAS, LOST_ENTRY
from .held import HeldItem
from .open_table import OpenTable, Uint32s
from .segment import Segment

WRONG_MESSAGE = "the footer points to a wrong message"

ROW_COLUMNS = ("stream number", "low bits of the offset", "position in the segment", "length", "checksum")
ROW = struct.Struct(f"<{len(ROW_COLUMNS)}I")
ROW_BYTES = ROW.size

ENTRY_BYTES, STREAM_BYTES = 16, 12  # of kept places
KEPT_PART = 4  # of the memory for sealed segments: a larger table would drive out too much else


class WrongFooter(Exception):
    """The footer does not agree with the frames."""


class Index(HeldItem):
    """A footer and the columns that every look-up wants, held within the memory for sealed segments.

    Attributes:
        streams: how many rows it has.
        numbers: the number of each row's stream; None: of a full footer, the row itself.
        first, start, entries, frame_entry: of the footer; single items and slices.
        is_remade: it is not the file's, but made of the frames.
        heads: those that are held, by their frame's number in this index and in no other.
    """

    __slots__ = (
        "_frames", "entries", "first", "footer", "frame_entry", "heads", "is_remade", "numbers", "start", "streams",
    )  # fmt: skip

    def __init__(self, footer: Footer, heads: dict[int, HeadRows], *, is_remade: bool) -> None:
        self.footer = footer
        self.heads = heads
        self.is_remade = is_remade
        self.streams = footer.stream_count
        self.numbers: Column | None = None if footer.is_full else footer.column(STREAM)
        self.first = footer.column(FIRST)
        self.start = footer.column(START)
        self.entries = footer.column(ENTRIES)
        self.frame_entry = footer.column(FRAME_ENTRY)
        self._frames: tuple[Column, Column, Column] | None = None
        super().__init__(footer.memory_bytes)

    @property
    def frames(self) -> tuple[Column, Column, Column]:
        """The positions, times and flags of the frames; single items."""
        if self._frames is None:
            column = self.footer.column
            self._frames = column(FRAME_POSITION), column(FRAME_TIME), column(FRAME_FLAGS)
        return self._frames

    def segments_before(self, number: int) -> tuple[Sequence[int], Sequence[int]] | None:
        """How many segments back a stream has messages; and how many back those lie that may have some of any.

        Farthest first. None if the footer does not say, as one that was made of frames.
        """
        if not self.footer.tells_presence or self.is_remade:
            return None
        start, steps, rows = self.footer.column(PRESENT_START), self.footer.column(PRESENT), self.streams
        of_any: Sequence[int] = steps[start[rows] : start[rows + 1]]
        return (steps[start[number] : start[number + 1]] if number < rows else ()), of_any

    def row(self, number: int) -> int:
        """The row of a stream, -1 if it has none. Of a full one, hot paths take the number, without a call."""
        return row_of(self.numbers, self.streams, number)


def row_of(numbers: Column | None, streams: int, number: int) -> int:
    """The row of a stream among `numbers`, or among 0 .. `streams` - 1 if these are None; -1 if it has none."""
    if numbers is None:
        return number if number < streams else -1
    row = bisect_left(numbers, number)
    return row if row < streams and numbers[row] == number else -1


class HeadRows(HeldItem):
    """The columns of a frame as a reader wants them: `ROW.unpack_from(rows, at * ROW.size)` is all of a message."""

    __slots__ = ("end_entry", "extras", "first_entry", "flags", "index", "rows", "time_ms")

    def __init__(self, frame: Frame, index: int) -> None:
        header = frame.header
        self.index = index  # in the footer
        self.first_entry = header.first_entry
        self.end_entry = header.first_entry + header.count
        self.flags = header.flags
        self.time_ms = header.time_ms
        columns = (frame.numbers, frame.lows, frame.starts(), frame.lengths, frame.checksums)
        self.rows = np.array(columns, np.uint32).T.tobytes()
        self.extras = frame.optional() if header.flags & HAS_EXTRAS else None
        super().__init__(len(self.rows) + (self.extras.size_bytes if self.extras is not None else 0))


class KeptPlaces(HeldItem):
    """Where the messages of a segment lie: 16 bytes a message and 12 a stream, part of the memory for sealed segments.

    It is made in memory by the lane and the sealing, or of the heads of all frames, which were compared with the footer
    then. So a look-up checks nothing but the messages' checksums.

    Attributes:
        streams: how many rows the footer has.
        first, start, entries: of the footer; no message is lost.
        flat: position, length and checksum of each entry, back to back.
        columns: all of these.
        numbers: of the streams; None: each row's own number.
    """

    __slots__ = ("columns", "entries", "first", "flat", "numbers", "start", "streams")

    def __init__(
        self,
        first: npt.NDArray[np.int64],
        start: npt.NDArray[np.uint32],
        entries: npt.NDArray[np.uint32],
        columns: Uint32s,
        numbers: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        """`columns` (entries, 3). All arrays are for this object alone."""
        self.streams = len(first)
        self.numbers = None if numbers is None else memoryview(numbers.data)
        self.first = memoryview(first.data)
        self.start = memoryview(start.data)
        self.entries = memoryview(entries.data)
        self.flat = columns.reshape(-1).data
        self.columns = self.streams, self.first, self.start, self.entries, self.flat
        super().__init__(columns.nbytes + first.nbytes + start.nbytes + entries.nbytes)


def places_size(entries: int, streams: int) -> int:
    """Bytes of the kept places of a segment."""
    return ENTRY_BYTES * entries + STREAM_BYTES * streams


def sealed_places(data: FooterData, table: OpenTable) -> KeptPlaces:
    """The places that the open table of a segment knew, without a copy of what its footer is made of."""
    columns = table.columns(0, table.entries).copy()  # the table's own are longer
    return KeptPlaces(data.first, data.start, data.entries, columns, data.stream)


def full_frames(index: Index, count: int) -> int:
    """The number of frames of an index that have messages, `count` in all. A mark of an idle lane has none."""
    begins = np.append(index.footer.frame_entry, count)
    return int((begins[1:] > begins[:-1]).sum())


def joined_heads(index: Index, count: int) -> KeptPlaces | None:
    """The places of `count` entries, by the heads of all frames with messages.

    None where one is gone, or does not agree with the footer. None also where a repair gave messages up: only the
    footer says which.
    """
    footer, begins = index.footer, index.footer.frame_entry.tolist()
    parts: list[Uint32s] = []
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], count], strict=True)):
        if begin == end:  # a mark of an idle lane
            continue
        head: HeadRows | None = index.heads.get(number)
        if head is None or head.first_entry != begin or head.end_entry < end:
            return None
        parts.append(np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))[: end - begin])
    if not parts:
        return None
    rows, entries = np.concatenate(parts), footer.entries.copy()
    if not len(rows) == len(entries) == count or (entries == LOST_ENTRY).any() or (entries >= count).any():
        return None
    starts = footer.start.astype(np.int64)
    messages = starts[1:] - starts[:-1]
    numbers = footer.numbers.repeat(messages)
    lows = ((footer.first - starts[:-1]).repeat(messages) + np.arange(count)) & 0xFFFF
    if (rows[entries, 0] != numbers).any() or (rows[entries, 1] != lows).any():
        return None
    return KeptPlaces(
        footer.first.copy(),
        footer.start.copy(),
        entries,
        np.ascontiguousarray(rows[:, 2:]),
        None if footer.is_full else footer.stream.copy(),
    )


def stretches(entries: Sequence[int], offset: int) -> Iterator[tuple[int, list[int]]]:
    """The entries of a row, from an offset on, without those that a repair gave up: pieces, and where each begins."""
    for is_lost, piece in groupby(enumerate(entries, offset), lambda place: place[1] == LOST_ENTRY):
        if not is_lost:
            places = [*piece]
            yield places[0][0], [entry for _, entry in places]


class FooterSource:
    """Reads a segment's footer from its file, which is opened again where it was let go. It keeps no segment alive."""

    def __init__(self, segment: Segment) -> None:
        self._segment = weakref.ref(segment)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`. Raises OSError."""
        segment = self._segment()
        assert segment is not None, "a footer is looked up through its segment"
        return segment.read_one(position, size)

    def size(self) -> int:
        """Length of the file."""
        segment = self._segment()
        assert segment is not None, "a footer is looked up through its segment"
        return segment.data.size()
