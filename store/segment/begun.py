"""Files without a header of their own whose segment was begun: a crash has left some of their first frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..device.disk import Disk
from ..format.frame import Frame
from ..format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FINE_BLOCK_BYTES,
    FrameHeader,
    SegmentHeader,
    read_frame_header,
)
from .files import SegmentFile
from .scanner import CHUNK_BYTES, frames_in


def is_begun(disk: Disk, one: SegmentFile, lane: int) -> bool:
    """Does a file without a header of its own have frames of its own segment?"""
    return bool(frames_begun(disk, one, lane, is_next=False))


def frames_begun(disk: Disk, one: SegmentFile, lane: int, *, is_next: bool) -> list[FrameHeader]:
    """The frames of its own segment in a file without a header of its own, whatever their chain.

    Of a spare it reads three blocks: the first one is zeros, or the header of a removed segment, and at the first
    frame's place there is no frame of its own. Any other file is searched to its end.

    Args:
        is_next: this is the next file to be begun. A power cut may have left later blocks of its first write without
            the first ones; so a spare's first chunk must be zeros as well.
    """
    file = disk.open(one.path)
    try:
        head = file.read(0, DATA_START + BLOCK_BYTES)
        first, block = read_frame_header(head[DATA_START:], 0), head[:BLOCK_BYTES]
        is_own = first is not None and (first.lane, first.sequence, first.position) == (lane, one.sequence, DATA_START)
        is_blank = not is_own and (not any(block) or SegmentHeader.unpack(block) is not None)
        if is_blank and not (is_next and _has_content(file.read(DATA_START, CHUNK_BYTES - DATA_START))):
            return []
    finally:
        file.close()
    return [frame.header for frame in frames_in(disk, one.path, lane, one.sequence)]


def is_fine(frames: Iterable[Frame]) -> bool:
    """Do a segment's frames, ascending, show that some begin at boundaries of 512 bytes after padding?"""
    end = DATA_START
    for frame in frames:
        begin, before, end = frame.header.position, end, frame.header.end
        if begin != before and begin % BLOCK_BYTES and begin % FINE_BLOCK_BYTES == 0:
            return True
    return False


def begun_in_order(
    disk: Disk, lane: int, files: Iterable[SegmentFile], *, is_thorough: bool
) -> Iterator[tuple[SegmentFile, list[FrameHeader]]]:
    """Each of the files after the last header with its frames, see `frames_begun`. Segments are begun in their order.

    A file that ends before its first frame tells nothing: no spare is so short. So the one after it may be the next.

    Args:
        is_thorough: read each file to its end. A spare may stand in the place of a segment that was exchanged for it:
            only frames in later files tell that the segment was durable.
    """
    is_next = True
    for one in files:
        frames = frames_begun(disk, one, lane, is_next=is_next)
        yield one, frames
        is_next = is_thorough or bool(frames) or (is_next and one.size_bytes <= DATA_START)


def _has_content(data: bytes) -> bool:
    return len(data) > 0 and bool(np.frombuffer(data, np.uint8).max())
