"""The segment of a range, opened by itself: no other file of the store is needed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.footer import Footer
from ..format.layout import BLOCK_BYTES
from ..live.files import FollowedSegment, read_shared
from ..read.scan import checked_footer
from ..read.wanted import Bounds, ScanFilter, StreamTable, bounds_of, rows_of
from ..segment.sealed import SealedSegment
from .plan import FrameRange


class FooterDamaged(Exception):
    """The footer of a range's segment is damaged; its frames may have the same content."""

    def __init__(self, error: StoreCorrupt) -> None:
        super().__init__(str(error))
        self.error = error


class SealedRange(NamedTuple):
    """A sealed segment with its footer, all of which was checked; its streams, and the wanted bounds of each."""

    sealed: SealedSegment
    footer: Footer
    streams: StreamTable
    bounds: Bounds


def opened(disk: Disk, one: FrameRange, wanted: ScanFilter) -> tuple[FollowedSegment, SealedRange | None]:
    """The range's segment, and its sealed form with the footer if that is to be used.

    Raises StoreCorrupt, FooterDamaged, SegmentIsGone.
    """
    if one.damaged is not None:
        raise one.damaged.error()
    folder = Path(one.folder)
    file = read_shared(disk, folder, one.lane, one.store_id, one.sequence)
    if file.header is None:
        raise StoreCorrupt("a segment's header is damaged", file.path, 0)
    segment = FollowedSegment(disk, folder, file.header, grows=one.known is not None)
    if one.known is not None:
        return segment, None
    if file.record is None or not file.is_sealed:
        raise StoreCorrupt("the segment's seal record is damaged", file.path, BLOCK_BYTES)
    sealed = SealedSegment(segment, file.record)
    with ExitStack() as unless_it_is_given:
        unless_it_is_given.callback(segment.close)
        try:
            footer = checked_footer(sealed)
        except StoreCorrupt as error:
            raise FooterDamaged(error) from error
        streams = StreamTable(tuple(footer.topics()), footer.stream_topic, footer.stream_queue)
        found = SealedRange(sealed, footer, streams, bounds_of(wanted, streams, rows_of(one.trimmed, footer)))
        unless_it_is_given.pop_all()
        return segment, found
