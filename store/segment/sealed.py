"""Sealed segments: their messages are found here. `sealing` makes them."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..device.open_files import note_opened
from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.footer import Footer
from ..format.frame import Frame, decode_head
from ..format.layout import LOST_ENTRY, SealRecord, read_frame_header
from .head import ROW, ROW_BYTES, ROW_COLUMNS, Head
from .held import HeldMemory
from .index import Index, RemadeIndex, index_of
from .kept import KeptPlaces, full_frames, joined_heads, places_size
from .open_table import Places
from .remade import Remade, neighbours
from .run import Run
from .segment import Segment
from .windows import SPARSE_BYTES

if TYPE_CHECKING:
    from ..log.lane import Lane

_UNPACK = ROW.unpack_from
LONG_RUN = 64  # messages
HEAD_GUESS_BYTES = 4096
NOTHING: tuple[Sequence[int], Sequence[int], bool] = (), (), False
KEPT_PART = 4  # of the memory for sealed segments: a larger table would drive out too much else


class _WrongFooter(Exception):
    """The footer does not agree with the frames."""


class SealedSegment:
    """A segment that is found through its mapped footer, or through one made of its frames if that is damaged.

    Only a bounded number of frame heads is held in memory, of all segments of a store together; the rest is mapped.

    Any number of threads may read. They share
        * `_index`, the mapped footer and all that is looked up in it: one attribute, so it comes and goes as a whole.
          A look-up takes it once, and the mapping lasts as long as that. Two threads may map it at the same time;
          one of the mappings is dropped then;
        * `_heads`, `_kept` and `_made`, what the store's `_memory` holds of this segment; what is in it never changes.
          An index made of the frames has heads of its own: its frames may have other numbers;
        * `_damage`, set for good once the footer was found damaged.
    """

    def __init__(self, segment: Segment, record: SealRecord) -> None:
        self.segment = segment
        self.record = record
        self._index: Index | None = None
        self._damage: StoreCorrupt | None = None
        self._is_lost = False  # nor can the footer be made again
        self._remaking = threading.Lock()
        self._lane: Lane | None = None
        self._memory = HeldMemory(0)
        self._heads: dict[int, Head] = {}  # of the footer in the file, also when it is mapped again
        self._full_frames: int | None = None  # those with messages, once a head was decoded
        self._kept: dict[int, KeptPlaces] = {}  # what the open table knew, if it is held
        self._new: KeptPlaces | None = None  # until it is
        self._made: dict[int, RemadeIndex] = {}  # the index that was made of the frames, if it is held

    def join(self, lane: Lane) -> None:
        """Belong to a lane, which has the neighbours that a damaged footer is made again of, and the memory."""
        self._lane = lane
        self._memory = lane.held
        kept, self._new = self._new, None
        if kept is not None and kept.size_bytes <= self._memory.limit_bytes // KEPT_PART:
            self._memory.frames.keep(self._kept, 0, kept)

    def keep(self, kept: KeptPlaces) -> None:
        """Hold these places once the memory for it is known."""
        self._new = kept

    @property
    def footer(self) -> Footer:
        """The footer, mapped and checked at first use. Raises StoreCorrupt."""
        return (self._index or self.index).footer

    @property
    def index(self) -> Index:
        """The footer with its columns for single look-ups. Raises StoreCorrupt."""
        return self._index or self.mapped() or self._remade()

    def mapped(self) -> Index | None:
        """The index that is in the file; None if it is damaged."""
        index = self._index
        if index is None and self._damage is None:
            try:
                footer = Footer(self.segment.data, str(self.segment.path), self.record)
            except StoreCorrupt as error:
                # An error of its own, which was never raised: no frames that would keep this segment alive.
                self._damage = StoreCorrupt(error.what, self.segment.path, error.position)
                return None
            index = self._index = index_of(footer, self._heads, is_remade=False)
            note_opened(self)
        return index

    @property
    def kept(self) -> KeptPlaces | None:
        """What the open table knew, if it is still held."""
        return self._kept.get(0)

    def let_go(self) -> None:
        """Give the mapping back until it is wanted again. Readers inside keep theirs."""
        self._index = None

    def after_fork(self) -> None:
        """In a forked child: have nothing of the file."""
        self._index = None
        self.segment.after_fork()

    def give_way(self) -> None:
        """If somebody waits to write to the file, read it without a mapping for now: it may be cut."""
        if self.segment.is_wanted():
            self.let_go()
            self.segment.unmap()

    # -- a damaged footer -----------------------------------------------------------------------------

    def _remade(self) -> Index:
        """The index made of the frames. Raises StoreCorrupt if that cannot be done either."""
        held = self._made.get(0)
        if held is None:
            with self._remaking:
                held = self._made.get(0)
                if held is None:
                    held = self._remake()
        held.used = True
        return held.index

    def _remake(self) -> RemadeIndex:
        self.segment.check_open()
        lane = self._lane
        if lane is None or self._is_lost:
            raise self.damaged()
        footer = Remade(self.segment, self.record).footer(lane.streams, *neighbours(lane, self))
        if footer is None:
            self._is_lost = True
            raise self.damaged()
        held = RemadeIndex(index_of(footer, {}, is_remade=True))
        self._memory.keep_footer(self._made, held)
        return held

    def damaged(self) -> StoreCorrupt:
        """What is wrong with the footer."""
        what = "the footer is damaged" if self._damage is None else self._damage.what
        position = self.record.footer_position if self._damage is None else self._damage.position
        return StoreCorrupt(what, self.segment.path, position)

    def distrust(self, what: str) -> None:
        """The file's footer is wrong, although its tables have the right checksums: take it for damaged."""
        if self._damage is None:  # no other thread has seen it
            self._damage = StoreCorrupt(what, self.segment.path, self.record.footer_position)
        self._index = None  # also of a thread that has mapped it meanwhile

    # -- looking up -----------------------------------------------------------------------------------

    def first_of(self, number: int) -> tuple[int, int]:
        """(first offset, messages) of a stream in this segment; (0, 0) if it does not know the stream."""
        streams, first, start, _, _, _, _, _ = self._index or self.index
        return (first[number], start[number + 1] - start[number]) if number < streams else (0, 0)

    def first_offset(self, number: int) -> int:
        """The first offset of a stream here, or its next one if it has no messages here."""
        index = self._index or self.index
        return index[1][number] if number < index[0] else 0  # by number: thrice as quick as by name

    def run(self, ring: Ring | None, number: int, offset: int, limit: int) -> Run:
        """Up to `limit` messages of a stream from `offset` on; its row must contain the offset. Raises StoreCorrupt."""
        index = self._index or self.index
        _, first, start, all_entries, _, _, is_remade, _ = index
        try:
            row = start[number]
            begin = row + offset - first[number]
            if begin < row:
                raise _WrongFooter(_WRONG_MESSAGE)
            entries = all_entries[begin : min(start[number + 1], begin + limit)].tolist()
            offsets: Sequence[int] = range(offset, offset + len(entries))
            if LOST_ENTRY in entries:
                self._check_lost(index)
                kept = [(at, entry) for at, entry in zip(offsets, entries, strict=True) if entry != LOST_ENTRY]
                offsets, entries = [at for at, _ in kept], [entry for _, entry in kept]
            if len(entries) < LONG_RUN:
                places, heads = self._places(index, ring, [number] * len(entries), offsets, entries)
            else:
                places, heads = self._many_places(index, ring, number, offsets, entries)
            return Run(self.segment, self, offsets, entries, places, heads)
        except _WrongFooter as error:
            if is_remade:
                raise self.damaged() from error
            self.distrust(str(error))
        return self.run(ring, number, offset, limit)  # by the index made of the frames

    def pick(
        self, ring: Ring | None, numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> tuple[Run, npt.NDArray[np.intp]]:
        """Those of some messages, by stream number and offset (n,), that are here: in log order, and the index of each.

        Raises StoreCorrupt.
        """
        index = self._index or self.index
        footer, found = index.footer, np.flatnonzero(numbers < index.streams)
        mine = numbers[found]
        rows = offsets[found] - footer.first[mine]
        here = (rows >= 0) & (rows < footer.start[mine + 1] - footer.start[mine].astype(np.int64))
        found = found[here]
        entries = footer.entries[footer.start[mine[here]] + rows[here]]
        try:
            if (entries == LOST_ENTRY).any():
                self._check_lost(index)
                entries, found = entries[entries != LOST_ENTRY], found[entries != LOST_ENTRY]
            order = entries.argsort()
            found = found[order]
            lists = numbers[found].tolist(), offsets[found].tolist(), entries[order].tolist()
            return Run(self.segment, self, lists[1], lists[2], *self._places(index, ring, *lists)), found
        except _WrongFooter as error:
            if index.is_remade:
                raise self.damaged() from error
            self.distrust(str(error))
        return self.pick(ring, numbers, offsets)  # by the index made of the frames

    def places(
        self, ring: Ring, number: int, offset: int, end: int
    ) -> tuple[Sequence[int], Sequence[int], bool] | None:
        """A stream's messages offset .. end - 1, as far as they are here: a flat table of places, their numbers there,
        and whether the stream's messages are known to lie far apart.

        The position, length and checksum of number n are at 3 n, 3 n + 1 and 3 n + 2 of the table. None where anything
        is not as usual: `run` says what. Raises StoreCorrupt as that does.
        """
        kept = self._kept.get(0)
        if kept is not None:
            kept.used = True
            streams, firsts, begins, all_entries, flat = kept.columns
        else:
            index = self._index or self.index
            streams, firsts, begins, all_entries, _, _, _, _ = index
        if number >= streams:
            return NOTHING
        row, limit, first = begins[number], begins[number + 1], firsts[number]
        if row == limit:
            return NOTHING
        if offset < first:
            return None  # a gap that a repair left
        from_row = row - first
        entries = all_entries[from_row + offset : min(from_row + end, limit)].tolist()
        if kept is not None:
            return flat, entries, self.record.data_end > SPARSE_BYTES * (limit - row)
        # The heads of frames are still to be read, and the windows around them bring in the messages as well.
        found = self._rows(index, ring, number, offset, entries)
        return None if found is None else (found, range(len(entries)), False)

    def _rows(self, index: Index, ring: Ring, number: int, offset: int, entries: list[int]) -> list[int] | None:
        """The places from the heads of the entries' frames; None where one of them is not this stream's."""
        found: list[int] = []
        first_entry = end_entry = 0  # of the head at hand
        frame_entry, held, rows = index[4], index[7], b""
        for entry in entries:
            if not first_entry <= entry < end_entry:
                if entry == LOST_ENTRY:
                    return None
                frame = bisect_right(frame_entry, entry) - 1
                head = held.get(frame)
                if head is None:
                    try:
                        head = self.head(index, ring, frame)
                    except _WrongFooter:
                        return None
                head.used = True
                first_entry, end_entry, rows = head.first_entry, head.end_entry, head.rows
                if not first_entry <= entry < end_entry:
                    return None
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                return None
            offset += 1
            found += start, length, checksum
        return found

    def _check_lost(self, index: Index) -> None:
        """A repair has given messages up: the footer must say so with its right checksum, not damaged bytes."""
        if index.is_remade:  # and then only the damaged footer knows whether that was a repair
            raise self.damaged()
        try:
            index.footer.check_entries_once()
        except StoreCorrupt as error:
            raise _WrongFooter(error.what) from error

    def _places(
        self, index: Index, ring: Ring | None, numbers: list[int], offsets: Sequence[int], entries: list[int]
    ) -> tuple[Places, list[Head]]:
        """Where messages lie, from their frames' heads; each must name its stream and offset."""
        starts: list[int] = []
        lengths: list[int] = []
        checksums: list[int] = []
        heads: list[Head] = []
        first_entry = end_entry = 0  # of the head at hand
        frame_entry, held = index.frame_entry, index.heads
        for number, offset, entry in zip(numbers, offsets, entries, strict=True):
            if not first_entry <= entry < end_entry:
                frame = bisect_right(frame_entry, entry) - 1
                head = held.get(frame) or self.head(index, ring, frame)
                head.used = True
                first_entry, end_entry, rows = head.first_entry, head.end_entry, head.rows
                if not first_entry <= entry < end_entry:
                    raise _WrongFooter(_WRONG_MESSAGE)
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                raise _WrongFooter(_WRONG_MESSAGE)
            starts.append(start)
            lengths.append(length)
            checksums.append(checksum)
            heads.append(head)
        return (starts, lengths, checksums), heads

    def _many_places(
        self, index: Index, ring: Ring | None, number: int, offsets: Sequence[int], entries: list[int]
    ) -> tuple[Places, list[Head]]:
        """The same, a frame at a time: faster where a frame has several of the messages."""
        at, heads = 0, []
        rows: list[npt.NDArray[np.uint32]] = []
        wanted = np.array(entries, np.uint32)
        while at < len(entries):
            head = self.head(index, ring, bisect_right(index.frame_entry, entries[at]) - 1)
            end = bisect_left(entries, head.end_entry, at)
            if not head.first_entry <= entries[at] < head.end_entry:
                raise _WrongFooter(_WRONG_MESSAGE)
            frame = np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))
            try:
                rows.append(frame.take(wanted[at:end] - head.first_entry, axis=0))  # what is below wraps around
            except IndexError:
                raise _WrongFooter(_WRONG_MESSAGE) from None
            heads += [head] * (end - at)
            at = end
        named, lows, starts, lengths, checksums = np.concatenate(rows).T
        if (named != number).any() or (lows != np.array(offsets, np.int64) & 0xFFFF).any():
            raise _WrongFooter(_WRONG_MESSAGE)
        return (starts.tolist(), lengths.tolist(), checksums.tolist()), heads

    def head(self, index: Index, ring: Ring | None, frame: int) -> Head:
        """The head of the frame with this number in the index. Raises StoreCorrupt."""
        heads = index.heads
        found = heads.get(frame)
        if found is not None:
            found.used = True
            return found
        head = Head(self._frame(index, ring, frame), frame)
        self._memory.frames.keep(heads, frame, head)
        if not index.is_remade:
            if self._full_frames is None:
                self._full_frames = full_frames(index, self.record.entries)
            if len(heads) >= self._full_frames and not self._kept:
                self._join_heads(index)
        return head

    def _join_heads(self, index: Index) -> None:
        """The heads of all frames with messages are held: from now on, what they say is one table."""
        if places_size(self.record.entries, index.streams) <= self._memory.limit_bytes // KEPT_PART:
            kept = joined_heads(index, self.record.entries)
            if kept is not None:
                self._memory.frames.keep(self._kept, 0, kept)

    def _frame(self, index: Index, ring: Ring | None, frame: int) -> Frame:
        """The decoded frame with this number in the index. Raises StoreCorrupt."""
        positions = index.footer.frame_position
        if not 0 <= frame < len(positions):
            raise _WrongFooter(_WRONG_MESSAGE)
        position = int(positions[frame])
        raw, _ = self.segment.fetch(ring, position, HEAD_GUESS_BYTES)
        header = read_frame_header(raw, 0)
        decoded = None
        if header is not None and header.sequence == self.segment.sequence and header.position == position:
            if len(raw) < header.header_bytes <= self.record.data_end - position:
                raw, _ = self.segment.fetch(ring, position, header.header_bytes)
            decoded = decode_head(header, raw[: header.header_bytes])
        if decoded is None:
            self.segment.check_open()
            raise StoreCorrupt("a frame's header is damaged", self.segment.path, position)
        return decoded

    def close(self) -> None:
        """Let go of the mapping and the files."""
        self.let_go()
        self.segment.close()


_WRONG_MESSAGE = "the footer points to a wrong message"
