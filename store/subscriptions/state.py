"""The state of a subscription in this process, for all of its consumers: the cursor, and the messages in flight."""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ...index.locks import if_free
from ..errors import StoreError
from ..format.arrays import Indexes, Int64s
from ..format.cursors import CursorMark, pack_acks, pack_delete, pack_state
from ..format.cursors import State as CursorState
from ..read.waiting import ANY_QUEUE
from .ack_row import AckRow
from .backlog import Backlog, backlog_of, bounds_of, snapshot
from .calling import QueueCalls, WaitingConsumers
from .cursor import Cursor, SkippedOffsets
from .in_flight import NO_OWNER, NOTHING, InFlight, Places, RowState
from .journal import Journal, UnfinishedChange
from .ordering import Order
from .parts import Parts
from .settings import Settings, stale
from .stories import NO_REASON, NO_STORY, UNKNOWN_MS, Reasons, Stories

TAKEN_TOGETHER = 32  # durable acknowledgements: one takes 0.4 of the time beside others
LISTED_TOGETHER = 1024  # receipts in one chunk of a list of messages to redeliver


class State:
    """What the parts of a subscription share: one lock guards the cursor, the table and the order. It knows no part.

    Invariants:
        * a thread that holds `lock` waits for neither the log nor the device;
        * each offset that the cursor counts as acknowledged has a durable record. Messages that were left out, mostly
          by a filter, are in `left_out` or were handed to the log; if their record is lost, they are left out again;
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
        self.reasons = Reasons()  # why messages of the table were given back
        self.to_redeliver: deque[Int64s] = deque()  # receipts of the messages that are to be given out again
        self.order: Order | None = None
        self.journal = Journal(parts, topic, name)
        self.stored: list[AckRow] = []  # acknowledgements whose record is durable; the cursor does not count them yet
        self.left_out: dict[int, SkippedOffsets] = {}  # by queue id; no record has it yet
        self.left_out_count = 0
        self.lost_below: dict[int, int] = {}  # by queue id: what retention took below was counted, if it was wanted
        self.unfinished = UnfinishedChange(self.changing, self.notify)  # a change of which the log may know alone
        self.calling = WaitingConsumers(parts.waiting, topic, self.now_ms, self.notify)
        self.queue_calls = QueueCalls(parts.waiting, topic, self.now_ms)
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
        self.parts.waiting.look_at([(self.topic, ANY_QUEUE), *self.queue_calls.names()])

    def note_progress(self) -> None:
        """Note that messages were acknowledged for good, or are wanted again: retention may look at work queues."""
        delays = self.parts.delays
        if delays is not None and delays.changed.is_followed:
            delays.changed.note(self.topic)

    def mark_changed(self) -> None:
        """Note that the next look may find a message; nobody is woken for it."""
        self.version = next(self._versions)

    # -- messages in flight ---------------------------------------------------------------------------

    def rows(self, receipts: Int64s) -> Indexes:
        """The rows of receipts, each once, without those of removed messages.

        Raises StaleReceipt if a consumer does not have one of them.
        """
        if not (receipts[1:] > receipts[:-1]).all():  # quicker to check than to sort: a batch has them ascending
            receipts = np.unique(receipts)
        if self.table.removed:
            receipts = receipts[~self.table.removed.are_in(receipts)]
        rows = self.table.find(receipts)
        states = self.table.states(rows)  # compared one by one: `isin` takes 20 times as long
        good = (states == RowState.OUT) | (states == RowState.LATE) | (states == RowState.RESTING)
        good &= rows >= 0
        if not good.all():
            raise stale(self.name, receipts[~good].tolist())
        return rows

    def receipts_up_to(self, receipt: int, owner: int) -> Int64s:
        """The receipts of a consumer's messages of one queue, up to that of a receipt. Under the lock. Raises
        StaleReceipt; of a message that was removed there are none.
        """
        row = self.table.row_of(receipt)
        if row < 0:
            if receipt in self.table.removed:
                return NOTHING
            raise stale(self.name, [receipt])
        queue_id, offset, _ = self.table.place_of(row)
        return np.union1d(self.table.held_up_to(queue_id, offset, owner), [receipt])

    def nack(self, receipts: Int64s, delay_ms: int, reason: str | None) -> None:
        """Give messages back: they come again after `delay_ms`, or with 0 after the delay of the back-off."""
        with self.lock:
            rows, settings = self.rows(receipts), self.cursor.settings
            if reason is not None:
                self.reasons.forget_unused(self.table.reasons)
            if len(self.reasons) or reason is not None:
                self.table.note_reason(rows, NO_REASON if reason is None else self.reasons.number_of(reason))
            rests = None if delay_ms or settings is None else settings.rests_ms(self.table.places(rows).attempts)
            if rests is not None:
                self.table.hold_each(rows, np.where(rests > 0, self.deadline_ms(0) + rests, self.now_ms()))
            else:
                self.table.hold(rows, self.deadline_ms(delay_ms) if delay_ms else self.now_ms())
        self.notify()

    def expire(self) -> None:
        """List the messages that time out, or whose delay is over. Under the lock."""
        settings = self.cursor.settings
        self.table.expire(self.now_ms(), self.redeliver, None if settings is None else settings.rests_ms)

    def undo_receive(self, receipts: Int64s) -> None:
        """See `WaitedFor`: only what is still OUT is given back, and loses its newest attempt."""
        with self.lock:
            rows = self.table.find_out(receipts)
            self.undo_attempts(self.table.places(rows))  # first: by the table's attempt, so that it can be done again
            self.table.undo_receive(rows, self.now_ms())
        self.notify()

    def undo_attempts(self, places: Places) -> None:
        """Undo the newest attempts: no consumer has had the messages. Under the lock."""
        if self.cursor.counts_attempts:
            self.cursor.undo_attempts(zip(*[column.tolist() for column in places], strict=True))

    def leave(self, owner: int) -> None:
        """A consumer goes: its messages come again at once, but for those that rest."""
        with self.lock:
            self.expire()  # what has timed out before has failed, and rests
            self.table.leave(owner, self.now_ms())

    def extend(self, receipts: Int64s, ms: int) -> None:
        """Keep messages for `ms` from now on, which may end earlier than before."""
        deadline_ms = self.deadline_ms(ms)
        with self.lock:
            self.table.hold(self.rows(receipts), deadline_ms, RowState.OUT)
        self.mark_changed()
        self.calling.gives_out(deadline_ms)
        self.queue_calls.gives_out(deadline_ms)

    def redeliver(self, receipts: Int64s) -> None:
        """List messages to be given out again. Under the lock; one that is listed twice is given out once."""
        self.to_redeliver += [receipts[at : at + LISTED_TOGETHER] for at in range(0, len(receipts), LISTED_TOGETHER)]

    def unlist(self, receipts: Int64s) -> None:
        """Unlist messages that have to wait; the caller that lets them go on lists them again. Under the lock."""
        left = [listed[~np.isin(listed, receipts)] for listed in self.to_redeliver]
        self.to_redeliver = deque([listed for listed in left if len(listed)])

    def enter(
        self, places: Places, deadline_ms: int, owner: int = NO_OWNER, given_ms: int = UNKNOWN_MS,
        stories: Stories = NO_STORY,
    ) -> Int64s:  # fmt: skip
        """Enter messages into the table and their lines. Returns their receipts (n,). Under the lock."""
        receipts = self.table.add(places, deadline_ms, owner, given_ms, stories)
        if self.order is not None:
            self.order.given(places.pairs(), receipts.tolist())
        return receipts

    def rebuild_lines(self) -> None:
        """Keep in the lines only what is in the table; all else is admitted anew. Under the lock."""
        if self.order is not None:
            rows = self.table.live()
            pairs, receipts = self.table.places(rows).pairs(), self.table.receipts(rows).tolist()
            self.order.keep(dict(zip(pairs, receipts, strict=True)))

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages are acknowledged, given out or in a line."""
        with self.lock:
            found = self.cursor.have(queues, offsets) | self.table.have(queues, offsets)
            if self.order is not None:
                found |= self.order.have(queues, offsets)
        return found

    def backlog(self) -> Backlog:
        """How many messages are not acknowledged. Raises StoreCorrupt, StoreUnreadable."""
        bounds = bounds_of(self.parts, self.topic)
        with self.lock:
            known = snapshot(self.cursor, self.table, self.now_ms())
        return backlog_of(bounds, known)

    def take_in(self) -> None:
        """Have the cursor count what is stored; under the lock. Where lines wait, the thread that settles does it: it
        has their consumers called, and this caller does not."""
        if self.order is None:
            self.count_stored()

    def count_stored(self) -> bool:
        """Have the cursor count what is stored; under the lock. True if others of a line may go out.

        Rows of an earlier life or era do not count: a seek or a deletion has met them.
        """
        cursor, table, order, is_news = self.cursor, self.table, self.order, False
        rows = self.stored[:]
        for life, era, _, queue_id, offset in rows:
            acked = cursor.queues.get(queue_id)
            if acked is not None and era == acked.era and life == cursor.life:
                acked.add(offset)
                if order is not None:
                    is_news |= order.release(queue_id, offset)
        table.remove_each([row.receipt for row in rows])
        del self.stored[: len(rows)]  # last: after an interrupt they are taken in again
        return is_news

    # -- messages that nobody gets ----------------------------------------------------------------------

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
        self.note_progress()

    def count_wanted(self, queue_id: int, ascending: Int64s) -> int:
        """How many messages of a queue are not acknowledged, without those that retention has counted as lost. Under
        the lock.
        """
        known = ascending < self.lost_below.get(queue_id, 0)
        return int(np.count_nonzero(~(known | self.cursor.queue(queue_id).are_in(ascending))))

    def drop(self, places: Places) -> int:
        """Have the lines of messages that are gone go on, and count these as acknowledged.

        Returns how many of them counted as wanted before: see `count_wanted`.
        """
        count = 0
        with self.lock:
            freed = [] if self.order is None else [self.order.release(*at) for at in places.pairs()]
            for queue_id, offsets in places.by_queue():  # last: after that nothing has the lines go on
                count += self.count_wanted(queue_id, offsets)
                self.leave_out(queue_id, offsets)
        if any(freed):
            self.notify()
        return count

    def note_left_out(self) -> None:
        """Submit a record of the messages left out; nobody waits for it. If it fails, they are left out again."""
        with self.lock:
            records = self._left_out_records()
            self.left_out, self.left_out_count = {}, 0
        if records and self.cursor.settings is not None:
            with suppress(StoreError):
                self.journal.submit(records)

    def _left_out_records(self) -> list[bytes]:
        groups = [
            (queue_id, one.era, np.frombuffer(one.offsets.to_array(), np.int64))
            for queue_id, one in self.left_out.items()
        ]
        return pack_acks(self.cursor.life, groups, self.limit_bytes) if groups else []

    # -- compacting -----------------------------------------------------------------------------------

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
            self.left_out, self.left_out_count = {}, 0  # the snapshot has it
            self.take_in()
            frozen, start = self.cursor.frozen(), self.table.first_start()
        return frozen.records(self.limit_bytes), start

    # -- starting over --------------------------------------------------------------------------------

    def forget_consumers(self) -> None:
        """No consumer has a message any more: all that are not acknowledged come again.

        Acknowledgements on their way stay in the table, and their lines wait for them: they may fail.
        """
        self.mark_changed()
        with self.lock:
            self.take_in()
            self.table.clear()
            self.to_redeliver.clear()
            self.rebuild_lines()

    # -- another life ---------------------------------------------------------------------------------

    def load(self, *, pass_damage: bool = False) -> None:
        """Load the cursor from the log, without acknowledgements of lost messages. Raises as an append does."""
        self.journal.load(self.cursor, pass_damage=pass_damage)
        if self.cursor.settings is not None:
            self._adopt(self.cursor.settings)
        if self.cursor.cut(partial(self.parts.streams.end_at_opening, self.topic)) and self.parts.may_write:
            with self.changing:
                self.compact()

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
        self.note_progress()

    def change(self, settings: Settings) -> None:
        """Change the settings, durably. `changing` is held, and for another filter nothing is given out meanwhile."""
        self.unfinished.make(partial(self._change, settings))

    def _change(self, settings: Settings) -> None:
        known = self.cursor.settings
        if known is not None and known.filter != settings.filter:
            self.compact()  # first: the new filter does not bring back what was left out, also not after a crash
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
        self.note_progress()

    def delete(self) -> None:
        """Delete the subscription, durably. `changing` is held, and nothing is given out meanwhile."""
        self.unfinished.make(partial(self._delete, self.cursor.life + 1))
        with suppress(StoreError, OSError):  # it is deleted; retention removes its records another time
            self.journal.forget()

    def _delete(self, life: int) -> None:
        self.journal.append([pack_delete(life)])
        with self.lock:
            self.cursor.begin(life, None)
            self.table.remove(self.table.live())
        self.note_progress()
        self.forget_consumers()
