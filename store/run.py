"""A run: messages of one stream that follow each other in one segment, found and not yet fetched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .sealed import SealedSegment
from .segment import Segment
from .table import ENTRY, OpenTable

SHORT_RUN = 64  # messages; up to here lists are faster than arrays

Place = tuple[int, int, int]  # (position in the segment, length, checksum)


class Run:
    """Messages of one stream that follow each other in one segment; `offsets` ascend, holes left out.

    Where they lie comes in two shapes, each made from the other when it is wanted: `places`, a list for who
    takes them one by one, and `columns`, an array of ENTRY for who takes them all.
    """

    __slots__ = ("_columns", "_places", "entries", "offsets", "segment", "source")

    def __init__(
        self,
        segment: Segment,
        source: OpenTable | SealedSegment,
        offsets: Sequence[int],
        entries: npt.NDArray[np.uint32],
        places: list[Place] | None,
    ) -> None:
        self.segment = segment
        self.source = source
        self.offsets = offsets
        self.entries = entries
        self._places = places
        self._columns: npt.NDArray[np.void] | None = None

    @property
    def places(self) -> list[Place]:
        """Place of each message."""
        if self._places is None:
            self._places = self.columns.tolist()
        return self._places

    @property
    def columns(self) -> npt.NDArray[np.void]:
        """The places as an array."""
        if self._columns is None:
            if self._places is None and isinstance(self.source, OpenTable):
                self._columns = self.source.columns(self.entries)
            else:
                self._columns = np.array(self._places, ENTRY)
        return self._columns

    def cut(self, left_bytes: int, *, has_some: bool) -> tuple[Run, int]:
        """The part of the run that fits into `left_bytes` (at least one message unless `has_some`), and the rest."""
        if len(self.offsets) <= SHORT_RUN:
            total = sum([length for _, length, _ in self.places])
            if total <= left_bytes:
                return self, left_bytes - total
        ends = self.columns["length"].cumsum(dtype=np.int64)
        kept = int(ends.searchsorted(left_bytes, side="right"))
        kept = max(kept, 0 if has_some else 1)
        if kept >= len(ends):
            return self, left_bytes - (int(ends[-1]) if len(ends) else 0)
        part = Run(self.segment, self.source, self.offsets[:kept], self.entries[:kept], None)
        part._columns = self.columns[:kept]
        return part, 0
