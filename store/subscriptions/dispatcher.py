"""Gives out the messages of a subscription (R30): first those to redeliver, then due ones, then new ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil

import numpy as np

from ...index.locks import if_free, let_pass
from ..errors import StoreError, copy_of
from ..format.arrays import Int64s
from ..log.request import Request
from ..read.message import MessageBatch
from .delays import DueSource, SubscriptionDelays
from .delivery import Delivery, DeliveryBatch, Room, joined, queue_ids_of, taken
from .expiring import Expiring
from .in_flight import NO_OWNER, Places
from .lines import Lines
from .redelivery import AttemptCounts, Move, Redelivery
from .removed_rows import forget_removed
from .scanner import Scanner
from .settings import Settings
from .state import State
from .stories import NO_STORY

NOTED_MESSAGES = 10_000  # that were left out: the log is told of them together
MOST_LOOKS = 64  # of one call, that find only messages that have expired


class Dispatcher:
    """Chooses the messages that a receive gets, and enters them into the in-flight table. `receiving` guards it.

    Invariant: a message leaves a list only after it is in the in-flight table; otherwise it is given out again. So an
    interrupt loses none: `_has_missed` is the mark of the rule "give, then take" (see `index.trackers.tracker`), set by
    one step if a call does not come to its end.

    Attributes:
        attempt_records: the requests of the newest `take`: its caller waits for them, without `receiving`.
        tries, delays: what it knows of attempts, and of messages with a delivery time.
    """

    def __init__(self, state: State, move: Move) -> None:
        """`move` appends messages to a topic, and acknowledges receipts."""
        self.state = state
        self.receiving = threading.Lock()
        self.attempt_records: Sequence[Request] = ()
        self.tries = AttemptCounts(state)
        self.delays = delays = SubscriptionDelays(state)
        self._lines = Lines(state, delays.fetch_into)
        self._redelivery = Redelivery(state, self._lines, delays.fetch_into, move)
        self._expiring = Expiring(state, delays)
        self._ttl = self._expiring.ttl  # each receive looks at it
        self._scanner = Scanner(state, delays, self._expiring)
        self._due = DueSource(state, delays, self._lines, self._scanner.has_ahead, self._scanner.are_wanted)
        self._has_dead = False  # the newest look has found messages that were given out too often in earlier openings
        self._has_expired = False  # the newest look has left out messages whose time was over
        self._failed: StoreError | None = None  # of the newest call, which gave out others: the next raises it
        self._owner = NO_OWNER  # the consumer that receives now ..
        self._only: int | None = None  # .. and the queue that it wants messages of; None: of all
        self._removed: object = None  # the scanner's `removed` when rows and lines were last looked through
        self._has_missed = False  # a message on its way may have been lost from the lists: all has to be scanned again

    def close(self) -> None:
        """The subscription has no consumer any more: all unacknowledged messages come again. `receiving` is held."""
        self._has_missed = True  # before the pointer goes: the scanner has to meet again what it left to the pointer
        self.delays.close()
        self.restart()
        self.state.parts.ahead.forget(self)

    def read_again(self) -> None:
        """Drop messages that were read ahead or wait in lines: they are read again. `receiving` is held."""
        self._recover()

    def met(self, queue_id: int, end: int) -> None:
        """Messages of a queue below `end` may be in the table, though the scanner has not come there."""
        self._scanner.reached[queue_id] = max(end, self._scanner.reached.get(queue_id, 0))

    def move_used_up(self, enter: Callable[[], Int64s]) -> None:
        """Move messages to the dead letters; `enter` enters them into the table, and gives their receipts. `receiving`
        is held. Raises StoreError: then they come again.
        """
        try:
            self._redelivery.move_dead(enter())
        except BaseException:  # passed on; all is looked at again, also after an interrupt
            self._has_missed = True
            self.state.notify()
            raise

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
        self.tries.expect()  # first: a message that is expected for nothing only takes the longer way
        self.state.forget_consumers()
        self._due.forget()
        self._scanner.restart()
        self._has_missed = False

    def move(self, offsets: Mapping[int, int]) -> None:
        """Move some queues to other offsets, durably. `receiving` is held, and the state's `changing`."""
        had_missed, self._has_missed = self._has_missed, True  # until the end, as above
        self.state.move(offsets)
        self._failed = None  # damage that the move has not passed is met again
        self._due.forget(list(offsets))
        self._scanner.rewind(list(offsets))
        self.state.notify()
        self._has_missed = had_missed

    def change(self, settings: Settings) -> None:
        """Change the settings, durably. `receiving` is held, and the state's `changing`.

        With another filter, all that is not acknowledged is read again; consumers keep what they have.
        """
        known = self.state.cursor.settings
        self._has_missed |= known is None or known.filter != settings.filter  # also if the change is interrupted
        self.state.change(settings)

    @property
    def is_unfinished(self) -> bool:
        """Whether the newest `take` has found nothing although there is more to look at."""
        has_missed = self._has_missed and self.state.unfinished.change is None  # else the change itself notifies
        has_left = has_missed or self._has_expired or self._scanner.is_unfinished or self.delays.has_copies
        return has_left or len(self._due) > 0 or len(self.state.to_redeliver) > 0

    @property
    def is_at_rest(self) -> bool:
        """Whether a look can find only new messages, and those that others or the time bring. `receiving` is held."""
        order = self.state.order
        has_lines = order is not None and bool(order.freed or order.stirred or order.reopened)
        return not has_lines and self._failed is None and not self.is_unfinished and self.delays.are_at_rest

    def is_unfinished_in(self, queue_id: int) -> bool:
        """`is_unfinished` of one queue, after a `take` of it. `receiving` is held."""
        has_missed = self._has_missed and self.state.unfinished.change is None
        if has_missed or self._has_expired or self._scanner.is_cut or self.delays.has_copies:
            return True
        return self._due.has(queue_id) or self._redelivery.has_listed(queue_id)

    def has_more_in(self, queue_id: int) -> bool:
        """`has_more` of one queue. `receiving` is held."""
        if self._has_missed or self._failed is not None or self.delays.has_due():
            return True
        order = self.state.order
        if order is not None and bool(order.freed or order.stirred):  # maybe of this queue
            return True
        limit_of = None if order is None else self._lines.limit_of
        has_again = self._due.has(queue_id) or self._redelivery.has(queue_id)
        return has_again or self._scanner.has_left(limit_of, queue_id)

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

    @property
    def unreadable_until_ms(self) -> int:
        """When due messages that could not be read are looked at again, by the state's clock."""
        return self._due.until_ms

    def next_ms(self) -> int:
        """When the next message comes again, by the state's clock."""
        return min(self.state.table.next_ms, self._due.until_ms)

    def receive_few(
        self, count: int, visibility_ms: int, owner: int, check: Callable[[], object]
    ) -> list[Delivery] | None:
        """`take_few` for a thread; the attempts are durable when it returns. `check` raises if the consumer is gone."""
        check()  # before the lock, which a lost thread may hold in a forked child
        if self.receiving.locked():
            let_pass(self.receiving, growth=2, moments=5)
        with self.receiving:
            check()
            few, noted = self.take_few(count, visibility_ms, owner, may_read=True), self.attempt_records
        if noted and few is not None:
            self.tries.wait_for(noted, np.array([one.receipt for one in few], np.int64))
        return few

    def take_few(self, count: int, visibility_ms: int, owner: int, *, may_read: bool = False) -> list[Delivery] | None:
        """Give out `count` new messages of one queue, if they are read ahead and nothing comes before them.

        Quicker than `take`; None if it cannot. It reads nothing unless it `may_read`. `receiving` is held.
        """
        state, self.attempt_records = self.state, ()
        if state.order is not None or state.to_redeliver or self._has_missed or self._ttl.is_used:
            return None
        if len(self._due) or self.delays.has_due():
            return None
        if self._failed is not None or (self.tries.ends and self.tries.may_be_met(self._scanner.is_past)):
            return None
        now_ms = state.parts.clock.monotonic_s() * 1000
        if now_ms >= state.table.next_ms:
            return None
        given_ms = ceil(now_ms)
        deadline_ms = given_ms + visibility_ms
        try:
            held_bytes = self._scanner.held_bytes
            found = self._scanner.take_few(count, may_read=may_read)
            if self._scanner.held_bytes > held_bytes:
                state.parts.ahead.note(self, self._scanner.held_bytes)
            if found is None:
                return None
            messages = found[0].messages(found[1], found[1] + count)
            offsets = [message.offset for message in messages]
            if state.cursor.counts_attempts:
                columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                self.attempt_records = self.tries.note(Places(*columns))
            with state.lock:
                if offsets[-1] - offsets[0] == count - 1:
                    first = state.table.add_run(messages[0].queue_id, offsets[0], count, deadline_ms, owner, given_ms)
                else:
                    columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                    first = int(state.table.add(Places(*columns), deadline_ms, owner, given_ms)[0])
            if deadline_ms < state.calling.wakes_ms:
                state.calling.gives_out(deadline_ms)
            return [Delivery(message, 1, receipt, state.name) for receipt, message in enumerate(messages, first)]
        except BaseException:  # passed on; the messages come again, also after an interrupt
            self._has_missed = True
            state.notify()
            raise

    def take_at_hand(
        self, count: int, visibility_ms: int, owner: int, check: Callable[[], object]
    ) -> list[Delivery] | None:
        """`take_few` for a loop: it waits for nothing but the short moments in which a thread has the state's lock.
        None also if others receive just now. `check` raises if the consumer is gone.
        """
        if self.delays.is_used or self.state.cursor.counts_attempts:
            return None
        for _ in if_free(self.receiving):
            try:
                check()
                return self.take_few(count, visibility_ms, owner)
            finally:
                self.receiving.release()
        return None

    def take(
        self, most: int, max_bytes: int, visibility_ms: int, owner: int, only: int | None = None
    ) -> DeliveryBatch | None:
        """Up to `most` messages that a consumer may have now, of the queue `only` if there is one; None if there are
        none. `receiving` is held.
        """
        self._owner, self._only = owner, only
        self._raise_failed()
        try:
            self.attempt_records = ()
            self._lines.begin()
            removed = self._scanner.removed()
            if removed != self._removed:
                forget_removed(self.state, self.delays)
                if self.state.order is not None and self._scanner.has_copies_ahead():
                    self._has_missed = True  # else copies of messages that follow them come first
                self._removed = removed  # last: after an interrupt the look is repeated
            found = self._take(most, max_bytes, visibility_ms)
            if found is None and self._failed is None and (self._has_missed or self.delays.has_copies):
                found = self._take(most, max_bytes, visibility_ms)
            looks = MOST_LOOKS  # at messages that have expired; then other calls have a turn
            while found is None and self._failed is None and (self._has_dead or (self._has_expired and looks)):
                looks -= 1
                found = self._take(most, max_bytes, visibility_ms)
            self.state.parts.ahead.note(self, self._scanner.held_bytes)
            if self.state.left_out_count >= NOTED_MESSAGES:
                self.state.note_left_out()
        except BaseException:  # messages on their way come again, also after an interrupt
            self._has_missed = True
            self.state.notify()
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
        state = self.state
        is_moving = state.unfinished.change is not None  # first: the change may be made at any time
        self._due.forget()
        self._scanner.rewind()
        with state.lock:
            state.rebuild_lines()
            state.table.next_ms = 0  # deadlines are checked again
        self.delays.recheck_copies = True
        self._has_missed = is_moving
        state.notify()  # other waiting consumers have not seen it

    def _take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        if self._has_missed:
            self._recover()
        room = Room(most, max_bytes)
        self._has_dead = self._has_expired = False
        failed, is_whole = list[StoreError](), True
        batches, attempts, used = self._redelivery.take(room, failed, self._only)
        for take in (self._lines.take_freed, partial(self._due.take, failed), self._take_new):
            try:
                take(room, batches, self._only)
            except StoreError as error:  # the messages found so far go out
                failed.append(error)
                is_whole = False
        self._has_missed |= self._due.has_missed()
        given = self._given(batches, attempts, used, visibility_ms) if batches else None
        if not is_whole:
            self._has_missed = True  # the next look brings back what the failed source had taken
            self.state.notify()
        self._failed = failed[0] if failed else None
        return given

    def _given(
        self, batches: Sequence[MessageBatch], attempts: Int64s, used: Int64s, visibility_ms: int
    ) -> DeliveryBatch | None:
        """Give messages out. The first ones are redelivered: their attempts and receipts are known."""
        batch = joined(batches)
        counts = np.concatenate([attempts, np.ones(len(batch) - len(attempts), np.int64)])
        if self._ttl.is_used:
            whole = len(batch)
            batch, counts, used = self._expiring.without_over(batch, counts, used)
            self._has_expired = len(batch) < whole
            if not len(batch):
                return None
        if self.state.cursor.counts_attempts:
            batch, counts, self._has_dead = self.tries.without_dead(batch, counts, len(used))
            self.attempt_records = self.tries.note(Places(queue_ids_of(batch), batch.offsets, counts))
        return self._give_out(batch, counts, used, visibility_ms)

    def _give_out(
        self, batch: MessageBatch, attempts: Int64s, used: Int64s, visibility_ms: int
    ) -> DeliveryBatch | None:
        """Enter messages into the table; `used` are the receipts of those to redeliver, which are the first ones."""
        state, stories = self.state, NO_STORY
        with state.lock:
            if len(used):
                still = state.table.find_back(used)  # the others were acknowledged meanwhile, by late consumers
                if state.order is not None and not still.all():
                    still = self._lines.not_after_gaps(batch, still)
                rows = state.table.find(used[still])
                stories = state.table.stories(rows)
                state.table.remove(rows)
                if not still.all():
                    kept = np.append(np.flatnonzero(still), np.arange(len(used), len(batch)))
                    batch, attempts = taken(batch, kept), attempts[kept]
            places = Places(queue_ids_of(batch), batch.offsets, attempts)
            given_ms = state.deadline_ms(0)
            receipts = state.enter(places, given_ms + visibility_ms, self._owner, given_ms, stories)
        if self._only is not None and given_ms + visibility_ms < state.calling.wakes_ms:
            state.calling.gives_out(given_ms + visibility_ms)  # a look at all queues does so at its end
        return DeliveryBatch(batch, receipts, attempts, state.name) if len(batch) else None

    # -- new messages ---------------------------------------------------------------------------------

    def _take_new(self, room: Room, found: list[MessageBatch], only: int | None = None) -> None:
        order, scanner = self.state.order, self._scanner
        limit_of, by_key = (None, False) if order is None else (self._lines.limit_of, order.by_key)
        while room.is_open:
            batches = scanner.take(
                room.messages, room.size_bytes, limit_of, is_first=room.is_empty,
                reopened=self._lines.reopened(), by_key=by_key, only=only,
            )  # fmt: skip
            admitted = batches if order is None else self._lines.admitted(batches)
            room.take(admitted)
            found += admitted
            if not batches or order is None:
                break
