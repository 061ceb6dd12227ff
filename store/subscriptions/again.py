"""Giving messages out again: those that were given back or timed out, and those that go to the dead letters instead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..read.message import MessageBatch
from .dead_letters import MOVED_MESSAGES, are_dead, bury, hold_back
from .fetching import Fetched, fetch_readable, in_turn
from .in_flight import NOTHING, Is, Places
from .lines import Lines
from .room import Room
from .state import State

Int64s = npt.NDArray[np.int64]


class Again:
    """The part of a dispatcher that gives out what was given out before. One thread at a time."""

    def __init__(
        self, state: State, fetch_into: Callable[[Room, Places], Fetched], end: Callable[[Places], None], lines: Lines
    ) -> None:
        """`fetch_into` fetches messages; `end` takes those that are there no more."""
        self.state = state
        self._lines = lines
        self._fetch_into = fetch_into
        self._end = end

    def take(self, room: Room, failed: list[StoreError]) -> tuple[list[MessageBatch], Int64s, Int64s]:
        """The messages that were given back or timed out; for each its attempt, and its receipt (n,).

        Errors of those that cannot be read or moved are added to `failed`: they are held back, and hold up no others.
        """
        state = self.state
        is_stirred = state.order is not None and len(state.order.stirred) > 0
        if not state.again and not is_stirred and state.now_ms() < state.table.next_ms:
            return [], NOTHING, NOTHING
        with state.lock:
            state.table.expire(state.now_ms(), state.list_again)
        most = room.messages
        while not failed:
            with state.lock:
                receipts, places = self._next_again(most)
            if not len(receipts):
                if state.again:  # the first ones had to wait for others of their line
                    continue
                break
            receipts, places = self._bury(receipts, places, failed)
            receipts, places = receipts[: room.messages], places.take(np.arange(min(places.size, room.messages)))
            errors: list[StoreError] = []
            found, bad = fetch_readable(room, self._fetch_into, places, errors)
            hold_back(state, receipts[bad[: len(errors)]])  # the others were not looked at: their turn is next
            failed += errors
            self._drop(receipts[found.gone], places.take(found.gone))
            if found.batches:
                if state.order is not None:
                    found = self._lines.before(in_turn(found), places, bad)
                return found.batches, places.attempts[found.rows] + 1, receipts[found.rows]
            most = max(most, MOVED_MESSAGES)  # all of these were dead or gone; others may follow that are not
        return [], NOTHING, NOTHING

    def _next_again(self, most: int) -> tuple[Int64s, Places]:
        """The next receipts that are to be given out again. They stay listed until their rows are GONE."""
        state, again = self.state, self.state.again
        picked, enough = list[Int64s](), most
        if state.order is not None:
            most = max(most, MOVED_MESSAGES)  # many may have to wait
        while again and not len(live := self._waiting(again[0])):
            again.popleft()
        for receipts in again:
            live = self._waiting(receipts)
            picked.append(live[:most])
            most -= len(picked[-1])
            if most <= 0:
                break
        found = np.unique(np.concatenate([*picked, NOTHING]))
        if state.order is not None:
            found = self._lines.next_again(found, enough)
        return found, state.table.places(state.table.find(found))

    def _waiting(self, receipts: Int64s) -> Int64s:
        """Those of some receipts whose messages wait to be given out again."""
        rows = self.state.table.find(receipts)
        states = self.state.table.states(rows)
        found: Int64s = receipts[(rows >= 0) & ((states == Is.LATE) | (states == Is.BACK))]
        return found

    def _bury(self, receipts: Int64s, places: Places, failed: list[StoreError]) -> tuple[Int64s, Places]:
        """Move the messages that were given out too often to the dead letters: what is left."""
        settings = self.state.cursor.settings
        dead = are_dead(settings, places)
        if not dead.any():
            return receipts, places
        assert settings is not None and settings.dead_letter_topic is not None, "else none is dead"
        left = ~dead
        try:
            bury(self.state, settings.dead_letter_topic, receipts[dead], self._fetch_into)
        except StoreError as error:
            failed.append(error)
            left &= self.state.order is None or self._lines.are_free(places, np.flatnonzero(dead))
        return receipts[left], places.take(np.flatnonzero(left))

    def _drop(self, receipts: Int64s, places: Places) -> None:
        """The messages are there no more: they count as acknowledged."""
        state = self.state
        if not len(receipts):
            return
        self._end(places)
        with state.lock:
            rows = state.table.find(receipts)
            state.table.remove(rows[rows >= 0])
