"""The marks in the frames of a lane, on their chain or not: how far the lane was durable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..device.disk import Disk
from ..format.layout import BLOCK_BYTES, DATA_START, FrameHeader, lane_name
from ..segment.begun import begun_in_order, is_begun
from ..segment.evidence import is_durable_beyond, is_nearly_ours, mark_of
from ..segment.files import SegmentFile
from ..segment.round_parts import RoundParts
from ..segment.scanner import frames_in
from .listing import listing_of


class LaneFrames:
    """The segments of a lane and the headers of their frames.

    `files` are all segment files, `used` all but spares: a file after the last valid header is a spare unless something
    in it was durable. `is_thorough`: search the spares to their ends, as a repair does; else as far as an opening does.
    """

    def __init__(self, disk: Disk, store: Path, number: int, store_id: bytes | None, *, is_thorough: bool) -> None:
        self.number = number
        self.folder = store / lane_name(number)
        self._disk = disk
        self.rounds = RoundParts(disk, store, number, store_id)
        self._is_thorough = is_thorough
        self._heads: dict[int, list[FrameHeader]] = {}
        self.listing = listing_of(disk, self.folder, number, store_id)
        self.files = self.listing.files
        last = max((file.sequence for file in self.files if file.header is not None), default=0)
        strays = [file for file in self.files if file.header is None and not file.is_foreign]
        behind = [file for file in strays if file.sequence > last]
        begun = {file.sequence for file in behind if is_begun(disk, file, number)}
        # Files whose damaged seal record counts. In a file that was never begun, somebody else has written it.
        self._ended = {
            file.sequence for file in behind if file.trace
            and (file.sequence in begun or is_nearly_ours(file.head[:BLOCK_BYTES], number, store_id, file.sequence))
        }  # fmt: skip
        closed = any(file.state == "closed" and file.sequence == last for file in self.files)
        is_closed = closed and not (begun or self._ended)
        begun = set() if is_closed else self._look_into(behind)
        known = [file for file in strays if file.sequence < last or file.sequence in begun]
        heads = [head for file in known for head in self.heads(file)]
        self.mark = max([(0, 0), *map(mark_of, heads)])  # the highest in frames of files without a header
        self.used = [file for file in self.files if file.sequence <= last or self._was_used(file, is_closed)]

    def _look_into(self, files: Sequence[SegmentFile]) -> set[int]:
        """The files after the last header that were begun: they have frames of their own."""
        found = begun_in_order(self._disk, self.number, files, is_thorough=self._is_thorough)
        return {file.sequence for file, frames in found if frames}

    def _was_used(self, file: SegmentFile, is_closed: bool) -> bool:
        """Whether something durable was in a file after the last header, by its record or its frames' marks.

        After a cleanly closed segment no file was begun: appending to it first erases its record.
        """
        if is_closed or file.record is not None or file.sequence in self._ended or file.is_foreign:
            return file.is_foreign or not is_closed
        return self.mark > (file.sequence, 0)

    def heads(self, file: SegmentFile, begin: int = DATA_START) -> list[FrameHeader]:
        """Headers of the segment's frames from `begin` on, on the chain or not; read once."""
        if file.sequence not in self._heads:
            frames = frames_in(self._disk, file.path, self.number, file.sequence, begin, file.log_bytes)
            self._heads[file.sequence] = [frame.header for frame in frames]
        return [head for head in self._heads[file.sequence] if head.position >= begin]

    def vouched(self, index: int, position: int) -> bool:
        """Whether a mark or record proves that the lane was durable beyond `position` of the segment `used[index]`."""
        rest = self.used[index:]
        begins = [max(position, DATA_START)] + [DATA_START] * (len(rest) - 1)
        pairs = zip(rest, begins, strict=True)
        heads = (head for file, begin in pairs for head in self.heads(file, begin))
        place = (rest[0].sequence, position)
        return self.mark > place or is_durable_beyond(place, (file.is_ended for file in rest), heads)
