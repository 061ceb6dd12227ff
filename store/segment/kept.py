"""The places of a recently sealed segment, as its open table had them: nothing of it is decoded again."""

from __future__ import annotations

from ..format.footer import FooterData
from .held import Item
from .open_table import OpenTable


class KeptPlaces(Item):
    """Where the messages of a segment lie: 16 bytes a message and 12 a stream, part of the memory for sealed segments.

    All of it was made in memory by the lane and the sealing, and nothing of it is read from the file. So there is
    nothing to check, but for the messages' checksums.

    Attributes:
        streams: how many the segment knows.
        first, start, entries: of the footer; no message is lost.
        flat: position, length and checksum of each entry, back to back.
    """

    __slots__ = ("entries", "first", "flat", "start", "streams")

    def __init__(self, data: FooterData, table: OpenTable) -> None:
        columns = table.columns(0, table.entries).copy()  # the table's own are longer
        self.streams = len(data.first)
        self.first = memoryview(data.first.data)
        self.start = memoryview(data.start.data)
        self.entries = memoryview(data.entries.data)
        self.flat = columns.reshape(-1).data
        super().__init__(columns.nbytes + self.first.nbytes + self.start.nbytes + self.entries.nbytes)
