"""What a table of places has in place of a segment, for messages that are longer than a window of its mapping."""

from __future__ import annotations

from ..device.leased import LeasedMap
from ..segment.segment import Segment


class LongMessages:
    """Of a segment's long messages: as the segment, but that they are never copied from its mapping."""

    leased: LeasedMap | None = None

    def __init__(self, segment: Segment) -> None:
        self.windows = segment.windows
        self.read_one = segment.read_one
        self.copies = segment.copies
