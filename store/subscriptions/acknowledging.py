"""Acknowledging: a message is ACKED in the table, its record becomes durable, and then the cursor counts it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import numpy as np

from ...index.locks import let_pass
from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.cursors import ONE_BYTES, pack_acks, pack_one
from ..log.ticket import RecordTicket, Ticket
from .ack_row import AckRow
from .group_commit import AckTicket, GroupCommit
from .in_flight import RowState
from .joint_acks import JointAcks
from .journal import RECORD_COST_BYTES
from .settings import stale
from .state import TAKEN_TOGETHER, State

CUT_SHORT = StoreError("an interrupt has ended the call")


class AckBatch:
    """Messages that are being acknowledged by one call.

    Attributes:
        life: of the subscription when they were acknowledged.
        groups: each queue's id, era and offsets.
        is_stored: their record is durable.
    """

    __slots__ = ("groups", "is_stored", "life", "receipts")

    def __init__(self) -> None:
        self.life = 0
        self.receipts = np.empty(0, np.int64)
        self.groups: list[tuple[int, int, Int64s]] = []
        self.is_stored = False


class Acknowledging:
    """Acknowledges the messages of one subscription. Any number of threads may use it.

    Invariants:
        * a message whose record is on its way is ACKED in the table, and the cursor does not count it. The record's
          outcome decides: the cursor counts it, or it is OUT again. So a snapshot has no record that may still fail;
        * rows whose record is durable are in `state.stored`, and ACKED, until a thread that has the lock takes them in:
          one that looks at the cursor, or acknowledges and finds `TAKEN_TOGETHER` of them. The thread that writes the
          log waits for no lock, except to let the next messages of a line out, which no other does;
        * ACKED rows that no record and no thread has any more are in `cut_short`.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._journal = state.journal
        self.group_commit = GroupCommit(state.journal, state.parts, self.settle)
        self.cut_short: list[list[AckRow] | AckBatch | JointAcks] = []  # of calls that an interrupt has ended
        self._is_compacted = False  # by one of many coroutines that go on at the same time

    def ack_one(self, receipt: int) -> None:
        """Acknowledge one message; durable when it returns. After an interrupt it is durable, or may be repeated."""
        if self._state.lock.locked():
            let_pass(self._state.lock)
        ticket = AckTicket().of_thread()
        if self._hand_over(receipt, ticket, self.group_commit.write) and self._journal.wants_compaction:
            self._state.compact_in_time()

    async def ack_one_async(self, receipt: int) -> None:
        """`ack_one` for a coroutine. If its task is cancelled, the acknowledgement becomes durable all the same.

        It does not let other threads pass at a busy lock, as `ack_one` does: all coroutines of its loop would wait.
        """
        ticket = AckTicket()
        future = ticket.of_coroutine()
        if not self._hand_over(receipt, ticket, self.group_commit.begin):
            return
        await future
        if self._journal.wants_compaction and not self._is_compacted:
            self._is_compacted = True
            parts = self._state.parts
            try:
                with suppress(StoreError):  # it is durable, even if the store was closed since
                    await parts.async_reads.aside(self._state.compact_in_time, parts.check_open)
            finally:
                self._is_compacted = False

    def submit(self, receipt: int) -> Ticket:
        """Acknowledge one message; durable when the ticket is done. It shares no record: many can be on their way."""
        journal, stream = self._journal, self._journal.stream
        assert stream is not None, "its subscription is durable"
        if journal.wants_compaction:
            self._state.compact_in_time()
        if self._state.lock.locked():
            let_pass(self._state.lock)
        ticket: RecordTicket[AckRow] = RecordTicket(stream, self.settle)
        try:
            if not self._mark_one(receipt, ticket.rows):
                ticket.answer()
                return ticket
            ((life, era, _, queue_id, offset),) = rows = ticket.rows
            ticket.data, ticket.size_bytes = pack_one(life, queue_id, era, offset), ONE_BYTES
            journal.count_bytes(ONE_BYTES + RECORD_COST_BYTES)
            try:
                stream.lane.queue.put(ticket)
            except StoreError as error:
                self.settle(rows, error)
                raise
        except StoreError:
            raise
        except BaseException:  # see `_hand_over`
            rows, ticket.rows = ticket.rows, []
            self.cut_short += [rows]
            self._finish()
            raise
        return ticket

    def _hand_over(self, receipt: int, ticket: AckTicket, write: Callable[[AckTicket], None]) -> bool:
        """Mark one message as ACKED, and `write` it; False if it was removed, which counts as acknowledged."""
        try:
            if not self._mark_one(receipt, ticket.rows):
                return False
            write(ticket)
        except StoreError:
            raise
        except BaseException:  # an interrupt has ended the call: a message without a record is not acknowledged
            if not ticket.is_handed_over:
                rows, ticket.rows = ticket.rows, []  # its record may be in the log: its answer is about nothing
                self.cut_short += [rows]  # no call comes before it: a second interrupt finds the rows noted
                self._finish()
            raise
        return True

    def _mark_one(self, receipt: int, marked: list[AckRow]) -> bool:
        """Make the row of a message ACKED, and note it; False if it was removed."""
        state, table = self._state, self._state.table
        with state.lock:
            if len(state.stored) >= TAKEN_TOGETHER:
                state.take_in()
            row = table.row_of(receipt)
            if row < 0:
                if receipt in table.removed:
                    return False
                raise stale(state.name, [receipt])
            queue_id, offset, _ = table.place_of(row)
            cursor = state.cursor
            # `AckRow(..)` would call a function of Python.
            marked += [tuple.__new__(AckRow, (cursor.life, cursor.queue(queue_id).era, receipt, queue_id, offset))]
            table.acknowledge_one(row, self._journal.next_offset)
        return True

    def settle(self, rows: Sequence[AckRow], error: StoreError | None) -> None:
        """Acknowledgements have their outcome; called by the thread that made them durable or gave them up.

        It may be repeated.
        """
        state = self._state
        if error is None:
            state.stored += rows
            state.note_progress()
            if state.order is None:
                return
        with state.lock:
            if error is None:
                is_news = state.count_stored()
            else:
                is_news = any([state.table.unacknowledge_one(row.receipt, state.now_ms()) for row in rows])
        if is_news:
            state.notify()

    def ack(self, receipts: Int64s) -> None:
        """Acknowledge messages, at least one; durable when it returns."""
        self.ack_chosen(lambda: receipts)

    def ack_chosen(self, receipts: Callable[[], Int64s]) -> int:
        """`ack` of messages that are chosen under the lock, where `receipts` is called. Returns how many were
        acknowledged: removed ones are not.
        """
        batch = AckBatch()
        try:
            self._mark(receipts, batch)
            if not batch.groups:  # all of them were removed
                return 0
            self._journal.append(pack_acks(batch.life, batch.groups, self._state.limit_bytes))
            batch.is_stored = True
            self._settle_batch(batch)
        except BaseException:  # also an interrupt: they are acknowledged, or may be acknowledged again
            if batch.groups:
                self.cut_short += [batch]
                self._finish()
            raise
        self._state.compact_in_time()
        return len(batch.receipts)

    def _mark(self, receipts: Callable[[], Int64s], batch: AckBatch) -> None:
        """Make the rows of messages ACKED."""
        state, table, cursor = self._state, self._state.table, self._state.cursor
        with state.lock:
            if state.stored:
                state.take_in()
            rows = state.rows(receipts())
            groups = [(queue_id, cursor.queue(queue_id).era, at) for queue_id, at in table.places(rows).by_queue()]
            batch.receipts, batch.life, batch.groups = table.receipts(rows), cursor.life, groups
            table.acknowledge(rows, self._journal.next_offset)

    def _settle_batch(self, batch: AckBatch) -> None:
        """`settle` for the messages of one call."""
        state, table, is_news = self._state, self._state.table, False
        with state.lock:
            rows = table.find(batch.receipts)
            rows = rows[rows >= 0]
            if not batch.is_stored:
                rows = rows[table.states(rows) == RowState.ACKED]
                table.hold(rows, state.now_ms(), RowState.OUT)
                is_news = len(rows) > 0
            else:
                for queue_id, era, offsets in batch.groups if batch.life == state.cursor.life else ():
                    acked = state.cursor.queue(queue_id)
                    if era == acked.era:
                        acked.add_all(offsets)
                        if state.order is not None:
                            is_news |= any([state.order.release(queue_id, at) for at in offsets.tolist()])
                table.remove(rows)
                state.note_progress()
        if is_news:
            state.notify()

    def joint(self, receipts: Collection[int]) -> JointAcks:
        """Acknowledgements that a transaction is to make durable: of one message at least."""
        return JointAcks(self._state, receipts, self.settle)

    @property
    def is_unfinished(self) -> bool:
        """Whether `finish` has something to do."""
        return self._state.unfinished.change is not None or bool(self.cut_short)

    def cut_joint_short(self, joint: JointAcks) -> None:
        """An interrupt has ended the transaction's call."""
        self.cut_short += [joint]
        self._finish()

    def finish(self) -> None:
        """Finish calls that an interrupt has ended: a change, and acknowledgements."""
        self._state.unfinished.finish()
        self._finish()

    def _finish(self) -> None:
        """Finish acknowledgements that an interrupt has ended: ACKED rows without a durable record are OUT again."""
        while cut_short := self.cut_short[:1]:
            (one,) = cut_short
            if isinstance(one, AckBatch):
                self._settle_batch(one)
            elif isinstance(one, JointAcks):
                one.finish(CUT_SHORT)
            else:
                self.settle(one, CUT_SHORT)
            self._state.notify()  # an interrupt may have come before
            with suppress(ValueError):  # another thread has done it
                self.cut_short.remove(one)
