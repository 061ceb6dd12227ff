"""What was trimmed of a topic's queues leaves its index at once: it comes no more, and is in no count."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...index import BucketTracker
from .due_list import Due
from .parts import MOST_ENTRY, StoreParts

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Trimmed:
    """How far the trims of a topic were looked at. Used under the topic's lock."""

    def __init__(self, topic: str, parts: StoreParts) -> None:
        self._topic = topic
        self._parts = parts
        self._seen: list[int] = []  # of each lane, how many trims were looked at
        self._lows: dict[int, int] = {}  # by queue id: no message before it is in the tracker

    def are_before(self, queue_ids: Int64s, offsets: Int64s) -> Bools:
        """(n,) which messages were trimmed."""
        lows = self._lows
        if not lows:
            return np.zeros(len(offsets), np.bool_)
        return offsets < np.fromiter((lows.get(queue_id, 0) for queue_id in queue_ids.tolist()), np.int64, len(offsets))

    def discard(self, tracker: BucketTracker) -> Iterator[Due]:
        """Take what was trimmed out of the tracker: a part a queue, maybe empty, for each that was trimmed since.

        One pass over the topic's queues, after a trim in its lanes; otherwise a look at one number a lane.
        """
        shown = [lane.trims.shown for lane in self._parts.lanes]
        if shown == self._seen:
            return
        for queue_id, stream in list(self._parts.streams.topics.get(self._topic, {}).items()):
            low = stream.low
            if low > self._lows.get(queue_id, 0):
                yield from self._discard_before(tracker, queue_id, low)
                self._lows[queue_id] = low
        self._seen = shown

    def _discard_before(self, tracker: BucketTracker, queue_id: int, low: int) -> Iterator[Due]:
        first = max(self._lows.get(queue_id, 0), self._parts.next_offset(self._topic, queue_id) - MOST_ENTRY - 1)
        while first < low:  # once, or twice where the entries begin again at 0 in between
            end = min(low, (first | MOST_ENTRY) + 1)
            offsets = (first & ~MOST_ENTRY) + tracker.discard(
                queue_id, first & MOST_ENTRY, ((end - 1) & MOST_ENTRY) + 1
            )
            yield Due(np.full(len(offsets), queue_id), offsets, np.ones(len(offsets), np.bool_))
            first = end
