"""The head of a frame of a sealed segment, decoded for readers."""

from __future__ import annotations

import struct

import numpy as np

from ..format.frame import Frame
from ..format.layout import HAS_EXTRAS
from .held import HeldItem

ROW_COLUMNS = ("stream number", "low bits of the offset", "position in the segment", "length", "checksum")
ROW = struct.Struct(f"<{len(ROW_COLUMNS)}I")
ROW_BYTES = ROW.size


class Head(HeldItem):
    """The columns of a frame as a reader wants them: `ROW.unpack_from(rows, at * ROW.size)` is all of a message."""

    __slots__ = ("end_entry", "extras", "first_entry", "flags", "index", "rows", "time_ms")

    def __init__(self, frame: Frame, index: int) -> None:
        header = frame.header
        self.index = index  # in the footer
        self.first_entry = header.first_entry
        self.end_entry = header.first_entry + header.count
        self.flags = header.flags
        self.time_ms = header.time_ms
        columns = (frame.numbers, frame.lows, frame.starts(), frame.lengths, frame.checksums)
        self.rows = np.array(columns, np.uint32).T.tobytes()
        self.extras = frame.optional() if header.flags & HAS_EXTRAS else None
        super().__init__(len(self.rows) + (self.extras.size_bytes if self.extras is not None else 0))
