"""Known frames of a segment, read in chunks that begin and end with frames: so no frame lies across a border."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from ..device.disk import LogFile
from ..segment.scanner import CHUNK_BYTES, ChunkBuffers, ChunkReader


class FrameChunks(ChunkReader):
    """A `ChunkReader` of some frames. What lies across a border would be copied, a fourth of 1 MiB frames.

    A frame that is larger than a chunk is a chunk of its own. The file must not be open past the page cache: the chunks
    begin anywhere.
    """

    def __init__(self, file: LogFile, positions: Sequence[int], data_end: int, buffers: ChunkBuffers) -> None:
        """`positions` are where the frames begin, ascending; there is at least one."""
        super().__init__(file, data_end, buffers)
        self._begins = [positions[0]]
        for position, end in pairwise([*positions[1:], data_end]):
            if end - self._begins[-1] > CHUNK_BYTES:
                self._begins.append(position)
        self._begins.append(data_end)

    def view(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes at `position`, fewer at the end."""
        index = bisect_right(self._begins, position) - 1
        begin, length = self._span(index)
        at = position - begin
        if at >= length:  # a damaged head says where its payload begins
            return memoryview(b"")
        chunk = self._newest[1] if self._newest[0] == index else self._chunk(index)
        return chunk[at : at + size]

    def _span(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self._begins) - 1:
            return 0, 0
        return self._begins[index], self._begins[index + 1] - self._begins[index]
