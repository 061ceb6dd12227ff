"""The frames of a segment at the places that a footer, or the table of an open segment, has of them.

The chain is not followed, so a frame that a repair gave up is no obstacle. `FrameScanner` walks along the chain.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import StoreCorrupt
from ..format.frame import Frame
from ..format.layout import DATA_START, SegmentHeader
from .scanner import ChunkReader, FrameScanner

NO_FRAME = "a frame's header is damaged"
DISAGREES = "the table of frames does not agree with the frames"
WRONG_BYTES = "a message's bytes do not match their checksum"


class PlacedFrames:
    """The frames of one segment, each proved to be the one of its place: by lane, segment, position and first entry."""

    def __init__(self, reader: ChunkReader, header: SegmentHeader, path: Path) -> None:
        """`path`: of the segment's file, for errors."""
        self.reader, self.path = reader, path
        self._scanner = FrameScanner(reader, header.lane, header.sequence, DATA_START, header.chain)

    def frame(self, position: int, first: int) -> Frame:
        """The frame at a position whose first message is entry `first`. Raises StoreCorrupt."""
        frame = self._scanner.frame_at(position)
        if frame is None or frame.header.first_entry != first:
            raise self.damage(NO_FRAME if frame is None else DISAGREES, position)
        return frame

    def payload(self, frame: Frame) -> memoryview:
        """All payloads of a frame, not compared with anything; fewer bytes where the file ends."""
        return self.reader.view(frame.payload_start, frame.header.payload_bytes)

    def damage(self, what: str, position: int) -> StoreCorrupt:
        """The error for what is wrong at a position."""
        return StoreCorrupt(what, self.path, position)
