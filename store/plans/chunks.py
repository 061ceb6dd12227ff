"""Reads known frames of a segment in chunks of whole frames, so that no frame lies across a border."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from ..device.log_file import LogFile
from ..segment.scanner import ChunkBuffers, ChunkReader

CHUNK_BYTES = 1 << 20  # still in the processor's cache when its checksums are compared, and when it is sent on
WINDOW_BYTES = 4 << 20  # asked of the device at a time
WINDOWS_AHEAD = 8


class FrameChunks(ChunkReader):
    """A `ChunkReader` of some frames, without threads: the thread that asks for a chunk reads it.

    A frame across a border would be copied, so a chunk has whole frames, and a larger frame is a chunk of its own.
    Bytes that are not in the page cache are asked for some windows ahead, and the kernel reads them meanwhile. The file
    must not be open past the page cache: chunks begin at any byte.
    """

    def __init__(self, file: LogFile, positions: Sequence[int], data_end: int, buffers: ChunkBuffers) -> None:
        """`positions` are the starts of the frames, ascending; there is at least one."""
        super().__init__(file, data_end, buffers)
        self._begins = [positions[0]]
        for position, end in pairwise([*positions[1:], data_end]):
            if end - self._begins[-1] > CHUNK_BYTES:
                self._begins.append(position)
        self._begins.append(data_end)
        self._hinted = positions[0]

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes at `position`, fewer at the end."""
        at = position - self._begins[self._newest[0]]
        if 0 <= at < len(self._newest[1]):
            return self._newest[1][at : at + size]  # no variable holds the chunk: its memory is used again
        index = bisect_right(self._begins, position) - 1
        begin, length = self._span(index)
        at = position - begin
        if at >= length:  # a damaged head gave a wrong position of its payload
            return memoryview(b"")
        if self._newest[0] != index:
            self._newest = -1, memoryview(b"")  # its memory may be used again
            self._look_ahead(begin)
            self._newest = index, self._load(index)
        return self._newest[1][at : at + size]

    def _look_ahead(self, position: int) -> None:
        """Have the kernel bring the next window into the page cache. If it is there already, the hint would be slow."""
        while self._hinted < min(position + WINDOWS_AHEAD * WINDOW_BYTES, self.size_bytes):
            if not self.file.is_cached(self._hinted):
                self.file.will_need(self._hinted, min(WINDOW_BYTES, self.size_bytes - self._hinted))
            self._hinted += WINDOW_BYTES

    def _span(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self._begins) - 1:
            return 0, 0
        return self._begins[index], self._begins[index + 1] - self._begins[index]
