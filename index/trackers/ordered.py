"""Several ordered sources as one: the next rows of all, of which the first ones are handed out; and merging them.

A merge goes on a part at a time: memory holds one part of each source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from pyroaring import BitMap64

from .bitmaps import are_in
from .pages import in_place_order
from .places import NO_ROWS, Rows, joined, rows_until

LEAST_PULLED = 1024
MANY_SOURCES = 4  # each of so many has a few rows at a time: what comes within ..
AHEAD_MS = 256  # .. so much time is pulled from all of them together


class OrderedRows(Protocol):
    """Ordered rows, taken from the front."""

    @property
    def head_ms(self) -> int | None:
        """The first row's time; None if there is none."""

    def take(self, until_ms: int, count: int) -> Rows:
        """The first rows, at most so many, none of them later than this; at least one if the head is not later."""


class NextRows:
    """Rows that were pulled from the sources, in order; entries that are cancelled are dropped on their way out.

    Invariant: whatever is pulled, the next row of all is either the first one here or the head of a source whose head
    is not later. So a source may get earlier rows at any time, and no order is lost.

    Attributes:
        rows: in order.
        dead: places whose row, here or in a source, is passed over: each has one such row.
    """

    def __init__(self) -> None:
        self.rows: Rows = NO_ROWS
        self.dead = BitMap64()

    def peek(self, now_ms: int, count: int, sources: Sequence[OrderedRows]) -> Rows:
        """The first rows that are due, at most so many. They stay until `drop`."""
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
        """The first so many rows were handed out."""
        times, places = self.rows
        self.rows = times[count:], places[count:]

    def drop_dead(self) -> None:
        """Drop all dead rows that are here; the caller sees to those of the sources, or has none there."""
        if self.dead and (dead := are_in(self.rows[1], self.dead)) is not None:
            self.rows = self.rows[0][~dead], self.rows[1][~dead]

    @property
    def memory_bytes(self) -> int:
        """What the rows occupy."""
        return int(sum(column.nbytes for column in self.rows))

    def _fill(self, now_ms: int, count: int, sources: Sequence[OrderedRows]) -> None:
        """Pull until the first `count` rows are those of all sources: only sources whose head comes before them."""
        ahead_ms = AHEAD_MS if len(sources) >= MANY_SOURCES else 0
        while True:
            times = self.rows[0]
            until_ms = min(now_ms, int(times[count - 1])) if len(times) >= count else now_ms
            heads = [(head, source) for source in sources if (head := source.head_ms) is not None]
            if not heads or min([head for head, _ in heads]) > until_ms:
                return
            pulled = [source for head, source in heads if head <= until_ms + ahead_ms]
            # More than a source's share, and what comes soon: each pull sorts again what is here.
            wanted = max(LEAST_PULLED, 2 * count // len(pulled))
            taken = [self.rows]
            try:
                for source in pulled:
                    taken.append(source.take(now_ms + ahead_ms, wanted))  # one may raise
            finally:  # what the others gave is here then
                self.rows = joined(taken)


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
