"""The part of a subscription's state beside acknowledging: messages left out or given back, attempts, and lines."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ..errors import StoreError
from ..format.arrays import Indexes, Int64s
from ..format.cursors import pack_acks, pack_attempts
from ..log.request import Request
from .cursor import Cursor
from .in_flight import NO_OWNER, InFlight, Places, RowState
from .journal import Journal
from .ordering import Order

if TYPE_CHECKING:
    from .state import State


AGAIN_RECEIPTS = 1024  # in one chunk of a list of messages to redeliver


class SkippedOffsets(NamedTuple):
    """Messages of a queue that were left out in one of its eras."""

    era: int
    offsets: BitMap64


class SkippedMessages:
    """The part of a `State` that leaves messages out, gives them back, and lets the next ones of a line out."""

    lock: threading.Lock
    cursor: Cursor
    table: InFlight
    journal: Journal
    tries: AttemptCounts
    order: Order | None
    to_redeliver: deque[Int64s]
    left_out: dict[int, SkippedOffsets]
    left_out_count: int
    limit_bytes: int

    def now_ms(self) -> int:
        """The clock of deadlines: it does not jump."""
        raise NotImplementedError

    def deadline_ms(self, after_ms: int) -> int:
        """The time, by `now_ms`, when `after_ms` have passed."""
        raise NotImplementedError

    def notify(self) -> None:
        """Have waiting consumers look again."""
        raise NotImplementedError

    def mark_changed(self) -> None:
        """Note that the next look may find a message; nobody is woken for it."""
        raise NotImplementedError

    def _rows(self, receipts: Int64s) -> Indexes:
        """The rows of receipts that a consumer has. Raises StaleReceipt."""
        raise NotImplementedError

    def leave_out(self, queue_id: int, ascending: Int64s) -> None:
        """Count messages that nobody shall get as acknowledged. Under the lock."""
        if not len(ascending):
            return
        acked = self.cursor.queue(queue_id)
        acked.add_all(ascending)
        known = self.left_out.get(queue_id)
        if known is None or known.era != acked.era:
            known = self.left_out[queue_id] = SkippedOffsets(acked.era, BitMap64())
        known.offsets.update(array("Q", ascending.tobytes()))
        self.left_out_count += len(ascending)

    def note_left_out(self) -> None:
        """Submit a record of the messages left out; nobody waits for it. If it fails, they are left out again."""
        with self.lock:
            left_out, self.left_out, self.left_out_count = self.left_out, {}, 0
            life = self.cursor.life
        groups = [
            (queue_id, one.era, np.frombuffer(one.offsets.to_array(), np.int64)) for queue_id, one in left_out.items()
        ]
        if groups and self.cursor.settings is not None:
            with suppress(StoreError):
                self.journal.submit(pack_acks(life, groups, self.limit_bytes))

    def nack(self, receipts: Int64s, delay_ms: int) -> None:
        """Give messages back: they come again after `delay_ms`."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.deadline_ms(delay_ms) if delay_ms else self.now_ms())
        self.notify()

    def take_back(self, receipts: Int64s) -> None:
        """Messages taken for a consumer that has gone meanwhile come again at once. It may be repeated."""
        with self.lock:
            rows = self.table.find(receipts)
            places = self.table.places(rows[rows >= 0])
            self.table.take_back(receipts, self.now_ms())
            self.tries.take_back(places)
        self.notify()

    def leave(self, owner: int) -> None:
        """A consumer goes: its messages come again at once."""
        with self.lock:
            self.table.leave(owner, self.now_ms())

    def extend(self, receipts: Int64s, ms: int) -> None:
        """Keep messages for `ms` from now on."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.deadline_ms(ms), RowState.OUT)
        self.mark_changed()  # no message comes earlier by that

    def redeliver(self, receipts: Int64s) -> None:
        """List messages to be given out again. Under the lock; one that is listed twice is given out once."""
        self.to_redeliver += [receipts[at : at + AGAIN_RECEIPTS] for at in range(0, len(receipts), AGAIN_RECEIPTS)]

    def unlist(self, receipts: Int64s) -> None:
        """Unlist messages that have to wait; the caller that lets them go on lists them again. Under the lock."""
        left = [listed[~np.isin(listed, receipts)] for listed in self.to_redeliver]
        self.to_redeliver = deque([listed for listed in left if len(listed)])

    def enter(self, places: Places, deadline_ms: int, owner: int = NO_OWNER) -> Int64s:
        """Enter messages into the table and their lines. Returns their receipts (n,). Under the lock."""
        receipts = self.table.add(places, deadline_ms, owner)
        self.note_given(receipts, places)
        return receipts

    def note_given(self, receipts: Int64s, places: Places) -> None:
        """Tell the lines of messages their receipts. Under the lock."""
        if self.order is not None:
            self.order.given(zip(places.queues.tolist(), places.offsets.tolist(), strict=True), receipts.tolist())

    def _go_on(self, places: Places) -> None:
        """`release` these messages. A second call does no harm."""
        if self.order is not None:
            self.release(list(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)), if_acknowledged=True)

    def release(self, places: Sequence[tuple[int, int]], *, if_acknowledged: bool = False) -> None:
        """Messages are over: in an ordered subscription it is the turn of the messages after them.

        `if_acknowledged`: only of those that are still acknowledged. Others were taken back, or a seek has met them:
        they are out again.
        """
        order, queue = self.order, self.cursor.queue
        if order is None or not places:
            return
        with self.lock:
            freed = [order.release(*at) for at in places if not if_acknowledged or at[1] in queue(at[0])]
        if any(freed):
            self.notify()


class AttemptCounts:
    """Counts how often messages of one subscription are given out. Any number of threads may use it.

    Invariant: where attempts are counted, the log has the attempt of a message before a consumer gets the message.

    Attributes:
        ends: by queue id: messages below this offset may have been given out before.
    """

    def __init__(self, state: State) -> None:
        self.ends: dict[int, int] = {}
        self._state = state

    @property
    def are_counted(self) -> bool:
        """Whether attempts are counted over restarts: only if too many have a consequence."""
        settings = self._state.cursor.settings
        return settings is not None and settings.max_attempts is not None

    def of(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, by the log's records. Under the state's lock."""
        counts, cursor = np.zeros(len(offsets), np.int64), self._state.cursor
        for queue_id in np.unique(queues).tolist() if cursor.attempts else ():
            mine = np.flatnonzero(queues == queue_id)
            mine = mine[offsets[mine].argsort(kind="stable")]
            counts[mine] = cursor.tried(queue_id).of(offsets[mine])
        return counts

    def note(self, places: Places) -> Sequence[Request]:
        """Note the attempts of messages that are given out. Returns the requests that record them in the log.

        Raises as an append does; then nothing was noted.
        """
        groups, state = [], self._state
        try:
            with state.lock:
                life = state.cursor.life
                for queue_id in np.unique(places.queues).tolist():
                    mine = np.flatnonzero(places.queues == queue_id)
                    mine = mine[places.offsets[mine].argsort(kind="stable")]
                    tried = state.cursor.tried(queue_id)
                    tried.note(places.offsets[mine], places.attempts[mine])
                    groups.append((queue_id, tried.era, places.offsets[mine], places.attempts[mine]))
            requests = state.journal.submit(pack_attempts(life, groups, state.limit_bytes))
        except BaseException:  # passed on; an interrupt, too, leaves no attempt without a record
            with state.lock:
                self._take_back(places)
            raise
        return requests

    def may_be_met(self, is_past: Callable[[int, int], bool]) -> bool:
        """Whether messages that are read next may have been given out before; `is_past(queue id, offset)` says whether
        a queue is read up to the offset.
        """
        for queue_id in [queue_id for queue_id, end in self.ends.items() if is_past(queue_id, end)]:
            del self.ends[queue_id]
        return bool(self.ends)

    def wait_for(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the attempts of messages are durable. Raises StoreError: then the messages come again, and this
        attempt does not count.
        """
        try:
            for request in noted:
                request.result()
        except StoreError:
            self._state.take_back(receipts)
            raise
        self._state.compact_in_time()

    def take_back(self, places: Places) -> None:
        """Undo the newest attempts: no consumer has had the messages. Under the state's lock."""
        if self.are_counted:
            self._take_back(places)

    def _take_back(self, places: Places) -> None:
        self._state.cursor.take_back_tried(zip(*[column.tolist() for column in places], strict=True))

    def expect(self) -> None:
        """All messages are read again: some of them were given out before."""
        if self.are_counted:
            cursor = self._state.cursor
            cursor.forget_tried()
            self.ends = {queue_id: one.end for queue_id, one in cursor.attempts.items() if one.end}
