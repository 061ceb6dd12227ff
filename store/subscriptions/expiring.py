"""Messages that are older than their topic's `ttl_ms`: no consumer gets them, and they count as acknowledged."""

from __future__ import annotations

import numpy as np

from ..delayed.messages import were_moved
from ..delayed.parts import places_of
from ..format.arrays import Bools, Int64s
from ..format.blobs import ExtraColumns
from ..format.layout import NO_TIME
from ..read.message import MessageBatch
from .delays import SubscriptionDelays
from .delivery import queue_ids_of, taken
from .in_flight import Places
from .state import State


class Expiring:
    """Says which messages of a subscription have expired, and lets them go. One thread at a time.

    A message ages from the moment at which it was put into the log; one with a later delivery time from that time on.
    One whose delivery time was changed does not expire: once it has come, nobody knows when. One that was given out as
    often as the settings allow does not expire either: it goes to the dead letters, whatever its age.

    Attributes:
        ttl: of the topic. `is_used` is looked at by each receive.
    """

    def __init__(self, state: State, delays: SubscriptionDelays) -> None:
        """`delays` says which messages live on as copies."""
        self._state = state
        self._delays = delays
        self.ttl = state.parts.reads.configured.ttl_of(state.topic)

    def are_over_in(self, queue_id: int, batch: MessageBatch) -> Bools:
        """`are_over` for messages of one queue."""
        return self.are_over(np.full(len(batch), queue_id), batch)

    def are_over(self, queues: Int64s, batch: MessageBatch) -> Bools:
        """(n,) which messages of a batch, in queues with these ids (n,), have expired."""
        ttl_ms = self.ttl.ms()
        if ttl_ms is None:
            return np.zeros(len(batch), np.bool_)
        limit_ms = self._state.parts.clock.wall_ms() - ttl_ms
        found = batch.times_ms < limit_ms
        times_ms = None if batch.extras is None else ExtraColumns.of(batch.extras).times_ms
        if found.any() and times_ms is not None:
            has_time = times_ms != NO_TIME
            found &= ~has_time | (times_ms < limit_ms)
            found[found & has_time] = ~self._were_moved(queues, batch.offsets, found & has_time)
        if found.any():
            found[found] = ~self._are_used_up(queues[found], batch.offsets[found])
        return found

    def _are_used_up(self, queues: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages were given out as often as the settings allow, by the log's records."""
        state = self._state
        settings = state.cursor.settings
        if settings is None or settings.max_attempts is None:
            return np.zeros(len(offsets), np.bool_)
        with state.lock:
            used_up: Bools = state.cursor.attempts_of(queues, offsets) >= settings.max_attempts
        return used_up

    def _were_moved(self, queues: Int64s, offsets: Int64s, rows: Bools) -> Bools:
        """(n,) which messages of some rows got another delivery time."""
        delays, places = self._state.parts.delays, places_of(queues[rows], offsets[rows])
        topic = None if delays is None else delays.find(self._state.topic)
        return np.zeros(len(places), np.bool_) if topic is None else were_moved(topic, places)

    def leave_out(self, queue_id: int, ascending: Int64s) -> None:
        """Acknowledge expired messages of a queue, and count them. Under the state's lock."""
        count = self._state.count_wanted(queue_id, ascending)
        self._state.leave_out(queue_id, ascending)
        self._count(count)

    def _count(self, count: int) -> None:
        state = self._state
        if count:
            state.parts.expired.add(state.topic, state.name, state.cursor.life, count)

    def without_over(self, batch: MessageBatch, attempts: Int64s, used: Int64s) -> tuple[MessageBatch, Int64s, Int64s]:
        """The messages that have not expired, with their attempts and the receipts of those that were given out before:
        these are the first ones. The others are acknowledged, and counted but for those that retention has counted.
        """
        queues = queue_ids_of(batch)
        over = self.are_over(queues, batch)
        if not over.any():
            return batch, attempts, used
        state, known = self._state, len(used)
        with state.lock:
            back = used[over[:known]]
            back = back[state.table.find_back(back)]  # a late consumer has acknowledged the others meanwhile
            again = state.table.places(state.table.find(back))
        fresh = np.flatnonzero(over[known:]) + known
        new = Places(queues[fresh], batch.offsets[fresh], attempts[fresh])
        count = self._drop(Places(*[np.concatenate(pair) for pair in zip(again, new, strict=True)]))
        with state.lock:
            rows = state.table.find(back)
            state.table.remove(rows[rows >= 0])
        self._count(count)
        kept = np.flatnonzero(~over)
        return taken(batch, kept), attempts[kept], used[~over[:known]]

    def _drop(self, places: Places) -> int:
        """Drop expired messages. Returns how many of them retention has not counted."""
        copied = np.zeros(places.size, np.bool_)  # retention has removed them, and counted nothing: they lived on
        for queue_id in np.unique(places.queues).tolist():
            rows = np.flatnonzero(places.queues == queue_id)
            copied[rows] = self._delays.are_kept(queue_id, places.offsets[rows])
        if copied.any():
            self._state.drop(places.take(copied))
        return int(copied.sum()) + self._state.drop(places.take(~copied))
