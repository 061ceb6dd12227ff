"""The delayed messages of one topic: one index for all its subscriptions (R35)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import numpy as np

from ...index import TrackerClosed, TrackerDamaged
from ..format.arrays import Bools, Int64s
from ..format.delays import IndexMark, LogPlace
from .decisions import Decisions
from .due_list import FOREVER_S, HELD_UP_S, LAGGING_S, TAKEN_ROWS, DueMessages, ListPointer, due_of
from .messages import are_gone, mended, read_up_to
from .opening import open_index
from .parts import MOST_ENTRY, StoreParts, are_among, places_of
from .topic_index import Feed, TopicIndex

DRAINED_ROWS = 1 << 16  # at a time

_NOTHING = np.empty(0, np.int64)


class Pointer(ListPointer):
    """The place of one subscription among its topic's due messages. Each open subscription has one."""

    def __init__(self, topic: DelayedTopic, at: int, on_due: Callable[[], object] | None) -> None:
        super().__init__(at, topic.parts.clock.monotonic_s(), on_due)
        self._topic = topic

    def take(self, most: int = TAKEN_ROWS) -> DueMessages:
        """Take the messages that became due, or were cancelled, since the last call; at most so many rows.

        The caller skips a row if its scanner has not reached the offset, as it meets the message there; and if the
        message is acknowledged or in flight. All others were left out before, because `waiting` said so, and are
        delivered now. With `missed`, the queues have to be read again from the mark-delete position on.

        Raises OSError: a file of the index could not be read; nothing is lost.
        """
        return self._topic.take(self, most)

    def due_in_s(self) -> float:
        """In how many seconds `take` finds a message, by the current clock; 0 if it finds one now.

        It compares two numbers, unless the index has changed.
        """
        topic = self._topic
        with topic.lock:
            if self.missed or self.at < topic.due.end:
                return 0.0
            try:
                next_ms = topic.next_due_ms()
            except (OSError, TrackerClosed):  # `take` raises it, or builds the index again
                return 0.0
            if topic.due.is_held_up:
                return HELD_UP_S
            longest_s = LAGGING_S if topic.is_lagging else FOREVER_S
        if next_ms is None:
            return longest_s
        return min(longest_s, max(0.0, (next_ms - topic.parts.clock.wall_ms()) / 1000))

    def close(self) -> None:
        """Hold up no others any more. A second call does no harm."""
        self._topic.forget(self)


class DelayedTopic(TopicIndex):
    """The index of a topic, and its due messages. Any number of threads may use it.

    A message is *pending* from its append until its time has come or it is cancelled. `waiting` says which of the
    messages that a subscription finds in the log are pending; it leaves these out. Due messages come to each
    subscription through a `Pointer` of its own, in the order of (time, queue, offset).

    Invariant, under `lock`: a message that `waiting` reported as pending is in the tracker, or is still to be added, or
    has an open decision; it leaves the tracker only when it is due or cancelled.
    """

    def __init__(self, name: str, parts: StoreParts, delays: Feed[Self]) -> None:
        """`delays` feeds it, and visits it when it asks for that."""
        opened = open_index(name, parts)
        super().__init__(name, parts, opened, delays)
        self.decisions = Decisions(self, opened.stream)
        self._checkpointed = 0  # additions and departures up to the last checkpoint

    def open_pointer(self, on_due: Callable[[], object] | None = None) -> Pointer:
        """Open a place in the list of messages that become due from now on.

        A waiting consumer sleeps until the time that `Pointer.due_in_s` gives. `on_due` is called, and must be short,
        when a message is due that could not be known then: a message was moved, or the clock has jumped.
        """
        self.delays.catch_up()
        with self.lock:
            self.advance()
            pointer = Pointer(self, self.due.end, on_due)
            self.due.pointers.add(pointer)
            return pointer

    def advance(self) -> bool:
        """Take due messages out of the tracker; True if there were some. An OSError loses none. Under the lock."""
        self.decisions.settle()
        now_ms, moved = self.given.now_ms(), False
        while True:
            room = min(DRAINED_ROWS, self.due.make_room())
            if not room:
                return moved  # the messages stay pending until there is room
            try:
                count = self.tracker.hand_out(now_ms, room, self._give)
            except TrackerDamaged:
                continue  # the next round makes it again
            moved |= count > 0 and bool(self.due.pointers)
            if count < room:
                if self.scans is None:  # else messages that it has not read were not given out
                    self.given.until_ms = now_ms
                return moved

    def _give(self, queue_ids: Int64s, entries: Int64s) -> None:
        """List due messages, before they leave the tracker."""
        if self.due.pointers:
            self.due.add(due_of(self.parts, self.name, queue_ids, entries))
        self.changes.came(places_of(queue_ids, entries))
        self.count(len(entries))

    def take(self, pointer: ListPointer, most: int) -> DueMessages:
        """The rows that a pointer has not taken yet, up to `most`."""
        self.delays.catch_up()
        with self.lock:
            is_new = self.advance()
            found = self.due.take(pointer, most)
            others = [other for other in self.due.pointers if other is not pointer] if is_new else []
        self._tell(others)
        return found

    def forget(self, pointer: ListPointer) -> None:
        """Forget a pointer that is not used any more."""
        with self.lock:
            self.due.pointers.discard(pointer)
            self.due.drop_passed()

    def look(self) -> None:
        """Tell waiting consumers of due messages, if there are some. Called by a thread of the store, now and then."""
        with self.lock:
            self.advance()
            waiting = [pointer for pointer in self.due.pointers if pointer.at < self.due.end]
        self._tell(waiting)

    # -- the thread -----------------------------------------------------------------------------------

    def checkpoint(self, places: list[LogPlace]) -> None:
        """Write the tracker to its files. `places`: all messages before them were added, unless the topic lags.

        Raises OSError; then the files are as before, and the log has the rest.
        """
        with self.decisions.pause, self.lock, suppress(TrackerDamaged):  # the next call makes it again
            self.decisions.settle_all()
            tracker = self.tracker  # this may make the topic lag
            at = places if self.scans is None else [scan.place for scan in self.scans]
            tracker.checkpoint(IndexMark(self.name, self.records.next_offset, at).pack())
            self._checkpointed = self._count
            self.records.changed.clear()

    @property
    def unsaved(self) -> int:
        """Additions and departures since the last checkpoint."""
        return self._count - self._checkpointed

    def next_visit(self) -> tuple[int | None, bool]:
        """When the thread has to visit the topic again, in ms since 1970; and whether it has to at its next round.

        The time is None if no message is pending. Raises OSError.
        """
        with self.lock:
            return self.next_due_ms(), self.is_lagging or bool(self.records.open)

    def after_fork(self) -> None:
        """In a child process: the copy is not used any more, and none of its locks is waited for."""
        self.lock = threading.RLock()
        self.decisions.settled = threading.Condition(self.lock)


def waiting(topic: DelayedTopic, queue_id: int, offsets: Int64s, times_ms: Int64s) -> tuple[Bools, Bools]:
    """For messages found in the log, with these delivery times: (n,) which are pending, which are cancelled.

    The caller leaves pending ones out: they come through a pointer. Messages that are neither are delivered like any
    other. Messages that retention has removed meanwhile count as cancelled: they may have been, and that is forgotten
    with them.
    """
    topic.delays.catch_up()
    with topic.lock:
        topic.decisions.settle()
        places = places_of(np.full(len(offsets), queue_id), offsets)
        pending = topic.are_pending(queue_id, offsets)
        cancelled = topic.changes.are_cancelled(places)
        absent = ~pending & ~cancelled
        if topic.scans is not None:
            unread = offsets >= read_up_to(topic, queue_id)
            is_later = topic.changes.times_of(places, times_ms) > topic.given.now_ms()
            later = unread & is_later & ~are_among(places, topic.reported)
            topic.reported.update(places[unread & ~later].tolist())
            pending |= later
            absent &= ~unread
        cancelled |= are_gone(topic, queue_id, offsets)
        pending |= mended(topic, queue_id, offsets, times_ms, absent & ~cancelled)
        return pending, cancelled & ~pending


def due_copies(topic: DelayedTopic) -> tuple[Int64s, Int64s]:
    """(queue ids, offsets) of messages that live on as copies, and are neither pending nor cancelled."""
    with topic.lock:
        topic.advance()
        queues, offsets = [_NOTHING], [_NOTHING]
        places, times_ms = topic.copies.places, topic.copies.times_ms  # of now: a trim may remove some below
        for queue_id, rows, of_queue in topic.copies.of_queues():
            cancelled = topic.changes.are_cancelled(places[rows])
            gone = cancelled | topic.are_pending(queue_id, of_queue)
            gone |= mended(topic, queue_id, of_queue, times_ms[rows], ~gone)
            offsets.append(of_queue[~gone])
            queues.append(np.full(len(offsets[-1]), queue_id))
        return np.concatenate(queues), np.concatenate(offsets)


def first_not_pending(topic: DelayedTopic, queue_ids: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
    """(n,) for each queue the first of the offsets begin .. end - 1 that is not pending; its end if all are.

    Unknown messages, and those with an open decision, count as not pending: ask `waiting` about them. Raises OSError.
    """
    counts = ends - begins
    row_ends = counts.cumsum()
    queues = queue_ids.repeat(counts)
    offsets = (begins - row_ends + counts).repeat(counts) + np.arange(len(queues))
    topic.delays.catch_up()
    with topic.lock:
        topic.decisions.settle()
        pending = topic.ask(lambda tracker: tracker.are_pending(queues, offsets & MOST_ENTRY))
        pending &= ~topic.records.are_open(places_of(queues, offsets))
    stops = np.append(np.flatnonzero(~pending), len(offsets))
    firsts = stops[stops.searchsorted(row_ends - counts)]
    found: Int64s = np.minimum(firsts, row_ends) - row_ends + ends
    return found
