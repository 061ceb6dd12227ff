"""Reading a segment from front to back: for recovery, `scan` and `verify`.

The file is read in large chunks, some ahead of the one that is looked at, so the device and the checksums
work side by side.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..format.frame import Frame, frame_of
from ..format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameHead,
    FrameHeader,
    SegmentHeader,
    align_up,
    check_frame_head,
    read_frame_header,
)
from .checksums import whole_messages
from .evidence import is_nearly

CHUNK_BYTES = 4 << 20
_PLACE = struct.Struct("<IQQ")
# A thread that comes back from the device waits for the interpreter lock before it can ask again; another's read
# keeps the device busy meanwhile.
READ_THREADS = 2
SMALL_BYTES = 256 << 10
CHUNKS_AHEAD = 4


def open_sequential(disk: Disk, path: Path) -> LogFile:
    """A file for reading from front to back, past the page cache where possible; close it after use."""
    file = disk.open(path)
    try:
        return file.sequential()
    finally:
        file.close()


class ChunkBuffers:
    """Memory for chunks, used again; one for all files of a scan."""

    def __init__(self) -> None:
        self._buffers: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> memoryview:
        """A chunk's memory, of `size_bytes` at least: one that has no view any more, or a new one.

        New pages are expensive. Nothing has to be given back: a mapping knows whether there are views of it.
        """
        if size_bytes <= SMALL_BYTES:  # a whole small file: its own pages cost less than a huge one
            return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        with self._lock:
            for buffer in self._buffers:
                if _is_free(buffer):
                    return memoryview(buffer)
            # Huge pages: 1 GiB in parts takes 0.25 s of the system's time; with small, shared ones it takes 0.40 s.
            fresh = mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # a kernel without them
                    fresh.madvise(mmap.MADV_HUGEPAGE)
            self._buffers.append(fresh)
            return memoryview(fresh)


def _is_free(buffer: mmap.mmap) -> bool:
    """Whether there is no view of it, nor an array or a slice made of one: only then it may be resized, to its size."""
    try:
        buffer.resize(len(buffer))
    except BufferError:
        return False
    return True


class ChunkReader:
    """Ranges of a file as memoryviews, to read only, read sequentially with some chunks of read-ahead.

    A range inside one chunk is a view without a copy and keeps its chunk alive; one across a border is
    copied. Only forward reading is fast.
    """

    def __init__(self, file: LogFile, size_bytes: int, buffers: ChunkBuffers | None = None) -> None:
        self.file = file
        self.size_bytes = size_bytes
        self._buffers = buffers or ChunkBuffers()
        self._pool: ThreadPoolExecutor | None = None  # a single chunk that is asked for needs no threads
        self._chunks: dict[int, Future[memoryview]] = {}
        self._lock = threading.RLock()
        self._newest: tuple[int, memoryview] = (-1, memoryview(b""))  # the chunk that was asked for last

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes at `position`, fewer at the end."""
        index, at = divmod(position, CHUNK_BYTES)
        newest, chunk = self._newest
        if newest == index and at + size <= len(chunk):
            return chunk[at : at + size]
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return memoryview(b"")
        if newest != index:
            chunk = self._chunk(index)
        if at + size <= len(chunk):
            return chunk[at : at + size]
        parts = [chunk[at:]]
        while size > sum(map(len, parts)) and index * CHUNK_BYTES < self.size_bytes:
            index += 1
            parts.append(self._chunk(index))
        return memoryview(b"".join(parts))[:size]

    def _ask(self, index: int) -> Future[memoryview] | None:
        """Have a chunk and the next ones read ahead. None if the file has no such chunk, or there is no thread."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="stratalog-read-ahead")
            for wanted in range(index, index + 1 + CHUNKS_AHEAD):
                if wanted not in self._chunks and self._span(wanted)[1] > 0:
                    try:
                        self._chunks[wanted] = self._pool.submit(self._load, wanted)
                    except RuntimeError:  # no more threads can be started: the caller reads the chunk
                        break
            for old in [known for known in self._chunks if known < index - 1]:
                del self._chunks[old]
            return self._chunks.get(index)

    def _chunk(self, index: int) -> memoryview:
        if index == 0 and self.size_bytes <= CHUNK_BYTES and not self._chunks:
            chunk = self._load(0)
        else:
            future = self._ask(index)
            chunk = future.result() if future is not None else self._load(index)
        self._newest = index, chunk
        return chunk

    def _span(self, index: int) -> tuple[int, int]:
        """Where a chunk begins, and its bytes: none past the end."""
        begin = index * CHUNK_BYTES
        return begin, max(0, min(CHUNK_BYTES, self.size_bytes - begin))

    def _load(self, index: int) -> memoryview:
        begin, size = self._span(index)
        if not size:
            return memoryview(b"")
        if size > CHUNK_BYTES:
            return memoryview(self.file.read(begin, size))
        if self.file.direct:
            size = min(CHUNK_BYTES, align_up(size))  # the kernel wants whole blocks; it stops at the end itself
        buffer = self._buffers.take(size)[:size]
        done = 0
        while done < size and begin + done < self.size_bytes:
            count = self.file.read_into([buffer[done:]], begin + done)
            if count == 0:
                break
            done += count
        return buffer[: min(done, self.size_bytes - begin)].toreadonly()

    def begin(self) -> None:
        """Start reading ahead from the beginning, before anybody asks."""
        self._ask(0)

    def close(self) -> None:
        """End the read-ahead."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class PieceReader(ChunkReader):
    """Ranges of a file read as they are asked for, and nothing ahead: what is wanted lies far apart.

    A read takes `least_bytes` at least, as far as the file goes: what is asked for next is mostly among them.
    """

    def __init__(self, file: LogFile, size_bytes: int, least_bytes: int = 0) -> None:
        super().__init__(file, size_bytes)
        self.least_bytes = least_bytes
        self._at = 0
        self._piece = memoryview(b"")

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes at `position`, fewer at the end."""
        end = min(position + size, self.size_bytes)
        if end <= position:
            return memoryview(b"")
        at = self._at
        if position < at or end > at + len(self._piece):
            if size > self.least_bytes:  # not kept: what follows it is asked for, and it takes memory
                return memoryview(self._read(position, end - position))
            wanted = min(self.least_bytes, self.size_bytes - position)
            self._piece, self._at = memoryview(self._read(position, wanted)), position
            at = position
        return self._piece[position - at : end - at]

    def _read(self, position: int, size: int) -> bytes | memoryview:
        return self.file.read(position, size)


@contextmanager
def chunks_of(file: LogFile, end: int | None = None, buffers: ChunkBuffers | None = None) -> Iterator[ChunkReader]:
    """A reader of a file, up to `end` at most. Both are closed after the context."""
    try:
        size = file.size()
        reader = ChunkReader(file, size if end is None else min(size, end), buffers)
        try:
            yield reader
        finally:
            reader.close()
    finally:
        file.close()


class ScannedFrame(NamedTuple):
    """A frame as found by a scan. `whole` messages, from the first, have their right bytes."""

    frame: Frame
    payload: memoryview
    whole: int

    @property
    def is_whole(self) -> bool:
        """True if all of its messages are there."""
        return self.whole == self.frame.header.count


class FrameScanner:
    """Walks the frames of one segment along their chain.

    After `next` gave None, `position` and `chain` say where and on what the walk ended. `block_bytes`: at which
    boundaries frames may begin after padding, see `SegmentHeader`.
    """

    def __init__(
        self, reader: ChunkReader, lane: int, sequence: int, position: int, chain: int, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.reader = reader
        self.lane = lane
        self.sequence = sequence
        self.position = position
        self.chain = chain
        self.block_bytes = block_bytes

    @classmethod
    def after_header(cls, reader: ChunkReader, header: SegmentHeader) -> FrameScanner:
        """A scanner at a segment's first frame. After a rebuilt header that frame is taken whatever its chain."""
        scanner = cls(reader, header.lane, header.sequence, DATA_START, header.chain, header.block_bytes)
        first = scanner.frame_at(DATA_START) if header.is_rebuilt else None
        if first is not None and first.header.first_entry == 0:
            scanner.chain = first.header.chain
        return scanner

    def next(self) -> ScannedFrame | None:
        """The next frame, its messages' checksums compared; None if no frame follows on the chain."""
        frame = self.next_frame()
        if frame is None:
            return None
        payload = self.reader.view(frame.payload_start, frame.header.payload_bytes)
        return ScannedFrame(frame, payload, whole_messages(frame, payload))

    def next_frame(self) -> Frame | None:
        """The next frame by its head alone; None if no frame follows on the chain."""
        head = self.following()
        frame = None if head is None else frame_of(head)
        if frame is not None:
            self.step(frame.head)
        return frame

    def following(self) -> FrameHead | None:
        """The head of the frame that follows on the chain, here or after padding. The scanner does not move."""
        position, chain = self.position, self.chain
        head = self.head_at(position)
        if head is not None and head.header.chain == chain:
            return head
        heads = map(self.head_at, self.places_from(position)[1:])
        return next((head for head in heads if head is not None and head.header.chain == chain), None)

    def places_from(self, end: int) -> list[int]:
        """Where a frame may begin if the one before ends at `end`: there, or after padding."""
        return [end, *range(align_up(end + 1, self.block_bytes), align_up(end) + 1, self.block_bytes)]

    @property
    def padded(self) -> int:
        """The first boundary at or after the position: no frame begins before it unless it begins here."""
        return align_up(self.position, self.block_bytes)

    def step(self, head: FrameHead) -> None:
        """Go past a frame."""
        self.position, self.chain = head.header.end, head.checksum

    def find_from(self, entry: int) -> Iterator[FrameHeader]:
        """The frames after this position, whatever their chain, that begin with this entry or a later one."""
        later = self.frames_later(self.position, self.reader.size_bytes)
        return (frame.header for frame in later if frame.header.first_entry >= entry)

    def resume(self, header: FrameHeader) -> None:
        """Stand before this frame, after a gap: it is the next one."""
        self.position, self.chain = header.position, header.chain

    def frame_at(self, position: int) -> Frame | None:
        """The frame of this segment that begins at `position`, whatever its chain."""
        head = self.head_at(position)
        return None if head is None else frame_of(head)

    def head_at(self, position: int) -> FrameHead | None:
        """The head of the frame at `position`, its columns not decoded; its checksum is compared."""
        head = self.reader.view(position, FRAME_HEADER_BYTES)
        if head[: len(FRAME_MAGIC)].tobytes() != FRAME_MAGIC:
            return None  # mostly: zeros where the log ends, or after padding
        header = read_frame_header(head, 0)
        if header is None or (header.lane, header.sequence, header.position) != (self.lane, self.sequence, position):
            return None
        return check_frame_head(header, bytes(self.reader.view(position, header.header_bytes)))

    def is_like_ours(self, position: int) -> bool:
        """Does a damaged header of a frame of this segment stand at `position`, as far as its bytes tell?

        A whole frame of the file's former life is told apart by its checksum: its sequence may differ in one bit.
        """
        raw = bytes(self.reader.view(position, FRAME_HEADER_BYTES))
        header = read_frame_header(raw, 0)
        if header is not None:
            head = check_frame_head(header, bytes(self.reader.view(position, header.header_bytes)))
            if head is not None:
                return (header.lane, header.sequence, header.position) == (self.lane, self.sequence, position)
        magic, *place = FrameHeader.guess(raw)
        found, ours = (_PLACE.pack(*one) for one in (place, (self.lane, self.sequence, position)))
        return is_nearly(magic + found, FRAME_MAGIC + ours)

    def find_later(self, position: int, end: int) -> list[FrameHeader]:
        """Headers of the frames of this segment that begin in [position, end), whatever their chain."""
        return [frame.header for frame in self.frames_later(position, end)]

    def frames_later(self, position: int, end: int) -> Iterator[Frame]:
        """The frames of this segment that begin in [position, end), whatever their chain."""
        return filter(None, map(self.frame_at, self._magics(position, end)))

    def _magics(self, position: int, end: int) -> Iterator[int]:
        """Where a frame's magic number stands in [position, end), chunk by chunk so that nothing is copied."""
        across, begin = len(FRAME_MAGIC) - 1, position
        while begin < end:
            begin = min(end, self.reader.file.data_from(begin))  # what was never written is zeros
            stop = min(end, begin - begin % CHUNK_BYTES + CHUNK_BYTES)
            for at in find_magic(self.reader.view(begin, stop - begin)):
                yield begin + at
            if stop < end:  # one that begins in this chunk and ends in the next
                low = max(begin, stop - across)
                for at in find_magic(self.reader.view(low, min(stop + across, end) - low)):
                    yield low + at
            begin = stop


def frames_in(
    disk: Disk, path: Path, lane: int, sequence: int, begin: int = 0, end: int | None = None
) -> Iterator[Frame]:
    """The frames of a segment that begin from `begin` on in a file, on the chain or not."""
    with chunks_of(open_sequential(disk, path), end) as reader:
        yield from FrameScanner(reader, lane, sequence, begin, 0).frames_later(begin, reader.size_bytes)


def find_magic(view: memoryview) -> list[int]:
    """Where a frame's magic number stands.

    What is searched is mostly zeros, pre-written and never used; numpy passes over these at memory speed, and
    without the interpreter lock.
    """
    content = np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)
    if len(content) < len(FRAME_MAGIC) or not content.max():
        return []
    begins = np.flatnonzero(content[: 1 - len(FRAME_MAGIC)] == FRAME_MAGIC[0])
    for at in range(1, len(FRAME_MAGIC)):
        begins = begins[content[begins + at] == FRAME_MAGIC[at]]
    return begins.tolist()


def records_in(
    frame: Frame, payload: memoryview, number: int, good: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, memoryview]]:
    """The messages of a stream in a frame that are `good`: position in the segment, and bytes."""
    which = np.flatnonzero(good & (frame.numbers[: len(good)] == number))
    if not len(which):
        return
    positions, lengths = frame.starts()[which].tolist(), frame.lengths[which].tolist()
    for position, length in zip(positions, lengths, strict=True):
        begin = position - frame.payload_start
        yield position, payload[begin : begin + length]
