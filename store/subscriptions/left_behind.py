"""What becomes of messages beside acknowledging: they are left out, given back, or make way for those in line."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..errors import StoreError
from ..format.cursors import pack_acks
from .cursor import Cursor
from .in_flight import NOBODY, InFlight, Places, RowState
from .journal import Journal
from .ordering import Order
from .tries import Tries

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
AGAIN_RECEIPTS = 1024  # of a list of those that come again


class LeftOut(NamedTuple):
    """Messages of a queue that were left out in one of its eras."""

    era: int
    offsets: BitMap64


class LeftBehind:
    """The part of a `State` that leaves out, gives back and lets the next ones of a line come."""

    lock: threading.Lock
    cursor: Cursor
    table: InFlight
    journal: Journal
    tries: Tries
    order: Order | None
    to_redeliver: deque[Int64s]
    left_out: dict[int, LeftOut]
    left_out_count: int
    limit_bytes: int

    def now_ms(self) -> int:
        """The time of deadlines: it does not jump."""
        raise NotImplementedError

    def deadline_ms(self, after_ms: int) -> int:
        """When so much time has passed, by `now_ms`."""
        raise NotImplementedError

    def notify(self) -> None:
        """Have those that wait look again."""
        raise NotImplementedError

    def mark_changed(self) -> None:
        """The next look may find something; nobody is woken for it."""
        raise NotImplementedError

    def _rows(self, receipts: Int64s) -> Rows:
        """The rows of receipts that a consumer has. Raises StaleReceipt."""
        raise NotImplementedError

    def leave_out(self, queue_id: int, ascending: Int64s) -> None:
        """Messages that nobody is to get count as acknowledged. Under the lock."""
        if not len(ascending):
            return
        acked = self.cursor.queue(queue_id)
        acked.add_all(ascending)
        known = self.left_out.get(queue_id)
        if known is None or known.era != acked.era:
            known = self.left_out[queue_id] = LeftOut(acked.era, BitMap64())
        known.offsets.update(array("Q", ascending.tobytes()))
        self.left_out_count += len(ascending)

    def note_left_out(self) -> None:
        """Have the log say what was left out; nobody waits for that. If it fails, it is found out again."""
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
        """Give messages back: they come again after a while."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.deadline_ms(delay_ms) if delay_ms else self.now_ms())
        self.notify()

    def take_back(self, receipts: Int64s) -> None:
        """Messages that were taken for a consumer that has gone meanwhile come again at once. Again is fine."""
        with self.lock:
            rows = self.table.find(receipts)
            places = self.table.places(rows[rows >= 0])
            self.table.take_back(receipts, self.now_ms())
            self.tries.take_back(places)
        self.notify()

    def leave(self, owner: int) -> None:
        """A consumer goes: what it has comes again at once."""
        with self.lock:
            self.table.leave(owner, self.now_ms())

    def extend(self, receipts: Int64s, ms: int) -> None:
        """Keep messages for so long from now on."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.deadline_ms(ms), RowState.OUT)
        self.mark_changed()  # nothing comes earlier by that

    def redeliver(self, receipts: Int64s) -> None:
        """These messages are to be given out again. Under the lock; one that is listed twice is given out once."""
        self.to_redeliver += [receipts[at : at + AGAIN_RECEIPTS] for at in range(0, len(receipts), AGAIN_RECEIPTS)]

    def unlist(self, receipts: Int64s) -> None:
        """These messages wait: whoever has them go on lists them again. Under the lock."""
        left = [listed[~np.isin(listed, receipts)] for listed in self.to_redeliver]
        self.to_redeliver = deque([listed for listed in left if len(listed)])

    def enter(self, places: Places, deadline_ms: int, owner: int = NOBODY) -> Int64s:
        """Enter messages into the table, with the lines that they are out of: their receipts (n,). Under the lock."""
        receipts = self.table.add(places, deadline_ms, owner)
        self.note_given(receipts, places)
        return receipts

    def note_given(self, receipts: Int64s, places: Places) -> None:
        """The lines of messages know their receipts. Under the lock."""
        if self.order is not None:
            self.order.given(zip(places.queues.tolist(), places.offsets.tolist(), strict=True), receipts.tolist())

    def _go_on(self, places: Places) -> None:
        """`release` these messages. Again is fine."""
        if self.order is not None:
            self.release(list(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)), if_acknowledged=True)

    def release(self, places: Sequence[tuple[int, int]], *, if_acknowledged: bool = False) -> None:
        """Messages are over: in an ordered subscription it is the turn of those after them.

        `if_acknowledged`: not of those that were taken back meanwhile, or that a seek has met: they are out again.
        """
        order, queue = self.order, self.cursor.queue
        if order is None or not places:
            return
        with self.lock:
            freed = [order.release(*at) for at in places if not if_acknowledged or at[1] in queue(at[0])]
        if any(freed):
            self.notify()
