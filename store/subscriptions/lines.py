"""Giving messages out in order: those whose turn has come, and new ones whose line is free."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from ..read.message import MessageBatch
from .fetching import Fetched
from .in_flight import Places
from .ordering import Order
from .room import Room
from .state import State


class Lines:
    """The part of a dispatcher that keeps an order. One thread at a time."""

    def __init__(
        self, state: State, fetch_into: Callable[[Room, Places], Fetched], end: Callable[[Places], None]
    ) -> None:
        """`fetch_into` fetches messages; `end` takes those that are there no more."""
        self.state = state
        self._fetch_into = fetch_into
        self._end = end

    def take_freed(self, room: Room, found: list[MessageBatch]) -> None:
        """Messages whose turn has come: the ones before them are acknowledged."""
        order, before = self.state.order, len(found)
        while order is not None and order.freed and room.is_open and len(found) == before:  # one gone frees the next
            found += self._fetch_freed(order, room)

    def _fetch_freed(self, order: Order, room: Room) -> list[MessageBatch]:
        state = self.state
        with state.lock:
            freed = list(islice(order.freed, room.messages))  # they stay listed until they were fetched
        places = Places(*np.array([(*place, 0) for place in freed], np.int64).T)
        found = self._fetch_into(room, places)
        with state.lock:
            for place in freed[: found.looked]:
                if order.freed and order.freed[0] == place:  # else a seek has taken it meanwhile
                    order.freed.popleft()
        self._end(places.take(found.gone))
        return found.batches

    def limit_of(self, queue_id: int) -> int:
        """How many new messages of a queue may be read now."""
        order = self.state.order
        assert order is not None, "only ordered subscriptions ask"
        with self.state.lock:
            limit = order.limit_of(queue_id)
        return limit

    def reopened(self) -> list[int]:
        """The queues of which new messages may be read again, since this was asked before."""
        order = self.state.order
        if order is None or not order.reopened:
            return []
        with self.state.lock:
            reopened, order.reopened = order.reopened, []
        return reopened

    def admit(self, batch: MessageBatch) -> bool:
        """Whether a batch of one new message may go out now."""
        order = self.state.order
        assert order is not None, "only ordered subscriptions ask"
        extra = None if batch.extras is None else batch.extras[0]
        with self.state.lock:
            admitted = order.admit(batch.queue_id(0), int(batch.offsets[0]), None if extra is None else extra.key)
        return admitted
