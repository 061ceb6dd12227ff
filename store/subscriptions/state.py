"""What a process knows of a subscription, for all of its consumers: what is acknowledged, and what was given out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import StaleReceipt, StoreError
from ..format.cursors import Mark, pack_acks, pack_delete, pack_one, pack_state
from ..format.cursors import State as CursorState
from ..log.streams import Stream
from ..log.ticket import SubmitRequest, Ticket
from .cursor import Cursor
from .in_flight import NEVER, InFlight, Is, Places
from .journal import Journal
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
          back; what a filter has left out is found out again;
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
        request = _AckRequest(self, one, self.journal.stream)
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
            groups = [(queue_id, self._add(queue_id, offsets), offsets) for queue_id, offsets in _by_queue(places)]
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
                return self.cursor.snapshot(self.limit_bytes), min((one.start for one in on_way), default=NEVER)
            finally:
                for queue_id, offsets in left_out:
                    self.cursor.queue(queue_id).add_all(offsets)

    # -- giving back ----------------------------------------------------------------------------------

    def nack(self, receipts: Int64s, delay_ms: int) -> None:
        """Give messages back: they come again after a while."""
        with self.lock:
            self.table.hold(self._rows(receipts), self.now_ms() + delay_ms)
        self.ring()

    def take_back(self, receipts: Int64s) -> None:
        """Messages that were taken for a consumer who has gone meanwhile come again at once. Again is fine."""
        with self.lock:
            self.table.take_back(receipts, self.now_ms())
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
            if self.order is not None:
                self.order.clear()

    # -- another life ---------------------------------------------------------------------------------

    def load(self, *, pass_damage: bool = False) -> None:
        """Take on what the log says."""
        self.journal.load(self.cursor, pass_damage=pass_damage)
        if self.cursor.settings is not None:
            self._adopt(self.cursor.settings)

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


class AckedOne(NamedTuple):
    """A message that is being acknowledged. `start`: its record has this offset or a later one."""

    life: int
    era: int
    start: int
    receipt: int
    queue_id: int
    offset: int
    attempt: int

    def as_many(self) -> AckedMany:
        """The same in columns."""
        places = Places(*np.array([[self.queue_id], [self.offset], [self.attempt]]))
        groups = [(self.queue_id, self.era, places.offsets)]
        return AckedMany(self.life, self.start, groups, np.array([self.receipt]), places)


class AckedMany(NamedTuple):
    """Messages that are being acknowledged; `groups`: the queue id, era and offsets of each queue."""

    life: int
    start: int
    groups: Sequence[tuple[int, int, Int64s]]
    receipts: Int64s
    places: Places

    def as_many(self) -> AckedMany:
        """Itself."""
        return self


class _AckRequest(SubmitRequest):
    """The record of one acknowledgement. The state hears of its outcome before its caller does."""

    __slots__ = ("_one", "_state")

    def __init__(self, state: State, one: AckedOne, stream: Stream | None) -> None:
        assert stream is not None, "its subscription is durable"
        record = pack_one(one.life, one.queue_id, one.era, one.offset)
        super().__init__(stream, record, len(record))
        self._state = state
        self._one = one

    def answer(self, error: StoreError | None = None) -> None:
        self._state.answered(self._one, error)
        super().answer(error)


def _by_queue(places: Places) -> list[tuple[int, Int64s]]:
    """The offsets of each queue, ascending."""
    queues, offsets = places.queues, places.offsets
    if len(queues) and bool((queues == queues[0]).all()):
        return [(int(queues[0]), np.sort(offsets))]
    return [(int(queue_id), np.sort(offsets[queues == queue_id])) for queue_id in np.unique(queues).tolist()]
