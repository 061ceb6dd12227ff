"""The delayed messages of one subscription: its pointer into what becomes due of the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...index import TrackerClosed
from ..delayed.due_list import NOTHING_DUE, Due
from ..delayed.messages import due_copies, fetch
from ..delayed.pointer import FOREVER_S, Pointer
from ..delayed.skipping import first_not_pending
from ..delayed.topic import DelayedTopic
from ..errors import StoreUnreadable
from ..format.layout import NO_TIME
from ..read.message import Message
from .parts import Parts

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LEAST_PRECISION_MS = 10  # with less, a consumer that waits wakes for each message
LEAST_S = 0.001  # of a sleep: what is due may be held up by others who do not take it


class Left(NamedTuple):
    """Which of some messages (n,) come later, and which never, as they were cancelled."""

    waiting: Mask
    cancelled: Mask


class SubscriptionDelays:
    """What a dispatcher asks about delays. One thread at a time, but for `is_used`.

    Nothing of it is there before the first message with a delivery time is met, or the topic has an index.
    """

    def __init__(self, parts: Parts, topic: str, precision_ms: Callable[[], int], ring: Callable[[], None]) -> None:
        """`ring` is called when something is due: those who wait look again."""
        self._parts = parts
        self._name = topic
        self._precision_ms = precision_ms
        self._ring = ring
        self._topic: DelayedTopic | None = None
        self._pointer: Pointer | None = None
        self._turn: int | None = None  # with a precision: all that was due then was taken
        self.again = False  # messages that live on as copies are to be looked at once more

    @property
    def is_used(self) -> bool:
        """Whether there may be something to take."""
        return self._pointer is not None

    def has_due(self) -> bool:
        """Whether something is to be taken now, or may be."""
        return self._pointer is not None and (self.again or self._pointer.due_in_s() <= 0)

    @property
    def has_copies(self) -> bool:
        """Whether messages that live on as copies are to be looked at once more."""
        return self.again and self._topic is not None

    @property
    def _naps(self) -> bool:
        return self._precision_ms() >= LEAST_PRECISION_MS

    def due_in_s(self) -> float:
        """How long those who wait may sleep, as far as delays go: until something is due, or is taken."""
        pointer = self._pointer
        if pointer is None:
            return FOREVER_S
        if self._naps:
            precision_ms = self._precision_ms()
            return (precision_ms - self._parts.clock.wall_ms() % precision_ms) / 1000
        return max(LEAST_S, pointer.due_in_s())

    def open(self) -> None:
        """The subscription has a consumer. Raises StoreError, OSError."""
        if self._parts.delays is not None and self._parts.delays.find(self._name) is not None:
            self._begin()

    def close(self) -> None:
        """It has none any more."""
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
                self.again = True
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        return topic

    def _on_due(self) -> None:
        if not self._naps:
            self._ring()

    def left(self, queue_id: int, offsets: Int64s, times_ms: Int64s | None) -> Left | None:
        """Which messages of a queue are not to be given out now; None if that is none of them.

        Not under the subscription's lock: it may read the device. Raises StoreUnreadable.
        """
        delayed = np.empty(0, np.intp) if times_ms is None else np.flatnonzero(times_ms != NO_TIME)
        if times_ms is None or not len(delayed):
            return None
        try:
            waiting, cancelled = self._begin().waiting(queue_id, offsets[delayed], times_ms[delayed])
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        left = Left(np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_))
        left.waiting[delayed] = waiting
        left.cancelled[delayed] = cancelled
        return left if waiting.any() or cancelled.any() else None

    def first_not_pending(self, queue_ids: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
        """(n,) of each queue the first of the offsets begin .. end - 1 that does not come later; its end if all do.

        Raises StoreUnreadable.
        """
        assert self._topic is not None, "it has a pointer"
        try:
            return first_not_pending(self._topic, queue_ids, begins, ends)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error

    def take(self, most: int) -> Due:
        """What became due; with a precision it is taken once in so many ms. Raises StoreUnreadable."""
        turn = self._parts.clock.wall_ms() // self._precision_ms() if self._naps else None
        if self._pointer is None or (turn is not None and turn == self._turn):
            return NOTHING_DUE
        try:
            due = self._pointer.take(most)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        self._turn = turn if len(due.offsets) < most and not due.missed else None
        return due

    def copied(self, queue_id: int, offset: int) -> Message | None:
        """A delayed message whose segment is gone; None if it is not kept. Raises StoreUnreadable."""
        if self._topic is None:
            return None
        try:
            return fetch(self._topic, queue_id, offset)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error

    def due_copies(self) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of the due messages whose segments are gone, if they are to be looked at again."""
        if not self.again or self._topic is None:
            return NOTHING_DUE.queue_ids, NOTHING_DUE.offsets
        try:
            found = due_copies(self._topic)
        except (OSError, TrackerClosed) as error:
            raise self._failed(error) from error
        self.again = False
        return found

    def _failed(self, error: OSError | TrackerClosed) -> StoreUnreadable:
        """The error for the caller. Raises StoreClosed if the store was closed meanwhile, and the index with it."""
        self._parts.check_open()
        return StoreUnreadable(f"the index of delayed messages could not be used: {error}. Nothing is lost; try again.")
