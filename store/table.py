"""Queue tables of open segments: where each message of each stream lies (R9).

A segment's messages are numbered 0, 1, 2 .. in log order: *entries*. The columns of all entries stand in
one array in log order; a stream holds only the entry numbers of its messages. So a batch is added with a
few array operations and one `append` a message, and costs 16 bytes a message plus growth.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

from .format import LOST_ENTRY
from .streams import Stream

ENTRY = np.dtype([("position", "<u4"), ("length", "<u4"), ("checksum", "<u4")])
GROWTH = 1.25


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
        self._columns: npt.NDArray[np.void] = np.zeros(1024, ENTRY)

    def admit(self, stream: Stream) -> None:
        """Give a stream its row here; it begins with the stream's next offset."""
        stream.table = self
        stream.first = stream.next_offset
        stream.entries = array("I")
        self.rows[stream.number] = (stream.first, stream.entries)

    def add_frame(
        self,
        position: int,
        time_ms: int,
        flags: int,
        lengths: npt.NDArray[np.integer],
        checksums: npt.NDArray[np.uint32],
        payload_start: int,
    ) -> None:
        """Add the columns of a frame; positions are in the segment. Rows are added by the caller."""
        first, count = self.entries, len(lengths)
        self.frame_position.append(position)
        self.frame_entry.append(first)
        self.frame_time.append(time_ms)
        self.frame_flags.append(flags)
        if first + count > len(self._columns):
            grown = np.zeros(int((first + count) * GROWTH) + 1024, ENTRY)
            grown[:first] = self._columns[:first]
            self._columns = grown  # readers keep the old one, in which what they may see is the same
        part = self._columns[first : first + count]
        ends = lengths.cumsum(dtype=np.int64)
        part["position"] = ends - lengths + payload_start
        part["length"] = lengths
        part["checksum"] = checksums
        self.entries = first + count

    def find(self, number: int, offset: int, limit: int) -> npt.NDArray[np.uint32]:
        """Entry numbers of up to `limit` visible messages from `offset` on; empty if there are none."""
        row = self.rows.get(number)
        if row is None or offset < row[0]:
            return np.empty(0, np.uint32)
        begin = offset - row[0]
        found = np.frombuffer(row[1][begin : begin + limit], np.uint32)
        # The builder adds to rows before the columns are there: only the high-water mark can be trusted.
        return found[: _shown(found, self.visible)]

    def next_offset(self, number: int) -> int | None:
        """The offset after the stream's last visible message here; None if it has no row."""
        row = self.rows.get(number)
        if row is None:
            return None
        return row[0] + _shown(np.frombuffer(row[1][:], np.uint32), self.visible)

    def look_up(self, entries: npt.NDArray[np.uint32]) -> list[tuple[int, int, int]]:
        """(position in the segment, length, checksum) of each entry."""
        return self._columns[entries].tolist()  # type: ignore[no-any-return]  # rows of ENTRY: three ints

    def columns(self, entries: npt.NDArray[np.uint32]) -> npt.NDArray[np.void]:
        """The same as an array of `ENTRY`."""
        return self._columns[entries]

    def frame_of(self, entry: int) -> int:
        """Index of the frame that holds an entry."""
        return bisect_right(self.frame_entry, entry) - 1

    def frames_of(self, entries: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
        """Indexes of the frames that hold the entries, which must ascend."""
        low, high = self.frame_of(int(entries[0])), self.frame_of(int(entries[-1]))
        begins = np.frombuffer(self.frame_entry[low : high + 1], np.uint32)
        return np.searchsorted(begins, entries, side="right") + (low - 1)

    def nbytes(self) -> int:
        """Memory of the columns and rows, without the objects around them."""
        rows = sum(entries.buffer_info()[1] * entries.itemsize for _, entries in list(self.rows.values()))
        return self._columns.nbytes + rows + 18 * len(self.frame_entry)


def _shown(entries: npt.NDArray[np.uint32], visible: int) -> int:
    """How many of a row's entries, from its first, are below the high-water mark."""
    if len(entries) == 0 or entries[-1] < visible:
        return len(entries)
    kept = entries[entries != LOST_ENTRY]
    if len(kept) == len(entries):
        return bisect_left(entries, visible)
    return int(np.count_nonzero((entries < visible) | (entries == LOST_ENTRY)))


__all__ = ["ENTRY", "OpenTable", "Row"]
