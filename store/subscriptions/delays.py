"""The delayed messages of one subscription: its pointer into the topic's due messages, and lists of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...index import TrackerClosed
from ..delayed.due_list import FOREVER_S, HELD_UP_S, LAGGING_S, NOTHING_DUE, DueMessages, Pointer
from ..delayed.messages import due_copies, fetch, first_not_pending, waiting
from ..delayed.topic import DelayedTopic
from ..errors import StoreUnreadable
from ..format.arrays import Bools, Int64s
from ..format.layout import NO_TIME
from ..read.message import Message
from .in_flight import NEVER, Places
from .parts import Parts
from .redelivery import RETRY_MS
from .state import State

LEAST_PRECISION_MS = 10  # with less, a waiting consumer wakes for each message
LOOKED_AT_S = max(LAGGING_S, HELD_UP_S)  # a time to wait so short may only mean the next look at an index that lags
LEAST_S = 0.001  # of a sleep: due messages may be held up by consumers that do not take them


class LaterMessages(NamedTuple):
    """Which of some messages (n,) come later, and which never, because they were cancelled."""

    waiting: Bools
    cancelled: Bools


class SubscriptionDelays:
    """A dispatcher's view of delays. One thread at a time, except for `is_used`.

    It holds nothing before the first message with a delivery time is met, or the topic has an index.
    """

    def __init__(self, parts: Parts, topic: str, precision_ms: Callable[[], int], notify: Callable[[], None]) -> None:
        """`notify` is called when a message is due: waiting consumers look again."""
        self._parts = parts
        self._name = topic
        self._precision_ms = precision_ms
        self._notify = notify
        self._topic: DelayedTopic | None = None
        self._pointer: Pointer | None = None
        self._turn: int | None = None  # with a precision: all messages due by then were taken
        self._wakes_ms = 0  # .. and the turn until which waiting consumers sleep; 0 if there is none
        self.recheck_copies = False  # messages that live on as copies are to be checked again

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
        return self.recheck_copies and self._topic is not None

    @property
    def _coalesces(self) -> bool:
        return self._precision_ms() >= LEAST_PRECISION_MS

    def due_in_s(self) -> float:
        """How long waiting consumers may sleep, as far as delays go: until a message is due, or is to be taken."""
        pointer = self._pointer
        if pointer is None:
            return FOREVER_S
        due_s = pointer.due_in_s()
        if not self._coalesces or due_s >= FOREVER_S:
            self._wakes_ms = 0
            return max(LEAST_S, due_s)
        now_ms, self._wakes_ms = self._parts.clock.wall_ms(), self._turn_after(due_s)
        return max(LEAST_S, (self._wakes_ms - now_ms) / 1000)

    @property
    def _turn_ms(self) -> int:
        """With a precision: the time between turns. The index lags too: both together are less than the precision."""
        topic = self._topic
        return max(1, self._precision_ms() - (1 if topic is None else topic.tick_ms) + 1)

    def _turn_after(self, due_s: float) -> int:
        """With a precision: the turn at which a message is taken that is due in `due_s`."""
        turn_ms, now_ms = self._turn_ms, self._parts.clock.wall_ms()
        return -(-max(now_ms + 1, now_ms + int(due_s * 1000)) // turn_ms) * turn_ms

    def open(self) -> None:
        """The subscription has a consumer now. Raises StoreError, OSError."""
        if self._parts.delays is not None and self._parts.delays.find(self._name) is not None:
            self._begin()

    def close(self) -> None:
        """The subscription has no consumer any more."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            pointer.close()

    def _begin(self) -> DelayedTopic:
        delays = self._parts.delays
        assert delays is not None, "a store that is only read gives nothing out"
        try:
            topic = self._topic = delays.topic(self._name)
            if self._pointer is None:
                self._pointer = topic.open_pointer(self._on_due)
                self.recheck_copies = True
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        return topic

    def _on_due(self) -> None:
        pointer = self._pointer
        if pointer is None:
            return
        if not self._coalesces or self._turn_after(pointer.due_in_s()) < self._wakes_ms or not self._wakes_ms:
            self._notify()  # with a precision: only if it is earlier than the time that waiting consumers know

    def left(self, queue_id: int, offsets: Int64s, times_ms: Int64s | None) -> LaterMessages | None:
        """The messages of a queue that are not to be given out now; None if there are none.

        Called without the subscription's lock: it may read the device. Raises StoreUnreadable.
        """
        delayed = np.empty(0, np.intp) if times_ms is None else np.flatnonzero(times_ms != NO_TIME)
        if times_ms is None or not len(delayed):
            return None
        try:
            later, cancelled = waiting(self._begin(), queue_id, offsets[delayed], times_ms[delayed])
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        left = LaterMessages(np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_))
        left.waiting[delayed] = later
        left.cancelled[delayed] = cancelled
        return left if later.any() or cancelled.any() else None

    def first_not_pending(self, queue_ids: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
        """(n,) for each queue the first of the offsets begin .. end - 1 that does not come later; its end if all do.

        Raises StoreUnreadable.
        """
        assert self._topic is not None, "it has a pointer"
        try:
            return first_not_pending(self._topic, queue_ids, begins, ends)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error

    def take(self, most: int) -> DueMessages:
        """Take due messages, up to `most`; with a precision only once in so many ms. Raises StoreUnreadable."""
        turn = self._parts.clock.wall_ms() // self._turn_ms if self._coalesces else None
        if self._pointer is None or (turn is not None and turn == self._turn):
            return NOTHING_DUE
        try:
            due = self._pointer.take(most)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        is_all = len(due.offsets) < most and not due.missed and not due.is_cut
        self._turn = turn if is_all else None
        return due

    def copied(self, queue_id: int, offset: int) -> Message | None:
        """The copy of a delayed message whose segment is gone; None if there is none. Raises StoreUnreadable."""
        if self._topic is None:
            return None
        try:
            return fetch(self._topic, queue_id, offset)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error

    def are_kept(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages of a queue, whose segments are gone, live on as copies."""
        topic = self._topic
        if topic is None:
            return np.zeros(len(offsets), np.bool_)
        stream = self._parts.streams.get(self._name, queue_id)
        with topic.lock:
            return topic.copies.has(queue_id, offsets) & (offsets >= (0 if stream is None else stream.low))

    def due_copies(self) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of due messages whose segments are gone, if they are to be checked again."""
        if not self.recheck_copies or self._topic is None:
            return NOTHING_DUE.queue_ids, NOTHING_DUE.offsets
        try:
            found = due_copies(self._topic)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        self.recheck_copies = False
        return found

    def _failed(self, error: OSError | TrackerClosed) -> StoreUnreadable:
        """The error for the caller. Raises StoreClosed if the store, and the index with it, was closed meanwhile."""
        self._parts.check_open()
        return StoreUnreadable(f"the index of delayed messages could not be used: {error}. Nothing is lost; try again.")


class PlaceList:
    """Places in the order in which they are to be given out, each once. One thread at a time."""

    def __init__(self) -> None:
        self._queues = self._offsets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """The memory that the list takes."""
        return self._queues.nbytes + self._offsets.nbytes

    def add(self, queues: Int64s, offsets: Int64s) -> None:
        """Append places, none of them twice. A place that is listed already stays where it is."""
        if len(self):
            new = np.ones(len(offsets), np.bool_)
            for queue_id in np.unique(queues).tolist():
                mine = queues == queue_id
                new[mine] = ~np.isin(offsets[mine], self._offsets[self._queues == queue_id])
            queues, offsets = queues[new], offsets[new]
        self._queues = np.concatenate([self._queues, queues])
        self._offsets = np.concatenate([self._offsets, offsets])

    def first(self, count: int) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of the first places; they stay listed."""
        return self._queues[:count], self._offsets[:count]

    def remove_first(self, count: int) -> None:
        """Drop the first `count` places."""
        self._queues, self._offsets = self._queues[count:], self._offsets[count:]

    def drop(self, queue_ids: Sequence[int] | None = None) -> None:
        """Forget the places of some queues, or all; they will be found again."""
        kept = np.zeros(len(self), np.bool_) if queue_ids is None else ~np.isin(self._queues, queue_ids)
        self._queues, self._offsets = self._queues[kept], self._offsets[kept]


def first_of_each(queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
    """(n,) true for the first of each place that occurs several times, and for each place that occurs once."""
    kept = np.ones(len(offsets), np.bool_)
    if len(set((offsets ^ queues << 40).tolist())) == len(offsets):  # true nearly always, and quicker to check
        return kept
    pairs = list(zip(queues.tolist(), offsets.tolist(), strict=True))
    if len(set(pairs)) < len(pairs):
        kept[:] = False
        kept[list({pair: at for at, pair in reversed(list(enumerate(pairs)))}.values())] = True
    return kept


class BadCopies:
    """Places that could not be read, held back together until one time. One thread at a time, except for `until_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.until_ms = NEVER
        self._places: set[tuple[int, int]] = set()
        self._now_ms = now_ms

    def add(self, places: Places) -> None:
        """Hold back places that could not be read now."""
        if places.size:
            self.until_ms = min(self.until_ms, self._now_ms() + RETRY_MS)
            self._places.update(zip(places.queues.tolist(), places.offsets.tolist(), strict=True))

    def are_in(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages are held back."""
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True) if self._places else ()
        found = np.zeros(len(offsets), np.bool_)
        for row, place in enumerate(pairs):
            found[row] = place in self._places
        return found

    def look(self, delays: SubscriptionDelays) -> None:
        """Have the places checked again, if it is time."""
        if self._now_ms() >= self.until_ms:
            delays.recheck_copies = True  # first: after an interrupt it is done again
            self._places.clear()
            self.until_ms = NEVER


def are_copies(state: State, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages live on only as copies."""
    bounds = state.parts.reads.queue_bounds
    firsts = [bounds(state.topic, queue_id)[0] for queue_id in places.queues.tolist()]
    return np.asarray(places.offsets < np.array(firsts, np.int64))
