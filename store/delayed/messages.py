"""Questions to a topic about its delayed messages; and what it knows of messages that are not in its index.

* The time up to which messages were given out: an index that is made again leaves these out.
* Trimmed messages: they leave the index at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...index import BucketTracker, TrackerDamaged
from ..device.clock import Clock
from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.arrays import Bools, Int64s
from ..read.message import Message
from .due_list import DueMessages
from .due_scan import reached
from .parts import MOST_ENTRY, StoreParts, are_among, places_of

if TYPE_CHECKING:
    from .topic import DelayedTopic

_NOTHING = np.empty(0, np.int64)


class DeliveredTimes:
    """Times of a topic, in ms since 1970. Used under the topic's lock.

    Invariant: a message that is in the tracker, or was reported as coming later, has a time after `until_ms`. So an
    index that is made again has it again. A subscription that got the message already leaves it out then.

    Attributes:
        until_ms: messages due at this time or earlier were given out.
        skipped_ms: of a lagging topic: messages that it has not read and that are due by then are not added.
        latest_ms: the latest time of the clock that message times were compared with.
        told_ms: of an index that was made again: its latest time before. If the clock was set back since, messages
            that are due by then may be in the index again although they were given out, or reported as due.
    """

    def __init__(self, clock: Clock) -> None:
        """At an opening all due messages count as given out: no consumer was there before."""
        self._clock = clock
        self.until_ms = self.skipped_ms = self.latest_ms = clock.wall_ms()
        self.told_ms = 0

    def now_ms(self) -> int:
        """The time to compare delivery times with. Later messages were not given out: the clock may be set back."""
        now_ms = self._clock.wall_ms()
        self.latest_ms = max(self.latest_ms, now_ms)
        self.owes(now_ms + 1)
        return now_ms

    def owes(self, time_ms: int) -> None:
        """A message with this time is pending, or counts as pending."""
        self.until_ms = min(self.until_ms, time_ms - 1)
        self.skipped_ms = min(self.skipped_ms, time_ms - 1)

    def lag(self, tick_ms: int) -> None:
        """The topic reads on from an earlier place. An index with a coarse tick has given out less."""
        self.skipped_ms = self.until_ms - (tick_ms - 1)

    def made_anew(self, until_ms: int) -> None:
        """The index is made again, without messages due by `until_ms`."""
        self.until_ms, self.told_ms = until_ms, self.latest_ms

    def passed_ms(self, *, is_lagging: bool) -> int:
        """Messages of the log that are due by this time are not added: they are due already."""
        now_ms = self.now_ms()
        return min(now_ms, self.skipped_ms) if is_lagging else now_ms


class Trimmed:
    """Finds what trims of a topic have removed. Used under the topic's lock, except for `moved`.

    Attributes:
        moved: how often a low of the topic has moved since this was made; raised after the low has moved.
    """

    def __init__(self, topic: str, parts: StoreParts) -> None:
        self._topic = topic
        self._parts = parts
        self.moved = 0
        self._seen = -1  # of `moved`, at the last `discard`
        self._lows: dict[int, int] = {}  # by queue id: no message before it is in the tracker

    def are_before(self, queue_ids: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages were trimmed."""
        lows = self._lows
        if not lows:
            return np.zeros(len(offsets), np.bool_)
        return offsets < np.fromiter((lows.get(queue_id, 0) for queue_id in queue_ids.tolist()), np.int64, len(offsets))

    def discard(self, tracker: BucketTracker) -> Iterator[DueMessages]:
        """Remove trimmed messages from the tracker: yields a part, maybe empty, for each queue that was trimmed since.

        After a trim it goes once over the topic's queues; else it compares two numbers.
        """
        moved = self.moved
        if moved == self._seen:
            return
        for queue_id, stream in list(self._parts.streams.topics.get(self._topic, {}).items()):
            low = stream.low
            if low > self._lows.get(queue_id, 0):
                yield from self._discard_before(tracker, queue_id, low)
                self._lows[queue_id] = low
        self._seen = moved  # last: after an interrupt it is done again

    def _discard_before(self, tracker: BucketTracker, queue_id: int, low: int) -> Iterator[DueMessages]:
        first = max(self._lows.get(queue_id, 0), self._parts.next_offset(self._topic, queue_id) - MOST_ENTRY - 1)
        while first < low:  # once, or twice if the entries begin again at 0 in between
            end = min(low, (first | MOST_ENTRY) + 1)
            offsets = (first & ~MOST_ENTRY) + tracker.discard(
                queue_id, first & MOST_ENTRY, ((end - 1) & MOST_ENTRY) + 1
            )
            yield DueMessages(np.full(len(offsets), queue_id), offsets, np.ones(len(offsets), np.bool_))
            first = end


def fetch(topic: DelayedTopic, queue_id: int, offset: int) -> Message | None:
    """A message, from its queue or from its copy; None if it was removed. Raises StoreCorrupt, OSError."""
    stream = topic.parts.stream(topic.name, queue_id)
    if stream is None or offset < stream.low:
        return None
    with suppress(OffsetOutOfRange):
        found = topic.parts.reader.read(stream, offset, 1, 1)
        if found and found[0].offset == offset:
            return found[0]
    before: int | None = None
    while True:
        with topic.lock:
            at = topic.copies.where(queue_id, offset)
        if at is None or at == before:
            return None
        copy = topic.copies.read(queue_id, offset, at)
        if copy is not None:
            return copy
        before = at  # once more, if there is a newer copy meanwhile


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


def are_over(topic: DelayedTopic, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
    """(n,) which messages are cancelled or trimmed, so that nobody wants them any more."""
    with topic.lock:
        cancelled = topic.changes.are_cancelled(places_of(np.full(len(offsets), queue_id), offsets))
        return cancelled | (offsets < topic.parts.low(topic.name, queue_id))


def are_gone(topic: DelayedTopic, queue_id: int, offsets: Int64s) -> Bools:
    """(n,) which messages were removed, and have no copy. Under the topic's lock."""
    stream = topic.parts.stream(topic.name, queue_id)
    first, low = (0, 0) if stream is None else (topic.parts.reader.finder.bounds(stream)[0], stream.low)
    return (offsets < low) | ((offsets < first) & ~topic.copies.may_have(queue_id, offsets))


def forget_gone(topic: DelayedTopic) -> None:
    """Forget the changes of messages that were removed. Under the topic's lock."""
    places = topic.changes.places()
    for queue_id, rows, offsets in topic.parts.by_queue(topic.name, places):
        topic.changes.forget(places[rows[are_gone(topic, queue_id, offsets)]])


def mended(topic: DelayedTopic, queue_id: int, offsets: Int64s, times_ms: Int64s, absent: Bools) -> Bools:
    """(n,) which messages `absent` from the index belong into it, by their times. They are added.

    A frame of the log is damaged there, or the index has missed a message. Under the topic's lock.
    """
    if not absent.any():
        return absent
    places = places_of(np.full(len(offsets), queue_id), offsets)
    times = topic.changes.times_of(places, times_ms)
    topic.given.now_ms()
    lost: Bools = absent & (times > topic.given.latest_ms)
    while lost.any():
        with suppress(TrackerDamaged):  # by one of its files; the index that is made again takes them
            tracker = topic.tracker  # messages trimmed meanwhile have left it, and are not added again
            kept = lost & ~topic.trimmed.are_before(np.full(len(offsets), queue_id), offsets)
            added = tracker.add_messages(queue_id, offsets[kept] & MOST_ENTRY, times[kept])
            topic.count(added)
            topic.mended_messages += added
            break
    return lost


def read_up_to(topic: DelayedTopic, queue_id: int) -> int:
    """The first offset of a queue that was not added to the index yet, while the topic lags."""
    stream = topic.parts.stream(topic.name, queue_id)
    if stream is None or topic.scans is None:
        return 1 << 62
    try:
        return reached(stream.lane, topic.scans[stream.lane.index].place, stream.number)
    except StoreCorrupt:  # the scan does not know its messages either, and passes over them
        return 1 << 62


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
        pending &= ~topic.decisions.are_open(places_of(queues, offsets))
    stops = np.append(np.flatnonzero(~pending), len(offsets))
    firsts = stops[stops.searchsorted(row_ends - counts)]
    found: Int64s = np.minimum(firsts, row_ends) - row_ends + ends
    return found


def figures_of(topic: DelayedTopic) -> dict[str, Any]:
    """Counts, plain and JSON-ready; bytes and times have their unit in the name."""
    with topic.lock:
        tracker = topic.ask(lambda one: one.stats())  # first: the index may have to be made again
        return {
            "pending": tracker["pending"],
            "next_due_ms": topic.next_due_ms(),
            "cancelled": len(topic.changes.cancelled),
            "moved": len(topic.changes.moved),
            "moved_and_come": len(topic.changes.come),
            "ready": len(topic.due),
            "pointers": len(topic.due.pointers),
            "is_behind": topic.is_lagging,
            "rebuilds": topic.rebuilds,
            "last_rebuild": topic.last_rebuild,
            "last_error": topic.last_error,
            "damaged": None,
            "damaged_frames": topic.damaged_frames,
            "mended_messages": topic.mended_messages,
            "paused": topic.is_full(),
            "memory_limit_bytes": topic.delays.share_bytes,
            "precision_ms": topic.tracker.latest_ms,
            "memory_bytes": tracker["memory_bytes"] + topic.changes.memory_bytes,
            "disk_bytes": tracker["disk_bytes"],
            "buckets": tracker["buckets"],
            "copies": len(topic.copies),
            "copies_damaged": topic.copies.damaged,
            "copies_bytes": topic.copies.size_bytes,
        }
