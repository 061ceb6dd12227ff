"""The live messages of sealed segments, in log order, with their checksums compared. Other messages may be damaged.

Frames are found by the footer, and not along their chain: so a frame that a repair gave up, and of which no message
stays, is no hindrance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.arrays import Bools, Indexes, Int64s
from ..format.blobs import ExtraColumns, gathered
from ..format.footer import Footer, names_in
from ..format.frame import Frame
from ..format.layout import (
    DATA_START,
    HAS_EXTRAS,
    MAX_FRAME_MESSAGES,
    UNDECODABLE,
    kept_messages,
)
from ..format.rows import Rows
from ..live.files import sealed_in
from ..segment.checksums import wrong_messages
from ..segment.scanner import FrameScanner, chunks_of
from ..segment.sealed import SealedSegment
from ..shards.writer import Streams
from .plan import LivePart, staying

JOINED_BYTES = 1 << 20  # small frames of one time become one of up to this size


def live_frames(disk: Disk, part: LivePart) -> Iterator[tuple[int, Streams, Rows]]:
    """Yield the frames to be written: each one's time in ms, its streams, and its messages.

    Raises StoreCorrupt, OSError.
    """
    for sequence in part.sequences:
        yield from _of_segment(disk, part, sequence)


def _of_segment(disk: Disk, part: LivePart, sequence: int) -> Iterator[tuple[int, Streams, Rows]]:
    with sealed_in(disk, Path(part.folder), part.lane, part.store_id, sequence) as sealed:
        segment = sealed.segment
        footer = Footer(segment.data, str(segment.path), sealed.record)
        footer.check_entries()
        joiner = _Joiner(names_in(footer))
        stays = staying(footer, sealed.record.entries, _lows(part, footer))
        for frame, payload, rows in _frames(sealed, footer, stays):
            if len(wrong_messages(frame, payload, rows)):
                raise StoreCorrupt("a message is damaged", segment.path, frame.header.position)
            yield from joiner.take(frame, payload, footer.rows_of(frame.numbers).astype(np.int64), rows)
        yield from joiner.flush()


def _lows(part: LivePart, footer: Footer) -> Int64s:
    """(rows,) the first offset of each row's stream that stays."""
    lows = np.zeros(len(footer.first), np.int64)
    rows = footer.rows_of(part.numbers)
    known = rows < len(lows)
    lows[rows[known]] = part.lows[known]
    return lows


def _frames(sealed: SealedSegment, footer: Footer, stays: Bools) -> Iterator[tuple[Frame, memoryview, Indexes]]:
    """Yield frames that have staying messages, their payloads, and the rows of these messages; others may be damaged.

    Raises StoreCorrupt.
    """
    segment, record = sealed.segment, sealed.record
    begins = footer.frame_entry.tolist()
    done = position = 0
    try:
        with chunks_of(segment.open_sequential(), record.data_end) as reader:
            scanner = FrameScanner(reader, segment.header.lane, segment.sequence, DATA_START, 0)
            for position, first, following in zip(
                footer.frame_position.tolist(), begins, [*begins[1:], record.entries], strict=True
            ):
                if not stays[first:following].any():
                    continue
                frame = scanner.frame_at(position)
                if frame is None or frame.header.first_entry != first:
                    raise StoreCorrupt("a frame is damaged or missing", segment.path, position)
                if stays[done:first].any():
                    break
                done = first + kept_messages(record, frame.header)
                payload = reader.view(frame.payload_start, frame.header.payload_bytes)
                yield frame, payload, np.flatnonzero(stays[first:done])
    except UNDECODABLE as error:
        raise StoreCorrupt(f"a frame cannot be decoded ({error})", segment.path, position) from error
    if stays[done:].any():
        raise StoreCorrupt("the table of frames does not name all frames", segment.path, position)


class _Joiner:
    """Joins small frames of one time. `names`: of the segment's streams, by number."""

    def __init__(self, names: list[tuple[str, int]]) -> None:
        self._names = names
        self._time_ms = 0
        self._bytes = self._count = 0
        self._numbers: list[Int64s] = []
        self._lengths: list[Int64s] = []
        self._payloads: list[bytes | memoryview] = []
        self._extras: list[tuple[ExtraColumns | None, int]] = []

    def take(
        self, frame: Frame, payloads: memoryview, numbers: Int64s, rows: Indexes
    ) -> Iterator[tuple[int, Streams, Rows]]:  # fmt: skip
        """Add these messages of a frame; yields earlier ones that cannot be joined with them."""
        time_ms = frame.header.time_ms
        lengths = frame.lengths.astype(np.int64)
        payload = gathered(payloads, lengths.cumsum() - lengths, lengths, rows)
        is_small = self._bytes + len(payload) <= JOINED_BYTES and self._count + len(rows) <= MAX_FRAME_MESSAGES
        if self._count and (time_ms != self._time_ms or not is_small):
            yield from self.flush()
        extras = frame.extras().take(rows) if frame.header.flags & HAS_EXTRAS else None
        self._time_ms = time_ms
        self._numbers.append(numbers[rows])
        self._lengths.append(lengths[rows])
        self._payloads.append(payload if len(payload) >= JOINED_BYTES else bytes(payload))
        self._extras.append((extras, len(rows)))
        self._bytes += len(payload)
        self._count += len(rows)

    def flush(self) -> Iterator[tuple[int, Streams, Rows]]:
        """Yield the messages that are left."""
        if not self._count:
            return
        used, index = np.unique(np.concatenate(self._numbers), return_inverse=True)
        extras = ExtraColumns.joined(self._extras)
        payload = self._payloads[0] if len(self._payloads) == 1 else b"".join(self._payloads)
        rows = Rows(
            index, np.concatenate(self._lengths), memoryview(payload), extras.keys, extras.properties, extras.times_ms
        )
        self._numbers, self._lengths, self._payloads, self._extras = [], [], [], []
        self._bytes = self._count = 0
        yield self._time_ms, [self._names[number] for number in used.tolist()], rows
