"""The segment of a range, opened by itself: no other file of the store is needed."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.layout import BLOCK_BYTES
from ..live.files import FollowedSegment, read_shared
from ..segment.sealed import SealedSegment
from .plan import FrameRange


class FooterDamaged(Exception):
    """The footer of a range's segment is damaged; its frames may tell what it said."""

    def __init__(self, error: StoreCorrupt) -> None:
        super().__init__(str(error))
        self.error = error


def opened(disk: Disk, one: FrameRange) -> tuple[FollowedSegment, SealedSegment | None]:
    """The range's segment, and the same by its footer if that is to be used. Raises StoreCorrupt, SegmentIsGone."""
    folder = Path(one.folder)
    file = read_shared(disk, folder, one.lane, one.store_id, one.sequence)
    if file.header is None:
        raise StoreCorrupt("a segment's header is damaged", file.path, 0)
    segment = FollowedSegment(disk, folder, file.header, grows=one.known is not None)
    if one.known is not None:
        return segment, None
    if file.record is None or not file.is_sealed:
        raise StoreCorrupt("the segment's seal record is damaged", file.path, BLOCK_BYTES)
    return segment, SealedSegment(segment, file.record)
