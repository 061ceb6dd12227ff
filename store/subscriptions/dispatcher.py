"""Gives out the messages of a subscription (R30): first those to redeliver, then due ones, then new ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from math import ceil

import numpy as np

from ...index.locks import if_free
from ..delayed.due_list import DueMessages
from ..errors import StoreError, copy_of
from ..format.arrays import Bools, Int64s
from ..log.request import Request
from ..read.message import MessageBatch
from .delays import BadCopies, PlaceList, SubscriptionDelays, are_copies, first_of_each
from .delivery import Delivery, DeliveryBatch, Fetches, Room, fetch_into, fetch_readable, joined, queue_ids_of, taken
from .filters import PropertyFilter
from .giving_out import forget_removed, give_out, tried
from .in_flight import NO_OWNER, Places
from .lines import Lines
from .redelivery import Redelivery
from .scanner import Scanner
from .state import State

NOTED_MESSAGES = 10_000  # that were left out: the log is told of them together
DUE_PLACES = 1024  # looked at together: most of a long list may be acknowledged


class Dispatcher:
    """Chooses the messages that a receive gets, and enters them into the in-flight table. `receiving` guards it.

    Invariant: a message leaves a list only after it is in the in-flight table; otherwise it is given out again. So an
    interrupt loses none: `_has_missed` is the mark of the rule "give, then take" (see `index.trackers.tracker`), set by
    one step if a call does not come to its end.

    Attributes:
        attempt_records: the requests of the newest `take`: its caller waits for them, without `receiving`.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.receiving = threading.Lock()
        self.attempt_records: Sequence[Request] = ()
        self.delays = SubscriptionDelays(state.parts, state.topic, self._precision_ms, state.notify)
        self._lines = Lines(state, self._fetch_into, self._end)
        self._redelivery = Redelivery(state, self._fetch_into, self._end, self._lines)
        self._has_dead = False  # the newest look has found messages that were given out too often in earlier openings
        self._failed: StoreError | None = None  # of the newest call, which gave out others: the next raises it
        self._owner = NO_OWNER  # the consumer that receives now
        self._removed: object = None  # the scanner's `removed` when rows and lines were last looked through
        self._has_missed = False  # a message on its way may have been lost from the lists: all has to be scanned again
        self._due = PlaceList()  # due messages that the scanner has passed
        self._bad_copies = BadCopies(state.now_ms)
        self._scanner = self._new_scanner()

    def _new_scanner(self) -> Scanner:
        state, settings = self.state, self.state.cursor.settings
        wanted = None if settings is None or settings.filter is None else PropertyFilter(settings.filter)
        return Scanner(state, wanted, self.delays)

    def _precision_ms(self) -> int:
        settings = self.state.cursor.settings
        return 0 if settings is None else settings.precision_ms

    def open(self) -> None:
        """The subscription has a consumer now. `receiving` is held."""
        self.delays.open()

    def close(self) -> None:
        """The subscription has no consumer any more: all unacknowledged messages come again. `receiving` is held."""
        self._has_missed = True  # before the pointer goes: the scanner has to meet again what it left to the pointer
        self.delays.close()
        self.restart()
        self.state.parts.ahead.forget(self)

    def give_back(self) -> bool:
        """Drop messages that were read ahead; they are read again later. False if somebody receives just now."""
        for _ in if_free(self.receiving):
            try:
                self._has_missed |= self.delays.is_used  # the list may have had due ones of them: all is scanned again
                self._scanner.give_back()
                return True
            finally:
                self.receiving.release()
        return False

    @property
    def due_bytes(self) -> int:
        """The memory of the list of due messages."""
        return self._due.size_bytes

    def restart(self) -> None:
        """Read on after the acknowledged messages; no consumer has any. `receiving` is held."""
        self._has_missed = True  # until the end: after an interrupt the next `take` reads all again
        self._failed = None
        self.state.forget_consumers()
        self._due.drop()
        reached, self._scanner = self._scanner.reached, self._new_scanner()
        self._scanner.reached = reached  # an acknowledgement that fails now brings back a message below it
        self._has_missed = False

    def move(self, offsets: Mapping[int, int]) -> None:
        """Move some queues to other offsets, durably. `receiving` is held, and the state's `changing`."""
        had_missed, self._has_missed = self._has_missed, True  # until the end, as above
        self.state.move(offsets)
        self._failed = None  # damage that the move has not passed is met again
        self._due.drop(list(offsets))
        self._scanner.rewind(list(offsets))
        self.state.notify()
        self._has_missed = had_missed

    @property
    def is_unfinished(self) -> bool:
        """Whether the newest `take` has found nothing although there is more to look at."""
        has_missed = self._has_missed and self.state.unfinished.change is None  # else the change itself notifies
        is_behind = has_missed or self._scanner.is_unfinished or self.delays.has_copies
        return is_behind or len(self._due) > 0 or len(self.state.to_redeliver) > 0

    @property
    def is_at_rest(self) -> bool:
        """Whether a look can find only new messages, and those that others or the time bring. `receiving` is held."""
        order = self.state.order
        has_lines = order is not None and bool(order.freed or order.stirred or order.reopened)
        return not has_lines and self._failed is None and not self.is_unfinished and self.delays.are_at_rest

    def has_more(self) -> bool:
        """Whether another look may find a message. `receiving` is held."""
        state = self.state
        if (
            self._has_missed
            or self._failed is not None
            or len(self._due)
            or state.to_redeliver
            or self.delays.has_due()
        ):
            return True
        order = state.order
        if order is None:
            return self._scanner.has_left()
        return len(order.freed) + len(order.stirred) > 0 or self._scanner.has_left(self._lines.limit_of)

    def newest(self) -> object:
        """A token that changes when there may be new messages of the topic."""
        return self._scanner.newest()

    def next_ms(self) -> int:
        """When the next message comes again, by the state's clock."""
        return min(self.state.table.next_ms, self._bad_copies.until_ms)

    def take_few(self, count: int, visibility_ms: int, owner: int) -> list[Delivery] | None:
        """Give out `count` new messages of one queue, if they are read ahead and nothing comes before them.

        Quicker than `take`; None if it cannot. `receiving` is held.
        """
        state, self.attempt_records = self.state, ()
        if state.order is not None or state.to_redeliver or self._has_missed or len(self._due) or self.delays.has_due():
            return None
        if self._failed is not None or (state.tries.ends and state.tries.may_be_met(self._scanner.is_past)):
            return None
        now_ms = state.parts.clock.monotonic_s() * 1000
        if now_ms >= state.table.next_ms:
            return None
        deadline_ms = ceil(now_ms) + visibility_ms
        try:
            found = self._scanner.take_few(count)
            if found is None:
                return None
            messages = found[0].messages(found[1], found[1] + count)
            offsets = [message.offset for message in messages]
            if state.tries.are_counted:
                columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                self.attempt_records = state.tries.note(Places(*columns))
            with state.lock:
                if offsets[-1] - offsets[0] == count - 1:
                    first = state.table.add_run(messages[0].queue_id, offsets[0], count, deadline_ms, owner)
                else:
                    columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                    first = int(state.table.add(Places(*columns), deadline_ms, owner)[0])
            if deadline_ms < state.calling.wakes_ms:
                state.calling.gives_out(deadline_ms)
            return [Delivery(message, 1, receipt) for receipt, message in enumerate(messages, first)]
        except BaseException:  # passed on; the messages come again, also after an interrupt
            self._has_missed = True
            self._recover()
            raise

    def take_at_hand(
        self, count: int, visibility_ms: int, owner: int, check: Callable[[], object]
    ) -> list[Delivery] | None:
        """`take_few` for a loop: it waits for nothing but the short moments in which a thread has the state's lock.
        None also if others receive just now. `check` raises if the consumer is gone.
        """
        if self.delays.is_used or self.state.tries.are_counted:
            return None
        for _ in if_free(self.receiving):
            try:
                check()
                return self.take_few(count, visibility_ms, owner)
            finally:
                self.receiving.release()
        return None

    def take(self, most: int, max_bytes: int, visibility_ms: int, owner: int) -> DeliveryBatch | None:
        """Up to `most` messages that a consumer may have now; None if there are none. `receiving` is held."""
        self._owner = owner
        self._raise_failed()
        try:
            self.attempt_records = ()
            self._lines.begin()
            removed = self._scanner.removed()
            if removed != self._removed:
                forget_removed(self.state, self.delays, self._end)
                self._removed = removed  # last: after an interrupt the look is repeated
            found = self._take(most, max_bytes, visibility_ms)
            if found is None and self._failed is None and (self._has_missed or self.delays.has_copies):
                found = self._take(most, max_bytes, visibility_ms)
            while found is None and self._failed is None and self._has_dead:
                found = self._take(most, max_bytes, visibility_ms)
            self.state.parts.ahead.note(self, self._scanner.held_bytes)
            if self.state.left_out_count >= NOTED_MESSAGES:
                self.state.note_left_out()
        except BaseException:  # messages on their way come again, also after an interrupt
            self._has_missed = True
            self._recover()
            raise
        if found is None:
            self._raise_failed()
        return found

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise copy_of(failed)

    def _recover(self) -> None:
        """Scan again for the messages that were on their way, and rebuild the lines; consumers keep what they have."""
        state, table = self.state, self.state.table
        is_moving = state.unfinished.change is not None  # first: the change may be made at any time
        self._due.drop()
        self._scanner.rewind()
        with state.lock:
            if state.order is not None:
                live = table.live()
                queues, offsets, _ = table.places(live)
                places = zip(queues.tolist(), offsets.tolist(), strict=True)
                state.order.keep(dict(zip(places, table.receipts(live).tolist(), strict=True)), state.cursor.has)
            table.next_ms = 0  # deadlines are checked again
        self.delays.recheck_copies = True
        self._has_missed = is_moving
        state.notify()  # other waiting consumers have not seen it

    def _take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        if self._has_missed:
            self._recover()
        room = Room(most, max_bytes)
        self._has_dead = False
        failed, is_whole = list[StoreError](), True
        batches, attempts, used = self._redelivery.take(room, failed)
        for take in (self._lines.take_freed, partial(self._take_due, failed), self._take_new):
            try:
                take(room, batches)
            except StoreError as error:  # the messages found so far go out
                failed.append(error)
                is_whole = False
        given = self._given(batches, attempts, used, visibility_ms) if batches else None
        if not is_whole:
            self._has_missed = True
            self._recover()  # brings back what the failed source had taken; all messages found are in the table
        self._failed = failed[0] if failed else None
        return given

    def _given(
        self, batches: Sequence[MessageBatch], attempts: Int64s, used: Int64s, visibility_ms: int
    ) -> DeliveryBatch | None:
        """Give messages out. The first ones are redelivered: their attempts and receipts are known."""
        batch = joined(batches)
        counts = np.concatenate([attempts, np.ones(len(batch) - len(attempts), np.int64)])
        if self.state.tries.are_counted:
            batch, counts, self._has_dead = tried(self.state, batch, counts, len(attempts))
            self.attempt_records = self.state.tries.note(Places(queue_ids_of(batch), batch.offsets, counts))
        return give_out(self.state, batch, counts, used, visibility_ms, self._owner)

    def _fetch_into(self, room: Room, places: Places) -> Fetches:
        parts, topic = self.state.parts, self.state.topic
        return fetch_into(room, parts.reads, topic, places.queues, places.offsets, self.delays.copied)

    def _end(self, places: Places) -> None:
        """Have the lines of messages go on, then count these as acknowledged: after that nothing has the lines go
        on."""
        self.state.release(list(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)))
        with self.state.lock:
            self._pass(places)

    def _pass(self, places: Places) -> None:
        for queue_id, offsets in places.by_queue():
            self.state.leave_out(queue_id, offsets)

    # -- new messages ---------------------------------------------------------------------------------

    def _take_new(self, room: Room, found: list[MessageBatch]) -> None:
        order, scanner = self.state.order, self._scanner
        limit_of, by_key = (None, False) if order is None else (self._lines.limit_of, order.by_key)
        while room.is_open:
            batches = scanner.take(
                room.messages, room.size_bytes, limit_of, is_first=room.is_empty,
                reopened=self._lines.reopened(), by_key=by_key,
            )  # fmt: skip
            admitted = batches if order is None else self._lines.admitted(batches)
            room.take(admitted)
            found += admitted
            if not batches or order is None:
                break

    # -- due messages ---------------------------------------------------------------------------------

    def _take_due(self, failed: list[StoreError], room: Room, found: list[MessageBatch]) -> None:
        """Add messages that were left out before and are due now. At times more are due than one call takes."""
        before = len(found)
        self._bad_copies.look(self.delays)
        if not self.delays.is_used:
            self.delays.open()  # the index may be there by now
        while self.delays.is_used and room.is_open:
            if not len(self._due) and (len(found) > before or not self._list_due(room.messages)):
                break  # messages found are not in the table yet, and must not be listed once more
            found += self._next_due(room, failed)

    def _list_due(self, most: int) -> bool:
        """List due messages, and all due copies if these are to be checked; False if there are none."""
        due = self.delays.take(most)
        if due.missed:
            self._has_missed = True  # this call may have found some of them already, which are not in the table yet
            return False
        copies = self.delays.due_copies()
        passed = self._are_passed(*copies) & ~self._bad_copies.are_in(*copies)
        self._due.add(copies[0][passed], copies[1][passed])
        self._due.add(*self._left_out(due))
        return len(copies[0]) + len(due.offsets) > 0

    def _are_passed(self, queues: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages the scanner will not give out."""
        return ~self._scanner.has_ahead(queues, offsets)

    def _next_due(self, room: Room, failed: list[StoreError]) -> list[MessageBatch]:
        """The next messages of the list that nobody has; they leave the list."""
        queues, offsets = self._due.first(max(room.messages, DUE_PLACES))
        rows = np.flatnonzero(self._mine(queues, offsets))[: room.messages]
        ends = np.append(rows, len(offsets) if len(rows) < room.messages else rows[-1] + 1)
        places = Places(queues[rows], offsets[rows], np.zeros(len(rows), np.int64))
        errors: list[StoreError] = []
        found, bad = fetch_readable(copy(room), self._fetch_into, places, errors)  # not all fetched messages go out
        bad = bad[: len(errors)]  # the others were not looked at
        if len(bad) and not are_copies(self.state, places.take(bad)).all():
            raise errors[0]  # the scanner meets them again in their queues
        looked = found.looked + len(bad)
        batches = self._wanted(found, places)
        if self.state.order is not None:
            batches = self._lines.admitted(batches)
        self._bad_copies.add(places.take(bad))
        self._due.remove_first(int(ends[looked]))
        failed += errors
        room.take(batches)
        if errors or (len(rows) and not looked):
            room.close()
        return batches

    def _left_out(self, due: DueMessages) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of due messages that the scanner has passed. Cancelled ones count as acknowledged."""
        passed = self._are_passed(due.queue_ids, due.offsets)
        over = np.flatnonzero(passed & due.cancelled)
        if len(over):
            with self.state.lock:
                self._pass(Places(due.queue_ids, due.offsets, due.offsets).take(over))
        rows = passed & ~due.cancelled
        return due.queue_ids[rows], due.offsets[rows]

    def _mine(self, queues: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages are neither acknowledged nor given out nor in a line; of equal ones the first."""
        return first_of_each(queues, offsets) & ~self.state.have(queues, offsets)

    def _wanted(self, found: Fetches, places: Places) -> list[MessageBatch]:
        """The messages that pass the filter, in the order of the places. Others, and gone ones, become acknowledged."""
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
