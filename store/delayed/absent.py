"""What a topic knows of messages that are not in its index.

* The time up to which messages were given out: an index that is made again leaves these out.
* Trimmed messages: they leave the index at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...index import BucketTracker
from ..device.clock import Clock
from ..format.arrays import Bools, Int64s
from .due_list import DueMessages
from .parts import MOST_ENTRY, StoreParts


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
