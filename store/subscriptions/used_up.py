"""Messages that a subscription has given out for the last time, when retention takes them: they go to its dead letters.

Else a consumer's next look moves them there; but if none comes in time, they would go with their segment.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from ...index.locks import if_free
from ..delayed.wanted import copied_in
from ..device.background import report
from ..errors import (
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StorePoisoned,
    SubscriptionClosed,
)
from ..format.arrays import Int64s
from ..log.lane import Lane
from ..log.streams import Stream
from ..segment.sealed import SealedSegment
from .in_flight import NEVER, NOTHING, Places, RowState
from .parts import Parts
from .redelivery import are_dead
from .removed import streams_of
from .shared import Shared

Range = tuple[Stream, int, int]  # the messages of a stream from one offset up to another one

FAILED = RowState.HELD, RowState.LATE, RowState.BACK, RowState.RESTING  # no consumer has such a message

PASSING = errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM  # files, threads or memory were short


class UsedUp:
    """Moves them. The store's upkeep calls it, and the thread that forgets copies: they wait for no consumer, and ask
    again later instead.

    A segment costs by the streams in it whose topics have a subscription with dead letters.
    """

    def __init__(
        self, parts: Parts, shared_of: Callable[[str], Iterable[Shared]], topics: Callable[[], set[str]]
    ) -> None:
        """`shared_of` gives the subscriptions of a topic, loaded if need be, without damaged ones; `topics` are those
        with a subscription.
        """
        self._parts = parts
        self._shared_of = shared_of
        self._topics = topics

    def save(self, lane: Lane, sealed: SealedSegment) -> bool:
        """Before a segment goes. False if a consumer receives just now, or something else may pass: ask again. Raises
        OSError, and StoreError if nothing may go any more: the store is closing, or poisoned.
        """
        topics, streams = self._topics(), list[Stream]()
        with suppress(StoreCorrupt):  # nobody knows whose messages it has
            streams = streams_of(lane, sealed, topics) if topics else []
        firsts = [(stream, *sealed.first_of(stream.number)) for stream in streams]
        ranges = [(stream, first, first + count) for stream, first, count in firsts]
        return self.save_ranges(ranges + (self._copied(lane, sealed, topics) if topics else []))

    def _copied(self, lane: Lane, sealed: SealedSegment, topics: set[str]) -> list[Range]:
        """Where the messages lie whose copies a segment has, with some between them."""
        parts = self._parts
        found = [] if parts.delays is None else list(copied_in(parts.delays, lane, sealed))
        streams = [
            (parts.streams.get(topic, queue), begin, end) for topic, queue, begin, end in found if topic in topics
        ]
        return [(stream, begin, end) for stream, begin, end in streams if stream is not None]

    def save_ranges(self, ranges: Sequence[Range]) -> bool:
        """`save` for messages that are about to be trimmed, or whose copies are about to be forgotten."""
        is_done = True
        for stream, first, end in ranges:
            begin = max(first, stream.low)
            for shared in self._shared_of(stream.topic) if begin < end else ():
                settings = shared.state.cursor.settings
                if settings is not None and settings.max_attempts is not None:
                    is_done &= self._save_of(shared, stream.queue_id, begin, end)
        return is_done

    def _save_of(self, shared: Shared, queue_id: int, begin: int, end: int) -> bool:
        """What a dead-letter topic does not take, or what cannot be read, goes with its segment and is counted as such.

        Else one message could hold up retention for ever. Only what may pass by itself is waited for.
        """
        if not len(listed_in(shared, queue_id, begin, end)) and not len(unlisted_in(shared, queue_id, begin, end)):
            return True
        for _ in if_free(shared.dispatcher.receiving):
            try:
                shared.dispatcher.move_used_up(lambda: self._enter(shared, queue_id, begin, end))
            except (StoreClosed, StorePoisoned):
                raise  # the next opening moves them: nothing of them may go before
            except (StoreError, OSError) as error:
                if _may_pass(error):
                    return False
                report("messages could not go to the dead letters before retention took them", error)
            finally:
                shared.dispatcher.receiving.release()
            return True
        return False

    def _enter(self, shared: Shared, queue_id: int, begin: int, end: int) -> Int64s:
        """The receipts of all of them, ascending; those that this process has not met yet get one."""
        state, dispatcher = shared.state, shared.dispatcher
        fresh = unlisted_in(shared, queue_id, begin, end)
        if len(fresh):
            dispatcher.read_again()  # first: they may have been read ahead, or be in a line
            dispatcher.met(queue_id, int(fresh[-1]) + 1)
            with state.lock:
                tried = state.cursor.tried(queue_id).of(fresh)
                receipts = state.enter(Places(np.full(len(fresh), queue_id), fresh, tried), NEVER)
                state.table.hold(state.table.find(receipts), state.now_ms())
        with state.lock:
            state.expire()
        found = listed_in(shared, queue_id, begin, end)
        with state.lock:
            rows = state.table.find(found)
            waits = rows[np.isin(state.table.states(rows), (RowState.HELD, RowState.RESTING))]
            state.table.hold(waits, state.now_ms())  # there is no later time to come again at
            state.expire()
        return found


def _may_pass(error: StoreError | OSError) -> bool:
    """Whether the same call may succeed soon: no topic has refused a message, and no disk is damaged or full."""
    if isinstance(error, (PublishBufferFull, StaleReceipt, SubscriptionClosed)):
        return True
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in PASSING


def listed_in(shared: Shared, queue_id: int, begin: int, end: int) -> Int64s:
    """The receipts of those of a queue's messages begin .. end - 1 that were given back or timed out, ascending."""
    state = shared.state
    with state.lock:
        table = state.table
        rows = table.rows_of([queue_id])
        if not len(rows):
            return NOTHING
        places, states = table.places(rows), table.states(rows)
        is_over = (states == RowState.OUT) & (table.deadlines(rows) <= state.now_ms())
        found = (np.isin(states, FAILED) | is_over) & (places.offsets >= begin) & (places.offsets < end)
        return np.sort(table.receipts(rows[found & are_dead(state.cursor.settings, places)]))


def unlisted_in(shared: Shared, queue_id: int, begin: int, end: int) -> Int64s:
    """The offsets of those of a queue's messages begin .. end - 1 that are known by the log's records alone, ascending:
    they were given out in an earlier opening, or by a consumer that has closed.
    """
    state = shared.state
    with state.lock:
        state.take_in()
        cursor, settings = state.cursor, state.cursor.settings
        if settings is None or settings.max_attempts is None or settings.dead_letter_topic is None:
            return NOTHING
        tried = cursor.attempts.get(queue_id)
        acked = cursor.queue(queue_id)
        if tried is None or tried.era != acked.era:
            return NOTHING
        found = tried.used_up(begin, end, settings.max_attempts)
        found = found[~acked.are_in(found)]
        found = found[~state.table.have(np.full(len(found), queue_id), found)]
        return found
