"""Giving messages out again: those that were given back or timed out, and those that go to the dead letters instead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..read.message import Message, MessageBatch
from .dead_letters import are_dead, bury, hold_back
from .fetching import Fetched
from .in_flight import Is, Places
from .room import Room
from .state import State

Int64s = npt.NDArray[np.int64]
NOTHING = np.empty(0, np.int64)


class Again:
    """The part of a dispatcher that gives out what was given out before. One thread at a time."""

    def __init__(
        self, state: State, fetch_into: Callable[[Room, Places], Fetched], end: Callable[[Places], None],
        copied: Callable[[int, int], Message | None],
    ) -> None:  # fmt: skip
        """`fetch_into` fetches messages; `end` takes those that are there no more; `copied` as for `fetch`."""
        self.state = state
        self._fetch_into = fetch_into
        self._end = end
        self._copied = copied

    def take(self, room: Room) -> tuple[list[MessageBatch], Int64s, Int64s]:
        """The messages that were given back or timed out; for each its attempt, and its receipt (n,)."""
        state = self.state
        if not state.again and state.now_ms() < state.table.next_ms:
            return [], NOTHING, NOTHING
        with state.lock:
            state.list_again(state.table.expire(state.now_ms()))
            receipts, places = self._next_again(room.messages)
        if not len(receipts):
            return [], NOTHING, NOTHING
        receipts, places = self._bury(receipts, places)
        try:
            found = self._fetch_into(room, places)
        except StoreError:
            hold_back(self.state, receipts)
            raise
        self._drop(receipts[found.gone], places.take(found.gone))
        return found.batches, places.attempts[found.rows] + 1, receipts[found.rows]

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
            bury(self.state, settings.dead_letter_topic, receipts[dead], self._copied)
        except StoreError:
            hold_back(self.state, receipts[~dead])
            raise
        return receipts[~dead], places.take(np.flatnonzero(~dead))

    def _drop(self, receipts: Int64s, places: Places) -> None:
        """The messages are there no more: they count as acknowledged."""
        state = self.state
        if not len(receipts):
            return
        self._end(places)
        with state.lock:
            rows = state.table.find(receipts)
            state.table.remove(rows[rows >= 0])
