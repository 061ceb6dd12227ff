"""What a process knows of a subscription, for all of its consumers: what is acknowledged, and what was given out."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..errors import StaleReceipt, StoreError
from ..format.cursors import Mark, pack_acks, pack_attempts, pack_delete, pack_one, pack_state
from ..format.cursors import State as CursorState
from ..log.request import Request
from ..log.ticket import Ticket
from .cursor import Cursor
from .in_flight import NEVER, InFlight, Is, Places
from .journal import Journal
from .on_way import AckedMany, AckedOne, AckRequest, LeftOut, by_queue
from .ordering import Order
from .parts import Parts
from .settings import Settings
from .waits import wake

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
SHOWN_RECEIPTS = 3
AGAIN_RECEIPTS = 1024  # of a list of those that come again


class State:
    """Acknowledges, gives back and seeks. Any number of threads may use it.

    Invariants:
        * `lock` guards the cursor, the table and the order. Nobody waits for the log or the device while he holds it;
        * what the cursor has acknowledged is in the log, or on its way there, or its record has failed and it is taken
          back; what was left out, by a filter above all, is in `left_out` or was handed over to the log, and is found
          out again if that was lost;
        * with `counts_attempts`, no message is a consumer's before the log says how often it was given out;
        * what is on its way is in `on_way`, and in no snapshot: its record may fail;
        * `changing` is held to change settings, to seek, to delete and to compact: so a snapshot has the newest of it.
    """

    def __init__(self, parts: Parts, topic: str, name: str) -> None:
        self.parts = parts
        self.topic = topic
        self.name = name
        self.lock = threading.Lock()
        self.changing = threading.Lock()
        self.cursor = Cursor()
        self.table = InFlight(parts.receipts.take)
        self.on_way: dict[int, AckedOne | AckedMany] = {}  # by the first receipt
        self.again: deque[Int64s] = deque()  # receipts of the messages that are to be given out again
        self.order: Order | None = None
        self.journal = Journal(parts, topic, name)
        self.left_out: dict[int, LeftOut] = {}  # by queue id; no record says it yet
        self.left_out_count = 0
        self.tried_ends: dict[int, int] = {}  # by queue id: messages that are read below may have been given out before
        self.signal = 0  # counts what only a look can find out
        self.limit_bytes = max(2048, parts.limit_bytes // 2)

    def now_ms(self) -> int:
        """The time of deadlines: it does not jump."""
        return int(self.parts.clock.monotonic_s() * 1000)

    def ring(self) -> None:
        """Have those that wait look again."""
        self.signal += 1
        wake(self.parts.waiting, self.topic)

    # -- acknowledging --------------------------------------------------------------------------------

    def ack_one(self, receipt: int) -> None:
        """Acknowledge one message; durable when it returns."""
        one = self._take_one(receipt)
        try:
            self.journal.append([pack_one(one.life, one.queue_id, one.era, one.offset)])
        except BaseException:  # also an interrupt: it may be acknowledged again, whatever became of the record
            self._take_back(one.as_many())
            raise
        del self.on_way[receipt]
        self.release([(one.queue_id, one.offset)])
        self._compact_in_time()

    def submit_ack(self, receipt: int) -> Ticket:
        """Acknowledge one message; durable when the ticket is done."""
        self._compact_in_time()
        one = self._take_one(receipt)
        request = AckRequest(self, one, self.journal.stream)
        try:
            request.stream.queue.put(request)
        except StoreError:
            self._take_back(one.as_many())
            raise
        self.journal.count([request.data])
        return request

    def answered(self, one: AckedOne, error: StoreError | None) -> None:
        """What became of a submitted acknowledgement; in the thread that made it durable."""
        if error is None:
            del self.on_way[one.receipt]
            self.release([(one.queue_id, one.offset)])
        else:
            self._take_back(one.as_many())

    def _take_one(self, receipt: int) -> AckedOne:
        with self.lock:
            place = self.table.take_one(receipt)
            if place is None:
                raise self._stale([receipt])
            acked = self.cursor.queue(place[0])
            acked.add(place[1])
            one = AckedOne(self.cursor.life, acked.era, self.journal.next_offset, receipt, *place)
            self.on_way[receipt] = one
        return one

    def ack(self, receipts: Int64s) -> None:
        """Acknowledge messages, of which there is one at least; durable when it returns."""
        with self.lock:
            rows = self._rows(receipts)
            receipts, places = self.table.receipts(rows), self.table.places(rows)
            self.table.remove(rows)
            groups = [(queue_id, self._add(queue_id, offsets), offsets) for queue_id, offsets in by_queue(places)]
            acked = AckedMany(self.cursor.life, self.journal.next_offset, groups, receipts, places)
            self.on_way[int(receipts[0])] = acked
        try:
            self.journal.append(pack_acks(acked.life, groups, self.limit_bytes))
        except BaseException:  # also an interrupt: they may be acknowledged again, whatever became of the record
            self._take_back(acked)
            raise
        del self.on_way[int(receipts[0])]
        ordered = zip(places.queues.tolist(), places.offsets.tolist(), strict=True) if self.order is not None else ()
        self.release(list(ordered))
        self._compact_in_time()

    def _add(self, queue_id: int, offsets: Int64s) -> int:
        """Add acknowledged offsets of a queue; the queue's era."""
        acked = self.cursor.queue(queue_id)
        acked.add_all(offsets)
        return acked.era

    def _rows(self, receipts: Int64s) -> Rows:
        """The rows of receipts, each once. Raises StaleReceipt if a consumer does not have one of them."""
        receipts = np.unique(receipts)
        rows = self.table.find(receipts)
        states = self.table.states(rows)
        good = (rows >= 0) & ((states == Is.OUT) | (states == Is.LATE))
        if not good.all():
            raise self._stale(receipts[~good].tolist())
        return rows

    def _stale(self, receipts: list[int]) -> StaleReceipt:
        shown = ", ".join(map(str, receipts[:SHOWN_RECEIPTS])) + (", .." if len(receipts) > SHOWN_RECEIPTS else "")
        return StaleReceipt(
            f"{len(receipts)} receipt(s) of the subscription {self.name!r} are stale ({shown}): the message was "
            f"acknowledged or given back, or its visibility time-out passed and it was given to another; nothing was "
            f"done. Leave these out, or take a longer visibility_timeout_ms",
            tuple(receipts),
        )

    def _take_back(self, acked: AckedMany) -> None:
        """The record was not stored: the messages are out as before, but for those that a seek has met."""
        receipts, places = acked.receipts, acked.places
        with self.lock:
            self.on_way.pop(int(receipts[0]), None)
            kept = np.zeros(places.size, np.bool_)
            for queue_id, offsets in self._still(acked):
                self.cursor.queue(queue_id).remove_all(offsets)
                kept |= places.queues == queue_id
            self.table.restore(receipts[kept], Places(*[column[kept] for column in places]), self.now_ms())

    def _still(self, acked: AckedMany) -> list[tuple[int, Int64s]]:
        """The offsets of each queue that no seek has met since they were acknowledged. Under the lock."""
        if self.cursor.life != acked.life:
            return []
        return [
            (queue_id, offsets) for queue_id, era, offsets in acked.groups if self.cursor.queue(queue_id).era == era
        ]

    def _compact_in_time(self) -> None:
        if self.journal.wants_compaction and self.changing.acquire(blocking=False):
            try:
                self.compact()
            finally:
                self.changing.release()

    def release(self, places: Sequence[tuple[int, int]]) -> None:
        """Messages are over: in an ordered subscription it is the turn of those behind them."""
        order = self.order
        if order is None or not places:
            return
        with self.lock:
            freed = [order.release(*place) for place in places]
        if any(freed):
            self.ring()

    def compact(self) -> None:
        """Write a snapshot, and remove the records before it. `changing` is held."""
        if self.cursor.settings is not None:
            self.journal.compact(self._snapshot)

    def _snapshot(self) -> tuple[list[bytes], int]:
        """Records that say all but what is on its way, and the offset from which on the records of that may lie."""
        with self.lock:
            on_way = [one.as_many() for one in list(self.on_way.values())]
            left_out = [part for acked in on_way for part in self._still(acked)]
            try:
                for queue_id, offsets in left_out:
                    self.cursor.queue(queue_id).remove_all(offsets)
                self.left_out, self.left_out_count = {}, 0  # it is said by this
                return self.cursor.snapshot(self.limit_bytes), min((one.start for one in on_way), default=NEVER)
            finally:
                for queue_id, offsets in left_out:
                    self.cursor.queue(queue_id).add_all(offsets)

    # -- leaving out ----------------------------------------------------------------------------------

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

    # -- counting attempts ----------------------------------------------------------------------------

    @property
    def counts_attempts(self) -> bool:
        """Whether attempts are counted over restarts: too many have a consequence."""
        settings = self.cursor.settings
        return settings is not None and settings.max_attempts is not None

    def tried(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, by what the log says. Under the lock."""
        counts = np.zeros(len(offsets), np.int64)
        for queue_id in np.unique(queues).tolist() if self.cursor.attempts else ():
            mine = np.flatnonzero(queues == queue_id)
            mine = mine[offsets[mine].argsort(kind="stable")]
            counts[mine] = self.cursor.tried(queue_id).of(offsets[mine])
        return counts

    def note_attempts(self, places: Places) -> Sequence[Request]:
        """Messages are given out, the newest of so many times: the requests that say so to the log.

        Raises as an append does; then nothing was noted.
        """
        groups = []
        with self.lock:
            life = self.cursor.life
            for queue_id in np.unique(places.queues).tolist():
                mine = np.flatnonzero(places.queues == queue_id)
                mine = mine[places.offsets[mine].argsort(kind="stable")]
                tried = self.cursor.tried(queue_id)
                tried.note(places.offsets[mine], places.attempts[mine])
                groups.append((queue_id, tried.era, places.offsets[mine], places.attempts[mine]))
        try:
            return self.journal.submit(pack_attempts(life, groups, self.limit_bytes))
        except BaseException:
            with self.lock:
                self._untried(places)
            raise

    def _untried(self, places: Places) -> None:
        for queue_id, offset, attempt in zip(*[column.tolist() for column in places], strict=True):
            self.cursor.tried(queue_id).take_back(offset, attempt)

    def wait_for_attempts(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the log has what it was told of messages that are given out. Raises StoreError: they come again,
        and this time does not count.
        """
        try:
            for request in noted:
                request.result()
        except StoreError:
            self.take_back(receipts)
            raise
        self._compact_in_time()

    # -- giving back ----------------------------------------------------------------------------------

    def nack(self, receipts: Int64s, delay_ms: int) -> None:
        """Give messages back: they come again after a while."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.now_ms() + delay_ms)
        self.ring()

    def take_back(self, receipts: Int64s) -> None:
        """Messages that were taken for a consumer who has gone meanwhile come again at once. Again is fine."""
        with self.lock:
            rows = self.table.find(receipts)
            places = self.table.places(rows[rows >= 0])
            self.table.take_back(receipts, self.now_ms())
            if self.counts_attempts:
                self._untried(places)
        self.ring()

    def extend(self, receipts: Int64s, ms: int) -> None:
        """Keep messages for so long from now on."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.now_ms() + ms, Is.OUT)
        self.signal += 1  # nothing comes earlier by that

    def list_again(self, receipts: Int64s) -> None:
        """These messages are to be given out again. Under the lock; one that is listed twice is given out once."""
        self.again += [receipts[at : at + AGAIN_RECEIPTS] for at in range(0, len(receipts), AGAIN_RECEIPTS)]

    def forget_consumers(self) -> None:
        """Nobody has anything any more: all that is not acknowledged comes again."""
        with self.lock:
            self.table.clear()
            self.again.clear()
            self._expect_tried()
            if self.order is not None:
                self.order.clear()

    def _expect_tried(self) -> None:
        """All is read again: some of it was given out before."""
        if self.counts_attempts:
            self.cursor.forget_tried()
            self.tried_ends = {queue_id: one.end for queue_id, one in self.cursor.attempts.items() if one.end}

    # -- another life ---------------------------------------------------------------------------------

    def load(self, *, pass_damage: bool = False) -> None:
        """Take on what the log says."""
        self.journal.load(self.cursor, pass_damage=pass_damage)
        if self.cursor.settings is not None:
            self._adopt(self.cursor.settings)
        self._expect_tried()

    def _adopt(self, settings: Settings) -> None:
        self.order = Order(by_key=settings.order_by == "key") if settings.mode == "ordered" else None

    def create(self, settings: Settings, offsets: Mapping[int, int]) -> None:
        """Make the subscription, with the first offset of each queue, durably. `changing` is held."""
        life = self.cursor.life + 1
        marks = {queue_id: Mark(1, offset) for queue_id, offset in offsets.items()}
        self.journal.append(pack_state(life, CursorState(settings.pack(), marks), self.limit_bytes))
        with self.lock:
            self.cursor.begin(life, settings)
            self.cursor.move(marks)
        self._adopt(settings)

    def change(self, settings: Settings) -> None:
        """Take other settings, durably. `changing` is held."""
        self.journal.append(pack_state(self.cursor.life, CursorState(settings.pack(), {}), self.limit_bytes))
        self.cursor.settings = settings

    def move(self, offsets: Mapping[int, int]) -> None:
        """Go on at other offsets of some queues, durably. `changing` is held, and nothing is given out meanwhile."""
        settings = self.cursor.settings
        assert settings is not None, "only what exists is moved"
        with self.lock:
            marks = {queue_id: Mark(self.cursor.queue(queue_id).era + 1, at) for queue_id, at in offsets.items()}
        self.journal.append(pack_state(self.cursor.life, CursorState(settings.pack(), marks), self.limit_bytes))
        with self.lock:
            self.cursor.move(marks)
            for queue_id in offsets:
                self.left_out.pop(queue_id, None)
            self.table.remove(self.table.rows_of(list(offsets)))
            if self.order is not None:
                self.order.drop(offsets)

    def delete(self) -> None:
        """Remove it, durably. `changing` is held, and nothing is given out meanwhile."""
        life = self.cursor.life + 1
        self.journal.append([pack_delete(life)])
        with self.lock:
            self.cursor.begin(life, None)
        self.forget_consumers()
        self.journal.forget()
