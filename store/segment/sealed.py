"""Sealed segments: messages are found here, by the footer and the heads of frames. `sealing` makes sealed segments."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.footer import ENTRIES, FIRST, START, Footer
from ..format.frame import Frame, frame_of
from ..format.layout import LOST_ENTRY, SealRecord
from .frame_heads import head_at
from .head import ROW, ROW_BYTES, ROW_COLUMNS, Head
from .held import HeldMemory
from .index import WRONG_MESSAGE, FooterSource, Index, WrongFooter, row_of
from .kept import KEPT_PART, KeptPlaces, full_frames, joined_heads, places_size
from .open_table import Places, Uint32s
from .remade import FooterRemaker, neighbours
from .run import Run
from .segment import Segment
from .windows import SPARSE_BYTES

if TYPE_CHECKING:
    from ..log.lane import Lane

_UNPACK = ROW.unpack_from
LONG_RUN = 64  # messages
HEAD_GUESS_BYTES = 4096
NEVER = 1 << 62  # heads that no segment has
NOTHING: tuple[Sequence[int], Sequence[int], bool] = (), (), False


class SealedSegment:
    """A segment that is found through its footer, or through one made of its frames if that is damaged.

    Footers and frame heads are held in bounded memory, that of all segments; the rest is read where it is wanted. Any
    number of threads may read. They share
        * `_found`, the index: the file's, or, once that was found damaged, the one made of the frames. A look-up takes
          it once. Two threads may read it at the same time; one of the two is dropped then;
        * `_heads` and `_kept`. Of these three the store's `_memory` decides how long they are held; what is in them
          never changes. An index made of the frames has heads of its own: its frames may have other numbers;
        * `_damage`, set for good once the footer was found damaged.
    """

    def __init__(self, segment: Segment, record: SealRecord) -> None:
        self.segment = segment
        self.record = record
        self._found: dict[int, Index] = {}
        self._damage: StoreCorrupt | None = None
        self._is_lost = False  # nor can the footer be made again
        self._remaking = threading.Lock()
        self._lane: Lane | None = None
        self._memory = HeldMemory(0)
        self._heads: dict[int, Head] = {}  # of the footer in the file, also when it is read again
        self._full_frames: int | None = None  # those with messages, once a head was decoded; NEVER: do not join them
        self._kept: dict[int, KeptPlaces] = {}  # what the open table knew, if it is held
        self._new: KeptPlaces | None = None  # until it is
        self.fresh: npt.NDArray[np.uint32] | None = None  # of a footer that was just written: the streams with messages

    def join(self, lane: Lane) -> None:
        """Belong to a lane: it has the memory, and the neighbours from which a damaged footer is made again."""
        self._memory.footers.drop(self._found, 0)  # recovery's, which held all of it
        self._lane = lane
        self._memory = lane.held
        self.segment.join(lane.mapped)
        kept, self._new = self._new, None
        if kept is not None and kept.size_bytes <= self._memory.limit_bytes // KEPT_PART:
            self._memory.frames.keep(self._kept, 0, kept)

    def keep(self, kept: KeptPlaces) -> None:
        """Hold these places once `join` has told which memory they belong to."""
        self._new = kept

    @property
    def footer(self) -> Footer:
        """The footer, read and checked at first use. Raises StoreCorrupt, OSError."""
        return (self._found.get(0) or self.index).footer

    @property
    def index(self) -> Index:
        """The footer with its columns for single look-ups. Raises StoreCorrupt, OSError."""
        return self._found.get(0) or self.in_file() or self._remade()

    def in_file(self) -> Index | None:
        """The index that is in the file; None if it is damaged. Raises OSError."""
        if self._damage is not None:
            return None
        index = self._found.get(0)
        if index is None:
            room = None if self._lane is None else self._memory.footer_room()
            try:
                footer = Footer(FooterSource(self.segment), str(self.segment.path), self.record, room_bytes=room)
            except StoreCorrupt as error:
                # An error of its own, which was never raised: no frames that would keep this segment alive.
                self._damage = StoreCorrupt(error.what, self.segment.path, error.position)
                return None
            index = Index(footer, self._heads, is_remade=False)
            self._memory.keep_footer(self._found, index)
        return index

    @property
    def kept(self) -> KeptPlaces | None:
        """The places that the open table knew, or that were joined of heads, if they are still held."""
        return self._kept.get(0)

    def let_go(self) -> None:
        """Hold no index until it is wanted again. Readers inside keep theirs."""
        self._memory.footers.drop(self._found, 0)

    def after_fork(self) -> None:
        """In a forked child: have nothing of the file."""
        self._found = {}
        self.segment.after_fork()

    def _remade(self) -> Index:
        """The index made of the frames. Raises StoreCorrupt if that cannot be done either."""
        with self._remaking:
            return self._found.get(0) or self._remake()

    def _remake(self) -> Index:
        self.segment.check_open()
        lane = self._lane
        if lane is None or self._is_lost:
            raise self.damaged()
        footer = FooterRemaker(self.segment, self.record).footer(lane.streams, *neighbours(lane, self))
        if footer is None:
            self._is_lost = True
            raise self.damaged()
        index = Index(footer, {}, is_remade=True)
        self._memory.keep_footer(self._found, index)
        return index

    def damaged(self) -> StoreCorrupt:
        """The error that says what is wrong with the footer."""
        what = "the footer is damaged" if self._damage is None else self._damage.what
        position = self.record.footer_position if self._damage is None else self._damage.position
        return StoreCorrupt(what, self.segment.path, position)

    def distrust(self, what: str) -> None:
        """The file's footer is wrong, although its tables have the right checksums: take it for damaged."""
        if self._damage is None:  # no other thread has seen it
            self._damage = StoreCorrupt(what, self.segment.path, self.record.footer_position)
        index = self._found.get(0)
        if index is not None and not index.is_remade:
            self.let_go()

    def first_of(self, number: int) -> tuple[int, int]:
        """(first offset, messages) of a stream in this segment; (0, 0) if it does not know the stream."""
        index = self._found.get(0) or self.index
        index.used, start = True, index.start
        row = index.row(number) if index.numbers is not None or number >= index.streams else number
        return (index.first[row], start[row + 1] - start[row]) if row >= 0 else (0, 0)

    def first_offset(self, number: int) -> int:
        """The first offset of a stream here, or, of a full footer, its next one if it has no messages here."""
        index = self._found.get(0) or self.index
        index.used = True
        if index.numbers is None:  # as in most calls
            return index.first[number] if number < index.streams else 0
        return self.first_of(number)[0]

    def segments_before(self, number: int) -> tuple[Sequence[int], Sequence[int]] | None:
        """As `Index.segments_before`. Raises StoreCorrupt, OSError."""
        index = self._found.get(0) or self.index
        index.used = True
        return index.segments_before(number)

    def run(self, ring: Ring | None, number: int, offset: int, limit: int) -> Run:
        """Up to `limit` messages of a stream from `offset` on; its row must contain the offset. Raises StoreCorrupt."""
        index = self._found.get(0) or self.index
        index.used, start, all_entries = True, index.start, index.entries
        try:
            at = index.row(number) if index.numbers is not None or number >= index.streams else number
            begin = offset - index.first[at] if at >= 0 else -1
            if begin < 0:
                raise WrongFooter(WRONG_MESSAGE)
            begin += start[at]
            entries = all_entries[begin : min(start[at + 1], begin + limit)].tolist()
            offsets: Sequence[int] = range(offset, offset + len(entries))
            if LOST_ENTRY in entries:
                self._check_lost(index)
                kept = [(at, entry) for at, entry in zip(offsets, entries, strict=True) if entry != LOST_ENTRY]
                offsets, entries = [at for at, _ in kept], [entry for _, entry in kept]
            if len(entries) < LONG_RUN:
                places, heads = self._places(index, ring, [number] * len(entries), offsets, entries)
            else:
                rows, heads = self._many_rows(index, ring, number, offsets, entries)
                places = tuple(rows.T.tolist())
            return Run(self.segment, self, offsets, entries, places, heads)
        except WrongFooter as error:
            if index.is_remade:
                raise self.damaged() from error
            self.distrust(str(error))
        return self.run(ring, number, offset, limit)  # by the index made of the frames

    def pick(
        self, ring: Ring | None, numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> tuple[Run, npt.NDArray[np.intp]]:
        """The messages that are here, of some by stream number and offset (n,): in log order, and the index of each.

        Raises StoreCorrupt.
        """
        index = self._found.get(0) or self.index
        index.used = True
        footer, rows = index.footer, index.footer.rows_of(numbers)
        found = np.flatnonzero(rows < index.streams)
        mine = rows[found]
        rows = offsets[found] - footer.taken(FIRST, mine)
        begins = footer.taken(START, mine).astype(np.int64)
        here = (rows >= 0) & (rows < footer.taken(START, mine + 1) - begins)
        found = found[here]
        entries = footer.taken(ENTRIES, begins[here] + rows[here])
        try:
            if (entries == LOST_ENTRY).any():
                self._check_lost(index)
                entries, found = entries[entries != LOST_ENTRY], found[entries != LOST_ENTRY]
            order = entries.argsort()
            found = found[order]
            lists = numbers[found].tolist(), offsets[found].tolist(), entries[order].tolist()
            return Run(self.segment, self, lists[1], lists[2], *self._places(index, ring, *lists)), found
        except WrongFooter as error:
            if index.is_remade:
                raise self.damaged() from error
            self.distrust(str(error))
        return self.pick(ring, numbers, offsets)  # by the index made of the frames

    def places(
        self, ring: Ring, number: int, offset: int, end: int
    ) -> tuple[Sequence[int], Sequence[int], bool] | None:
        """A stream's messages offset .. end - 1, as far as they are here: a flat table of places, their numbers there,
        and whether the stream's messages are known to lie far apart.

        The position, length and checksum of number n are at 3 n, 3 n + 1 and 3 n + 2 of the table. None where a message
        is lost or not in its place: `run` says what is wrong. Raises StoreCorrupt as that does.
        """
        kept = self._kept.get(0)
        table: Index | KeptPlaces = (self._found.get(0) or self.index) if kept is None else kept
        table.used, streams, numbers, all_entries = True, table.streams, table.numbers, table.entries
        at = number if numbers is None and number < streams else row_of(numbers, streams, number)
        if at < 0:
            return NOTHING
        row, limit, first = table.start[at], table.start[at + 1], table.first[at]
        if row == limit:
            return NOTHING
        if offset < first:
            return None  # a gap that a repair left
        from_row = row - first
        part = all_entries[from_row + offset : min(from_row + end, limit)]
        if kept is not None:
            entries = part if len(part) >= LONG_RUN else part.tolist()
            return kept.flat, entries, self.record.data_end > SPARSE_BYTES * (limit - row)
        # The heads of frames are still to be read; the windows around them bring in the messages as well.
        index, entries = self._found.get(0) or self.index, part.tolist()
        found: Sequence[int]
        try:
            if len(entries) < LONG_RUN:
                found = self._few_rows(index, ring, number, offset, entries)
            else:
                rows, _ = self._many_rows(index, ring, number, range(offset, offset + len(entries)), entries)
                found = np.ascontiguousarray(rows).reshape(-1).data
        except WrongFooter:
            return None
        return found, range(len(entries)), False

    def _few_rows(self, index: Index, ring: Ring, number: int, offset: int, entries: list[int]) -> list[int]:
        """As `_many_rows`, of few entries: their places in one list, back to back. Raises WrongFooter."""
        found: list[int] = []
        first_entry = end_entry = 0  # of the head at hand
        frame_entry, held, rows = index.frame_entry, index.heads, b""
        for entry in entries:
            if not first_entry <= entry < end_entry:
                frame = bisect_right(frame_entry, entry) - 1
                head = held.get(frame) or self.head(index, ring, frame)
                head.used = True
                first_entry, end_entry, rows = head.first_entry, head.end_entry, head.rows
                if not first_entry <= entry < end_entry:
                    raise WrongFooter(WRONG_MESSAGE)
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                raise WrongFooter(WRONG_MESSAGE)
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
            raise WrongFooter(error.what) from error

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
                    raise WrongFooter(WRONG_MESSAGE)
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                raise WrongFooter(WRONG_MESSAGE)
            starts.append(start)
            lengths.append(length)
            checksums.append(checksum)
            heads.append(head)
        return (starts, lengths, checksums), heads

    def _many_rows(
        self, index: Index, ring: Ring | None, number: int, offsets: Sequence[int], entries: list[int]
    ) -> tuple[Uint32s, list[Head]]:
        """(n, 3) position, length and checksum of messages, and the head of each one's frame: a frame at a time.

        Raises WrongFooter where one is not this stream's, or lost.
        """
        at, heads = 0, []
        parts: list[Uint32s] = []
        wanted = np.array(entries, np.uint32)
        while at < len(entries):
            head = self.head(index, ring, bisect_right(index.frame_entry, entries[at]) - 1)
            end = bisect_left(entries, head.end_entry, at)
            if not head.first_entry <= entries[at] < head.end_entry:
                raise WrongFooter(WRONG_MESSAGE)
            frame = np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))
            try:
                parts.append(frame.take(wanted[at:end] - head.first_entry, axis=0))  # what is below wraps around
            except IndexError:
                raise WrongFooter(WRONG_MESSAGE) from None
            heads += [head] * (end - at)
            at = end
        rows = np.concatenate(parts)
        if (rows[:, 0] != number).any() or (rows[:, 1] != np.array(offsets, np.int64) & 0xFFFF).any():
            raise WrongFooter(WRONG_MESSAGE)
        return rows[:, 2:], heads

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
        """The heads of all frames with messages are held: make them one table (`KeptPlaces`), if it has room."""
        if places_size(self.record.entries, index.streams) <= self._memory.limit_bytes // KEPT_PART:
            kept = joined_heads(index, self.record.entries)
            if kept is not None:
                self._memory.frames.keep(self._kept, 0, kept)
            elif self._full_frames is not None and len(index.heads) >= self._full_frames:
                self._full_frames = NEVER  # no head was missing: messages were given up. A look costs as much as all

    def _frame(self, index: Index, ring: Ring | None, frame: int) -> Frame:
        """The decoded frame with this number in the index. Raises StoreCorrupt."""
        positions = index.footer.frame_position
        if not 0 <= frame < len(positions):
            raise WrongFooter(WRONG_MESSAGE)
        position = int(positions[frame])
        head = head_at(self.segment, ring, position, HEAD_GUESS_BYTES, self.record.data_end)
        decoded = None if head is None else frame_of(head)
        if decoded is None:
            self.segment.check_open()
            raise StoreCorrupt("a frame's header is damaged", self.segment.path, position)
        return decoded

    def close(self) -> None:
        """Let go of the files, and of what is held."""
        self.let_go()
        self.segment.close()
