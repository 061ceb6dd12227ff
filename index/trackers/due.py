"""The next rows of several ordered sources, as one ordered list of which the first ones are handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from pyroaring import BitMap64

from .bitmaps import are_in
from .places import NO_ROWS, Rows, joined

LEAST_PULLED = 1024
MANY_SOURCES = 4  # each of so many has a few rows at a time: what comes within ..
AHEAD_MS = 256  # .. so much time is pulled from all of them together


class Source(Protocol):
    """Ordered rows, taken from the front."""

    @property
    def head_ms(self) -> int | None:
        """The first row's time; None if there is none."""

    def take(self, until_ms: int, count: int) -> Rows:
        """The first rows, at most so many, none of them later than this; at least one if the head is not later."""


class Due:
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

    def peek(self, now_ms: int, count: int, sources: Sequence[Source]) -> Rows:
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

    def _fill(self, now_ms: int, count: int, sources: Sequence[Source]) -> None:
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
