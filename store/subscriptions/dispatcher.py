"""Gives the messages of a subscription out (R30): those that come again first, then what is due, then new ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..delayed.due_list import Due
from ..errors import StoreError
from ..read.message import MessageBatch
from .dead_letters import RETRY_MS, are_dead, bury
from .delays import SubscriptionDelays
from .delivery import Delivery, DeliveryBatch, joined, queue_ids_of, singles, taken
from .fetching import fetch
from .filters import PropertyFilter
from .in_flight import Is, Places
from .ordering import Order
from .place_list import PlaceList
from .scanner import Scanner
from .state import State

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NOTHING = np.empty(0, np.int64)
DUE_PLACES = 1024  # looked at together: most of a long list may be acknowledged


class Dispatcher:
    """Any number of threads may take; one at a time does.

    Invariant: a message that was taken off a list is in the table before its batch is given out, or comes again. So an
    interrupt loses none.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.receiving = threading.Lock()
        self.delays = SubscriptionDelays(state.parts, state.topic, self._precision_ms, state.ring)
        self._has_missed = False  # of what became due: all has to be scanned again
        self._due = PlaceList()  # those the scanner has passed
        self._scanner = self._new_scanner()

    def _new_scanner(self) -> Scanner:
        state, settings = self.state, self.state.cursor.settings
        wanted = None if settings is None or settings.filter is None else PropertyFilter(settings.filter)
        return Scanner(
            state.parts, state.topic, state.lock, state.cursor.queue, state.table.offsets_of, wanted, self.delays
        )

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
        state = self.state
        if state.order is not None or state.again or self.delays.is_used or self._has_missed:
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
            with state.lock:
                if offsets[-1] - offsets[0] == count - 1:
                    first = state.table.add_run(messages[0].queue_id, offsets[0], count, now_ms + visibility_ms)
                else:
                    columns = np.array([[messages[0].queue_id] * count, offsets, [1] * count], np.int64)
                    first = int(state.table.add(Places(*columns), now_ms + visibility_ms)[0])
            return [Delivery(message, 1, receipt) for receipt, message in enumerate(messages, first)]
        except BaseException:
            self._recover()
            raise

    def take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        """Up to `most` messages that a consumer may have now; None if there are none. `receiving` is held."""
        try:
            found = self._take(most, max_bytes, visibility_ms)
            if found is None and (self._has_missed or self.delays.has_copies):
                found = self._take(most, max_bytes, visibility_ms)
            return found
        except BaseException:  # what was on its way comes again, also after an interrupt
            self._recover()
            raise

    def _recover(self) -> None:
        if self.state.order is not None:
            self.restart()
            return
        self._due.drop()
        self._scanner.rewind()
        with self.state.lock:
            self.state.list_again(self.state.table.late())

    def _take(self, most: int, max_bytes: int, visibility_ms: int) -> DeliveryBatch | None:
        if self._has_missed:
            self._recover()
            self._has_missed, self.delays.again = False, True
        batches: list[MessageBatch] = []
        attempts: list[Int64s] = []
        used = self._take_again(most, batches, attempts)
        room = most - sum(map(len, batches))
        if room > 0:
            first = [*self._take_freed(room), *self._take_due(room)]
            room -= sum(map(len, first))
            for batch in [*first, *(self._take_new(room, max_bytes) if room > 0 else ())]:
                batches.append(batch)
                attempts.append(np.ones(len(batch), np.int64))
        if not batches:
            return None
        batch, counts = joined(batches), np.concatenate(attempts)
        return self._give_out(batch, counts, used, visibility_ms)

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

    # -- what comes again -----------------------------------------------------------------------------

    def _take_again(self, most: int, batches: list[MessageBatch], attempts: list[Int64s]) -> Int64s:
        """Add the messages that were given back or timed out; their receipts (n,)."""
        state = self.state
        if not state.again and state.now_ms() < state.table.next_ms:
            return NOTHING
        with state.lock:
            state.list_again(state.table.expire(state.now_ms()))
            receipts, places = self._next_again(most)
        if not len(receipts):
            return NOTHING
        receipts, places = self._bury(receipts, places)
        try:
            found = fetch(state.parts.reads, state.topic, places.queues, places.offsets, self.delays.copied)
        except StoreError:
            self._hold(receipts)
            raise
        self._drop(receipts[found.gone], places.take(found.gone))
        batches += found.batches
        if len(found.rows):
            attempts.append(places.attempts[found.rows] + 1)
        return receipts[found.rows]

    def _next_again(self, most: int) -> tuple[Int64s, Places]:
        """The next receipts that are to be given out again. They stay listed until their rows are GONE."""
        state, again = self.state, self.state.again
        picked: list[Int64s] = []
        while again and not len(live := self._waiting(again[0])):
            again.popleft()
        for receipts in again:
            live = self._waiting(receipts)
            picked.append(live[:most])
            most -= len(picked[-1])
            if most <= 0:
                break
        found = np.unique(np.concatenate([*picked, NOTHING]))
        return found, state.table.places(state.table.find(found))

    def _waiting(self, receipts: Int64s) -> Int64s:
        """Those of some receipts whose messages wait to be given out again."""
        rows = self.state.table.find(receipts)
        states = self.state.table.states(rows)
        found: Int64s = receipts[(rows >= 0) & ((states == Is.LATE) | (states == Is.BACK))]
        return found

    def _bury(self, receipts: Int64s, places: Places) -> tuple[Int64s, Places]:
        """Move the messages that were given out too often to the dead letters: what is left."""
        settings = self.state.cursor.settings
        dead = are_dead(settings, places)
        if not dead.any():
            return receipts, places
        assert settings is not None and settings.dead_letter_topic is not None, "else none is dead"
        try:
            bury(self.state, settings.dead_letter_topic, receipts[dead], self.delays.copied)
        except StoreError:
            self._hold(receipts[~dead])
            raise
        return receipts[~dead], places.take(np.flatnonzero(~dead))

    def _hold(self, receipts: Int64s) -> None:
        """These could not be fetched: others go first."""
        state = self.state
        with state.lock:
            rows = state.table.find(receipts)
            state.table.hold(rows[rows >= 0], state.now_ms() + RETRY_MS)

    def _drop(self, receipts: Int64s, places: Places) -> None:
        """The messages are there no more: they count as acknowledged."""
        state = self.state
        if not len(receipts):
            return
        with state.lock:
            rows = state.table.find(receipts)
            state.table.remove(rows[rows >= 0])
            self._pass(places)
        state.release(list(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)))

    def _pass(self, places: Places) -> None:
        for queue_id in np.unique(places.queues).tolist():
            self.state.cursor.queue(queue_id).add_all(np.sort(places.offsets[places.queues == queue_id]))

    # -- what was not given out yet -------------------------------------------------------------------

    def _take_freed(self, most: int) -> list[MessageBatch]:
        """Messages whose turn has come: the ones before them are acknowledged."""
        order = self.state.order
        found: list[MessageBatch] = []
        while order is not None and order.freed and not found:  # one that is gone frees the next
            found = self._fetch_freed(order, most)
        return found

    def _fetch_freed(self, order: Order, most: int) -> list[MessageBatch]:
        state = self.state
        with state.lock:
            freed = [order.freed.popleft() for _ in range(min(most, len(order.freed)))]
        places = Places(*np.array([(*place, 0) for place in freed], np.int64).T)
        try:
            found = fetch(state.parts.reads, state.topic, places.queues, places.offsets, self.delays.copied)
        except BaseException:
            with state.lock:
                order.freed.extendleft(reversed(freed))
            raise
        gone = places.take(found.gone)
        if gone.size:
            with state.lock:
                self._pass(gone)
            state.release(list(zip(gone.queues.tolist(), gone.offsets.tolist(), strict=True)))
        return found.batches

    def _take_new(self, most: int, max_bytes: int) -> list[MessageBatch]:
        order, scanner = self.state.order, self._scanner
        if order is None:
            return scanner.take(most, max_bytes)
        found: list[MessageBatch] = []
        while most > 0:
            batches = scanner.take(most, max_bytes, self._is_blocked)
            if not batches:
                break
            admitted = [batch for batch in batches if self._admit(batch)]
            most -= len(admitted)
            found += admitted
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

    def _take_due(self, most: int) -> list[MessageBatch]:
        """Messages that were left out before, and whose time has come. More are due than are taken at times."""
        found: list[MessageBatch] = []
        if not self.delays.is_used:
            self.delays.open()  # the index may be there by now
        while self.delays.is_used and most > 0:
            if not len(self._due) and (found or not self._list_due(most)):
                break  # what was found is not in the table yet, and must not be listed once more
            batches = self._fetched(self._next_due(most))
            if self.state.order is not None:
                batches = [one for one in singles(batches) if self._admit(one)]
            found += batches
            most -= sum(map(len, batches))
        return found

    def _list_due(self, most: int) -> bool:
        """List what became due, and all due copies if they are to be looked at; False if there is nothing."""
        due = self.delays.take(most)
        if due.missed:
            self._has_missed = True  # this call may have found some already that are not in the table yet
            return False
        queues, offsets = self.delays.due_copies()
        self._due.add(queues, offsets)
        self._due.add(*self._left_out(due))
        return len(offsets) + len(due.offsets) > 0

    def _next_due(self, most: int) -> Places:
        """The next places of the list whose messages nobody has; they are on it no more."""
        queues, offsets = self._due.first(max(most, DUE_PLACES))
        rows = np.flatnonzero(self._mine(queues, offsets))[:most]
        self._due.remove_first(int(rows[-1]) + 1 if len(rows) == most else len(offsets))
        return Places(queues[rows], offsets[rows], np.zeros(len(rows), np.int64))

    def _left_out(self, due: Due) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of what became due and the scanner has passed. What was cancelled is acknowledged."""
        rows = np.zeros(len(due.offsets), np.bool_)
        for queue_id in np.unique(due.queue_ids).tolist():
            mine = np.flatnonzero(due.queue_ids == queue_id)
            offsets = due.offsets[mine]
            first, _ = self.state.parts.reads.queue_bounds(self.state.topic, queue_id)
            passed = ~self._scanner.has_ahead(queue_id, offsets) | (offsets < first)  # those live on as copies alone
            with self.state.lock:
                self.state.cursor.queue(queue_id).add_all(np.sort(offsets[passed & due.cancelled[mine]]))
            rows[mine] = passed & ~due.cancelled[mine]
        return due.queue_ids[rows], due.offsets[rows]

    def _mine(self, queues: Int64s, offsets: Int64s) -> Mask:
        """(n,) which messages are neither acknowledged nor given out nor in a line, each once."""
        state, kept = self.state, np.zeros(len(offsets), np.bool_)
        with state.lock:
            for queue_id in np.unique(queues).tolist():
                mine = np.flatnonzero(queues == queue_id)
                wanted, first = np.unique(offsets[mine], return_index=True)
                good = ~state.cursor.queue(queue_id).are_in(wanted)
                good &= ~np.isin(wanted, state.table.offsets_of(queue_id))
                if state.order is not None:
                    good &= ~np.isin(wanted, state.order.offsets_of(queue_id))
                kept[mine[first[good]]] = True
        return kept

    def _fetched(self, places: Places) -> list[MessageBatch]:
        """The messages, in the order of the places. Those that are gone count as acknowledged."""
        state = self.state
        found = fetch(state.parts.reads, state.topic, places.queues, places.offsets, self.delays.copied)
        gone = places.take(found.gone)
        if gone.size:
            with state.lock:
                self._pass(gone)
        if not found.batches:
            return []
        whole = joined(found.batches)
        order = np.argsort(found.rows, kind="stable")
        wanted = self._scanner.are_wanted(whole)
        if not wanted.all():
            passed = places.take(found.rows[~wanted])
            with state.lock:
                self._pass(passed)
            order = order[wanted[order]]
        return [whole if wanted.all() and (order[1:] > order[:-1]).all() else taken(whole, order)]
