"""The segment of a range, opened by itself: no other file of the store is needed."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.layout import BLOCK_BYTES, SEALED
from ..live.files import FollowedSegment, look
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
    looked = look(disk, folder, one.lane, one.store_id, one.sequence)
    if looked.header is None:
        raise StoreCorrupt("a segment's header is damaged", looked.path, 0)
    segment = FollowedSegment(disk, folder, looked.header, grows=one.known is not None)
    if one.known is not None:
        return segment, None
    if looked.record is None or looked.record.state != SEALED:
        raise StoreCorrupt("the segment's seal record is damaged", looked.path, BLOCK_BYTES)
    return segment, SealedSegment(segment, looked.record)
