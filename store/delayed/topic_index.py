"""The index of one topic: its pending messages in a tracker, and what it knows of the others.

How coarse are the times in an index? As coarse as all subscriptions of its topic accept (R28): it rounds times up to
multiples of a *tick*, so that no message is early, and entries of one tick share a slot. Messages keep their own times.
When a subscription comes that accepts less, the index is made again from the log, with exact times. Until it has read
all of the log, the topic lags, and a message's own time decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol, Self, TypeVar

import numpy as np
from pyroaring import BitMap64

from ...index import BucketTracker, TrackerDamaged
from ..format.arrays import Bools, Int64s
from ..format.delays import LogPlace
from .absent import DeliveredTimes, Trimmed
from .changes import ChangeRecords
from .copies import Copies
from .due_list import DueList, DueMessages, ListPointer
from .due_scan import DueScan
from .opening import OpenedIndex, open_again
from .parts import ENTRY_BITS, MOST_ENTRY, StoreParts, are_among, places_of
from .worker import Visited, Visits, Worker

MEASURED_ROWS = 1 << 12  # memory is measured once for so many changes
LEAST_PART = 4  # an n-th of the memory limit is for pending messages alone
MOST_TICK_BITS = 32  # 50 days

T = TypeVar("T")
Topic = TypeVar("Topic", bound=Visited)


def tick_of(precision_ms: int) -> int:
    """The greatest power of two that is at most a precision; 1 for 0."""
    return 1 << min(MOST_TICK_BITS, max(0, precision_ms.bit_length() - 1))


class Feed(Protocol[Topic]):
    """What an index needs of the store's delays, which feed it from the log.

    Attributes:
        worker: its thread visits the topics.
        visits: the topics that ask for a visit.
    """

    worker: Worker
    visits: Visits[Topic]

    @property
    def share_bytes(self) -> int:
        """The memory of one topic's index."""

    def catch_up(self) -> None:
        """Add all durable messages to all topics that do not lag. Raises OSError."""


class TopicIndex:
    """The messages of a topic that are pending, and those that have left the index. Any number of threads may use it.

    Invariants, under `lock`:
        * a time is compared with the clock only when a message leaves the tracker, or is not added to it: so a clock
          that jumps makes no message early by itself, and loses none;
        * absence is no proof: a message that the tracker does not have is due only if its own time, or the one that it
          was moved to, is not after `given.latest_ms`. Else the index has missed it, mostly by damage of the log: it is
          added when it is met, and is pending;
        * a message leaves the tracker when it is in the due list (give, then take: see `index.trackers.tracker`);
        * the tracker's files have no more than the log: a mark counts only messages in the log and in the tracker.

    Attributes:
        due: the messages that have left the tracker, for the pointers.
        scans: of a lagging topic, its own scan of each lane, until it has caught up; else None.
        reported: the places of messages that were reported as due before the index had read them: they stay due,
            whatever the clock does. Empty unless the topic lags.
        given: up to which time messages were given out.
        records: how far it is in its records of changes, with the decisions that are open.
        mended_messages: how many the index had missed, and were added when they were met.
        damaged_frames: of the log, that its scans have passed over.
        last_error: of the background, or None.
        tick_ms: added entries have times that are multiples of it.
        why_anew: why the index has to be made again from the log; "" if it has not.
        is_cut: its opening has found, and left out, changes of lost messages.
        is_closed: after `close`.
        is_ready: it is whole, and the thread may visit it (`Visits`).
    """

    # With more than 29 attributes, those of `DelayedTopic` included, each look-up is slower: Python 3.11 then gives the
    # object a dict of its own keys. `count` takes 0.17 us with 29, 0.21 with 30.

    def __init__(self, name: str, parts: StoreParts, opened: OpenedIndex, delays: Feed[Self]) -> None:
        """`delays` feeds it, and visits it when it asks for that."""
        self.name = name
        self.delays = delays
        self.parts = parts
        self.lock = threading.RLock()
        self.last_error: str | None = None
        self.is_ready = self.is_closed = False
        self._tracker = opened.tracker
        self._tracker.on_damage = self.ask_for_visit
        self.changes = opened.changes
        self.copies = Copies(name, parts)
        self.mended_messages = self.damaged_frames = 0
        self.trimmed = Trimmed(name, parts)
        self.tick_ms, self.why_anew = 1, ""
        self.scans: list[DueScan] | None = None
        self.reported = BitMap64()
        self.given = DeliveredTimes(parts.clock)
        self.lag_from(opened.places)
        self.records = ChangeRecords(opened.changes_next, opened.changed)
        self.due = DueList(parts.clock)
        self._count = 0  # additions and departures
        self._measured, self._is_full = -MEASURED_ROWS, False  # the count at the last measurement of memory
        self._next_due: tuple[int, int | None] = (-1, None)  # the count of changes, and the next time then
        self._add_copies(self._tracker)
        self.rebuilds, self.last_rebuild = int(opened.rebuilt is not None), opened.rebuilt
        self.is_cut = opened.is_cut

    @property
    def tracker(self) -> BucketTracker:
        """The index, sound and without trimmed messages. Under the lock.

        "Damaged" is a state: the next caller makes the index again. Raises OSError if that fails, and the caller after
        that tries again.
        """
        if (self.why_anew or self._tracker.damage) and not self.is_closed:
            self._rebuild()
        trimmed = list(self.trimmed.discard(self._tracker))
        for of_queue in trimmed:
            self.due.add(of_queue)
            self.count(len(of_queue.offsets))
        if trimmed:
            self.copies.drop_trimmed()
        return self._tracker

    def ask(self, question: Callable[[BucketTracker], T]) -> T:
        """The answer of the index; it is made again first if it turns out to be damaged. Under the lock."""
        while True:
            with suppress(TrackerDamaged):
                return question(self.tracker)

    # -- messages of the log --------------------------------------------------------------------------

    def lag_from(self, places: list[LogPlace]) -> None:
        """Take no more for now: the messages from these places on are added later."""
        with self.lock:
            self.scans = [
                DueScan(lane, place, partial(self.parts.queues_in, self.name, lane))
                for lane, place in zip(self.parts.lanes, places, strict=True)
            ]
            self.given.lag(self._tracker.latest_ms)
            self.ask_for_visit()

    def is_full(self) -> bool:
        """Whether the index is at its memory limit. Then it adds no more until some are due; the log has them.

        Pending messages have a part of the memory for themselves, however many changes there are, and an index without
        pending messages is never full. So an index at its limit goes on once some of its messages are due.
        """
        with self.lock:
            if self._is_full or abs(self._count - self._measured) >= MEASURED_ROWS:
                tracker, limit_bytes = self.tracker, self.delays.share_bytes
                room = max(limit_bytes // LEAST_PART, limit_bytes - self.changes.memory_bytes)
                if tracker.buffer_memory_usage >= room:
                    tracker.shrink()  # the index goes on from disk
                self._is_full = tracker.buffer_memory_usage >= room and tracker.number_of_delayed_messages > 0
                self._measured = self._count
            return self._is_full

    def add(self, queue_ids: Int64s, offsets: Int64s, times_ms: Int64s) -> None:
        """Add messages of the log. Those that are pending already, or have an open decision, stay as they are.

        Raises OSError, after some may have been added.
        """
        self.ask_for_visit()  # also if they are not added, or only in part: the clock is read after it
        with self.lock, suppress(TrackerDamaged):  # the next call makes it again, from a place before these messages
            self._add_to(self.tracker, queue_ids, offsets, times_ms)
            self.is_full()  # so it goes to disk now, and not with the next part

    def _add_to(self, tracker: BucketTracker, queue_ids: Int64s, offsets: Int64s, times_ms: Int64s) -> None:
        places = places_of(queue_ids, offsets)
        times = self.changes.times_of(places, times_ms)
        is_later = times > self.given.passed_ms(is_lagging=self.is_lagging)
        kept = is_later & ~self.trimmed.are_before(queue_ids, offsets)
        kept &= ~self.records.are_open(places)
        is_due = kept & are_among(places, self.reported)
        if is_due.any():  # to some subscriptions; others may have left them out before
            self.due.add(DueMessages(queue_ids[is_due], offsets[is_due], np.zeros(int(is_due.sum()), np.bool_)))
            kept &= ~is_due
        if kept.any():
            self.count(tracker.add_messages(queue_ids[kept], offsets[kept] & MOST_ENTRY, times[kept]))
        self.changes.came(places[~is_later])

    def _add_copies(self, tracker: BucketTracker) -> None:
        """Add copies: messages whose segments are gone may be known by these alone."""
        for queue_id, rows, offsets in self.copies.of_queues():
            self._add_to(tracker, np.full(len(rows), queue_id), offsets, self.copies.times_ms[rows])

    def catch_up_with_all(self) -> None:
        """All durable messages were added: go on with the store's other topics."""
        with self.lock:
            self.scans = None
            self.reported.clear()

    @property
    def is_lagging(self) -> bool:
        """Whether the topic lags: messages of the log are still to be added, after a crash, or at the memory limit."""
        return self.scans is not None

    # -- single messages ------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of delayed messages."""
        with self.lock:
            return self.tracker.number_of_delayed_messages

    def next_due_ms(self) -> int | None:
        """When the next pending message is due; None without one. Under the lock. Raises OSError.

        It compares two numbers, unless the index has changed.
        """
        if self._next_due[0] != self._count:
            next_ms = self.ask(lambda tracker: tracker.next_deadline_ms)  # this may make it again
            self._next_due = self._count, next_ms
        return self._next_due[1]

    def are_pending(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages are in the tracker, or have an open decision. Under the lock."""
        pending = self.ask(lambda tracker: tracker.are_pending(queue_id, offsets & MOST_ENTRY))
        return pending | self.records.are_open(places_of(np.full(len(offsets), queue_id), offsets))

    # -- the index made again -------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Make the index again: from its files, or from the log if these are damaged. Messages that were given out
        before are due, and so not added. Raises OSError.

        The new tracker is whole before it replaces the damaged one: after an interrupt it is made once more.
        """
        damaged, why = self._tracker, self.why_anew or self._tracker.damage
        until_ms = self.given.until_ms - (damaged.latest_ms - 1)  # messages with a coarse time were not given out yet
        damaged.close()  # closes its files, and stays damaged
        changed = self.records.changed.union(self.records.open)
        tracker, places = open_again(
            self.name, self.parts, self.changes, self.records.next_offset, changed, until_ms,
            by_files=not (self.why_anew or damaged.has_damaged_file),
        )  # fmt: skip
        if tracker.latest_ms <= self.tick_ms:
            tracker.reset_tick_time(self.tick_ms)
        for place in self.records.open:
            tracker.cancel(place >> ENTRY_BITS, place & MOST_ENTRY)
        self.lag_from(places)
        self.trimmed = Trimmed(self.name, self.parts)  # the files may have messages that were trimmed since
        self._add_copies(tracker)
        self.rebuilds, self.last_rebuild = self.rebuilds + 1, why
        self.count(1)
        if self.mended_messages:  # the log does not give them again: pointers have to miss rows
            for pointer in self.due.pointers:
                pointer.miss(self.due.end)
        tracker.on_damage = self.ask_for_visit  # first: after an interrupt it may be damaged again
        self._tracker, self.why_anew = tracker, ""
        self.given.made_anew(until_ms)
        self.delays.worker.ring()

    def set_precision(self, precision_ms: int) -> None:
        """All subscriptions of the topic accept its messages so much later than their times: set the tick by that."""
        with self.lock:
            self.tick_ms = tick_of(precision_ms)
            tracker = self._tracker
            if tracker.damage or self.is_closed:
                return  # the index that is made again has this precision
            if tracker.latest_ms > self.tick_ms:
                self.why_anew = f"a subscription wants its messages within {precision_ms} ms"
                self.ask_for_visit()
            else:
                tracker.reset_tick_time(self.tick_ms)

    # -- others are told ------------------------------------------------------------------------------

    def count(self, by: int) -> None:
        """Note additions or departures. Under the lock."""
        self._count += by
        self.ask_for_visit()

    def ask_for_visit(self: Self) -> None:
        """Have the thread visit the topic: something in it has changed."""
        self.delays.visits.ask(self)

    def see_trim(self) -> None:
        """A queue of the topic was trimmed, and its low has moved."""
        self.trimmed.moved += 1
        self.ask_for_visit()

    def moved(self) -> None:
        """A message has another time: waiting consumers may have to wake earlier. Without the lock."""
        with self.lock:
            pointers = list(self.due.pointers)
        self._tell(pointers)

    @staticmethod
    def _tell(pointers: Iterable[ListPointer]) -> None:
        """Tell subscriptions. Without the lock."""
        for pointer in pointers:
            pointer.on_due()

    # -- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files. A second call does no harm."""
        with self.lock:
            self.is_closed = True
            self._tracker.close()
