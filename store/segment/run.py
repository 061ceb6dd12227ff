"""A run: messages of one stream that follow each other in one segment, found and not yet fetched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .open_table import OpenTable, Places, Uint32s
from .segment import Segment

if TYPE_CHECKING:
    from .head import Head
    from .sealed import SealedSegment


class Run:
    """Messages of one stream that follow each other in one segment; `offsets` ascend, holes left out.

    `places` are lists: a reader takes the messages one by one, and a list gives its items in a third of the
    time that an array needs.
    """

    __slots__ = ("entries", "heads", "offsets", "places", "segment", "source")

    def __init__(
        self,
        segment: Segment,
        source: OpenTable | SealedSegment,
        offsets: Sequence[int],
        entries: Uint32s | Sequence[int],
        places: Places,
        heads: list[Head] | None = None,
    ) -> None:
        """`heads`, in a sealed segment: the head of each message's frame."""
        self.segment = segment
        self.source = source
        self.offsets = offsets
        self.entries = entries
        self.places = places
        self.heads = heads

    def __len__(self) -> int:
        return len(self.offsets)

    def cut(self, left_bytes: int, *, has_some: bool) -> tuple[Run, int]:
        """The part of the run that fits into `left_bytes` (at least one message unless `has_some`), and the rest."""
        lengths = self.places[1]
        total = sum(lengths)
        if total <= left_bytes:
            return self, left_bytes - total
        kept = bisect_right(list(accumulate(lengths)), left_bytes)
        kept = max(kept, 0 if has_some else 1)
        if kept >= len(lengths):
            return self, left_bytes - total
        return self.part(0, kept), 0

    def part(self, begin: int, end: int) -> Run:
        """The messages begin .. end - 1 of the run."""
        cut = slice(begin, end)
        positions, lengths, checksums = self.places
        places = positions[cut], lengths[cut], checksums[cut]
        heads = self.heads[cut] if self.heads is not None else None
        return Run(self.segment, self.source, self.offsets[cut], self.entries[cut], places, heads)
