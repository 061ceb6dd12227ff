"""Reading a segment from front to back: for recovery, `scan` and `verify`.

The file is read in large chunks, one ahead of the one that is looked at, so the device and the checksums
work side by side.
"""

from __future__ import annotations

import mmap
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .disk import LogFile
from .format import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HAS_PAYLOAD_CHECKSUM,
    FrameHeader,
    align_up,
    checksum64,
    read_frame_header,
)
from .frame import Frame, decode_at

CHUNK_BYTES = 8 << 20
IDLE_REFERENCES = 3  # the list's, the loop variable's and the argument's of getrefcount


class ChunkReader:
    """Ranges of a file as memoryviews, read sequentially with one chunk of read-ahead.

    A range inside one chunk is a view without a copy and keeps its chunk alive; one across a border is
    copied. Only forward reading is fast.
    """

    def __init__(self, file: LogFile, size_bytes: int) -> None:
        self.file = file
        self.size_bytes = size_bytes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="stratalog-read-ahead")
        self._chunks: dict[int, Future[memoryview]] = {}
        self._buffers: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes at `position`, fewer at the end."""
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return memoryview(b"")
        index, at = divmod(position, CHUNK_BYTES)
        chunk = self._chunk(index)
        if at + size <= len(chunk):
            return chunk[at : at + size]
        parts = [chunk[at:]]
        while size > sum(map(len, parts)) and index * CHUNK_BYTES < self.size_bytes:
            index += 1
            parts.append(self._chunk(index))
        return memoryview(b"".join(parts))[:size]

    def _chunk(self, index: int) -> memoryview:
        with self._lock:
            for wanted in (index, index + 1):
                if wanted not in self._chunks and wanted * CHUNK_BYTES < self.size_bytes:
                    self._chunks[wanted] = self._pool.submit(self._load, wanted)
            for old in [known for known in self._chunks if known < index - 1]:
                del self._chunks[old]
            future = self._chunks.get(index)
        return future.result() if future is not None else memoryview(b"")

    def _load(self, index: int) -> memoryview:
        begin = index * CHUNK_BYTES
        size = min(CHUNK_BYTES, self.size_bytes - begin)
        read_into = getattr(self.file, "read_into", None)
        if read_into is None:
            return memoryview(self.file.read(begin, size))
        if self.file.direct:
            size = min(CHUNK_BYTES, align_up(size))  # the kernel wants whole blocks; it stops at the end itself
        buffer = memoryview(self._buffer())[:size]
        done = 0
        while done < size:
            count = read_into([buffer[done:]], begin + done)
            if count == 0:
                break
            done += count
        return buffer[: min(done, self.size_bytes - begin)]

    def _buffer(self) -> mmap.mmap:
        """A chunk's memory: one that nobody looks at any more, or a new one.

        New pages are dear, and views that callers keep hold a reference to their chunk's mapping.
        """
        for buffer in self._buffers:
            if sys.getrefcount(buffer) <= IDLE_REFERENCES:
                return buffer
        fresh = mmap.mmap(-1, CHUNK_BYTES)
        self._buffers.append(fresh)
        return fresh

    def close(self) -> None:
        """End the read-ahead."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Scanned(NamedTuple):
    """A frame as found by a scan. `whole` messages, from the first, have their right bytes."""

    frame: Frame
    payload: memoryview
    whole: int

    @property
    def is_whole(self) -> bool:
        """All of its messages are there."""
        return self.whole == self.frame.header.count


class FrameScanner:
    """Walks the frames of one segment along their chain.

    After `next` gave None, `position` and `chain` say where and on what the walk ended.
    """

    def __init__(self, reader: ChunkReader, sequence: int, position: int, chain: int) -> None:
        self.reader = reader
        self.sequence = sequence
        self.position = position
        self.chain = chain

    def next(self) -> Scanned | None:
        """The next frame; None if no frame follows on the chain."""
        for position in dict.fromkeys((self.position, align_up(self.position))):
            frame = self.frame_at(position)
            if frame is not None and frame.header.chain == self.chain:
                return self.accept(frame)
        return None

    def accept(self, frame: Frame) -> Scanned:
        """Go on behind a frame; its messages' checksums are looked at."""
        header = frame.header
        payload = self.reader.view(frame.payload_start, header.payload_bytes)
        self.position = header.end
        self.chain = frame.head.checksum
        return Scanned(frame, payload, whole_messages(frame, payload))

    def frame_at(self, position: int) -> Frame | None:
        """The frame of this segment that begins at `position`, whatever its chain."""
        head = self.reader.view(position, FRAME_HEADER_BYTES)
        header = read_frame_header(head, 0)
        if header is None or header.sequence != self.sequence or header.position != position:
            return None
        return decode_at(self.reader.view(position, header.header_bytes), 0)

    def find_later(self, position: int, end: int) -> list[FrameHeader]:
        """Headers of the frames of this segment that begin in [position, end), whatever their chain."""
        found: list[FrameHeader] = []
        step = CHUNK_BYTES
        overlap = len(FRAME_MAGIC) - 1
        for begin in range(position, end, step):
            chunk = bytes(self.reader.view(begin, min(step + overlap, end - begin)))
            at = chunk.find(FRAME_MAGIC)
            while at >= 0:
                frame = self.frame_at(begin + at)
                if frame is not None and (not found or found[-1].position != begin + at):
                    found.append(frame.header)
                at = chunk.find(FRAME_MAGIC, at + 1)
        return found


def whole_messages(frame: Frame, payload: memoryview) -> int:
    """How many messages, from the first, have their right bytes in `payload`."""
    header = frame.header
    if len(payload) == header.payload_bytes:
        if header.flags & HAS_PAYLOAD_CHECKSUM and checksum64(payload) == header.payload_checksum:
            return header.count
        if not header.count:
            return 0
    good = good_messages(frame, payload)
    bad = np.flatnonzero(~good)
    return int(bad[0]) if len(bad) else header.count


def good_messages(frame: Frame, payload: memoryview) -> npt.NDArray[np.bool_]:
    """For each message: are its bytes, in `payload`, the right ones?"""
    ends = frame.lengths.cumsum(dtype=np.int64).tolist()
    begins = [0, *ends][:-1]
    sums = np.fromiter(
        [checksum64(payload[begin:end]) for begin, end in zip(begins, ends, strict=True)],
        np.uint64,
        len(ends),
    ).astype(np.uint32)
    right: npt.NDArray[np.bool_] = sums == frame.checksums
    return right & (np.array(ends, np.int64) <= len(payload))
