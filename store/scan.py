"""Reading the whole store in log order, a batch a frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .errors import StoreCorrupt
from .format import (
    FRAME_HEADER_BYTES,
    HAS_EXTRAS,
    HAS_PAYLOAD_CHECKSUM,
    LOST_ENTRY,
    checksum64,
    read_frame_header,
)
from .frame import Frame, decode_at
from .lane import Lane
from .message import MessageBatch
from .scanner import ChunkBuffers, ChunkReader, good_messages
from .sealed import SealedSegment
from .segment import Segment
from .write import OpenSegment

NO_OFFSET = -1


def scan_lane(lane: Lane) -> Iterator[MessageBatch]:
    """All durable messages of a lane, as of the call, in log order. Raises StoreCorrupt."""
    view = lane.view
    sources: list[SealedSegment | OpenSegment] = [*view.sealed, *view.open]
    if not sources:
        return
    names = _names(lane)
    buffers = ChunkBuffers()
    ahead: _Part | None = _Part(sources[0], buffers)
    try:
        for following in [*sources[1:], None]:
            part, ahead = ahead, None
            assert part is not None
            try:
                if following is not None:
                    ahead = _Part(following, buffers)  # begun now: the device does not wait at the border
                names = names if len(names) == len(lane.streams) else _names(lane)
                yield from part.batches(names)
            finally:
                part.close()
    finally:
        if ahead is not None:
            ahead.close()


class _Part:
    """A segment that is being read from front to back.

    What is durable of an open one is noted before its file is read: what is written meanwhile may be missing
    in a chunk that was read too early.
    """

    def __init__(self, source: SealedSegment | OpenSegment, buffers: ChunkBuffers) -> None:
        self._source = source
        self._segment = source.segment
        self._noted = _open_offsets(source) if isinstance(source, OpenSegment) else np.empty(0, np.int64)
        self._file = source.segment.open_sequential()
        self._reader = ChunkReader(self._file, self._file.size(), buffers)
        self._reader.begin()

    def batches(self, names: list[tuple[str, int]]) -> Iterator[MessageBatch]:
        """A batch a frame. Raises StoreCorrupt."""
        source = self._source
        if isinstance(source, SealedSegment):
            source.footer.check_entries()
            positions, entries = source.footer.frame_position.tolist(), source.footer.frame_entry.tolist()
            offsets = _sealed_offsets(source)
        else:
            positions, entries = source.table.frame_position.tolist(), source.table.frame_entry.tolist()
            offsets = self._noted
        done = 0
        for position, first in zip(positions, entries, strict=False):
            if isinstance(source, OpenSegment) and first >= len(offsets):
                return
            frame = _frame_at(self._reader, self._segment, position)
            if frame.header.first_entry != first or not _are_lost(offsets[done:first]):
                raise StoreCorrupt("the table of frames does not agree with the frames", self._segment.path, position)
            done = first + frame.header.count
            part = offsets[first:done]  # fewer than the frame has, where recovery has cut a torn one
            if len(part):
                yield _batch(self._reader, self._segment, frame, part, names)
        if not _are_lost(offsets[done:]):
            raise StoreCorrupt("the table of frames does not name all frames", self._segment.path, 0)

    def close(self) -> None:
        """End reading."""
        self._reader.close()
        self._file.close()


def _names(lane: Lane) -> list[tuple[str, int]]:
    return [(stream.topic, stream.queue_id) for stream in list(lane.streams)]


def _sealed_offsets(sealed: SealedSegment) -> npt.NDArray[np.int64]:
    """Offset in its queue of each entry of the segment, NO_OFFSET for lost ones."""
    footer = sealed.footer
    offsets = np.full(sealed.record.entries, NO_OFFSET, np.int64)
    starts = footer.start.astype(np.int64)
    values = np.repeat(footer.first - starts[:-1], np.diff(starts)) + np.arange(len(footer.entries))
    kept = footer.entries != LOST_ENTRY
    offsets[footer.entries[kept]] = values[kept]
    return offsets


def _are_lost(offsets: npt.NDArray[np.int64]) -> bool:
    """Nothing is passed over but what a repair gave up."""
    return not len(offsets) or bool((offsets == NO_OFFSET).all())


def _open_offsets(opened: OpenSegment) -> npt.NDArray[np.int64]:
    visible = opened.table.visible
    offsets = np.full(visible, NO_OFFSET, np.int64)
    for first, row in opened.table.all_rows():
        entries = np.frombuffer(row[:], np.uint32)
        shown = entries < visible
        offsets[entries[shown]] = first + np.flatnonzero(shown)
    return offsets


def _frame_at(reader: ChunkReader, segment: Segment, position: int) -> Frame:
    header = read_frame_header(reader.view(position, FRAME_HEADER_BYTES), 0)
    frame = None
    if header is not None and (header.sequence, header.position) == (segment.sequence, position):
        frame = decode_at(reader.view(position, header.header_bytes), 0)
    if frame is None:
        raise StoreCorrupt("a frame's header is damaged", segment.path, position)
    return frame


def _batch(
    reader: ChunkReader,
    segment: Segment,
    frame: Frame,
    offsets: npt.NDArray[np.int64],
    names: list[tuple[str, int]],
) -> MessageBatch:
    """The frame's messages that `offsets` covers, lost ones left out, each with its checksum verified."""
    header = frame.header
    payload = reader.view(frame.payload_start, header.payload_bytes)
    count = len(offsets)
    kept = offsets != NO_OFFSET
    whole = (
        count == header.count
        and header.flags & HAS_PAYLOAD_CHECKSUM
        and len(payload) == header.payload_bytes
        and checksum64(payload) == header.payload_checksum
    )
    if not whole:
        bad = np.flatnonzero(kept & ~good_messages(frame, payload)[:count])
        if len(bad):
            at = int(frame.starts()[bad[0]])
            raise StoreCorrupt("a message's bytes do not match their checksum", segment.path, at)
    lengths = frame.lengths[:count].astype(np.int64)
    positions = lengths.cumsum() - lengths
    times = np.full(count, header.time_ms, np.int64)
    numbers = frame.numbers[:count]
    if int(numbers.max()) >= len(names):
        raise StoreCorrupt("a frame's stream was never defined", segment.path, header.position)
    extras = frame.extras()[:count] if header.flags & HAS_EXTRAS else None
    if not kept.all():
        positions, lengths, offsets = positions[kept], lengths[kept], offsets[kept]
        times, numbers = times[kept], numbers[kept]
        extras = [extra for extra, keep in zip(extras, kept, strict=True) if keep] if extras else None
    return MessageBatch(payload, positions, lengths, offsets, times, numbers, names, extras)
