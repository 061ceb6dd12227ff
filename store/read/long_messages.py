"""A stand-in for a segment in a table of places, for messages that are longer than a window of its mapping."""

from __future__ import annotations

from ..device.leased import LeasedMap
from ..segment.segment import Segment


class LongMessages:
    """As the segment, for its long messages: it has no mapping (`leased` is None), so they are read by other ways."""

    leased: LeasedMap | None = None

    def __init__(self, segment: Segment) -> None:
        self.windows = segment.windows
        self.read_one = segment.read_one
        self.copies = segment.copies
