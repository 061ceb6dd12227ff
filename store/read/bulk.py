"""The way of `read_batch` to many messages: columns all the way, and no object a message but its checksum.

What lies close together is read with one call into the buffer that the caller gets, gaps and all. What lies far apart
is copied piece by piece, from the ring or from a mapping.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from ..device.buffers import BufferPool
from ..device.ring import NOWHERE, Ring
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.layout import checksum64
from ..log.streams import Stream
from ..log.write import View
from ..segment.open_table import CHECKSUM, LENGTH, POSITION, Uint32s
from ..segment.part import Part, count_of, end_of
from ..segment.segment import Segment
from .finder import Finder
from .frame_times import times_of_many
from .message import MessageBatch
from .read_counters import ReadCounters

LEAST_MESSAGES = 64  # of a call; columns of fewer cost more than their messages one by one
MOST_MESSAGES = 1 << 18
GAP_BYTES = 4096  # such as a frame's header and columns
LARGEST_WASTE = 4  # the gaps are at most a fourth of the messages
SMALL_BYTES = 1024  # of a message: a copy more costs less than slices of views
LONG_PIECE_BYTES = 16 << 10  # it is worth a call of its own


Array = TypeVar("Array", Int64s, Uint32s)


class Columns(NamedTuple):
    """n messages of a segment, in log order.

    Attributes:
        segment: where they are.
        rows: (n, 3) position, length and checksum of each.
        times: (n,) when each was put into the log, ms since the epoch.
    """

    segment: Segment
    rows: Uint32s
    times: Int64s


class Pieces(NamedTuple):
    """Ranges of a segment's file that are put into a buffer, one after the other.

    Attributes:
        is_recent: the ring has them.
        begins, ends: positions in the segment.
    """

    segment: Segment
    is_recent: bool
    begins: list[int]
    ends: list[int]


class Bulk:
    """Reads from the ring, mappings and the device into one buffer. Any number of threads may use it.

    It is a shortcut: `Reader` has the contract. It leaves optional columns to the long way.
    """

    def __init__(self, finder: Finder, counters: ReadCounters, buffers: BufferPool) -> None:
        self._finder = finder
        self._counters = counters
        self._buffers = buffers

    def read_batch(self, stream: Stream, offset: int, limit: int, max_bytes: int) -> MessageBatch | None:
        """The messages that there are, up to `limit`. Raises no error for what the log has wrong."""
        if limit > MOST_MESSAGES:
            return None
        try:
            view = stream.lane.view
            found = self._finder.parts(stream, view, offset, limit)
            if not found or end_of(found[-1]) - offset != count_of(found):  # a repair has left holes
                return None
            parts = [_columns(view, part) for part in found]
            whole = [part for part in parts if part is not None]
            if len(whole) < len(parts):
                return None
            kept = _cut(whole, max_bytes)
            return self._small_recent(stream, offset, kept) or self._fetch(stream, offset, kept)
        except (OSError, StoreCorrupt):
            return None

    def _small_recent(self, stream: Stream, offset: int, parts: list[Columns]) -> MessageBatch | None:
        """Small messages that the ring has: a copy of each."""
        ring, rows = stream.lane.ring, _joined([part.rows for part in parts])
        bases = [NOWHERE if part.segment.base is None else part.segment.base for part in parts]
        lengths = rows[:, LENGTH].astype(np.int64)
        ends = lengths.cumsum()
        size, oldest = ends.item(-1), bases[0] + rows.item(0)
        if size >= SMALL_BYTES * len(rows) or oldest < ring.low or NOWHERE in bases:
            return None
        ring.note_read(len(rows))
        datas: list[bytes] = []
        for part, base in zip(parts, bases, strict=True):
            datas += ring.copies(base, part.rows[:, POSITION].tolist(), part.rows[:, LENGTH].tolist())
        if oldest < ring.low or not _are_right([*map(checksum64, datas)], rows):  # perhaps overtaken meanwhile
            return None
        self._counters.count_recent(len(rows), size)
        times = _joined([part.times for part in parts])
        return batch_of(stream, offset, self._buffers.joined(datas, size), (ends - lengths, lengths, times))

    def _fetch(self, stream: Stream, offset: int, parts: list[Columns]) -> MessageBatch | None:
        """The messages of all parts; None if they are not all there, or one has a wrong checksum. Raises OSError."""
        ring = stream.lane.ring
        parts = [half for part in parts for half in _split(ring, part)]
        rows = _joined([part.rows for part in parts])
        starts, lengths = rows[:, POSITION].astype(np.int64), rows[:, LENGTH].astype(np.int64)
        borders = np.cumsum([len(part.rows) for part in parts])[:-1]
        pieces, positions, size = _pieces(ring, parts, starts, lengths, borders)
        buffer = self._buffers.take(size)
        view = buffer.getbuffer()
        try:
            if not _filled(ring, pieces, view):
                return None
            ends = (positions + lengths).tolist()
            sums = [checksum64(view[begin:end]) for begin, end in zip(positions.tolist(), ends, strict=True)]
        finally:
            view.release()
        payloads = self._buffers.lend(buffer, size)
        if not _are_right(sums, rows):
            return None
        self._count(parts, pieces, lengths)
        return batch_of(stream, offset, payloads, (positions, lengths, _joined([part.times for part in parts])))

    def _count(self, parts: list[Columns], pieces: list[Pieces], lengths: Int64s) -> None:
        counters = self._counters
        counters.messages += len(lengths)
        counters.bytes += int(lengths.sum())
        for part, piece in zip(parts, pieces, strict=True):
            sizes = part.rows[:, LENGTH].tolist()
            if piece.is_recent:
                counters.recent_messages += len(sizes)
                counters.recent_bytes += sum(sizes)
            else:
                counters.count_device(sizes, min(sizes), sum(piece.ends) - sum(piece.begins), len(piece.begins))


def _are_right(sums: list[int], rows: Uint32s) -> bool:
    return not (np.array(sums, np.uint64).astype(np.uint32) != rows[:, CHECKSUM]).any()


def batch_of(stream: Stream, offset: int, payloads: memoryview, columns: tuple[Int64s, Int64s, Int64s]) -> MessageBatch:
    """`columns`: positions, lengths and times."""
    positions, lengths, times = columns
    offsets, index = np.arange(offset, offset + len(times)), np.zeros(len(times), np.uint32)
    return MessageBatch(payloads, positions, lengths, offsets, times, index, [(stream.topic, stream.queue_id)])


def _joined(columns: list[Array]) -> Array:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _columns(view: View, part: Part) -> Columns | None:
    """A part as columns; None if one of its messages has optional ones. Raises StoreCorrupt."""
    segment, flat, entries, _, _ = part
    rows = np.asarray(flat, np.uint32).reshape(-1, 3)
    if not isinstance(entries, range):  # of a table that was made for this call: all of it
        rows = rows.take(entries, axis=0)
    times = times_of_many(view, segment, rows[:, POSITION])
    return None if times is None else Columns(segment, rows, times)


def _cut(parts: list[Columns], max_bytes: int) -> list[Columns]:
    """The messages in front of the first one that would pass `max_bytes`, and at least one."""
    kept: list[Columns] = []
    for part in parts:
        ends = part.rows[:, LENGTH].cumsum(dtype=np.int64)
        if int(ends[-1]) > max_bytes:
            count = max(int(ends.searchsorted(max_bytes, side="right")), 0 if kept else 1)
            if count:
                kept.append(Columns(part.segment, part.rows[:count], part.times[:count]))
            break
        kept.append(part)
        max_bytes -= int(ends[-1])
    return kept


def _split(ring: Ring, part: Columns) -> list[Columns]:
    """The part, cut where the ring begins."""
    base = part.segment.base
    older = len(part.rows) if base is None else int(part.rows[:, POSITION].searchsorted(ring.low - base))
    if not 0 < older < len(part.rows):
        return [part]
    segment, rows, times = part
    return [Columns(segment, rows[:older], times[:older]), Columns(segment, rows[older:], times[older:])]


def _pieces(
    ring: Ring, parts: list[Columns], starts: Int64s, lengths: Int64s, borders: Int64s
) -> tuple[list[Pieces], Int64s, int]:
    """The ranges to read for each part, the place of each message in the buffer, and the buffer's size in bytes."""
    ends = starts + lengths
    gaps = starts[1:] - ends[:-1]
    apart = (gaps < 0) | (gaps > GAP_BYTES)
    apart[borders - 1] = True
    if int(gaps[~apart].sum()) * LARGEST_WASTE > int(lengths.sum()):
        apart |= gaps != 0
    firsts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    lasts = np.concatenate([firsts[1:] - 1, [len(starts) - 1]])
    sizes = ends[lasts] - starts[firsts]
    after = sizes.cumsum()
    shifts = (after - sizes - starts[firsts]).repeat(lasts - firsts + 1)
    found: list[Pieces] = []
    cuts = [0, *firsts.searchsorted(borders).tolist(), len(firsts)]
    for part, low, high in zip(parts, cuts[:-1], cuts[1:], strict=True):
        begins, base = starts[firsts[low:high]].tolist(), part.segment.base
        is_recent = base is not None and base + begins[0] >= ring.low
        found.append(Pieces(part.segment, is_recent, begins, ends[lasts[low:high]].tolist()))
    return found, starts + shifts, int(after[-1])


def _filled(ring: Ring, pieces: list[Pieces], view: memoryview) -> bool:
    """Copy all pieces into a buffer, back to back; False if one of them is not there any more. Raises OSError."""
    for segment, is_recent, begins, ends in pieces:
        if not is_recent and segment.wants_asking:
            segment.ask(begins, _sizes(begins, ends))
    at = 0
    for segment, is_recent, begins, ends in pieces:
        following = at + sum(ends) - sum(begins)
        fill = _fill_recent if is_recent else _fill_from_file
        if not fill(ring, segment, begins, ends, view[at:following]):
            return False
        at = following
    return True


def _sizes(begins: list[int], ends: list[int]) -> list[int]:
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


def _fill_recent(ring: Ring, segment: Segment, begins: list[int], ends: list[int], view: memoryview) -> bool:
    base, to = segment.base, 0
    assert base is not None
    origin, size, whole = ring.shape
    memory = memoryview(whole)
    shift = (base + begins[0] - origin) % size - begins[0]
    if ends[-1] + shift <= size:
        for begin, end in zip(begins, ends, strict=True):
            following = to + end - begin
            view[to:following] = memory[begin + shift : end + shift]
            to = following
    else:  # the end of the ring lies between them
        for begin, end in zip(begins, ends, strict=True):
            following = to + end - begin
            view[to:following] = ring.copy(base + begin, end - begin)
            to = following
    return base + begins[0] >= ring.low  # else overtaken while it was copied


def _fill_from_file(ring: Ring, segment: Segment, begins: list[int], ends: list[int], view: memoryview) -> bool:
    if len(view) >= LONG_PIECE_BYTES * len(begins):
        return segment.read_pieces(view, begins, ends)
    if segment.copied_pieces(view, begins, ends):
        return True
    datas, _, _ = segment.read_places(begins, _sizes(begins, ends))
    found = b"".join(datas)
    if len(found) != len(view):
        return False
    view[:] = found
    return True
