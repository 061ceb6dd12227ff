"""Messages that come again: gives them out, counts their attempts, or moves them to the dead letters (R30)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.cursors import pack_attempts
from ..log.request import Request
from ..read.message import MessageBatch
from .delivery import RETRY_MS, Fetches, Room, fetch_readable, in_turn, queue_ids_of, taken
from .in_flight import NEVER, NOTHING, Places, RowState
from .lines import Lines
from .settings import Settings
from .state import LISTED_TOGETHER, State

MOVED_MESSAGES = 4095  # at most so many are moved at once; with their acknowledgements they are a frame
MOVED_BYTES = 4 << 20
MOST_CHUNKS = 64  # of the list, beside those that it may need

Move: TypeAlias = "Callable[[str, Sequence[MessageBatch], Int64s, Int64s], None]"


class Redelivery:
    """The part of a dispatcher that gives messages out again. One thread at a time."""

    def __init__(
        self,
        state: State,
        lines: Lines,
        fetch: Callable[[Room, Places], Fetches],
        move: Move,
    ) -> None:
        """`fetch` fetches messages as far as they fit; `move` appends some, with their receipts, to a topic, and
        acknowledges them and the receipts of gone ones.
        """
        self.state = state
        self._lines = lines
        self._fetch = fetch
        self._move = move

    def has(self, queue_id: int) -> bool:
        """Whether a message of a queue was given back or timed out; it may have to wait for others of its line."""
        with self.state.lock:
            return len(self._waiting_of(queue_id)) > 0

    def has_listed(self, queue_id: int) -> bool:
        """Whether one of these is in the list of all queues: one that was found to wait for its line is not."""
        with self.state.lock:
            waiting = self._waiting_of(queue_id)
            return len(waiting) > 0 and any(np.isin(waiting, listed).any() for listed in self.state.to_redeliver)

    def take(
        self, room: Room, failed: list[StoreError], queue_id: int | None = None
    ) -> tuple[list[MessageBatch], Int64s, Int64s]:
        """The messages that were given back or timed out, of a queue or of all, with their attempts and receipts (n,).

        Errors of messages that cannot be read or moved are added to `failed`. Those are held back, and delay no others.
        """
        state = self.state
        is_stirred = state.order is not None and len(state.order.stirred) > 0
        if not state.to_redeliver and not is_stirred and state.now_ms() < state.table.next_ms:
            return [], NOTHING, NOTHING
        if state.now_ms() >= state.table.next_ms and (queue_id is not None or state.queue_calls):
            state.notify()  # this look lists messages that others wait for
        with state.lock:
            state.expire()
        most = room.messages
        while not failed:
            with state.lock:
                receipts, places = self._next_redelivered(most, queue_id)
            if not len(receipts):
                if state.to_redeliver and queue_id is None:  # the first ones wait for others of their line
                    continue
                break
            receipts, places = self._without_dead(receipts, places, failed)
            receipts, places = receipts[: room.messages], places.take(np.arange(min(places.size, room.messages)))
            errors: list[StoreError] = []
            found, bad = fetch_readable(room, self._fetch, places, errors)
            hold_back(state, receipts[bad[: len(errors)]])  # the others were not looked at: their turn is next
            failed += errors
            self._drop(receipts[found.gone], places.take(found.gone))
            if found.batches:
                if state.order is not None:
                    found = self._lines.before(in_turn(found), places, bad)
                return found.batches, places.attempts[found.rows] + 1, receipts[found.rows]
            most = max(most, MOVED_MESSAGES)  # all of these were dead or gone; the messages after them may be neither
        return [], NOTHING, NOTHING

    def _waiting_of(self, queue_id: int) -> Int64s:
        """The receipts of a queue's messages that were given back or timed out. Under the state's lock.

        It takes them from the table: the list has those of all queues. Some may have to wait for others of their line.
        """
        state, table = self.state, self.state.table
        if not state.to_redeliver and (state.order is None or not state.order.stirred):
            return NOTHING
        if len(state.to_redeliver) > MOST_CHUNKS + 2 * (len(table) // LISTED_TOGETHER):
            self._tidy()
        rows = table.rows_of([queue_id])
        states = table.states(rows)
        return table.receipts(rows[(states == RowState.LATE) | (states == RowState.BACK)])

    def _tidy(self) -> None:
        """Unlist what waits no more: consumers of single queues take nothing off the list."""
        live = self._waiting(np.concatenate(list(self.state.to_redeliver)))
        live = live[np.sort(np.unique(live, return_index=True)[1])]
        begins = range(0, len(live), LISTED_TOGETHER)
        self.state.to_redeliver = deque([live[at : at + LISTED_TOGETHER] for at in begins])

    def _next_redelivered(self, most: int, queue_id: int | None) -> tuple[Int64s, Places]:
        """The next receipts to redeliver. They stay queued until they are acknowledged or reissued."""
        state, again = self.state, self.state.to_redeliver
        if queue_id is not None:
            found = self._waiting_of(queue_id)
            found = found[:most] if state.order is None else self._lines.next_redelivered(found, most, queue_id)
            return found, state.table.places(state.table.find(found))
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
            self._move_to_dead_letters(settings.dead_letter_topic, receipts[dead])
        except StoreError as error:
            failed.append(error)
            left &= self.state.order is None or self._lines.are_free(places, np.flatnonzero(dead))
        return receipts[left], places.take(np.flatnonzero(left))

    def move_dead(self, receipts: Int64s) -> None:
        """Move messages that no consumer has to the dead letters, now. Raises StoreError: then they come again."""
        settings = self.state.cursor.settings
        if settings is not None and settings.dead_letter_topic is not None and len(receipts):
            self._move_to_dead_letters(settings.dead_letter_topic, receipts)

    def _move_to_dead_letters(self, topic: str, receipts: Int64s) -> None:
        """Move messages to the dead letters' topic, except those that a late consumer acknowledged.

        First they get new receipts, so that no consumer can acknowledge them meanwhile. Raises StoreError; then
        messages that were not acknowledged come again: either all readable ones were moved, or none could be.
        """
        receipts, places = _claim(self.state, receipts)
        failed: list[StoreError] = []
        try:
            while len(receipts):
                found, bad = fetch_readable(Room(MOVED_MESSAGES, self._room_bytes), self._fetch, places, failed)
                over = np.concatenate([found.rows, found.gone])
                if len(over):
                    self._move(topic, found.batches, receipts[found.rows], receipts[found.gone])
                hold_back(self.state, receipts[bad])
                left = np.delete(np.arange(len(receipts)), np.concatenate([over, bad]))
                receipts, places = receipts[left], places.take(left)
        except StoreError:
            hold_back(self.state, receipts)
            raise
        if failed:
            raise failed[0]

    @property
    def _room_bytes(self) -> int:
        """Payloads that one frame has room for, with some keys and properties."""
        appending = self.state.parts.appending
        return MOVED_BYTES if appending is None else min(MOVED_BYTES, appending.most_atomic_bytes // 2)

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
        new = state.enter(places, state.now_ms() + RETRY_MS, stories=table.stories(rows))
        table.remove(table.find(old))  # looked up again: making room for the new rows may have moved these
    return new, places


class AttemptCounts:
    """Counts how often messages of one subscription are given out. Any number of threads may use it.

    Invariant: where attempts are counted, the log has the attempt of a message before a consumer gets the message.

    Attributes:
        ends: by queue id: messages below this offset may have been given out before.
    """

    def __init__(self, state: State) -> None:
        self.ends: dict[int, int] = {}
        self._state = state
        self.expect()

    def of(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, by the log's records. Under the state's lock."""
        return self._state.cursor.attempts_of(queues, offsets)

    def note(self, places: Places) -> Sequence[Request]:
        """Note the attempts of messages that are given out. Returns the requests that record them in the log.

        Raises as an append does; then nothing was noted.
        """
        groups, state = [], self._state
        try:
            with state.lock:
                life = state.cursor.life
                for queue_id in np.unique(places.queues).tolist():
                    mine = np.flatnonzero(places.queues == queue_id)
                    mine = mine[places.offsets[mine].argsort(kind="stable")]
                    tried = state.cursor.tried(queue_id)
                    tried.note(places.offsets[mine], places.attempts[mine])
                    groups.append((queue_id, tried.era, places.offsets[mine], places.attempts[mine]))
            requests = state.journal.submit(pack_attempts(life, groups, state.limit_bytes))
        except BaseException:  # passed on; an interrupt, too, leaves no attempt without a record
            with state.lock:
                state.undo_attempts(places)
            raise
        return requests

    def may_be_met(self, is_past: Callable[[int, int], bool]) -> bool:
        """Whether messages that are read next may have been given out before; `is_past(queue id, offset)` says whether
        a queue is read up to the offset.
        """
        for queue_id in [queue_id for queue_id, end in self.ends.items() if is_past(queue_id, end)]:
            del self.ends[queue_id]
        return bool(self.ends)

    def wait_for(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the attempts of messages are durable. Raises StoreError: then the messages come again, and this
        attempt does not count.
        """
        try:
            for request in noted:
                request.result()
        except StoreError:
            self._state.undo_receive(receipts)
            raise
        self._state.compact_in_time()

    def expect(self) -> None:
        """All messages are read again: some of them were given out before."""
        cursor = self._state.cursor
        with self._state.lock:
            if cursor.counts_attempts:
                cursor.forget_tried()
                self.ends = {queue_id: one.end for queue_id, one in cursor.attempts.items() if one.end}

    def without_dead(self, batch: MessageBatch, counts: Int64s, first: int) -> tuple[MessageBatch, Int64s, bool]:
        """(messages that were not given out too often before, their attempts, whether there were others). The table
        knows the first `first` messages already.
        """
        state = self._state
        settings = state.cursor.settings
        assert settings is not None and settings.max_attempts is not None, "attempts are counted"
        queues = queue_ids_of(batch)
        with state.lock:
            counts[first:] += self.of(queues[first:], batch.offsets[first:])
            is_dead = counts > settings.max_attempts
            is_dead[:first] = False  # these were checked before, maybe by other settings
            dead = np.flatnonzero(is_dead)
            if not len(dead):
                return batch, counts, False
            # The next look finds them in the table, and moves them to the dead letters.
            receipts = state.enter(Places(queues[dead], batch.offsets[dead], counts[dead] - 1), NEVER)
            state.table.hold(state.table.find(receipts), state.now_ms())
        kept = np.flatnonzero(~is_dead)
        return taken(batch, kept), counts[kept], True
