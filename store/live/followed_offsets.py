"""The next offsets of the streams of a followed lane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format.arrays import Int64s
from ..log.lane import Lane
from ..log.offsets import NextOffsets
from ..segment.borders import offsets_after
from ..segment.sealed import SealedSegment


class FollowedOffsets(NextOffsets):
    """The next offsets of streams, after the sealed segments. `[number]` is -1: the writer is ahead of it."""

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self._lane = lane
        self._behind = 0, np.zeros(0, np.int64)  # the newest sealed segment, and the offsets after it

    def __getitem__(self, number: int) -> int:
        return -1

    def column(self) -> Int64s:
        """(streams,) of those that the newest footers know; none if one is damaged."""
        return self._of(self._lane.view.sealed).copy()

    def after_log(self, number: int) -> int:
        """The next offset of a stream after the sealed segments."""
        column = self._of(self._lane.view.sealed)
        return int(column[number]) if number < len(column) else 0

    def _of(self, sealed: Sequence[SealedSegment]) -> Int64s:
        newest = sealed[-1].segment.sequence if sealed else 0
        sequence, column = self._behind
        if sequence != newest:
            found = offsets_after(sealed, len(sealed), self._behind)
            column = np.zeros(0, np.int64) if found is None else found
            self._behind = newest, column
        return column
