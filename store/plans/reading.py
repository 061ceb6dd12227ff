"""Reads a part of a plan: frames become batches of columns, and every checksum is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk, ReadingDisk
from ..errors import StoreCorrupt, StoreUnreadable
from ..format.arrays import Indexes, Int64s, Uint32s
from ..format.blobs import gathered
from ..format.footer import Footer
from ..format.frame import Frame
from ..format.layout import HAS_EXTRAS, LOST_ENTRY
from ..live.files import SegmentIsGone
from ..read.scan import NO_OFFSET, sealed_offsets
from ..read.wanted import Bounds, ScanFilter, StreamTable, bounds_of
from ..segment.checksums import wrong_messages
from ..segment.placed_frames import WRONG_BYTES, PlacedFrames
from ..segment.scanner import ChunkBuffers, ChunkReader, PieceReader
from .batch import ScanBatch
from .chunks import FrameChunks
from .opened import FooterDamaged, SealedRange, opened
from .places import PlaceReader
from .plan import FrameRange, KnownFrames, ScanPart, frames_of

OnDamage = Callable[[StoreCorrupt], object]
Rescue = Callable[[FrameRange, StoreCorrupt], FrameRange]
HEAD_GUESS_BYTES = 4096
MOST_STEPPED_OVER = 60_000  # messages: a frame has 16 bits of each offset
SELECTIVE = 0.5  # below this share of wanted messages, frames are read one by one
WRONG_OFFSET = "a message's offset does not agree with its frame"
UNCOUNTABLE = "so many messages are missing that the offsets after them are not known"


def batches_of(
    part: ScanPart,
    rescue: Rescue,
    *,
    payload: bool,
    optional: bool,
    lengths: bool,
    on_damage: OnDamage | None,
    on_rebuilt: OnDamage | None,
    disk: Disk | None,
) -> Iterator[ScanBatch]:
    """Yield the messages of a part, one batch a frame, in log order: see `read_part`.

    `rescue` finds a range whose segment has a damaged footer again by its frames; if that is not possible, it raises
    the error that it was given.
    """
    buffers, used = ChunkBuffers(), disk or ReadingDisk()
    by_footers = not (payload or optional or lengths) and on_damage is None

    def reader_of(one: FrameRange) -> PlaceReader | _RangeReader:
        if by_footers and one.known is None:
            return PlaceReader(used, one, part.wanted)
        return _RangeReader(used, one, part.wanted, buffers, on_damage, payload=payload, optional=optional)

    for one in part.ranges:
        if one.rebuilt is not None and on_rebuilt is not None:
            on_rebuilt(one.rebuilt.error())
        try:
            try:
                reader = reader_of(one)
            except FooterDamaged as damage:
                found = rescue(one, damage.error)
                if on_rebuilt is not None:
                    on_rebuilt(damage.error)
                reader = reader_of(found)
        except StoreCorrupt as error:
            _told(error, on_damage)
            continue
        except OSError as error:
            raise _unreadable(one, error) from error
        try:
            yield from reader.batches()
        except OSError as error:
            raise _unreadable(one, error) from error
        finally:
            reader.close()


def _told(error: StoreCorrupt, on_damage: OnDamage | None) -> None:
    if on_damage is None:
        raise error
    on_damage(error)


def _unreadable(one: FrameRange, error: OSError) -> StoreUnreadable:
    if isinstance(error, SegmentIsGone):
        return StoreUnreadable(
            f"retention removed {error.filename} after the read was planned and before it was read; plan again, "
            f"read sooner, or keep more (retention_bytes, retention_ms)"
        )
    return StoreUnreadable(f"segment {one.sequence} in {one.folder} cannot be read: {error.strerror or error}")


class _Table(NamedTuple):
    """Frames to be read, and the known facts of their messages.

    `positions`, `entries` (f,): each frame's position, and its first entry. `end_entry`: one past the segment's last
    entry. `following` (streams,): the offset of each stream's next message at the first frame; or `offsets` (messages
    of the segment,): those of all messages, NO_OFFSET for lost ones.
    """

    positions: Uint32s
    entries: Uint32s
    streams: StreamTable
    following: Int64s | None
    offsets: Int64s | None
    data_end: int


class _RangeReader:
    """Reads the frames of one range. Making it opens the file; `close` closes it."""

    def __init__(
        self, disk: Disk, one: FrameRange, wanted: ScanFilter, buffers: ChunkBuffers, on_damage: OnDamage | None,
        *, payload: bool, optional: bool,
    ) -> None:  # fmt: skip
        self._range, self._wanted, self._on_damage = one, wanted, on_damage
        self._payload, self._optional = payload, optional
        self._segment, sealed = opened(disk, one, wanted)
        self._is_selective = False
        self._small: Footer | None = None  # a footer of only some streams: rows stand for their numbers
        if sealed is None:
            assert one.known is not None
            self._table = _table_of_known(one.known)
            self._bounds = bounds_of(wanted, self._table.streams, one.trimmed)
        else:
            self._table = self._table_of(sealed)
        file, end = self._segment.data, self._table.data_end
        self._reader: ChunkReader
        if payload and not self._is_selective and len(self._table.positions):
            self._reader = FrameChunks(file, self._table.positions.tolist(), end, buffers)
        else:
            self._reader = PieceReader(file, end, HEAD_GUESS_BYTES)
        self._frames = PlacedFrames(self._reader, self._segment.header, self._segment.path)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._segment.close()

    def _table_of(self, found: SealedRange) -> _Table:
        """The frames of a sealed segment, from its footer."""
        one, (sealed, footer, streams, bounds) = self._range, found
        self._small = None if footer.is_full else footer
        self._bounds = bounds
        positions, entries = footer.frame_position, footer.frame_entry
        first, end = frames_of(entries, one.entries)
        data_end = int(positions[end]) if end < len(positions) else sealed.record.data_end
        matching = int(bounds.counts(footer.first, footer.next_offsets).sum())
        # With gaps, each offset is looked up. Without, offsets are counted on from frame to frame.
        is_lost = len(footer.entries) != sealed.record.entries or bool((footer.entries == LOST_ENTRY).any())
        self._is_selective = matching < SELECTIVE * len(footer.entries)
        if not (is_lost or self._is_selective or self._on_damage is not None):
            begins = int(entries[first]) if first < len(entries) else sealed.record.entries
            following = footer.first.astype(np.int64)
            if begins:
                before = np.concatenate([[0], (footer.entries < begins).cumsum()])
                following += before[footer.start[1:]] - before[footer.start[:-1]]
            return _Table(positions[first:end], entries[first:end], streams, following, None, data_end)
        offsets = sealed_offsets(sealed, footer)
        chosen = np.arange(first, end)
        if self._is_selective:
            chosen = _frames_with(footer.first, footer.start, footer.entries, entries, bounds)
            chosen = chosen[(chosen >= first) & (chosen < end)]
        return _Table(positions[chosen], entries[chosen], streams, None, offsets, data_end)

    # -- frames ---------------------------------------------------------------------------------------

    def batches(self) -> Iterator[ScanBatch]:
        """Yield one batch for each frame with wanted messages. Raises StoreCorrupt, OSError."""
        table, stepped_over = self._table, 0
        entries = table.entries.tolist()
        for position, first, end in zip(table.positions.tolist(), entries, [*entries[1:], None], strict=False):
            try:
                frame = self._frames.frame(position, first)
                if isinstance(self._reader, PieceReader):  # the next head is mostly of the same size
                    self._reader.least_bytes = max(HEAD_GUESS_BYTES, frame.header.header_bytes)
                batch = self._batch(frame)
            except StoreCorrupt as error:
                _told(error, self._on_damage)
                stepped_over += 0 if end is None else end - first
                if table.offsets is None and stepped_over > MOST_STEPPED_OVER:
                    _told(self._frames.damage(UNCOUNTABLE, position), self._on_damage)
                    return
                continue
            if batch is not None:
                yield batch

    def _numbers(self, frame: Frame) -> Uint32s:
        """(n,) the stream of each message, as a number in the table. Raises StoreCorrupt."""
        if self._small is None:
            return frame.numbers
        rows = self._small.rows_of(frame.numbers[: max(0, self._range.entries[1] - frame.header.first_entry)])
        if len(rows) and int(rows.max()) >= self._small.stream_count:
            raise self._frames.damage("a frame's stream was never defined", frame.header.position)
        return rows.astype(np.uint32)

    def _offsets(self, frame: Frame) -> Int64s:
        """(n,) the offsets of the frame's messages; fewer at the end of the range. Raises StoreCorrupt."""
        table, header, lows = self._table, frame.header, frame.lows
        first, end = header.first_entry, self._range.entries[1]
        if table.offsets is not None:
            offsets = table.offsets[first : first + header.count]
            wrong = (offsets ^ lows[: len(offsets)]) & 0xFFFF
            if wrong.any() and (wrong[offsets != NO_OFFSET] != 0).any():
                raise self._frames.damage(WRONG_OFFSET, header.position)
            return offsets
        assert table.following is not None
        # Messages after the range's end are ignored: the plan may not know their streams.
        numbers = self._numbers(frame)[: max(0, end - first)]
        if len(numbers) and int(numbers.max()) >= len(table.following):
            raise self._frames.damage("a frame's stream was never defined", header.position)
        base = table.following[numbers]
        ahead = (lows[: len(numbers)] - base) & 0xFFFF
        if self._on_damage is None and len(ahead) and int(ahead.max()) >= header.count:
            raise self._frames.damage(WRONG_OFFSET, header.position)
        offsets = base + ahead
        table.following[numbers] = offsets + 1  # if a stream has several messages, the last one's counts
        return offsets

    def _kept(self, frame: Frame, offsets: Int64s) -> Indexes | None:
        """The wanted messages, as numbers in the frame; None if all of them are."""
        count, header = len(offsets), frame.header
        if not self._wanted.wants_time(header.time_ms, header.time_ms):
            return np.empty(0, np.intp)
        numbers, bounds = self._numbers(frame)[:count], self._bounds
        wanted = (offsets >= bounds.lows[numbers]) & (offsets < bounds.highs[numbers])
        first, end = self._range.entries
        low, high = first - header.first_entry, end - header.first_entry
        if low > 0:
            wanted[:low] = False
        if high < count:
            wanted[max(high, 0) :] = False
        return None if count == header.count and wanted.all() else np.flatnonzero(wanted)

    def _batch(self, frame: Frame) -> ScanBatch | None:
        """The frame's wanted messages; None if there are none. Raises StoreCorrupt."""
        offsets = self._offsets(frame)
        rows = self._kept(frame, offsets)
        if len(offsets) == 0 or (rows is not None and not len(rows)):
            return None
        header = frame.header
        lengths = frame.lengths.astype(np.int64)
        payload: memoryview | bytes | None = None
        if self._payload:
            payload, rows = self._checked(frame, rows)
            if rows is not None and not len(rows):
                return None
        numbers = self._numbers(frame)
        extras = frame.extras() if self._optional and header.flags & HAS_EXTRAS else None
        if rows is not None:
            if payload is not None:
                ends = lengths.cumsum()
                payload = gathered(payload, ends - lengths, lengths, rows)
            numbers, lengths, offsets = numbers[rows], lengths[rows], offsets[rows]
            extras = None if extras is None else extras.take(rows)
        batch = ScanBatch(
            self._table.streams, numbers, offsets, np.full(len(offsets), header.time_ms, np.int64), lengths, payload
        )
        if extras is not None:
            batch.deliver_at_ms, batch.keys, batch.properties = extras.times_ms, extras.keys, extras.properties
        return batch

    def _checked(self, frame: Frame, rows: Indexes | None) -> tuple[memoryview, Indexes | None]:
        """The frame's payloads, and those of `rows` whose bytes are right. Raises StoreCorrupt."""
        payload = self._frames.payload(frame)
        wrong = wrong_messages(frame, payload, rows)
        if not len(wrong):
            return payload, rows
        for position in frame.starts()[wrong].tolist():
            _told(self._frames.damage(WRONG_BYTES, position), self._on_damage)
        return payload, np.setdiff1d(np.arange(frame.header.count) if rows is None else rows, wrong)


def _table_of_known(known: KnownFrames) -> _Table:
    following = np.zeros(len(known.streams), np.int64)
    following[known.numbers] = known.offsets
    return _Table(known.positions, known.entries, known.streams, following, None, known.data_end)


def _frames_with(
    firsts: Int64s, start: Uint32s, entries: Uint32s,
    frame_entry: Uint32s, bounds: Bounds,
) -> Indexes:  # fmt: skip
    """The numbers of the frames that have wanted messages, ascending."""
    begins = start.astype(np.int64)
    rows = begins[:-1]
    sizes = np.diff(begins)
    counts = len(sizes)
    low = np.clip(bounds.lows[:counts] - firsts, 0, sizes)
    high = np.clip(bounds.highs[:counts] - firsts, 0, sizes)
    places = zip((rows + low).tolist(), (rows + high).tolist(), strict=True)
    parts = [entries[begin:end] for begin, end in places if begin < end]
    if not parts:
        return np.empty(0, np.intp)
    frames = frame_entry.searchsorted(np.concatenate(parts), side="right") - 1
    return np.unique(frames[frames >= 0])
