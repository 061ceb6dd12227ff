"""Several ordered sources as one: the next rows of all of them; and merging the sources.

A merge goes on one part at a time: memory holds one part of each source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from pyroaring import BitMap64

from .pages import in_place_order
from .places import NO_ROWS, Rows, are_in, joined, rows_until

LEAST_PULLED = 1024
MANY_SOURCES = 4  # so many sources have a few rows each at a time: rows within ..
AHEAD_MS = 256  # .. this time are pulled from all of them together


class OrderedRows(Protocol):
    """Ordered rows, taken from the front."""

    @property
    def head_ms(self) -> int | None:
        """The first row's time; None if there is none."""

    def take(self, until_ms: int, count: int) -> Rows:
        """Take the first rows, at most `count`, none later than `until_ms`; at least one if the head is not later."""


class NextRows:
    """Rows that were pulled from the sources, in order; cancelled entries are dropped on their way out.

    Invariant: whatever was pulled, the next row of all is either the first one here or the head of a source whose head
    is not later. So a source may get earlier rows at any time, and the order stays right.

    Attributes:
        rows: in order.
        dead: places whose row, here or in a source, is skipped: each has one such row.
    """

    def __init__(self) -> None:
        self.rows: Rows = NO_ROWS
        self.dead = BitMap64()

    def peek(self, now_ms: int, count: int, sources: Sequence[OrderedRows]) -> Rows:
        """The first due rows, at most `count`. They stay until `drop`."""
        while True:
            self._fill(now_ms, count, sources)
            times, places = self.rows
            end = min(count, int(np.searchsorted(times, now_ms, side="right")))
            dead = are_in(places[:end], self.dead) if self.dead else None
            if dead is None:
                return times[:end], places[:end]
            for place in places[:end][dead].tolist():
                self.dead.remove(place)
            kept = np.ones(len(times), np.bool_)
            kept[:end] = ~dead
            self.rows = times[kept], places[kept]

    def drop(self, count: int) -> None:
        """Drop the first `count` rows: they were handed out."""
        times, places = self.rows
        self.rows = times[count:], places[count:]

    def drop_dead(self) -> None:
        """Drop all dead rows that are here; the caller drops those of the sources, or has none there."""
        if self.dead and (dead := are_in(self.rows[1], self.dead)) is not None:
            self.rows = self.rows[0][~dead], self.rows[1][~dead]

    @property
    def memory_bytes(self) -> int:
        """The memory of the rows."""
        return int(sum(column.nbytes for column in self.rows))

    def _fill(self, now_ms: int, count: int, sources: Sequence[OrderedRows]) -> None:
        """Pull from sources whose head is early enough, until the first `count` rows here are the first of all."""
        ahead_ms = AHEAD_MS if len(sources) >= MANY_SOURCES else 0
        while True:
            times = self.rows[0]
            until_ms = min(now_ms, int(times[count - 1])) if len(times) >= count else now_ms
            heads = [(head, source) for source in sources if (head := source.head_ms) is not None]
            if not heads or min([head for head, _ in heads]) > until_ms:
                return
            pulled = [source for head, source in heads if head <= until_ms + ahead_ms]
            # More than a source's share, and rows that come soon: each pull sorts again all rows that are here.
            wanted = max(LEAST_PULLED, 2 * count // len(pulled))
            taken = [self.rows]
            try:
                for source in pulled:
                    taken.append(source.take(now_ms + ahead_ms, wanted))  # one may raise
            finally:  # keeps the rows of the other sources
                self.rows = joined(taken)


class _Source:
    """An iterator of ordered parts, and the rest of its present part."""

    def __init__(self, parts: Iterable[Rows]) -> None:
        self._parts = iter(parts)
        self.rows: Rows = NO_ROWS
        self.has_more = True

    def load(self) -> bool:
        """Load the next part if the present one is empty; False if there is none."""
        while self.has_more and not len(self.rows[0]):
            try:
                self.rows = next(self._parts)
            except StopIteration:
                self.has_more = False
        return len(self.rows[0]) > 0

    def take(self, end: int) -> Rows:
        """Take the first rows of the part, up to `end`."""
        times, places = self.rows
        self.rows = times[end:], places[end:]
        return times[:end], places[:end]


def merge(sources: Iterable[Iterable[Rows]]) -> Iterator[Rows]:
    """The rows of all sources in order, in parts of the size that the sources have.

    A row may go out once no source can have an earlier one to come: up to the least of the last loaded rows.
    """
    left = [_Source(parts) for parts in sources]
    while left := [source for source in left if source.load()]:
        if len(left) == 1:
            yield left[0].take(len(left[0].rows[0]))
            continue
        time_ms, place = min((int(source.rows[0][-1]), int(source.rows[1][-1])) for source in left)
        yield joined([source.take(rows_until(source.rows, time_ms, place)) for source in left])


def merge_places(sources: Iterable[Iterable[Rows]]) -> Iterator[Rows]:
    """`merge` for rows in the order of their places, which are all different."""
    left = [_Source(parts) for parts in sources]
    while left := [source for source in left if source.load()]:
        last = min(int(source.rows[1][-1]) for source in left)
        parts = [source.take(int(np.searchsorted(source.rows[1], last, side="right"))) for source in left]
        times, places = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        yield in_place_order((times, places)) if len(left) > 1 else (times, places)
