"""The backlog of a subscription: how many messages are left to consume."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ..delayed.counting import END, DelayedOffsets, DelayedSets
from ..format.arrays import Bools, Int64s
from .cursor import AckedOffsets, Cursor
from .in_flight import InFlight, RowState
from .parts import Parts

NOTHING = np.empty(0, np.int64)


class Backlog(NamedTuple):
    """The messages that are not acknowledged and that a consumer will get. Cancelled messages do not count.

    Attributes:
        ready: can be given out now, or when it is the turn of their line. With a filter, messages that it will leave
            out are counted, too.
        in_flight: a consumer has them, and their visibility time-out has not passed.
        delayed: were given back with a delay, or their delivery time has not come.
    """

    ready: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        """The sum of all three."""
        return self.ready + self.in_flight + self.delayed


class QueueBounds(NamedTuple):
    """The queues of a topic: int64 (n) each of queue ids, which ascend, and first and next offsets."""

    ids: Int64s
    firsts: Int64s
    nexts: Int64s

    def rows_of(self, queue_ids: Int64s) -> tuple[Int64s, Bools]:
        """(n,) the row of each queue id, and whether it has one."""
        if not len(self.ids):
            return np.zeros(len(queue_ids), np.int64), np.zeros(len(queue_ids), np.bool_)
        rows = np.minimum(self.ids.searchsorted(queue_ids), len(self.ids) - 1)
        return rows, self.ids[rows] == queue_ids


class TopicBounds(NamedTuple):
    """The queues and delayed messages of a topic, read before the subscription's lock is taken.

    No thread waits for other locks while it holds that lock.

    Attributes:
        delayed: read after the queues.
    """

    queues: QueueBounds
    delayed: DelayedSets


def bounds_of(parts: Parts, topic: str) -> TopicBounds:
    """The bounds of a topic now. Raises StoreCorrupt, StoreUnreadable."""
    queues = queues_of(parts, topic)
    return TopicBounds(queues, parts.delayed_sets([topic])[topic])


def queues_of(parts: Parts, topic: str) -> QueueBounds:
    """The queues of a topic. Raises StoreUnreadable."""
    found = parts.reads.bounds_of_topic(topic)
    ids = np.fromiter(found, np.int64, len(found))
    bounds = np.array(list(found.values()), np.int64).reshape(-1, 2)
    order = ids.argsort()
    return QueueBounds(ids[order], bounds[order, 0], bounds[order, 1])


class SubscriptionSnapshot(NamedTuple):
    """A copy of a subscription's state under its lock. The backlog is counted from it after the lock is released.

    Attributes:
        marks, above: the acknowledged offsets by queue id, see `AckedOffsets`; `above` only where there are some.
        queues, offsets: int64 (n), the messages that were given out.
        is_out, is_later, is_acked: bool (n): a consumer has the message; it was given back with a delay; it is being
            acknowledged, which counts. If none is true, the message is ready to be given out again.
    """

    marks: Mapping[int, int]
    above: Mapping[int, BitMap64]
    queues: Int64s
    offsets: Int64s
    is_out: Bools
    is_later: Bools
    is_acked: Bools

    def acked(self, queue_id: int) -> AckedOffsets:
        """The acknowledged offsets of one queue."""
        found = AckedOffsets(self.marks.get(queue_id, 0))
        found.above = self.above.get(queue_id, found.above)
        return found


def recorded(cursor: Cursor) -> SubscriptionSnapshot:
    """The snapshot of a subscription that nobody uses: nothing was given out."""
    return SubscriptionSnapshot(*_acked(cursor), NOTHING, NOTHING, *[NOTHING > 0] * 3)


def snapshot(cursor: Cursor, table: InFlight, now_ms: int) -> SubscriptionSnapshot:
    """The snapshot of a subscription, taken under its lock; `now_ms` by the clock of deadlines."""
    rows = table.live()
    states, places, waiting = table.states(rows), table.places(rows), table.deadlines(rows) > now_ms
    is_out = waiting & (states == RowState.OUT)
    is_later = waiting & ((states == RowState.HELD) | (states == RowState.RESTING))
    is_acked, settings = states == RowState.ACKED, cursor.settings
    rests = None if settings is None else settings.rests_ms(places.attempts)
    if rests is not None:  # of those that have timed out, and no look has met since
        are_over = ~waiting & (states == RowState.OUT) & table.have_owners(rows)
        is_later |= are_over & (table.deadlines(rows) + rests > now_ms)
    return SubscriptionSnapshot(*_acked(cursor), places.queues, places.offsets, is_out, is_later, is_acked)


def _acked(cursor: Cursor) -> tuple[dict[int, int], dict[int, BitMap64]]:
    marks = {queue_id: acked.mark for queue_id, acked in cursor.queues.items()}
    return marks, {queue_id: acked.above.copy() for queue_id, acked in cursor.queues.items() if acked.above}


def backlog_of(bounds: TopicBounds, known: SubscriptionSnapshot) -> Backlog:
    """The backlog, counted by columns of all queues and of all messages in flight.

    Only queues with acknowledged messages above their mark, or with delayed messages, are counted one by one.
    """
    queues, offsets = bounds.queues, known.offsets
    rows, there = queues.rows_of(known.queues)
    if len(queues.ids):
        there &= (offsets >= queues.firsts[rows]) & (offsets < queues.nexts[rows])
    total, later = _not_acked(queues, known), 0
    if bounds.delayed and len(queues.ids):
        order = known.queues.argsort(kind="stable")
        of_queue = _rows(known.queues[order])
        at, are_known = queues.rows_of(np.fromiter(bounds.delayed, np.int64, len(bounds.delayed)))
        places = zip(bounds.delayed.items(), queues.firsts[at].tolist(), queues.nexts[at].tolist(), strict=True)
        for ((queue_id, delayed), first, next_offset), is_known in zip(places, are_known.tolist(), strict=True):
            if not is_known:
                continue
            left = _QueueLeft(first, next_offset, known.acked(queue_id), delayed)
            total += len(left.copies) - left.cancelled
            later += len(left.pending)
            if queue_id in of_queue:
                mine = order[of_queue[queue_id]]
                if left.copies:
                    there[mine] |= left.have_copies(offsets[mine])
                later -= left.pending_of(offsets[mine][there[mine]])
    out = int(np.count_nonzero(known.is_out & there))
    later += int(np.count_nonzero(known.is_later & there))
    total -= int(np.count_nonzero(known.is_acked & there))
    return Backlog(max(0, total - out - later), out, later)


def _not_acked(queues: QueueBounds, known: SubscriptionSnapshot) -> int:
    """The number of messages that their queues have and that are not acknowledged."""
    ids = np.fromiter(known.marks, np.int64, len(known.marks))
    marks = np.fromiter(known.marks.values(), np.int64, len(known.marks))
    rows, are_known = queues.rows_of(ids)
    lows = queues.firsts.copy()
    np.maximum.at(lows, rows[are_known], marks[are_known])
    total = int((queues.nexts - lows).clip(0).sum())
    above = np.fromiter(known.above, np.int64, len(known.above))
    rows, are_known = queues.rows_of(above)
    for queue_id, row in zip(above[are_known].tolist(), rows[are_known].tolist(), strict=True):
        low, end = int(lows[row]), int(queues.nexts[row])
        total -= known.above[queue_id].range_cardinality(low, end) if low < end else 0
    return total


def _rows(queues: Int64s) -> dict[int, slice]:
    """The rows of each queue; queue ids ascend."""
    known, begins = np.unique(queues, return_index=True)
    cuts = [*begins.tolist(), len(queues)]
    return dict(zip(known.tolist(), map(slice, cuts, cuts[1:]), strict=False))


class _QueueLeft:
    """The messages of one queue that a subscription has left, as sets.

    Attributes:
        copies: offsets below the queue's first one that live on as copies and are not acknowledged.
        cancelled: the number of unacknowledged messages that were cancelled.
        pending: offsets of delayed messages that are not acknowledged.
    """

    def __init__(self, first: int, next_offset: int, acked: AckedOffsets | None, delayed: DelayedOffsets) -> None:
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
        """Those of some offsets that the queue has and that are not acknowledged."""
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
        """The number of these messages that are delayed."""
        return self.pending.intersection_cardinality(BitMap64(array("Q", held.tobytes()))) if self.pending else 0
