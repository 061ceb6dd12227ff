"""Queue tables of open segments: where each message of each stream lies (R9).

A segment's messages are numbered 0, 1, 2 .. in log order: *entries*. The columns of all entries stand in
one array in log order; a stream holds only the entry numbers of its messages. So a batch is added with a
few array operations and one `append` a message, and costs 16 bytes a message plus growth.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .format import LOST_ENTRY, WIDE_NUMBERS
from .streams import Stream

GROWTH = 1.25
FEW = 4  # messages
BYTES_OBJECT = 41  # what a frame's numbers cost beside themselves
POSITION, LENGTH, CHECKSUM = range(3)  # columns of an entry

Uint32s = npt.NDArray[np.uint32]
# Positions in the segment, lengths and checksums of some messages: lists, for who takes them one by one.
Places = tuple[list[int], list[int], list[int]]


# A stream's messages in one segment: the offset of the first, and the entry numbers in offset order.
# A plain tuple: one is made for each stream of each segment, on the way of the messages.
Row = tuple[int, "array[int]"]


class OpenTable:
    """The table of one segment that still takes frames, or waits for its footer.

    Invariants:
        * only the lane's builder adds; readers look at entries below `visible` alone;
        * `visible` only grows, after the force that made those entries durable;
        * entry numbers in a row ascend (LOST_ENTRY apart), so what a row shows is a prefix of it.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.entries = 0
        self.visible = 0
        self.frame_position: array[int] = array("I")
        self.frame_entry: array[int] = array("I")
        self.frame_time: array[int] = array("q")
        self.frame_flags: array[int] = array("H")
        self.frame_numbers: list[bytes] = []  # stream numbers, packed as in the frame: the footer is made of them
        # What a stream has of its table: one that gets no more messages would keep the table itself for ever.
        self.token = object()
        # One plain matrix: a row is taken, and its columns become lists, in half the time of a record array.
        self._columns: Uint32s = np.zeros((1024, 3), np.uint32)
        self.flat = self._columns.reshape(-1).data

    def admit(self, stream: Stream) -> None:
        """Give a stream its row here; it begins with the stream's next offset."""
        stream.table = self.token
        stream.first = stream.next_offset
        stream.entries = array("I")
        self.rows[stream.number] = (stream.first, stream.entries)

    def add_frame(self, position: int, time_ms: int, flags: int, rows: array[int]) -> None:
        """Add a frame at `position` of the segment, its `entry_rows`. The streams' rows are the caller's part."""
        first = self.entries
        end = first + len(rows) // 3
        self.frame_position.append(position)
        self.frame_entry.append(first)
        self.frame_time.append(time_ms)
        self.frame_flags.append(flags)
        if end > len(self._columns):
            grown = np.zeros((int(end * GROWTH) + 1024, 3), np.uint32)
            grown[:first] = self._columns[:first]
            self._columns = grown  # readers keep the old one, in which what they may see is the same
            self.flat = grown.reshape(-1).data
        self.flat[3 * first : 3 * end] = rows
        self.entries = end

    def find(self, number: int, offset: int, limit: int) -> Uint32s | array[int]:
        """Entry numbers of up to `limit` visible messages from `offset` on; empty if there are none."""
        row = self.rows.get(number)
        if row is None or offset < row[0]:
            return array("I")
        begin = offset - row[0]
        entries = row[1][begin : begin + limit]
        # The builder adds to rows before the columns are there: only the high-water mark can be trusted.
        if not entries or entries[-1] < self.visible:  # of a lost one, too, the number is above any mark
            return entries
        found = np.frombuffer(entries, np.uint32)
        return found[: _shown(found, self.visible)]

    def next_offset(self, number: int) -> int | None:
        """The offset after the stream's last visible message here; None if it has no row."""
        row = self.rows.get(number)
        if row is None:
            return None
        return row[0] + _shown(np.frombuffer(row[1][:], np.uint32), self.visible)

    def places(self, entries: Uint32s | array[int]) -> Places:
        """Where entries lie."""
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

    def columns(self, low: int, high: int) -> Uint32s:
        """(n, 3): position, length and checksum of the entries low .. high - 1, not to be written to."""
        return self._columns[low:high]

    def whole_frames(self) -> tuple[int, int]:
        """How many frames, from the first, readers may see the whole of, and their entries; as of one moment.

        Empty frames behind them are left out.
        """
        visible, begins = self.visible, self.frame_entry
        count = bisect_left(begins, visible)  # these have begun below it
        if not count:
            return 0, 0
        end = begins[count] if count < len(begins) else self.entries
        return (count, end) if end == visible else (count - 1, begins[count - 1])

    def frames_of(self, entries: Uint32s) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
        """Index, time and flags of the frame of each entry; entries ascend, and there is one."""
        low = bisect_right(self.frame_entry, int(entries[0])) - 1
        high = bisect_right(self.frame_entry, int(entries[-1]))
        frames = np.frombuffer(self.frame_entry[low:high], np.uint32).searchsorted(entries, side="right") - 1
        times = np.frombuffer(self.frame_time[low:high], np.int64)
        return frames + low, times[frames], np.frombuffer(self.frame_flags[low:high], np.uint16)[frames]

    def nbytes(self) -> int:
        """Memory of the columns and rows, without the objects around them."""
        rows = sum(entries.buffer_info()[1] * entries.itemsize for _, entries in list(self.rows.values()))
        numbers = sum(map(len, list(self.frame_numbers)))
        return self._columns.nbytes + rows + numbers + (18 + BYTES_OBJECT) * len(self.frame_entry)


def entry_rows(starts: Iterable[int], lengths: array[int], checksums: array[int]) -> array[int]:
    """The rows of a frame's entries, back to back: position in the segment, length, checksum, all "I"."""
    rows = array("I", bytes(12 * len(lengths)))
    rows[POSITION::3] = array("I", starts)
    rows[LENGTH::3] = lengths
    rows[CHECKSUM::3] = checksums
    return rows


def _shown(entries: Uint32s, visible: int) -> int:
    """How many of a row's entries, from its first, are below the high-water mark."""
    if len(entries) == 0 or entries[-1] < visible:
        return len(entries)
    kept = entries[entries != LOST_ENTRY]
    if len(kept) == len(entries):
        return bisect_left(entries, visible)
    return int(np.count_nonzero((entries < visible) | (entries == LOST_ENTRY)))


__all__ = ["CHECKSUM", "LENGTH", "POSITION", "OpenTable", "Places", "Row", "Uint32s", "entry_rows"]
