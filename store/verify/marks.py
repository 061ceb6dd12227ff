"""The marks in the frames of a lane, on their chain or not: how far the lane was durable."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..format.layout import DATA_START, FrameHeader, lane_name
from ..segment.evidence import is_durable_beyond, mark_of
from ..segment.scanner import ChunkReader, FrameScanner, is_begun
from .listing import SegmentFile, list_segments


class LaneFrames:
    """The segments of a lane and the headers of their frames.

    `files` are all segment files, `used` those that are no spares: behind the last one with a header of its own, that
    is what was never durable, whatever stands in it.
    """

    def __init__(self, disk: Disk, store: Path, number: int, store_id: bytes | None) -> None:
        self.number = number
        self.folder = store / lane_name(number)
        self._disk = disk
        self._heads: dict[int, list[FrameHeader]] = {}
        self.listing = list_segments(disk, self.folder, number, store_id)
        self.files = self.listing.files
        last = max((file.sequence for file in self.files if file.header is not None), default=0)
        strays = [file for file in self.files if file.header is None and not file.is_foreign]
        behind = [file for file in strays if file.sequence > last]
        is_closed = any(file.state == "closed" and file.sequence == last for file in self.files) and not any(
            is_begun(disk, file.path, number, file.sequence) for file in behind
        )
        heads = [head for file in strays if file.sequence < last or not is_closed for head in self.heads(file)]
        self.mark = max([(0, 0), *map(mark_of, heads)])  # the highest in frames of files without a header
        self.used = [file for file in self.files if file.sequence <= last or self._was_used(file, is_closed)]

    def _was_used(self, file: SegmentFile, is_closed: bool) -> bool:
        """Was anything durable in a file behind the last one? Its record or its frames' marks say so.

        Behind a segment that was cleanly closed nothing was begun: going on takes its record back first.
        """
        if is_closed or file.record is not None or file.is_foreign:
            return file.is_foreign or not is_closed
        return self.mark > (file.sequence, 0)

    def heads(self, file: SegmentFile, begin: int = DATA_START) -> list[FrameHeader]:
        """Headers of the segment's frames from `begin` on, on the chain or not; read once."""
        if file.sequence not in self._heads:
            data = self._disk.open(file.path)
            reader = ChunkReader(data, file.log_bytes)
            try:
                found = FrameScanner(reader, self.number, file.sequence, begin, 0).find_later(begin, file.log_bytes)
            finally:
                reader.close()
                data.close()
            self._heads[file.sequence] = found
        return [head for head in self._heads[file.sequence] if head.position >= begin]

    def vouched(self, index: int, position: int) -> bool:
        """Does anything say that the lane was durable beyond `position` of the segment `used[index]`?"""
        rest = self.used[index:]
        begins = [max(position, DATA_START)] + [DATA_START] * (len(rest) - 1)
        pairs = zip(rest, begins, strict=True)
        heads = (head for file, begin in pairs for head in self.heads(file, begin))
        place = (rest[0].sequence, position)
        return self.mark > place or is_durable_beyond(place, [file.record for file in rest], heads)
