"""The state of a subscription in this process, for all of its consumers: the cursor, and the messages in flight."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt

from ...index.locks import if_free, let_pass
from ..errors import StoreError
from ..format.arrays import Indexes, Int64s
from ..format.cursors import CursorMark, pack_acks, pack_delete, pack_ones, pack_state
from ..format.cursors import State as CursorState
from ..log.ticket import Ticket
from ..read.waiting import ANY_QUEUE
from .calling import WaitingConsumers
from .cursor import Cursor
from .group_commit import GroupCommit
from .in_flight import NEVER, InFlight, Places, RowState
from .journal import Journal, UnfinishedChange
from .left_behind import AttemptCounts, SkippedMessages, SkippedOffsets
from .ordering import Order
from .parts import Parts
from .pending_acks import AckColumns, AckRow, AckTicket
from .settings import Settings, stale


class State(SkippedMessages):
    """Acknowledges, gives back and seeks. Any number of threads may use it.

    Invariants:
        * `lock` guards the cursor, the table and the order. A thread that holds it waits for neither the log nor the
          device;
        * each offset that the cursor counts as acknowledged has a durable record, a record on its way, or is being
          taken back. Messages left out, mostly by a filter, are in `left_out` or were handed over to the log; if their
          record is lost, they are found and left out again;
        * each acknowledgement whose record may still fail is in `pending_acks`, and in no snapshot;
        * `changing` is held to change settings, to seek, to delete and to compact: so a snapshot has the newest state.
    """

    def __init__(self, parts: Parts, topic: str, name: str) -> None:
        self.parts = parts
        self.topic = topic
        self.name = name
        self.lock = threading.Lock()
        self.changing = threading.Lock()
        self.cursor = Cursor()
        self.table = InFlight(parts.receipts.take)
        self.pending_acks: dict[int, AckRow | Int64s] = {}  # by the first receipt: one row, or columns
        self.to_redeliver: deque[Int64s] = deque()  # receipts of the messages that are to be given out again
        self.order: Order | None = None
        self.journal = Journal(parts, topic, name)
        self.group_commit = GroupCommit(self.journal, parts, self.settle)
        self.left_out: dict[int, SkippedOffsets] = {}  # by queue id; no record has it yet
        self.left_out_count = 0
        self.tries = AttemptCounts(self)
        self.unfinished = UnfinishedChange(self.changing, self.notify)  # a change of which the log may know alone
        self._is_compacted = False  # by one of many coroutines that go on at the same time
        self.calling = WaitingConsumers(parts.waiting, topic, self.now_ms, self.notify)
        self.version = 0  # changes with all that only a look can find
        self._versions = count(1)  # each is given once: two threads that notify at once cannot bring an old one back
        self.limit_bytes = max(2048, parts.limit_bytes // 2)

    def now_ms(self) -> int:
        """The clock of deadlines: it does not jump."""
        return int(self.parts.clock.monotonic_s() * 1000)

    def deadline_ms(self, after_ms: int) -> int:
        """The time, by `now_ms`, when `after_ms` have passed: rounded up, so that nothing times out early."""
        return math.ceil(self.parts.clock.monotonic_s() * 1000) + after_ms

    def notify(self) -> None:
        """Have waiting consumers look again."""
        self.mark_changed()
        self.parts.waiting.look_at([(self.topic, ANY_QUEUE)])

    def mark_changed(self) -> None:
        """Note that the next look may find a message; nobody is woken for it."""
        self.version = next(self._versions)

    # -- acknowledging --------------------------------------------------------------------------------

    def ack_one(self, receipt: int) -> None:
        """Acknowledge one message; durable when it returns. After an interrupt it is durable, or may be repeated."""
        if self.lock.locked():
            let_pass(self.lock)
        ticket = AckTicket(self.journal.stream).of_thread()
        if self._hand_over(receipt, ticket, self.group_commit.write) and self.journal.wants_compaction:
            self.compact_in_time()

    async def ack_one_async(self, receipt: int) -> None:
        """`ack_one` for a coroutine. If its task is cancelled, the acknowledgement becomes durable all the same.

        It does not let other threads pass at a busy lock, as `ack_one` does: all coroutines of its loop would wait.
        """
        ticket = AckTicket(self.journal.stream)
        future = ticket.of_coroutine()
        if not self._hand_over(receipt, ticket, self.group_commit.begin):
            return
        await future
        if self.journal.wants_compaction and not self._is_compacted:
            self._is_compacted = True
            try:
                with suppress(StoreError):  # it is durable, even if the store was closed since
                    await self.parts.async_reads.aside(self.compact_in_time, self.parts.check_open)
            finally:
                self._is_compacted = False

    def submit_ack(self, receipt: int) -> Ticket:
        """Acknowledge one message; durable when the ticket is done."""
        self.compact_in_time()
        if self.lock.locked():
            let_pass(self.lock)
        ticket = AckTicket(self.journal.stream)
        if not self._hand_over(receipt, ticket, self._submit):
            ticket.answer()
        return ticket

    def _submit(self, ticket: AckTicket) -> None:
        """Hand over a record for this ticket alone: it shares none, so that many can be on their way."""
        (row,) = ticket.rows
        record = pack_ones(row.life, [(row.queue_id, row.era, row.offset)])
        ticket.data, ticket.size_bytes, ticket.settle = record, len(record), self.settle
        self.journal.count([record])
        try:
            ticket.stream.lane.queue.put(ticket)
        except StoreError as error:
            self.settle([row], error)
            raise

    def _hand_over(self, receipt: int, ticket: AckTicket, write: Callable[[AckTicket], None]) -> bool:
        """Acknowledge one message in memory, and `write` it; False if it was removed, which counts as acknowledged."""
        try:
            if not self._take_one(receipt, ticket):
                return False
            write(ticket)
        except StoreError:
            raise
        except BaseException:  # passed on; after an interrupt a message without a record is not acknowledged
            if not ticket.is_handed_over:
                try:
                    self._undo(ticket.rows)
                finally:  # again, if another interrupt has cut it short
                    self._undo(ticket.rows)
            raise
        return True

    def settle(self, rows: Sequence[AckRow], error: StoreError | None) -> None:
        """Acknowledgements have their outcome; called by the thread that made them durable or gave them up."""
        pending = self.pending_acks
        if error is not None:  # rows that are not pending were taken back by an earlier call
            self._take_back([row for row in rows if pending.get(row.receipt) is row])
            return
        for row in rows:  # no call: after an interrupt another acknowledgement may have the receipt
            if row.receipt in pending and pending[row.receipt] is row:
                del pending[row.receipt]
        if self.order is not None:
            self.release([(row.queue_id, row.offset) for row in rows], if_acknowledged=True)

    def _undo(self, taken: Sequence[AckRow | Int64s]) -> None:
        """Take back this call's rows; the receipt may belong to another call by now. A second call does no harm."""
        for row in taken:
            first = row.receipt if isinstance(row, AckRow) else int(row[3, 0])
            if self.pending_acks.get(first) is row:
                self._take_back([row])

    def _take_one(self, receipt: int, ticket: AckTicket) -> bool:
        """Mark a message as acknowledged in memory; False if it was removed. `_undo` relies on the steps' order."""
        with self.lock:
            row = self.table.row_of(receipt)
            if row < 0:
                if receipt in self.table.removed:
                    return False
                raise stale(self.name, [receipt])
            place = self.table.place_of(row)
            acked = self.cursor.queue(place[0])
            one = AckRow(self.cursor.life, acked.era, self.journal.next_offset, receipt, *place)
            ticket.rows += [one]
            self.pending_acks[receipt] = one
            acked.add(place[1])
            self.table.remove_one(row)
        return True

    def ack(self, receipts: Int64s) -> None:
        """Acknowledge messages, at least one; durable when it returns."""
        taken = list[Int64s]()
        try:
            life, groups = self._take_many(receipts, taken)
            if not groups:
                return
            first, places = int(taken[0][3, 0]), Places(*taken[0][4:])
            self.journal.append(pack_acks(life, groups, self.limit_bytes))
            del self.pending_acks[first]  # no call from here to the end of the `try`: the record counts
        except BaseException:  # also an interrupt: they may be acknowledged again, whether the record is durable or not
            try:
                self._undo(taken)
            finally:  # as above
                self._undo(taken)
            raise
        try:
            self._go_on(places)
        except BaseException:  # an interrupt: no other thread has the lines go on
            self._go_on(places)
            self.notify()
            raise
        self.compact_in_time()

    def _take_many(self, receipts: Int64s, taken: list[Int64s]) -> tuple[int, list[tuple[int, int, Int64s]]]:
        """`_take_one` for many. Returns the life, and each queue's id, era and offsets. `taken` gets the columns."""
        with self.lock:
            rows = self._rows(receipts)
            life, places = self.cursor.life, self.table.places(rows)
            if not places.size:  # all of them were removed
                return life, []
            columns = np.empty((7, places.size), np.int64)
            columns[0], columns[2] = life, self.journal.next_offset
            columns[3], columns[4:] = self.table.receipts(rows), places
            groups = [(queue_id, self.cursor.queue(queue_id).era, offsets) for queue_id, offsets in places.by_queue()]
            for queue_id, era, _ in groups:
                columns[1, places.queues == queue_id] = era
            first = int(columns[3, 0])
            taken += [columns]
            self.pending_acks[first] = columns
            for queue_id, _, offsets in groups:
                self.cursor.queue(queue_id).add_all(offsets)
            self.table.remove(rows)
        return life, groups

    def _rows(self, receipts: Int64s) -> Indexes:
        """The rows of receipts, each once, without those of removed messages.

        Raises StaleReceipt if a consumer does not have one of them.
        """
        receipts = np.unique(receipts)
        if self.table.removed:
            receipts = receipts[~self.table.removed.are_in(receipts)]
        rows = self.table.find(receipts)
        states = self.table.states(rows)
        good = (rows >= 0) & ((states == RowState.OUT) | (states == RowState.LATE))
        if not good.all():
            raise stale(self.name, receipts[~good].tolist())
        return rows

    def _take_back(self, rows: Sequence[AckRow | Int64s]) -> None:
        """The record was not stored: the messages are out again, except those that a seek has met."""
        if not rows:
            return
        with self.lock:
            taken = AckColumns.of(rows)
            still = taken.take(self._are_still(taken))
            still = still.take(still.receipts.argsort())
            self.table.restore(still.receipts, still.places, self.now_ms())
            self.note_given(still.receipts, still.places)  # the order may have forgotten the receipts meanwhile
            for queue_id, offsets in still.places.by_queue():  # after the table: one in neither would be read as new
                self.cursor.queue(queue_id).remove_all(offsets)
            for receipt in taken.receipts.tolist():  # last: after an interrupt they are taken back again
                self.pending_acks.pop(receipt, None)
        self.notify()  # they come again at once

    def _are_still(self, acks: AckColumns) -> npt.NDArray[np.bool_]:
        """(n,) which messages no seek has met since they were acknowledged. Under the lock."""
        eras = {queue_id: self.cursor.queue(queue_id).era for queue_id in set(acks.places.queues.tolist())}
        now = np.array([eras[queue_id] for queue_id in acks.places.queues.tolist()], np.int64)
        found: npt.NDArray[np.bool_] = (acks.lives == self.cursor.life) & (acks.eras == now)
        return found

    def compact_in_time(self) -> None:
        """Compact if the journal needs it, and no other thread changes the subscription. It raises nothing if that
        fails: the next record tries again.
        """
        for _ in if_free(self.changing) if self.journal.wants_compaction else ():
            try:
                with suppress(StoreError, OSError):  # they are durable without it; the next record tries again
                    self.compact()
            finally:
                self.changing.release()

    def compact(self) -> None:
        """Write a snapshot, and remove the records before it. `changing` is held."""
        if self.cursor.settings is not None:
            self.journal.compact(self._snapshot)

    def _snapshot(self) -> tuple[list[bytes], int]:
        """Records of the state without acknowledgements on their way; and where the records of these may begin."""
        with self.lock:
            pending = AckColumns.of(list(self.pending_acks.values()))
            but_for = pending.take(self._are_still(pending)).places.by_queue()
            self.left_out, self.left_out_count = {}, 0  # the snapshot has it
            frozen = self.cursor.frozen(but_for)
        return frozen.records(self.limit_bytes), int(pending.starts.min(initial=NEVER))

    def are_acknowledged(self, queue_id: int, ascending: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages of a queue are acknowledged for good: no record on its way for them may fail."""
        with self.lock:
            found = self.cursor.queue(queue_id).are_in(ascending)
            pending = AckColumns.of(list(self.pending_acks.values()))
            mine = self._are_still(pending) & (pending.places.queues == queue_id)
            found &= ~np.isin(ascending, pending.places.offsets[mine])
        return found

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages are acknowledged, given out or in a line."""
        with self.lock:
            found = self.cursor.have(queues, offsets) | self.table.have(queues, offsets)
            if self.order is not None:
                found |= self.order.have(queues, offsets)
        return found

    # -- starting over --------------------------------------------------------------------------------

    def forget_consumers(self) -> None:
        """No consumer has a message any more: all that are not acknowledged come again."""
        self.mark_changed()
        with self.lock:
            self.table.clear()
            self.to_redeliver.clear()
            self.tries.expect()
            if self.order is not None:  # a line waits for acknowledgements on their way: these may fail
                self.order.keep({}, self.cursor.has)

    # -- another life ---------------------------------------------------------------------------------

    def load(self, *, pass_damage: bool = False) -> None:
        """Load the cursor from the log, without acknowledgements of lost messages. Raises as an append does."""
        self.journal.load(self.cursor, pass_damage=pass_damage)
        if self.cursor.settings is not None:
            self._adopt(self.cursor.settings)
        if self.cursor.cut(partial(self.parts.streams.end_at_opening, self.topic)) and self.parts.may_write:
            with self.changing:
                self.compact()
        self.tries.expect()

    def _adopt(self, settings: Settings) -> None:
        self.order = Order(by_key=settings.order_by == "key") if settings.mode == "ordered" else None

    def create(self, settings: Settings, offsets: Mapping[int, int]) -> None:
        """Make the subscription, with the first offset of each queue, durably. `changing` is held."""
        life = self.cursor.life + 1
        marks = {queue_id: CursorMark(1, offset) for queue_id, offset in offsets.items()}
        self.journal.append(pack_state(life, CursorState(settings.pack(), marks), self.limit_bytes))
        with self.lock:
            self.cursor.begin(life, settings)
            self.cursor.move(marks)
        self._adopt(settings)

    def change(self, settings: Settings) -> None:
        """Change the settings, durably. `changing` is held."""
        self.journal.append(pack_state(self.cursor.life, CursorState(settings.pack(), {}), self.limit_bytes))
        self.cursor.settings = settings

    def move(self, offsets: Mapping[int, int]) -> None:
        """Move some queues to other offsets, durably. `changing` is held, and nothing is given out meanwhile."""
        settings = self.cursor.settings
        assert settings is not None, "only what exists is moved"
        with self.lock:
            marks = {queue_id: CursorMark(self.cursor.queue(queue_id).era + 1, at) for queue_id, at in offsets.items()}
        self.unfinished.make(partial(self._move, settings, marks))

    def _move(self, settings: Settings, offsets: Mapping[int, CursorMark]) -> None:
        if any(self.cursor.queue(queue_id).era < mark.era for queue_id, mark in offsets.items()):  # else it was made
            self.journal.append(pack_state(self.cursor.life, CursorState(settings.pack(), offsets), self.limit_bytes))
            with self.lock:
                self.cursor.move(offsets)
        with self.lock:
            for queue_id in offsets:
                self.left_out.pop(queue_id, None)
            self.table.remove(self.table.rows_of(list(offsets)))
            if self.order is not None:
                self.order.drop(offsets)

    def delete(self) -> None:
        """Delete the subscription, durably. `changing` is held, and nothing is given out meanwhile."""
        self.unfinished.make(partial(self._delete, self.cursor.life + 1))
        with suppress(StoreError, OSError):  # it is deleted; retention removes its records another time
            self.journal.forget()

    def _delete(self, life: int) -> None:
        self.journal.append([pack_delete(life)])
        with self.lock:
            self.cursor.begin(life, None)
        self.forget_consumers()
