"""Gives the messages of a subscription out (R30): those that come again first, then what is due, then new ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from ...index.turns import if_free
from ..delayed.due_list import Due
from ..log.request import Request
from ..read.message import MessageBatch
from .again import Again
from .delays import SubscriptionDelays
from .delivery import Delivery, DeliveryBatch, joined, queue_ids_of, singles, taken
from .fetching import Fetched, fetch_into
from .filters import PropertyFilter
from .in_flight import NEVER, Places
from .ordering import Order
from .place_list import PlaceList, first_of_each
from .room import Room
from .scanner import Scanner
from .state import State

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NOTED_MESSAGES = 10_000  # that were left out: the log is told of them together
DUE_PLACES = 1024  # looked at together: most of a long list may be acknowledged


class Dispatcher:
    """Any number of threads may take; one at a time does.

    Invariant: a message that was taken off a list is in the table before its batch is given out, or comes again. So an
    interrupt loses none.

    Attributes:
        noted: what the newest `take` told the log: its caller waits for that, without `receiving`.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.receiving = threading.Lock()
        self.noted: Sequence[Request] = ()
        self.delays = SubscriptionDelays(state.parts, state.topic, self._precision_ms, state.ring)
        self._again = Again(state, self._fetch_into, self._end, self.delays.copied)
        self._has_dead = False  # the newest look has found messages that were given out too often before a restart
        self._has_missed = False  # of what became due: all has to be scanned again
        self._due = PlaceList()  # those the scanner has passed
        self._scanner = self._new_scanner()

    def _new_scanner(self) -> Scanner:
        state, settings = self.state, self.state.cursor.settings
        wanted = None if settings is None or settings.filter is None else PropertyFilter(settings.filter)
        return Scanner(
            state.parts, state.topic, state.lock, state.cursor.queue, state.table.offsets_of, state.leave_out, wanted,
            self.delays,
        )  # fmt: skip

    def _precision_ms(self) -> int:
        settings = self.state.cursor.settings
        return 0 if settings is None else settings.precision_ms

    def open(self) -> None:
        """The subscription has a consumer. `receiving` is held."""
        self.delays.open()

    def close(self) -> None:
        """It has none any more: all that is not acknowledged comes again. `receiving` is held."""
        self.delays.close()
        self.restart()

    def restart(self) -> None:
        """Read on from what is acknowledged; nobody has anything. `receiving` is held."""
        self.state.forget_consumers()
        self._due.drop()
        self._scanner = self._new_scanner()

    def rewind(self, queue_ids: Sequence[int]) -> None:
        """The same of some queues. `receiving` is held."""
        self._due.drop(queue_ids)
        self._scanner.rewind(queue_ids)

    @property
    def is_unfinished(self) -> bool:
        """The newest `take` has found nothing, and there is more to look at."""
        return self._scanner.is_unfinished or self._has_missed or self.delays.has_copies or len(self._due) > 0

    def durable(self) -> object:
        """Something that changes when there may be new messages."""
        return self._scanner.durable()

    def next_ms(self) -> int:
        """When the next message comes again, by the state's clock."""
        return self.state.table.next_ms

    def take_few(self, count: int, visibility_ms: int) -> list[Delivery] | None:
        """`count` new messages of one queue, if they are at hand and nothing comes before them; quicker than `take`.

        `receiving` is held.
        """
        state, self.noted = self.state, ()
        if state.order is not None or state.again or self._has_missed or len(self._due) or self.delays.has_due():
            return None
        if state.tries.ends and self._may_be_tried():
            return None
        now_ms = state.now_ms()
        if now_ms >= state.table.next_ms:
            return None
        try:
            found = self._scanner.take_few(count)
            if found is None:
                return None
            messages = found[0].messages(found[1], found[1] + count)
            offsets = [message.offset for message in messages]
            if state.tries.are_counted:
                columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                self.noted = state.tries.note(Places(*columns))
            with state.lock:
                if offsets[-1] - offsets[0] == count - 1:
                    first = state.table.add_run(messages[0].queue_id, offsets[0], count, now_ms + visibility_ms)
                else:
                    columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                    first = int(state.table.add(Places(*columns), now_ms + visibility_ms)[0])
            return [Delivery(message, 1, receipt) for receipt, message in enumerate(messages, first)]
        except BaseException:  # passed on; also behind an interrupt the messages come again
            self._recover()
            raise

    def take_at_hand(self, count: int, visibility_ms: int) -> list[Delivery] | None:
        """As `take_few`, for a loop: without a wait but for the moments in which a thread has the state's lock. None
        also where others receive just now.
        """
        if self.delays.is_used or self.state.tries.are_counted:
            return None
        for _ in if_free(self.receiving):
            try:
                return self.take_few(count, visibility_ms)
            finally:
                self.receiving.release()
        return None

    def take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        """Up to `most` messages that a consumer may have now; None if there are none. `receiving` is held."""
        try:
            self.noted = ()
            found = self._take(most, max_bytes, visibility_ms)
            if found is None and (self._has_missed or self.delays.has_copies):
                found = self._take(most, max_bytes, visibility_ms)
            while found is None and self._has_dead:
                found = self._take(most, max_bytes, visibility_ms)
            if self.state.left_out_count >= NOTED_MESSAGES:
                self.state.note_left_out()
            return found
        except BaseException:  # what was on its way comes again, also after an interrupt
            self._recover()
            raise

    def _recover(self) -> None:
        """What was on its way comes again, and its lines are read anew; consumers keep what they have."""
        state, table = self.state, self.state.table
        self._due.drop()
        self._scanner.rewind()
        with state.lock:
            if state.order is not None:
                queues, offsets, _ = table.places(table.live())
                given = set(zip(queues.tolist(), offsets.tolist(), strict=True))
                state.order.keep(lambda *place: place in given or state.cursor.has(*place))  # or is being acknowledged
            self.state.list_again(self.state.table.late())
        state.ring()  # others that wait have not seen it

    def _take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        if self._has_missed:
            self._recover()
            self._has_missed, self.delays.again = False, True
        room = Room(most, max_bytes)
        self._has_dead = False
        batches, attempts, used = self._again.take(room)
        for take in (self._take_freed, self._take_due, self._take_new):
            batches += take(room)
        if not batches:
            return None
        batch = joined(batches)
        counts = np.concatenate([attempts, np.ones(len(batch) - len(attempts), np.int64)])
        if self.state.tries.are_counted:
            batch, counts = self._tried(batch, counts, len(attempts))
            self.noted = self.state.tries.note(Places(queue_ids_of(batch), batch.offsets, counts))
        return self._give_out(batch, counts, used, visibility_ms)

    def _tried(self, batch: MessageBatch, counts: Int64s, first: int) -> tuple[MessageBatch, Int64s]:
        """Those of a batch that were not given out too often before; `first` of them are known by the table."""
        state, settings = self.state, self.state.cursor.settings
        assert settings is not None and settings.max_attempts is not None, "attempts are counted"
        queues = queue_ids_of(batch)
        with state.lock:
            counts[first:] += state.tries.of(queues[first:], batch.offsets[first:])
            is_dead = counts > settings.max_attempts
            is_dead[:first] = False  # they were looked at, maybe by another setting
            dead = np.flatnonzero(is_dead)
            if len(dead):  # the next look finds them in the table, and moves them to the dead letters
                receipts = state.table.add(Places(queues[dead], batch.offsets[dead], counts[dead] - 1), NEVER)
                state.table.hold(state.table.find(receipts), state.now_ms())
                self._has_dead = True
        kept = np.flatnonzero(~is_dead)
        return (batch, counts) if not len(dead) else (taken(batch, kept), counts[kept])

    def _may_be_tried(self) -> bool:
        """Whether messages that are at hand may have been given out before."""
        ends = self.state.tries.ends
        for queue_id in [queue_id for queue_id, end in ends.items() if self._scanner.is_past(queue_id, end)]:
            del ends[queue_id]
        return bool(ends)

    def _give_out(
        self, batch: MessageBatch, attempts: Int64s, used: Int64s, visibility_ms: int
    ) -> DeliveryBatch | None:
        """Enter messages into the table; `used` are the receipts of those that come again, which are the first ones."""
        state = self.state
        with state.lock:
            if len(used):
                rows = state.table.find(used)
                still = np.ones(len(batch), np.bool_)
                still[: len(used)] = rows >= 0  # else acknowledged meanwhile, late
                state.table.remove(rows[rows >= 0])
                if not still.all():
                    kept = np.flatnonzero(still)
                    batch, attempts = taken(batch, kept), attempts[kept]
            places = Places(queue_ids_of(batch), batch.offsets, attempts)
            receipts = state.table.add(places, state.now_ms() + visibility_ms)
        return DeliveryBatch(batch, receipts, attempts) if len(batch) else None

    def _fetch_into(self, room: Room, places: Places) -> Fetched:
        parts, topic = self.state.parts, self.state.topic
        return fetch_into(room, parts.reads, topic, places.queues, places.offsets, self.delays.copied)

    def _end(self, places: Places) -> None:
        """Messages count as acknowledged. Their lines go on first: what is acknowledged is taken to go on by itself."""
        self.state.release(list(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)))
        with self.state.lock:
            self._pass(places)

    def _pass(self, places: Places) -> None:
        for queue_id in np.unique(places.queues).tolist():
            self.state.leave_out(queue_id, np.sort(places.offsets[places.queues == queue_id]))

    # -- what was not given out yet -------------------------------------------------------------------

    def _take_freed(self, room: Room) -> list[MessageBatch]:
        """Messages whose turn has come: the ones before them are acknowledged."""
        order = self.state.order
        found: list[MessageBatch] = []
        while order is not None and order.freed and room.is_open and not found:  # one that is gone frees the next
            found = self._fetch_freed(order, room)
        return found

    def _fetch_freed(self, order: Order, room: Room) -> list[MessageBatch]:
        state = self.state
        with state.lock:
            freed = [order.freed.popleft() for _ in range(min(room.messages, len(order.freed)))]
        places = Places(*np.array([(*place, 0) for place in freed], np.int64).T)
        try:
            found = self._fetch_into(room, places)
        except BaseException:  # passed on; also an interrupt loses none of these places
            with state.lock:
                order.freed.extendleft(reversed(freed))
            raise
        with state.lock:
            order.freed.extendleft(reversed(freed[found.looked :]))
        self._end(places.take(found.gone))
        return found.batches

    def _take_new(self, room: Room) -> list[MessageBatch]:
        order, scanner = self.state.order, self._scanner
        is_blocked = None if order is None else self._is_blocked
        found: list[MessageBatch] = []
        while room.is_open:
            batches = scanner.take(room.messages, room.size_bytes, is_blocked, is_first=room.is_empty)
            admitted = batches if order is None else [batch for batch in batches if self._admit(batch)]
            room.take(admitted)
            found += admitted
            if not batches or order is None:
                break
        return found

    def _is_blocked(self, queue_id: int) -> bool:
        order = self.state.order
        with self.state.lock:
            blocked = order is not None and order.is_blocked(queue_id)
        return blocked

    def _admit(self, batch: MessageBatch) -> bool:
        """Whether a batch of one new message may go out now."""
        order = self.state.order
        assert order is not None, "only ordered subscriptions ask"
        extra = None if batch.extras is None else batch.extras[0]
        with self.state.lock:
            admitted = order.admit(batch.queue_id(0), int(batch.offsets[0]), None if extra is None else extra.key)
        return admitted

    # -- what became due ------------------------------------------------------------------------------

    def _take_due(self, room: Room) -> list[MessageBatch]:
        """Messages that were left out before, and whose time has come. More are due than are taken at times."""
        found: list[MessageBatch] = []
        if not self.delays.is_used:
            self.delays.open()  # the index may be there by now
        while self.delays.is_used and room.is_open:
            if not len(self._due) and (found or not self._list_due(room.messages)):
                break  # what was found is not in the table yet, and must not be listed once more
            found += self._next_due(room)
        return found

    def _list_due(self, most: int) -> bool:
        """List what became due, and all due copies if they are to be looked at; False if there is nothing."""
        due = self.delays.take(most)
        if due.missed:
            self._has_missed = True  # this call may have found some already that are not in the table yet
            return False
        copies = self.delays.due_copies()
        passed = self._are_passed(*copies)
        self._due.add(copies[0][passed], copies[1][passed])
        self._due.add(*self._left_out(due))
        return len(copies[0]) + len(due.offsets) > 0

    def _are_passed(self, queues: Int64s, offsets: Int64s) -> Mask:
        """(n,) which messages the scanner will not give out."""
        return ~self._scanner.has_ahead(queues, offsets)

    def _next_due(self, room: Room) -> list[MessageBatch]:
        """The next messages of the list that nobody has; they are on it no more."""
        queues, offsets = self._due.first(max(room.messages, DUE_PLACES))
        rows = np.flatnonzero(self._mine(queues, offsets))[: room.messages]
        ends = np.append(rows, len(offsets) if len(rows) < room.messages else rows[-1] + 1)
        places = Places(queues[rows], offsets[rows], np.zeros(len(rows), np.int64))
        found = self._fetch_into(copy(room), places)  # not all that is fetched goes out
        batches = self._wanted(found, places)
        if self.state.order is not None:
            batches = [one for one in singles(batches) if self._admit(one)]
        self._due.remove_first(int(ends[found.looked]))
        room.take(batches)
        if len(rows) and not found.looked:
            room.close()
        return batches

    def _left_out(self, due: Due) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of what became due and the scanner has passed. What was cancelled is acknowledged."""
        passed = self._are_passed(due.queue_ids, due.offsets)
        over = np.flatnonzero(passed & due.cancelled)
        if len(over):
            with self.state.lock:
                self._pass(Places(due.queue_ids, due.offsets, due.offsets).take(over))
        rows = passed & ~due.cancelled
        return due.queue_ids[rows], due.offsets[rows]

    def _mine(self, queues: Int64s, offsets: Int64s) -> Mask:
        """(n,) which messages are neither acknowledged nor given out nor in a line, each once."""
        state, kept = self.state, first_of_each(queues, offsets)
        with state.lock:
            kept &= ~(state.cursor.have(queues, offsets) | state.table.have(queues, offsets))
            if state.order is not None:
                kept &= ~state.order.have(queues, offsets)
        return kept

    def _wanted(self, found: Fetched, places: Places) -> list[MessageBatch]:
        """What the filter lets pass, in the order of the places. What is gone or left out counts as acknowledged."""
        whole = joined(found.batches)
        order = np.argsort(found.rows, kind="stable")
        wanted = self._scanner.are_wanted(whole)
        passed = places.take(np.concatenate([found.gone, found.rows[~wanted]]))
        if passed.size:
            with self.state.lock:
                self._pass(passed)
        order = order[wanted[order]]
        if not len(order):
            return []
        return [whole if wanted.all() and (order[1:] > order[:-1]).all() else taken(whole, order)]
