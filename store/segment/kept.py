"""The places of a sealed segment's messages in one table, so that no head of a frame is decoded again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..format.footer import FooterData
from ..format.layout import LOST_ENTRY
from .head import ROW_COLUMNS, Head
from .held import HeldItem
from .index import Index
from .open_table import OpenTable, Uint32s

ENTRY_BYTES, STREAM_BYTES = 16, 12

KEPT_PART = 4  # of the memory for sealed segments: a larger table would drive out too much else


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
    """The number of frames of an index that have messages, `count` in all. A mark of a quiet lane has none."""
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
        if begin == end:  # a mark of a quiet lane
            continue
        head: Head | None = index.heads.get(number)
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
