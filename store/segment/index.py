"""A footer in the form that look-ups want: its columns at hand, and the heads of its frames."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Sequence

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
)
from .head import Head
from .held import HeldItem
from .segment import Segment

WRONG_MESSAGE = "the footer points to a wrong message"


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

    def __init__(self, footer: Footer, heads: dict[int, Head], *, is_remade: bool) -> None:
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


class WrongFooter(Exception):
    """The footer does not agree with the frames."""
