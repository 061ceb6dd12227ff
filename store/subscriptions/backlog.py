"""How much a subscription has left to do."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ..delayed.counting import END, DelayedSets, OfQueue
from .acked import Acked
from .cursor import Cursor
from .in_flight import InFlight, Is, Places
from .parts import Parts


class Backlog(NamedTuple):
    """Messages that are not acknowledged, and that a consumer is to get. What was cancelled is none of them.

    Attributes:
        ready: to be given out now, or when it is the turn of their line; for a subscription with a filter, with those
            that it will leave out.
        in_flight: a consumer has them, and their visibility time-out has not passed.
        delayed: given back for later, or their delivery time has not come.
    """

    ready: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.ready + self.in_flight + self.delayed


class Bounds(NamedTuple):
    """What a topic has, read before the subscription's lock is taken: nobody waits for other locks while he holds it.

    Attributes:
        queues: (first, next) offset by queue id.
        delayed: read after the queues.
    """

    queues: dict[int, tuple[int, int]]
    delayed: DelayedSets


def bounds_of(parts: Parts, topic: str) -> Bounds:
    """What a topic has now. Raises StoreCorrupt, StoreUnreadable."""
    queues = queues_of(parts, topic)
    return Bounds(queues, parts.delayed_sets([topic])[topic])


def queues_of(parts: Parts, topic: str) -> dict[int, tuple[int, int]]:
    """(first, next) offset by queue id. Raises StoreUnreadable."""
    return {queue_id: parts.reads.queue_bounds(topic, queue_id) for queue_id in parts.queues(topic)}


def backlog_of(bounds: Bounds, cursor: Cursor, table: InFlight | None, now_ms: int) -> Backlog:
    """The backlog by what is acknowledged. Under the subscription's lock; `now_ms` by the clock of deadlines."""
    total = out = later = 0
    rows = np.empty(0, np.intp) if table is None else table.live()
    for queue_id, (first, next_offset) in bounds.queues.items():
        acked = cursor.queues.get(queue_id)
        count = next_offset - first
        if acked is not None and count:
            count -= acked.count_from(first, next_offset)
        left = _Left(first, next_offset, acked, bounds.delayed.get(queue_id))
        total += count + len(left.copies) - left.cancelled
        held = np.empty(0, np.int64)
        if table is not None and len(rows):
            places = table.places(rows)
            mine = rows[(places.queues == queue_id) & left.has(places)]
            states, held = table.states(mine), table.places(mine).offsets
            waiting = table.deadlines(mine) > now_ms
            out += int(np.count_nonzero(waiting & (states == Is.OUT)))
            later += int(np.count_nonzero(waiting & (states == Is.HELD)))
        later += left.pending_beside(held)
    return Backlog(max(0, total - out - later), out, later)


class _Left:
    """What one queue has left for a subscription, in sets.

    Attributes:
        copies: offsets before the queue's first one that live on as copies and are not acknowledged.
        cancelled: how many of what is not acknowledged nobody gets.
    """

    def __init__(self, first: int, next_offset: int, acked: Acked | None, delayed: OfQueue | None) -> None:
        self._first, self._next, self._acked = first, next_offset, acked
        self.copies, self.cancelled, self._pending = BitMap64(), 0, BitMap64()
        if delayed is not None:
            copies = delayed.copies.copy()
            copies.remove_range(first, END)
            self.copies = self._without_acked(copies)
            cancelled = self._within(delayed.cancelled)
            self.cancelled = len(cancelled)
            self._pending = self._within(delayed.pending) - cancelled

    def _within(self, offsets: BitMap64) -> BitMap64:
        """Those that are there and not acknowledged."""
        found = offsets.copy()
        found.remove_range(0, self._first)
        found.remove_range(self._next, END)
        return self._without_acked(found) | (offsets & self.copies)

    def _without_acked(self, offsets: BitMap64) -> BitMap64:
        if self._acked is not None and offsets:
            offsets.remove_range(0, self._acked.mark)
            offsets -= self._acked.above
        return offsets

    def has(self, places: Places) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(n,) which messages are there still."""
        offsets = places.offsets
        there = (offsets >= self._first) & (offsets < self._next)
        if self.copies:
            there |= np.fromiter(map(self.copies.__contains__, offsets.tolist()), np.bool_, len(offsets))
        return there

    def pending_beside(self, held: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
        """How many are delayed beside those that were given out."""
        if not len(held) or not self._pending:
            return len(self._pending)
        return self._pending.difference_cardinality(BitMap64(array("Q", np.sort(held).tobytes())))
