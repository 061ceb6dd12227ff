"""What a topic knows of delayed messages that are not in its index.

Up to which time they were given out: an index that is made anew leaves these out. Which were reported as due before the
index had read them: they stay so, whatever the clock does. And which were trimmed: they leave the index at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyroaring import BitMap64

from ...index import BucketTracker
from ..device.clock import Clock
from ..format.arrays import Bools, Int64s
from .due_list import DueMessages
from .parts import MOST_ENTRY, StoreParts, are_among


class DeliveredTimes:
    """Times of a topic, in ms since 1970. Used under the topic's lock.

    Invariant: a message that is in the tracker, or that somebody was told comes later, has a time after `until_ms`; so
    an index that is made anew has it again. A subscription that had the message leaves it out then.

    Attributes:
        until_ms: what was due then, or earlier, was given out.
        skipped_ms: of a topic that is behind: what was due then, of the messages it has not read, is not added.
        latest_ms: the latest time that the clock has shown when times were compared with it.
        told_ms: of an index that was made anew: the latest time that it had shown by then. What was due then may have
            been given out, or told to be due, and be in the index again: if the clock was set back.
    """

    def __init__(self, clock: Clock) -> None:
        """At an opening all that is due was given out: nobody was there before."""
        self._clock = clock
        self.until_ms = self.skipped_ms = self.latest_ms = clock.wall_ms()
        self.told_ms = 0

    def now_ms(self) -> int:
        """The time, to compare times of delivery with. What is after it was not given out: a clock may be set back."""
        now_ms = self._clock.wall_ms()
        self.latest_ms = max(self.latest_ms, now_ms)
        self.owes(now_ms + 1)
        return now_ms

    def owes(self, time_ms: int) -> None:
        """A message with this time is pending, or counts as pending."""
        self.until_ms = min(self.until_ms, time_ms - 1)
        self.skipped_ms = min(self.skipped_ms, time_ms - 1)

    def behind(self, tick_ms: int) -> None:
        """The topic reads on from an earlier place. An index with coarse times has given out less."""
        self.skipped_ms = self.until_ms - (tick_ms - 1)

    def made_anew(self, until_ms: int) -> None:
        """The index is made anew: without what was due at `until_ms`."""
        self.until_ms, self.told_ms = until_ms, self.latest_ms

    def passed_ms(self, *, is_behind: bool) -> int:
        """Messages of the log whose time is not after this one are due: they are not added."""
        now_ms = self.now_ms()
        return min(now_ms, self.skipped_ms) if is_behind else now_ms


class ReportedDue:
    """Messages that were said to be due, by place as `places_of` gives it. Of an index that is behind; else empty."""

    def __init__(self) -> None:
        self._due = BitMap64()

    def __contains__(self, place: int) -> bool:
        return place in self._due

    def are_due(self, places: Int64s) -> Bools:
        """(n,) which were reported as due."""
        return are_among(places, self._due)

    def are_later(self, places: Int64s, unread: Bools, times_ms: Int64s, now_ms: int) -> Bools:
        """(n,) which of the `unread` ones come later. The others of them are due from now on."""
        later = unread & (times_ms > now_ms) & ~self.are_due(places)
        self._due.update(places[unread & ~later].tolist())
        return later

    def clear(self) -> None:
        """The index has read all."""
        self._due.clear()


class Trimmed:
    """How far the trims of a topic were looked at. Used under the topic's lock, but for `moved`.

    Attributes:
        moved: how often a low of the topic has moved since this was made. It is counted after the low has moved.
    """

    def __init__(self, topic: str, parts: StoreParts) -> None:
        self._topic = topic
        self._parts = parts
        self.moved = 0
        self._seen = -1  # of `moved`
        self._lows: dict[int, int] = {}  # by queue id: no message before it is in the tracker

    def are_before(self, queue_ids: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages were trimmed."""
        lows = self._lows
        if not lows:
            return np.zeros(len(offsets), np.bool_)
        return offsets < np.fromiter((lows.get(queue_id, 0) for queue_id in queue_ids.tolist()), np.int64, len(offsets))

    def discard(self, tracker: BucketTracker) -> Iterator[DueMessages]:
        """Take what was trimmed out of the tracker: a part a queue, maybe empty, for each that was trimmed since.

        One pass over the topic's queues, after a trim of one of them; otherwise a look at a number.
        """
        moved = self.moved
        if moved == self._seen:
            return
        for queue_id, stream in list(self._parts.streams.topics.get(self._topic, {}).items()):
            low = stream.low
            if low > self._lows.get(queue_id, 0):
                yield from self._discard_before(tracker, queue_id, low)
                self._lows[queue_id] = low
        self._seen = moved  # last: behind an interrupt it is done again

    def _discard_before(self, tracker: BucketTracker, queue_id: int, low: int) -> Iterator[DueMessages]:
        first = max(self._lows.get(queue_id, 0), self._parts.next_offset(self._topic, queue_id) - MOST_ENTRY - 1)
        while first < low:  # once, or twice where the entries begin again at 0 in between
            end = min(low, (first | MOST_ENTRY) + 1)
            offsets = (first & ~MOST_ENTRY) + tracker.discard(
                queue_id, first & MOST_ENTRY, ((end - 1) & MOST_ENTRY) + 1
            )
            yield DueMessages(np.full(len(offsets), queue_id), offsets, np.ones(len(offsets), np.bool_))
            first = end
