"""Queue tables of open segments: where each message of each stream lies (R9).

A segment's messages are numbered 0, 1, 2 .. in log order: *entries*. The columns of all entries stand in
one array in log order, so a batch is added with a few array operations. The entries of one stream, its *row*, are
listed when a reader first asks (`postings`): an append pays nothing for it, and a segment that nobody reads while it is
open is never indexed. 14 bytes a message (wide stream numbers: 16). The first look for any row makes those of all
streams: 4 bytes more a message, and some 230 a stream that has messages in the segment. Room to grow costs memory only
in small tables.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..format.arrays import Uint32s
from ..format.dues import NO_DUES
from ..format.layout import WIDE_NUMBERS
from .postings import OpenRows, Row

GROWTH = 4
MOST_ROOM = 4 << 20  # entries
OWN_PAGES_BYTES = 1 << 20
FEW = 4  # messages
BYTES_OBJECT = 41  # what a `bytes` object costs besides its content
POSITION, LENGTH, CHECKSUM = range(3)  # columns of an entry
ENTRY_BYTES = 12

# Positions in the segment, lengths and checksums of some messages: lists, for readers that take them one by one.
Places = tuple[list[int], list[int], list[int]]
EntryRows: TypeAlias = "array[int] | Uint32s"  # `array` takes no index before Python 3.12


class OpenTable:
    """The table of one segment that still takes frames, or waits for its footer.

    Attributes:
        entries, visible: how many messages there are, and how many of them are durable: readers see these.
        flat: position, length and checksum of entry n at 3 n, 3 n + 1 and 3 n + 2. Take it once: it may be replaced.
        rows: the entries of each stream (`postings.Rows`); `row` brings them up to `visible`.

    Invariants:
        * only the lane's builder adds; readers look at entries below `visible` alone;
        * `visible` only grows, after the force that made those entries durable: by then their columns are in place.
    """

    def __init__(self, firsts: npt.ArrayLike = (), rows: OpenRows | None = None) -> None:
        """`firsts` (streams,): the offset of each stream's first message here, if it gets one; 0 for later streams.

        `rows`: those of a segment in which appending goes on after an opening.
        """
        self.rows = OpenRows(np.asarray(firsts, np.int64)) if rows is None else rows
        self.frame_items: dict[int, Any] = {}  # what readers hold of its frames
        self.entries = 0
        self.visible = 0
        self.frame_position: array[int] = array("I")
        self.frame_entry: array[int] = array("I")
        self.frame_time: array[int] = array("q")
        self.frame_flags: array[int] = array("H")
        self.dues = NO_DUES
        self.frame_numbers: list[bytes] = []  # stream numbers, packed as in the frame: the footer is made of them
        # One plain matrix: a row is taken, and its columns become lists, in half the time of a record array.
        self._columns = _no_entries(1024)
        self.flat = self._columns.reshape(-1).data

    def add_frame(self, position: int, time_ms: int, flags: int, numbers: bytes, rows: EntryRows) -> None:
        """Add a frame at `position` of the segment: its stream numbers as packed in it, and its `entry_rows`."""
        first = self.entries
        end = first + len(rows) // 3
        self.frame_position.append(position)
        self.frame_entry.append(first)
        self.frame_time.append(time_ms)
        self.frame_flags.append(flags)
        self.frame_numbers.append(numbers)
        if end > len(self._columns):
            self._make_room(end)
        self.flat[3 * first : 3 * end] = rows  # type: ignore[assignment]  # any buffer of 32 bits
        self.entries = end

    def add_frames(
        self, positions: list[int], entries: list[int], times: list[int], flags: list[int], numbers: list[bytes],
        rows: EntryRows,
    ) -> None:  # fmt: skip
        """Add some frames together: `entries` has the number of each one's first message, `rows` the rows of all."""
        self.frame_position.extend(positions)
        self.frame_entry.extend(entries)
        self.frame_time.extend(times)
        self.frame_flags.extend(flags)
        self.frame_numbers += numbers
        first, end = self.entries, self.entries + len(rows) // 3
        self._make_room(end)
        self.flat[3 * first : 3 * end] = rows  # type: ignore[assignment]  # any buffer of 32 bits
        self.entries = end

    def _make_room(self, end: int) -> None:
        if end > len(self._columns):
            first = self.entries
            # Room costs no memory before it is used, and each growth writes to all that is copied. But addresses may be
            # limited.
            grown = _no_entries(end + min((GROWTH - 1) * end, MOST_ROOM))
            grown[:first] = self._columns[:first]
            self._columns = grown  # readers keep the old one, in which what they may see is the same
            self.flat = grown.reshape(-1).data

    def find(self, number: int, offset: int, limit: int) -> array[int]:
        """Entry numbers of up to `limit` visible messages from `offset` on; empty if there are none."""
        row = self.row(number)
        if row is None or offset < row[0]:
            return array("I")
        begin = offset - row[0]
        return row[1][begin : begin + limit]

    def row(self, number: int) -> Row | None:
        """The stream's visible messages; None if it has none here. They may become more while it is looked at."""
        rows = self.rows
        if rows.indexed < self.visible:  # as `rows_now`, without a call more
            rows.index(self.visible, self)
        return rows.by_number.get(number)

    def rows_now(self) -> dict[int, Row]:
        """The rows by stream, all visible messages counted. Others may add to them."""
        rows = self.rows
        if rows.indexed < self.visible:
            rows.index(self.visible, self)
        return rows.by_number

    def all_rows(self) -> list[Row]:
        """The rows of all streams that have visible messages here."""
        self.rows.index(self.visible, self)
        return list(self.rows.by_number.values())

    def first_offsets(self) -> npt.NDArray[np.int64]:
        """(streams,) where the streams known at the segment's beginning go on in it."""
        return self.rows.first_offsets()

    def first_offset(self, number: int) -> int:
        """The first offset of a stream here, or where it goes on."""
        row = self.rows.by_number.get(number)
        return row[0] if row is not None else self.rows.first_of(number)

    def numbers_between(self, begin: int, end: int) -> npt.NDArray[np.unsignedinteger]:
        """The stream numbers of the entries begin .. end - 1, at least one."""
        low = bisect_right(self.frame_entry, begin) - 1
        first = self.frame_entry[low]
        return self.numbers(low, bisect_left(self.frame_entry, end))[begin - first : end - first]

    def only_stream(self, begin: int) -> int | None:
        """The newest frame's only stream, if that frame begins with the entry `begin`, else None.

        Serves a producer that reads back its own batch.
        """
        newest = len(self.frame_entry) - 1
        if self.frame_entry[newest] != begin:  # nor is one that is still being added: its entries are not visible
            return None
        packed, size = self.frame_numbers[newest], 4 if self.frame_flags[newest] & WIDE_NUMBERS else 2
        number = packed[:size]
        return int.from_bytes(number, "little") if packed == number * (len(packed) // size) else None

    def few_numbers(self, begin: int, end: int) -> list[int]:
        """What `numbers_between` has, as a list: quicker for a few frames."""
        frames = self.frame_entry
        low, high = bisect_right(frames, begin) - 1, bisect_left(frames, end)
        found: list[int] = []
        for packed, flags in zip(self.frame_numbers[low:high], self.frame_flags[low:high], strict=True):
            view = memoryview(packed)
            found += view.cast("I") if flags & WIDE_NUMBERS else view.cast("H")
        first = frames[low]
        return found[begin - first : end - first]

    def places(self, entries: Uint32s | array[int]) -> Places:
        """The places of some entries."""
        if len(entries) <= FEW:  # an array's operations cost more than they save
            flat, ats = self.flat, [3 * entry for entry in entries.tolist()]
            return [flat[at] for at in ats], [flat[at + 1] for at in ats], [flat[at + 2] for at in ats]
        positions, lengths, checksums = self._columns.take(entries, axis=0).T.tolist()
        return positions, lengths, checksums

    def numbers(self, low: int = 0, high: int | None = None) -> npt.NDArray[np.unsignedinteger]:
        """The stream numbers of all messages of the frames low .. high - 1, in log order."""
        packed = self.frame_numbers[low:high]
        wide = np.frombuffer(self.frame_flags[low:high], np.uint16) & WIDE_NUMBERS != 0
        if not wide.any():
            return np.frombuffer(b"".join(packed), "<u2")
        kinds = ["<u4" if is_wide else "<u2" for is_wide in wide.tolist()]
        parts = [np.frombuffer(part, kind) for part, kind in zip(packed, kinds, strict=True)]
        return np.concatenate(parts, dtype=np.uint32)

    def rows_of(self, entries: Uint32s) -> Uint32s:
        """(n, 3): position, length and checksum of some entries."""
        return self._columns.take(entries, axis=0)

    def columns(self, low: int, high: int) -> Uint32s:
        """(n, 3): position, length and checksum of the entries low .. high - 1, not to be written to."""
        return self._columns[low:high]

    def whole_frames(self) -> tuple[int, int]:
        """The frames, from the first, that readers may see as a whole: how many, and their entries, as of one moment.

        Empty frames after them are left out.
        """
        visible, begins = self.visible, self.frame_entry
        count = bisect_left(begins, visible)  # these have begun below it
        if not count:
            return 0, 0
        end = begins[count] if count < len(begins) else self.entries
        return (count, end) if end == visible else (count - 1, begins[count - 1])

    def frames_of(self, entries: Uint32s) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
        """Index, time and flags of the frame of each entry; the entries ascend, at least one."""
        low = bisect_right(self.frame_entry, int(entries[0])) - 1
        high = bisect_right(self.frame_entry, int(entries[-1]))
        frames = np.frombuffer(self.frame_entry[low:high], np.uint32).searchsorted(entries, side="right") - 1
        times = np.frombuffer(self.frame_time[low:high], np.int64)
        return frames + low, times[frames], np.frombuffer(self.frame_flags[low:high], np.uint16)[frames]

    def few_frames(self, entries: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """What `frames_of` says, as lists: quicker for a few entries."""
        begins, frames = self.frame_entry, []
        at = bisect_right(begins, entries[0]) - 1
        for entry in entries:
            at = bisect_right(begins, entry, at) - 1
            frames.append(at)
        times, flags = self.frame_time, self.frame_flags
        return frames, [times[frame] for frame in frames], [flags[frame] for frame in frames]

    def nbytes(self) -> int:
        """Memory of the columns and of the rows, with the objects around them."""
        numbers = sum(map(len, list(self.frame_numbers)))
        frames = (18 + BYTES_OBJECT) * len(self.frame_entry)
        columns = self._columns.nbytes
        if columns >= OWN_PAGES_BYTES:
            columns = ENTRY_BYTES * self.entries
        return columns + self.rows.nbytes() + numbers + frames


def _no_entries(room: int) -> Uint32s:
    """(room, 3) zeros.

    Large ones are pages of their own, which cost memory once they are written to. The allocator would give memory that
    was used before, and write zeros to all of it.
    """
    if room * ENTRY_BYTES < OWN_PAGES_BYTES:
        return np.zeros((room, 3), np.uint32)
    try:
        pages = mmap.mmap(-1, room * ENTRY_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for the places of {room} messages") from error
    return np.frombuffer(pages, np.uint32).reshape(room, 3)


def entry_rows(starts: Iterable[int], lengths: array[int], checksums: array[int]) -> array[int]:
    """The rows of a frame's entries, back to back: position in the segment, length, checksum, all "I"."""
    rows = array("I", bytes(12 * len(lengths)))
    rows[POSITION::3] = array("I", starts)
    rows[LENGTH::3] = lengths
    rows[CHECKSUM::3] = checksums
    return rows


def entry_columns(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], checksums: Uint32s) -> Uint32s:
    """As `entry_rows`, of columns."""
    rows = np.empty((len(lengths), 3), np.uint32)
    rows[:, POSITION] = starts
    rows[:, LENGTH] = lengths
    rows[:, CHECKSUM] = checksums
    return rows.reshape(-1)


__all__ = [
    "CHECKSUM", "LENGTH", "POSITION", "EntryRows", "OpenTable", "Places", "Row", "Uint32s", "entry_columns",
    "entry_rows",
]  # fmt: skip
