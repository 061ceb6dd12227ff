"""Merging ordered rows of several sources, a part at a time: memory holds one part of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .pages import in_place_order
from .places import NO_ROWS, Rows, joined, rows_until


class _Source:
    """An iterator of ordered parts, and what is left of its present one."""

    def __init__(self, parts: Iterable[Rows]) -> None:
        self._parts = iter(parts)
        self.rows: Rows = NO_ROWS
        self.has_more = True

    def load(self) -> bool:
        """Have rows, unless there are none any more: False then."""
        while self.has_more and not len(self.rows[0]):
            try:
                self.rows = next(self._parts)
            except StopIteration:
                self.has_more = False
        return len(self.rows[0]) > 0

    def take(self, end: int) -> Rows:
        """The first so many rows."""
        times, places = self.rows
        self.rows = times[end:], places[end:]
        return times[:end], places[:end]


def merge(sources: Iterable[Iterable[Rows]]) -> Iterator[Rows]:
    """The rows of all sources in order, in parts of the size that the sources have.

    A row may go out once no source can have an earlier one to come: up to the least of the last rows that were loaded.
    """
    left = [_Source(parts) for parts in sources]
    while left := [source for source in left if source.load()]:
        if len(left) == 1:
            yield left[0].take(len(left[0].rows[0]))
            continue
        time_ms, place = min((int(source.rows[0][-1]), int(source.rows[1][-1])) for source in left)
        yield joined([source.take(rows_until(source.rows, time_ms, place)) for source in left])


def merge_places(sources: Iterable[Iterable[Rows]]) -> Iterator[Rows]:
    """`merge` of rows that are by their places, which are all different."""
    left = [_Source(parts) for parts in sources]
    while left := [source for source in left if source.load()]:
        last = min(int(source.rows[1][-1]) for source in left)
        parts = [source.take(int(np.searchsorted(source.rows[1], last, side="right"))) for source in left]
        times, places = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        yield in_place_order((times, places)) if len(left) > 1 else (times, places)
