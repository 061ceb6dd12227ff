"""Sealed segments: their messages are found here. `sealing` makes them."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .disk import Disk
from .errors import StoreCorrupt
from .footer import Footer, FooterData
from .format import LOST_ENTRY, SEALED, SealRecord, align_up, read_frame_header
from .frame import Frame, decode_head
from .opened import note_opened
from .ring import Ring
from .run import Run
from .segment import Segment
from .table import Places

if TYPE_CHECKING:
    from collections.abc import Sequence


ROW_COLUMNS = ("stream number", "low bits of the offset", "position in the segment", "length", "checksum")
ROW = struct.Struct(f"<{len(ROW_COLUMNS)}I")
ROW_BYTES = ROW.size
_UNPACK = ROW.unpack_from
LONG_RUN = 64  # messages
HEAD_ENTRIES_KEPT = 1 << 19  # of one segment: 10 MB
HEAD_ENTRIES = 20  # what a head costs beside its columns, in entries
HEAD_GUESS_BYTES = 4096


class Head:
    """The columns of a frame as a reader wants them: `ROW.unpack_from(rows, at * ROW.size)` is all of a message."""

    __slots__ = ("end_entry", "first_entry", "flags", "index", "rows", "time_ms")

    def __init__(self, frame: Frame, index: int) -> None:
        header = frame.header
        self.index = index  # in the footer
        self.first_entry = header.first_entry
        self.end_entry = header.first_entry + header.count
        self.flags = header.flags
        self.time_ms = header.time_ms
        columns = (frame.numbers, frame.lows, frame.starts(), frame.lengths, frame.checksums)
        self.rows = np.array(columns, np.uint32).T.tobytes()

    @property
    def held_entries(self) -> int:
        """What it costs to hold it."""
        return self.end_entry - self.first_entry + HEAD_ENTRIES


class Index(NamedTuple):
    """A mapped footer, and the columns that every look-up wants: a view's single items cost a third of an array's."""

    streams: int
    first: memoryview
    start: memoryview
    entries: memoryview
    frame_entry: memoryview
    footer: Footer


class SealedSegment:
    """A segment that is found through its mapped footer.

    Only a bounded number of frame heads is held in memory; the rest is mapped.

    Any number of threads may read. They share
        * `_index`, the mapped footer and all that is looked up in it: one attribute, so it comes and goes as a whole.
          Who looks up takes it once, and the mapping lasts as long as that. Two threads may map it at the same time;
          one of the mappings is dropped then;
        * `_heads`, whose items never change once they are in it. It grows and shrinks under `_keeping`, together
          with `_held_entries`, which is what its heads cost; looking one up is a single operation and takes no lock.
    """

    def __init__(self, segment: Segment, record: SealRecord) -> None:
        self.segment = segment
        self.record = record
        self._index: Index | None = None
        self._keeping = threading.Lock()
        self._held_entries = 0
        self._heads: OrderedDict[int, Head] = OrderedDict()

    @property
    def footer(self) -> Footer:
        """The footer, mapped and checked at first use. Raises StoreCorrupt."""
        return (self._index or self.index).footer

    @property
    def index(self) -> Index:
        """The footer with its columns for single look-ups. Raises StoreCorrupt."""
        index = self._index
        if index is None:
            footer = Footer(self.segment.data, str(self.segment.path), self.record)
            index = self._index = Index(
                len(footer.first), memoryview(footer.first.data), memoryview(footer.start.data),
                memoryview(footer.entries.data), memoryview(footer.frame_entry.data), footer,
            )  # fmt: skip
            note_opened(self)
        return index

    def let_go(self) -> None:
        """Give the mapping back until it is wanted again. Readers inside keep theirs."""
        self._index = None

    def first_of(self, number: int) -> tuple[int, int]:
        """(first offset, messages) of a stream in this segment; (0, 0) if it does not know the stream."""
        streams, first, start, _, _, _ = self._index or self.index
        return (first[number], start[number + 1] - start[number]) if number < streams else (0, 0)

    def first_offset(self, number: int) -> int:
        """The first offset of a stream here, or its next one if it has no messages here."""
        index = self._index or self.index
        return index[1][number] if number < index[0] else 0  # by number: thrice as quick as by name

    def run(self, ring: Ring | None, number: int, offset: int, limit: int) -> Run:
        """Up to `limit` messages of a stream from `offset` on; its row must contain the offset. Raises StoreCorrupt."""
        _, first, start, all_entries, _, _ = self._index or self.index
        begin = start[number] + offset - first[number]
        entries = all_entries[begin : min(start[number + 1], begin + limit)].tolist()
        offsets: Sequence[int] = range(offset, offset + len(entries))
        if LOST_ENTRY in entries:
            kept = [(at, entry) for at, entry in zip(offsets, entries, strict=True) if entry != LOST_ENTRY]
            offsets, entries = [at for at, _ in kept], [entry for _, entry in kept]
        find = self._places if len(entries) < LONG_RUN else self._many_places
        places, heads = find(ring, number, offsets, entries)
        return Run(self.segment, self, offsets, entries, places, heads)

    def _places(
        self, ring: Ring | None, number: int, offsets: Sequence[int], entries: list[int]
    ) -> tuple[Places, list[Head]]:
        """Where messages lie, from their frames' heads; each must name this stream and offset."""
        starts: list[int] = []
        lengths: list[int] = []
        checksums: list[int] = []
        heads: list[Head] = []
        first_entry = end_entry = 0  # of the head at hand
        frame_entry, held = (self._index or self.index).frame_entry, self._heads
        for offset, entry in zip(offsets, entries, strict=True):
            if not first_entry <= entry < end_entry:
                frame = bisect_right(frame_entry, entry) - 1
                head = held.get(frame) or self.head(ring, frame)
                first_entry, end_entry, rows = head.first_entry, head.end_entry, head.rows
                if not first_entry <= entry < end_entry:
                    raise self._wrong_footer()
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                raise self._wrong_footer()
            starts.append(start)
            lengths.append(length)
            checksums.append(checksum)
            heads.append(head)
        return (starts, lengths, checksums), heads

    def _many_places(
        self, ring: Ring | None, number: int, offsets: Sequence[int], entries: list[int]
    ) -> tuple[Places, list[Head]]:
        """The same, a frame at a time: faster where a frame has several of the messages."""
        at, heads = 0, []
        rows: list[npt.NDArray[np.uint32]] = []
        wanted = np.array(entries, np.uint32)
        while at < len(entries):
            head = self.head(ring, bisect_right(self.index.frame_entry, entries[at]) - 1)
            end = bisect_left(entries, head.end_entry, at)
            if not head.first_entry <= entries[at] < head.end_entry:
                raise self._wrong_footer()
            frame = np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))
            try:
                rows.append(frame.take(wanted[at:end] - head.first_entry, axis=0))  # what is below wraps around
            except IndexError:
                raise self._wrong_footer() from None
            heads += [head] * (end - at)
            at = end
        named, lows, starts, lengths, checksums = np.concatenate(rows).T
        if (named != number).any() or (lows != np.array(offsets, np.int64) & 0xFFFF).any():
            raise self._wrong_footer()
        return (starts.tolist(), lengths.tolist(), checksums.tolist()), heads

    def _wrong_footer(self) -> StoreCorrupt:
        return StoreCorrupt("the footer points to a wrong message", self.segment.path, self.footer.position)

    def head(self, ring: Ring | None, index: int) -> Head:
        """The head of the frame with this index in the footer. Raises StoreCorrupt."""
        found = self._heads.get(index)
        if found is None:
            found = Head(self.frame(ring, index), index)
            self._keep(found)
        return found

    def _keep(self, head: Head) -> None:
        """Hold a head for the readers to come, and the oldest ones no longer if they are too many."""
        with self._keeping:
            if self._heads.setdefault(head.index, head) is head:  # else another reader has put it there meanwhile
                self._held_entries += head.held_entries
            while self._held_entries > HEAD_ENTRIES_KEPT and self._heads:
                self._held_entries -= self._heads.popitem(last=False)[1].held_entries
            if not self._heads:
                self._held_entries = 0  # whatever an interrupt left it at

    def frame(self, ring: Ring | None, index: int) -> Frame:
        """The decoded frame with this index in the footer. Raises StoreCorrupt."""
        positions = self.footer.frame_position
        if not 0 <= index < len(positions):
            raise self._wrong_footer()
        position = int(positions[index])
        raw, _ = self.segment.fetch(ring, position, HEAD_GUESS_BYTES)
        header = read_frame_header(raw, 0)
        frame = None
        if header is not None and header.sequence == self.segment.sequence and header.position == position:
            if len(raw) < header.header_bytes <= self.record.data_end - position:
                raw, _ = self.segment.fetch(ring, position, header.header_bytes)
            frame = decode_head(header, raw[: header.header_bytes])
        if frame is None:
            raise StoreCorrupt("a frame's header is damaged", self.segment.path, position)
        return frame

    def memory_bytes(self) -> int:
        """Memory that is not mapped: the decoded frame heads."""
        with self._keeping:
            return sum(len(head.rows) + 64 * 3 for head in self._heads.values())

    def close(self) -> None:
        """Let go of the mapping and the files."""
        self.let_go()
        with self._keeping:
            self._heads.clear()
            self._held_entries = 0
        self.segment.close()


def write_footer(
    disk: Disk, segment: Segment, data: FooterData, data_end: int, chain: int, entries: int
) -> SealedSegment:
    """Footer to disk and forced, then the record that points to it."""
    parts = data.parts(segment.sequence)
    size = sum(map(len, parts))
    position = align_up(data_end)
    file = disk.open(segment.path)
    try:
        file.write(parts, position)
        file.truncate(position + size)  # one sealed early gives back what it did not use
        file.force()
    finally:
        file.close()
    record = SealRecord(SEALED, segment.sequence, data_end, chain, entries, position, size, len(data.first))
    segment.write_seal(record)
    segment.stop_writing()
    return SealedSegment(segment, record)
