"""Gives out again messages that were given back or timed out, or moves them to the dead letters (R30)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.blobs import Blobs, ExtraColumns, gathered
from ..read.message import MessageBatch
from .delivery import RETRY_MS, Room, fetch_readable, in_turn, joined
from .in_flight import NOTHING, Places, RowState
from .ordering import Lines
from .settings import Settings
from .state import State

MOVED_MESSAGES = 4096  # at most so many are moved by one append
MOVED_BYTES = 4 << 20


class Redelivery:
    """The part of a dispatcher that gives messages out again. One thread at a time."""

    def __init__(self, state: State, lines: Lines) -> None:
        self.state = state
        self._lines = lines

    def take(self, room: Room, failed: list[StoreError]) -> tuple[list[MessageBatch], Int64s, Int64s]:
        """The messages that were given back or timed out, with their attempts and receipts (n,).

        Errors of messages that cannot be read or moved are added to `failed`. Those are held back, and delay no others.
        """
        state = self.state
        is_stirred = state.order is not None and len(state.order.stirred) > 0
        if not state.to_redeliver and not is_stirred and state.now_ms() < state.table.next_ms:
            return [], NOTHING, NOTHING
        with state.lock:
            state.table.expire(state.now_ms(), state.redeliver)
        most = room.messages
        while not failed:
            with state.lock:
                receipts, places = self._next_redelivered(most)
            if not len(receipts):
                if state.to_redeliver:  # the first ones had to wait for others of their line
                    continue
                break
            receipts, places = self._without_dead(receipts, places, failed)
            receipts, places = receipts[: room.messages], places.take(np.arange(min(places.size, room.messages)))
            errors: list[StoreError] = []
            found, bad = fetch_readable(room, state.fetch_into, places, errors)
            hold_back(state, receipts[bad[: len(errors)]])  # the others were not looked at: their turn is next
            failed += errors
            self._drop(receipts[found.gone], places.take(found.gone))
            if found.batches:
                if state.order is not None:
                    found = self._lines.before(in_turn(found), places, bad)
                return found.batches, places.attempts[found.rows] + 1, receipts[found.rows]
            most = max(most, MOVED_MESSAGES)  # all of these were dead or gone; the messages after them may be neither
        return [], NOTHING, NOTHING

    def _next_redelivered(self, most: int) -> tuple[Int64s, Places]:
        """The next receipts to redeliver. They stay queued until they are acknowledged or reissued."""
        state, again = self.state, self.state.to_redeliver
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
            found = self._lines.next_redelivered(found, enough)
        return found, state.table.places(state.table.find(found))

    def _waiting(self, receipts: Int64s) -> Int64s:
        """The receipts whose messages still wait to be given out again."""
        found: Int64s = receipts[self.state.table.find_back(receipts)]
        return found

    def _without_dead(self, receipts: Int64s, places: Places, failed: list[StoreError]) -> tuple[Int64s, Places]:
        """Move messages that were given out too often to the dead letters. Returns the others."""
        settings = self.state.cursor.settings
        dead = are_dead(settings, places)
        if not dead.any():
            return receipts, places
        assert settings is not None and settings.dead_letter_topic is not None, "else none is dead"
        left = ~dead
        try:
            move_to_dead_letters(self.state, settings.dead_letter_topic, receipts[dead])
        except StoreError as error:
            failed.append(error)
            left &= self.state.order is None or self._lines.are_free(places, np.flatnonzero(dead))
        return receipts[left], places.take(np.flatnonzero(left))

    def _drop(self, receipts: Int64s, places: Places) -> None:
        """Count messages that are gone as acknowledged."""
        state = self.state
        if not len(receipts):
            return
        state.drop(places)
        with state.lock:
            rows = state.table.find(receipts)
            state.table.remove(rows[rows >= 0])


def are_dead(settings: Settings | None, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages were given out as often as the settings allow, and have a topic to go to."""
    if settings is None or settings.max_attempts is None or settings.dead_letter_topic is None:
        return np.zeros(places.size, np.bool_)
    return places.attempts >= settings.max_attempts


def move_to_dead_letters(state: State, topic: str, receipts: Int64s) -> None:
    """Append messages to the dead letters' topic and acknowledge them, except those that a late consumer acknowledged.

    First they get new receipts, so that no consumer can acknowledge them meanwhile. Raises StoreError; then messages
    that were not acknowledged come again: either all readable ones were moved, or none could be.
    """
    receipts, places = _claim(state, receipts)
    failed: list[StoreError] = []
    try:
        while len(receipts):
            found, bad = fetch_readable(Room(MOVED_MESSAGES, MOVED_BYTES), state.fetch_into, places, failed)
            if found.batches:
                _append(state, topic, found.batches)
            over = np.concatenate([found.rows, found.gone])
            if len(over):
                state.acks.ack(receipts[over])
            hold_back(state, receipts[bad])
            left = np.delete(np.arange(len(receipts)), np.concatenate([over, bad]))
            receipts, places = receipts[left], places.take(left)
    except StoreError:
        hold_back(state, receipts)
        raise
    if failed:
        raise failed[0]


def _append(state: State, topic: str, batches: Sequence[MessageBatch]) -> None:
    """Append messages to a topic by one call, in queues of their ids, with their keys and properties."""
    batch = joined(batches)
    extras = None if batch.extras is None else ExtraColumns.of(batch.extras)
    payload = gathered(batch.buffer, batch.positions, batch.lengths, np.arange(len(batch)))
    state.parts.append_columns(
        [(topic, queue_id) for _, queue_id in batch.stream_names], batch.stream_index, batch.lengths, payload,
        *_columns(extras), None,
    )  # fmt: skip


def _columns(extras: ExtraColumns | None) -> tuple[Blobs | None, Blobs | None]:
    return (None, None) if extras is None else (extras.keys, extras.properties)


def hold_back(state: State, receipts: Int64s) -> None:
    """Hold messages back that could not be fetched or moved, so that others go first."""
    if not len(receipts):
        return
    with state.lock:
        rows = state.table.find(receipts)
        rows = rows[(rows >= 0) & (state.table.states(rows) != RowState.ACKED)]
        state.table.hold(rows, state.now_ms() + RETRY_MS)


def _claim(state: State, receipts: Int64s) -> tuple[Int64s, Places]:
    """Give new receipts to those messages that still wait to be given out again."""
    table = state.table
    with state.lock:
        rows = table.find(receipts[table.find_back(receipts)])
        places, old = table.places(rows), table.receipts(rows)
        new = state.enter(places, state.now_ms() + RETRY_MS)
        table.remove(table.find(old))  # looked up again: making room for the new rows may have moved these
    return new, places
