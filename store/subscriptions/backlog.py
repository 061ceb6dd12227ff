"""How much a subscription has left to do."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..delayed.counting import END, DelayedSets, OfQueue
from .acked import Acked
from .cursor import Cursor
from .in_flight import InFlight, Is
from .parts import Parts

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NOTHING = np.empty(0, np.int64)


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


class Snapshot(NamedTuple):
    """What a subscription knows at one moment; the count is made of it, when its lock is free again.

    Attributes:
        acked: by queue id.
        queues, offsets: int64 (n), the messages that were given out.
        is_out, is_later: bool (n), a consumer has it; it was given back for later. Or neither: it comes again.
    """

    acked: Mapping[int, Acked]
    queues: Int64s
    offsets: Int64s
    is_out: Bools
    is_later: Bools


def recorded(cursor: Cursor) -> Snapshot:
    """Of a subscription that is not used: nothing was given out."""
    return Snapshot(cursor.queues, NOTHING, NOTHING, NOTHING > 0, NOTHING > 0)


def snapshot(cursor: Cursor, table: InFlight, now_ms: int) -> Snapshot:
    """Of a subscription, under its lock; `now_ms` by the clock of deadlines."""
    rows = table.live()
    states, places, waiting = table.states(rows), table.places(rows), table.deadlines(rows) > now_ms
    acked = {queue_id: acked.copy() for queue_id, acked in cursor.queues.items()}
    return Snapshot(acked, places.queues, places.offsets, waiting & (states == Is.OUT), waiting & (states == Is.HELD))


def backlog_of(bounds: Bounds, known: Snapshot) -> Backlog:
    """The backlog by what is acknowledged. Each queue and each message that was given out is looked at once."""
    order = known.queues.argsort(kind="stable")
    queues, offsets = known.queues[order], known.offsets[order]
    there = _are_there(bounds.queues, queues, offsets)
    rows = _rows(queues)
    total = later = 0
    for queue_id, (first, next_offset) in bounds.queues.items():
        acked, delayed = known.acked.get(queue_id), bounds.delayed.get(queue_id)
        total += next_offset - first
        if acked is not None and next_offset > first:
            total -= acked.count_from(first, next_offset)
        if delayed is not None:
            left = _Left(first, next_offset, acked, delayed)
            total += len(left.copies) - left.cancelled
            later += len(left.pending)
            mine = rows.get(queue_id)
            if mine is not None:
                if left.copies:
                    there[mine] |= left.have_copies(offsets[mine])
                later -= left.pending_of(offsets[mine][there[mine]])
    out = int(np.count_nonzero(known.is_out[order] & there))
    later += int(np.count_nonzero(known.is_later[order] & there))
    return Backlog(max(0, total - out - later), out, later)


def _rows(queues: Int64s) -> dict[int, slice]:
    """The rows of each queue, which ascend."""
    known, begins = np.unique(queues, return_index=True)
    cuts = [*begins.tolist(), len(queues)]
    return dict(zip(known.tolist(), map(slice, cuts, cuts[1:]), strict=False))


def _are_there(bounds: Mapping[int, tuple[int, int]], queues: Int64s, offsets: Int64s) -> Bools:
    """(n,) which messages, by queue id, are in their queue still."""
    known, index = np.unique(queues, return_inverse=True)
    ends = np.array([bounds.get(queue_id, (0, 0)) for queue_id in known.tolist()], np.int64).reshape(-1, 2)[index]
    return (offsets >= ends[:, 0]) & (offsets < ends[:, 1])


class _Left:
    """What one queue has left for a subscription, in sets.

    Attributes:
        copies: offsets before the queue's first one that live on as copies and are not acknowledged.
        cancelled: how many of what is not acknowledged nobody gets.
        pending: offsets of delayed messages that are not acknowledged.
    """

    def __init__(self, first: int, next_offset: int, acked: Acked | None, delayed: OfQueue) -> None:
        self._first, self._next, self._acked = first, next_offset, acked
        self.copies = delayed.copies
        if self.copies:
            self.copies = self.copies.copy()
            self.copies.remove_range(first, END)
            self._leave_acked_out(self.copies)
        cancelled = self._within(delayed.cancelled)
        self.cancelled = len(cancelled)
        self.pending = self._within(delayed.pending)
        if cancelled:
            self.pending = self.pending - cancelled

    def _within(self, offsets: BitMap64) -> BitMap64:
        """Those that are there and not acknowledged."""
        if not offsets:
            return offsets
        found = offsets.copy()
        found.remove_range(0, self._first)
        found.remove_range(self._next, END)
        self._leave_acked_out(found)
        return found | (offsets & self.copies) if self.copies else found

    def _leave_acked_out(self, offsets: BitMap64) -> None:
        if self._acked is not None and offsets:
            offsets.remove_range(0, self._acked.mark)
            offsets.difference_update(self._acked.above)

    def have_copies(self, offsets: Int64s) -> Bools:
        """(n,) which messages live on as copies."""
        return np.fromiter(map(self.copies.__contains__, offsets.tolist()), np.bool_, len(offsets))

    def pending_of(self, held: Int64s) -> int:
        """How many of these messages are delayed."""
        return self.pending.intersection_cardinality(BitMap64(array("Q", held.tobytes()))) if self.pending else 0
