"""Sealed segments: messages are found here, by the footer and the heads of frames. `sealing` makes sealed segments."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import count as count_from
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.footer import ENTRIES, FIRST, START, Column, Footer
from ..format.frame import Frame, frame_of
from ..format.layout import LOST_ENTRY, SealRecord
from .frame_heads import head_at
from .held import HeldMemory
from .index import (
    KEPT_PART,
    ROW,
    ROW_BYTES,
    ROW_COLUMNS,
    WRONG_MESSAGE,
    FooterSource,
    HeadRows,
    Index,
    KeptPlaces,
    WrongFooter,
    full_frames,
    joined_heads,
    places_size,
    row_of,
    stretches,
)
from .open_table import Uint32s
from .part import Part
from .segment import Segment
from .windows import SPARSE_BYTES

_UNPACK = ROW.unpack_from
LONG_RUN = 64  # messages
HEAD_GUESS_BYTES = 4096
MakeFooter: TypeAlias = "Callable[[SealedSegment], Footer | None]"  # None: it cannot be made
NEVER = 1 << 62  # heads that no segment has


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
        self._make_footer: MakeFooter | None = None  # by the lane that it belongs to
        self._memory = HeldMemory(0)
        self._heads: dict[int, HeadRows] = {}  # of the footer in the file, also when it is read again
        self._full_frames: int | None = None  # those with messages, once a head was decoded; NEVER: do not join them
        self._kept: dict[int, KeptPlaces] = {}  # what the open table knew, if it is held
        self._new: KeptPlaces | None = None  # until it is
        self.fresh: npt.NDArray[np.uint32] | None = None  # of a footer that was just written: the streams with messages

    def join(self, memory: HeldMemory, mapped: set[Segment], make_footer: MakeFooter) -> None:
        """Belong to a lane: to its memory and to its mapped segments. It can make a damaged footer again."""
        self._memory.footers.drop(self._found, 0)  # recovery's, which held all of it
        self._make_footer = make_footer
        self._memory = memory
        self.segment.join(mapped)
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
            room = None if self._make_footer is None else self._memory.footer_room()
            try:
                footer = Footer(FooterSource(self.segment), str(self.segment.path), self.record, room_bytes=room)
            except StoreCorrupt as error:
                # An error of its own, which was never raised: no frames that would keep this segment alive.
                self._damage = StoreCorrupt(error.what, self.segment.path, error.position)
                return None
            index = Index(footer, self._heads, is_remade=False)
            self._memory.keep_footer(self._found, index, is_remade=False)
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
        if self._make_footer is None or self._is_lost:
            raise self.damaged()
        footer = self._make_footer(self)
        if footer is None:
            self._is_lost = True
            raise self.damaged()
        index = Index(footer, {}, is_remade=True)
        self._memory.keep_footer(self._found, index, is_remade=True)
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

    @property
    def frames(self) -> tuple[Column, Column, Column]:
        """The positions, times and flags of the frames; single items. Raises StoreCorrupt, OSError."""
        index = self._found.get(0) or self.index
        index.used = True
        return index.frames

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

    def add_parts(self, parts: list[Part], ring: Ring | None, number: int, offset: int, limit: int) -> int:
        """Add where up to `limit` messages of a stream from `offset` on lie, as far as they are here, to `parts`.

        A part, or more where a repair left holes. Returns how many messages are still wanted. Raises StoreCorrupt.
        """
        kept = self._kept.get(0)
        table: Index | KeptPlaces = (self._found.get(0) or self.index) if kept is None else kept
        table.used, streams, numbers, all_entries = True, table.streams, table.numbers, table.entries
        at = number if numbers is None and number < streams else row_of(numbers, streams, number)
        if at < 0:
            return limit
        row, end, first = table.start[at], table.start[at + 1], table.first[at]
        begin = row if offset < first else row + offset - first  # before it: a gap that a repair left
        if begin >= end:
            return limit
        part = all_entries[begin : begin + limit if begin + limit < end else end]
        if kept is not None:
            entries = part if len(part) >= LONG_RUN else part.tolist()
            is_sparse = self.record.data_end > SPARSE_BYTES * (end - row)
            parts.append((self.segment, kept.flat, entries, is_sparse, first + begin - row))
            return limit - len(entries)
        # The heads of frames are still to be read; the windows around them bring in the messages as well.
        index, entries, count = self._found.get(0) or self.index, part.tolist(), len(parts)
        try:
            if LOST_ENTRY in entries:
                return self._add_around_lost(parts, index, ring, number, (begin, end, first + begin - row), limit)
            parts.append(self._part(index, ring, number, first + begin - row, entries))
            return limit - len(entries)
        except WrongFooter as error:
            del parts[count:]
            self._distrust_or_raise(index, error)
        return self.add_parts(parts, ring, number, offset, limit)  # by the index made of the frames

    def _add_around_lost(
        self, parts: list[Part], index: Index, ring: Ring | None, number: int, row: tuple[int, int, int], limit: int
    ) -> int:
        """As `add_parts`, of a row of which a repair gave messages up. `row`: (begin, end, offset of the first).

        Raises WrongFooter, StoreCorrupt.
        """
        self._check_lost(index)
        begin, end, offset = row
        while begin < end and limit:
            entries = index.entries[begin : min(begin + max(limit, LONG_RUN), end)].tolist()
            for at, stretch in stretches(entries, offset):
                if limit:
                    parts.append(self._part(index, ring, number, at, stretch[:limit]))
                    limit -= min(limit, len(stretch))
            begin, offset = begin + len(entries), offset + len(entries)
        return limit

    def _part(self, index: Index, ring: Ring | None, number: int, offset: int, entries: list[int]) -> Part:
        """A part of messages without holes, by the heads of their frames. Raises WrongFooter, StoreCorrupt."""
        flat: Sequence[int]
        if len(entries) < LONG_RUN:
            flat = self._places(index, ring, repeat(number), count_from(offset), entries)
        else:
            flat = self._run_places(index, ring, number, offset, entries)
        return self.segment, flat, range(len(entries)), False, offset

    def pick(
        self, ring: Ring | None, numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> tuple[list[int], list[int], npt.NDArray[np.intp]]:
        """The messages that are here, of some by stream number and offset (n,): in log order, their entries, their
        places back to back, and the index of each. Raises StoreCorrupt.
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
            listed = entries[order].tolist()
            return listed, self._places(index, ring, numbers[found].tolist(), offsets[found].tolist(), listed), found
        except WrongFooter as error:
            self._distrust_or_raise(index, error)
        return self.pick(ring, numbers, offsets)  # by the index made of the frames

    def _distrust_or_raise(self, index: Index, error: WrongFooter) -> None:
        """An index does not agree with the frames: go on with one made of them. Raises StoreCorrupt if it is that."""
        if index.is_remade:
            raise self.damaged() from error
        self.distrust(str(error))

    def entries_of(self, number: int, offset: int, count: int) -> list[int]:
        """The entries of messages of a stream that were found here. Raises StoreCorrupt."""
        index = self._found.get(0) or self.index
        at = index.row(number)
        begin: int = index.start[at] + offset - index.first[at]
        return list(index.entries[begin : begin + count])

    def heads_of(self, ring: Ring | None, entries: Iterable[int]) -> list[HeadRows]:
        """The heads of the frames of some entries. Raises StoreCorrupt."""
        index, found, head = self._found.get(0) or self.index, list[HeadRows](), None
        try:
            for entry in entries:
                if head is None or not head.first_entry <= entry < head.end_entry:
                    head = self._head_of(index, ring, entry)
                found.append(head)
        except WrongFooter as error:
            raise self.damaged() from error
        return found

    def _places(
        self, index: Index, ring: Ring | None, numbers: Iterable[int], offsets: Iterable[int], entries: list[int]
    ) -> list[int]:
        """The position, length and checksum of each message, back to back, from the heads of their frames; each must
        name its stream and offset. Raises WrongFooter, StoreCorrupt."""
        found: list[int] = []
        first_entry, end_entry, rows = 0, 0, b""  # of the head at hand
        for entry, number, offset in zip(entries, numbers, offsets, strict=False):
            if not first_entry <= entry < end_entry:
                head = self._head_of(index, ring, entry)
                first_entry, end_entry, rows = head.first_entry, head.end_entry, head.rows
            named, low, start, length, checksum = _UNPACK(rows, ROW_BYTES * (entry - first_entry))
            if named != number or low != offset & 0xFFFF:
                raise WrongFooter(WRONG_MESSAGE)
            found += start, length, checksum
        return found

    def _run_places(self, index: Index, ring: Ring | None, number: int, offset: int, entries: list[int]) -> memoryview:
        """As `_places`, of a long run of one stream from an offset on: a frame at a time, in arrays."""
        at = 0
        parts: list[Uint32s] = []
        wanted = np.array(entries, np.uint32)
        while at < len(entries):
            head = self._head_of(index, ring, entries[at])
            end = bisect_left(entries, head.end_entry, at)
            frame = np.frombuffer(head.rows, np.uint32).reshape(-1, len(ROW_COLUMNS))
            try:
                parts.append(frame.take(wanted[at:end] - head.first_entry, axis=0))  # what is below wraps around
            except IndexError:
                raise WrongFooter(WRONG_MESSAGE) from None
            at = end
        rows = np.concatenate(parts)
        lows = np.arange(offset, offset + len(entries)) & 0xFFFF
        if (rows[:, 0] != number).any() or (rows[:, 1] != lows).any():
            raise WrongFooter(WRONG_MESSAGE)
        return np.ascontiguousarray(rows[:, 2:]).reshape(-1).data

    def _head_of(self, index: Index, ring: Ring | None, entry: int) -> HeadRows:
        """The head of an entry's frame. Raises WrongFooter, StoreCorrupt."""
        head = self.head(index, ring, bisect_right(index.frame_entry, entry) - 1)
        if not head.first_entry <= entry < head.end_entry:
            raise WrongFooter(WRONG_MESSAGE)
        return head

    def _check_lost(self, index: Index) -> None:
        """A repair has given messages up: the footer must say so with its right checksum, not damaged bytes."""
        if index.is_remade:  # and then only the damaged footer knows whether that was a repair
            raise self.damaged()
        try:
            index.footer.check_entries_once()
        except StoreCorrupt as error:
            raise WrongFooter(error.what) from error

    def head(self, index: Index, ring: Ring | None, frame: int) -> HeadRows:
        """The head of the frame with this number in the index. Raises WrongFooter, StoreCorrupt."""
        heads = index.heads
        found = heads.get(frame)
        if found is not None:
            found.used = True
            return found
        head = HeadRows(self._frame(index, ring, frame), frame)
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
