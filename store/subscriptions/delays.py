"""The delayed messages of one subscription: its pointer into the topic's due messages, and those to give out now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

import numpy as np

from ...index import TrackerClosed
from ..delayed.due_list import FOREVER_S, HELD_UP_S, LAGGING_S, NOTHING_DUE, DueMessages
from ..delayed.messages import fetch
from ..delayed.topic import DelayedTopic, Pointer, due_copies, first_not_pending, waiting
from ..errors import StoreCorrupt, StoreError, StoreUnreadable
from ..format.arrays import Bools, Int64s
from ..format.layout import NO_TIME
from ..read.message import Message, MessageBatch
from .delivery import RETRY_MS, Fetches, Room, fetch_into, fetch_readable, joined, taken
from .in_flight import NEVER, Places
from .lines import Lines
from .place_list import PlaceList, first_of_each
from .state import State

LEAST_PRECISION_MS = 10  # with less, a waiting consumer wakes for each message
LOOKED_AT_S = max(LAGGING_S, HELD_UP_S)  # a time to wait so short may only mean the next look at an index that lags
DUE_PLACES = 1024  # looked at together: most of a long list may be acknowledged
LEAST_S = 0.001  # of a sleep: due messages may be held up by consumers that do not take them


class LaterMessages(NamedTuple):
    """Which of some messages (n,) come later, and which never, because they were cancelled."""

    waiting: Bools
    cancelled: Bools


class SubscriptionDelays:
    """A subscription's view of its topic's delays. One thread at a time, except for `is_used`.

    It holds nothing before the first message with a delivery time is met, or the topic has an index.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._parts = state.parts
        self._name = state.topic
        self._topic: DelayedTopic | None = None
        self._pointer: Pointer | None = None
        self._turn: int | None = None  # with a precision: all messages due by then were taken
        self._wakes_ms = 0  # .. and the turn until which waiting consumers sleep; 0 if there is none
        self.recheck_copies = False  # messages that live on as copies are to be checked again
        self._told: StoreCorrupt | None = None  # the damage of copies that the consumer has heard of

    @property
    def is_used(self) -> bool:
        """Whether there may be a message to take."""
        return self._pointer is not None

    def has_due(self) -> bool:
        """Whether a message is to be taken now, or may be."""
        return self._pointer is not None and (self.recheck_copies or self._pointer.due_in_s() <= 0)

    @property
    def are_at_rest(self) -> bool:
        """Whether there is nothing to take until `notify` is called, or until the time that `due_in_s` gives."""
        pointer, delays = self._pointer, self._parts.delays
        if pointer is None:
            return delays is None or delays.find(self._name) is None  # else it has to be opened
        return not self.recheck_copies and pointer.due_in_s() > LOOKED_AT_S

    @property
    def has_copies(self) -> bool:
        """Whether messages that live on as copies are to be checked again."""
        return self.recheck_copies and self._found() is not None

    def _found(self) -> DelayedTopic | None:
        """The topic's index, if it has one by now: retention makes one for the first copy."""
        return self._topic or (self._parts.delays.find(self._name) if self._parts.delays else None)

    @property
    def _precision_ms(self) -> int:
        settings = self._state.cursor.settings
        return 0 if settings is None else settings.precision_ms

    @property
    def _coalesces(self) -> bool:
        return self._precision_ms >= LEAST_PRECISION_MS

    def due_in_s(self) -> float:
        """How long waiting consumers may sleep, as far as delays go: until a message is due, or is to be taken."""
        pointer = self._pointer
        if pointer is None:
            return FOREVER_S
        now_ms = self._parts.clock.wall_ms()  # first: if the clock is moved meanwhile, the turn is too early
        due_s = pointer.due_in_s()
        if not self._coalesces or due_s >= FOREVER_S:
            self._wakes_ms = 0
            return max(LEAST_S, due_s)
        self._wakes_ms = self._turn_after(now_ms, due_s)
        return max(LEAST_S, (self._wakes_ms - now_ms) / 1000)

    @property
    def _turn_ms(self) -> int:
        """With a precision: the time between turns. The index lags too: both together are less than the precision."""
        topic = self._topic
        return max(1, self._precision_ms - (1 if topic is None else topic.tick_ms) + 1)

    def _turn_after(self, now_ms: int, due_s: float) -> int:
        """With a precision: the turn at which a message is taken that is due in `due_s`."""
        turn_ms = self._turn_ms
        return -(-max(now_ms + 1, now_ms + int(due_s * 1000)) // turn_ms) * turn_ms

    def open(self) -> None:
        """The subscription has a consumer now. Raises StoreError, OSError."""
        if self._found() is not None:
            self._begin()

    def close(self) -> None:
        """The subscription has no consumer any more."""
        self._told = None
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            pointer.close()

    def _begin(self) -> DelayedTopic:
        delays = self._parts.delays
        assert delays is not None, "a store that is only read gives nothing out"
        with self._index():
            topic = self._topic = delays.topic(self._name)
            if self._pointer is None:
                self._pointer = topic.open_pointer(self._on_due)
                self.recheck_copies = True
        return topic

    def _on_due(self) -> None:
        pointer = self._pointer
        if pointer is None:
            return
        now_ms = self._parts.clock.wall_ms()
        # With a precision waiting consumers may know a time that is early enough, if a jump did not leave it behind.
        if not (self._coalesces and now_ms < self._wakes_ms <= self._turn_after(now_ms, pointer.due_in_s())):
            self._state.notify()

    def left(self, queue_id: int, offsets: Int64s, times_ms: Int64s | None) -> LaterMessages | None:
        """The messages of a queue that are not to be given out now; None if there are none.

        Called without the subscription's lock: it may read the device. Raises StoreUnreadable.
        """
        delayed = np.empty(0, np.intp) if times_ms is None else np.flatnonzero(times_ms != NO_TIME)
        if times_ms is None or not len(delayed):
            return None
        with self._index():
            later, cancelled = waiting(self._begin(), queue_id, offsets[delayed], times_ms[delayed])
        left = LaterMessages(np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_))
        left.waiting[delayed] = later
        left.cancelled[delayed] = cancelled
        return left if later.any() or cancelled.any() else None

    def first_not_pending(self, queue_ids: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
        """(n,) for each queue the first of the offsets begin .. end - 1 that does not come later; its end if all do.

        Raises StoreUnreadable.
        """
        assert self._topic is not None, "it has a pointer"
        with self._index():
            return first_not_pending(self._topic, queue_ids, begins, ends)

    def take(self, most: int) -> DueMessages:
        """Take due messages, up to `most`; with a precision only once in so many ms. Raises StoreUnreadable."""
        turn = self._parts.clock.wall_ms() // self._turn_ms if self._coalesces else None
        if self._pointer is None or (turn is not None and turn == self._turn):
            return NOTHING_DUE
        with self._index():
            due = self._pointer.take(most)
        is_all = len(due.offsets) < most and not due.missed and not due.is_cut
        self._turn = turn if is_all else None
        return due

    def fetch_into(self, room: Room, places: Places) -> Fetches:
        """Fetch messages as far as they fit, also those that live on as copies, see `delivery.fetch_into`."""
        return fetch_into(room, self._parts.reads, self._name, places.queues, places.offsets, self.copied)

    def copied(self, queue_id: int, offset: int) -> Message | None:
        """The copy of a message whose segment is gone; None if there is none. Raises StoreUnreadable."""
        topic = self._found()
        with self._index():
            return None if topic is None else fetch(topic, queue_id, offset)

    def are_kept(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages of a queue, whose segments are gone, live on as copies."""
        topic = self._found()
        if topic is None:
            return np.zeros(len(offsets), np.bool_)
        stream = self._parts.streams.get(self._name, queue_id)
        with topic.lock:
            return topic.copies.has(queue_id, offsets) & (offsets >= (0 if stream is None else stream.low))

    def due_copies(self) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of due messages whose segments are gone, if they are to be checked again."""
        if not self.recheck_copies or self._topic is None:
            return NOTHING_DUE.queue_ids, NOTHING_DUE.offsets
        with self._index():
            found = due_copies(self._topic)
        self.recheck_copies = False
        return found

    def damage(self) -> StoreCorrupt | None:
        """The error of copies that nobody can read, once for a consumer: one of them may have been wanted."""
        found = None if self._topic is None else self._topic.copies.damage
        if found is self._told:
            return None
        self._told = found
        return found

    @contextmanager
    def _index(self) -> Iterator[None]:
        """Raise StoreUnreadable if the index cannot be used; StoreClosed if the store was closed meanwhile."""
        try:
            yield
        except (OSError, TrackerClosed) as error:
            self._parts.check_open()
            raise StoreUnreadable(
                f"the index of delayed messages could not be used: {error}. Nothing is lost; try again."
            ) from error


class DueSource:
    """The part of a dispatcher that gives out due messages. One thread at a time.

    Attributes:
        until_ms: when places that could not be read are looked at again.
    """

    def __init__(
        self, state: State, delays: SubscriptionDelays, lines: Lines,
        has_ahead: Callable[[Int64s, Int64s], Bools], are_wanted: Callable[[MessageBatch], Bools],
    ) -> None:  # fmt: skip
        """`has_ahead` says which places the scanner has ahead of it; `are_wanted` which messages pass the filter."""
        self.state = state
        self._missed = False  # the index may have had due messages that it gives no more
        self._has_ahead = has_ahead
        self._are_wanted = are_wanted
        self._lines = lines
        self._delays = delays
        self._due = PlaceList()  # due messages that the scanner has passed
        self._unreadable: set[tuple[int, int]] = set()  # held back together
        self.until_ms = NEVER

    def __len__(self) -> int:
        """The number of listed messages; they are due, and maybe acknowledged."""
        return len(self._due)

    @property
    def size_bytes(self) -> int:
        """The memory of the list."""
        return self._due.size_bytes

    def has_missed(self) -> bool:
        """Whether messages may have been missed since the last question: all has to be scanned again."""
        missed, self._missed = self._missed, False
        return missed

    def forget(self, queue_ids: Sequence[int] | None = None) -> None:
        """Forget the messages of some queues, or all; they will be found again."""
        self._due.drop(queue_ids)

    def has(self, queue_id: int) -> bool:
        """Whether a message of a queue is listed."""
        return self._due.has(queue_id)

    def take(
        self, failed: list[StoreError], room: Room, found: list[MessageBatch], queue_id: int | None = None
    ) -> None:
        """Add messages that were left out before and are due now. At times more are due than one call takes.

        With a queue, those of others are listed, and stay so.
        """
        before = len(found)
        if self.state.now_ms() >= self.until_ms:
            self._delays.recheck_copies = True  # first: after an interrupt it is done again
            self._unreadable.clear()
            self.until_ms = NEVER
        if not self._delays.is_used:
            self._delays.open()  # the index may be there by now
        lists_many = queue_id is not None  # or once a listing had nothing that the scanner has passed
        while self._delays.is_used and room.is_open:
            most = max(room.messages, DUE_PLACES) if lists_many else room.messages
            if not self._due.has(queue_id):
                if (damage := self._delays.damage()) is not None:
                    failed.append(damage)
                if len(found) > before or not self._list_due(most):
                    break  # messages found are not in the table yet, and must not be listed once more
                lists_many |= not len(self._due)
                if queue_id is not None or self.state.queue_calls:
                    self.state.notify()  # this look lists messages that others wait for
            found += self._next_due(room, failed, queue_id)

    def _list_due(self, most: int) -> bool:
        """List due messages, and all due copies if these are to be checked; False if there are none."""
        due = self._delays.take(most)
        if due.missed:
            self._missed = True  # this call may have found some of them already, which are not in the table yet
            return False
        copies = self._delays.due_copies()
        passed = ~self._has_ahead(*copies) & ~self._are_unreadable(*copies)
        self._due.add(copies[0][passed], copies[1][passed])
        self._due.add(*self._left_out(due))
        return len(copies[0]) + len(due.offsets) > 0

    def _are_unreadable(self, queues: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages are held back, as they could not be read."""
        if not self._unreadable:
            return np.zeros(len(offsets), np.bool_)
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True)
        return np.array([place in self._unreadable for place in pairs], np.bool_)

    def _next_due(self, room: Room, failed: list[StoreError], queue_id: int | None) -> list[MessageBatch]:
        """The next messages of the list, or of a queue in it, that nobody has; they leave the list."""
        queues, offsets = self._due.first(max(room.messages, DUE_PLACES), queue_id)
        rows = np.flatnonzero(self._mine(queues, offsets))[: room.messages]
        ends = np.append(rows, len(offsets) if len(rows) < room.messages else rows[-1] + 1)
        places = Places(queues[rows], offsets[rows], np.zeros(len(rows), np.int64))
        errors: list[StoreError] = []
        found, bad = fetch_readable(copy(room), self._delays.fetch_into, places, errors)  # not all of them go out
        bad = bad[: len(errors)]  # the others were not looked at
        if len(bad) and not self._are_copies(places.take(bad)).all():
            raise errors[0]  # the scanner meets them again in their queues
        looked = found.looked + len(bad)
        batches = self._wanted(found, places)
        if self.state.order is not None:
            batches = self._lines.admitted(batches)
        if len(bad):
            self.until_ms = min(self.until_ms, self.state.now_ms() + RETRY_MS)
            self._unreadable.update(places.take(bad).pairs())
        self._due.remove_first(int(ends[looked]), queue_id)
        failed += errors
        room.take(batches)
        if errors or (len(rows) and not looked):
            room.close()
        return batches

    def _left_out(self, due: DueMessages) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of due messages that the scanner has passed. Cancelled ones count as acknowledged."""
        passed = ~self._has_ahead(due.queue_ids, due.offsets)
        over = np.flatnonzero(passed & due.cancelled)
        if len(over):
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
        wanted = self._are_wanted(whole)
        passed = places.take(np.concatenate([found.gone, found.rows[~wanted]]))
        self._pass(passed)
        order = order[wanted[order]]
        if not len(order):
            return []
        return [whole if wanted.all() and (order[1:] > order[:-1]).all() else taken(whole, order)]

    def _pass(self, places: Places) -> None:
        """Count messages that nobody gets as acknowledged. None of them is in a line."""
        with self.state.lock:
            for queue_id, offsets in places.by_queue():
                self.state.leave_out(queue_id, offsets)

    def _are_copies(self, places: Places) -> Bools:
        """(n,) which messages live on only as copies."""
        bounds = self.state.parts.reads.queue_bounds
        firsts = [bounds(self.state.topic, queue_id)[0] for queue_id in places.queues.tolist()]
        return np.asarray(places.offsets < np.array(firsts, np.int64))
