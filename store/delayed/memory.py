"""The memory limits of the topics' indexes."""

from __future__ import annotations

from typing import Protocol

from ...index import BucketTracker
from .changes import ChangedDelays

MEASURED_ROWS = 1 << 12  # memory is measured once for so many changes
LEAST_PART = 4  # an n-th of the limit is for pending messages alone
LEAST_LIMIT_BYTES = 8 << 20  # of one topic: the next segments of 50 buckets


class SharedMemory:
    """The memory of all topics, in equal shares. `topics` gives the number of topics."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.topics = 0

    @property
    def share_bytes(self) -> int:
        """The share of one topic."""
        return max(self.size_bytes // max(self.topics, 1), min(self.size_bytes, LEAST_LIMIT_BYTES))


class LimitedTopic(Protocol):
    """A topic, as its memory limit sees it."""

    changes: ChangedDelays

    @property
    def tracker(self) -> BucketTracker:
        """Its index."""


class MemoryLimit:
    """Says when an index takes no more messages.

    Pending messages have a part of the memory for themselves, however many changes there are, and an index without
    pending messages is never full. So an index at its limit goes on once some of its messages are due.
    """

    def __init__(self, topic: LimitedTopic, shared: SharedMemory) -> None:
        self._topic = topic
        self._shared = shared
        self._measured = -MEASURED_ROWS  # the topic's count of changes at the last measurement
        self._is_reached = False

    @property
    def limit_bytes(self) -> int:
        """The topic's share."""
        return self._shared.share_bytes

    def is_reached(self, count: int) -> bool:
        """Whether there is no room, after `count` changes of the index. Under the topic's lock. Raises OSError."""
        if self._is_reached or abs(count - self._measured) >= MEASURED_ROWS:
            tracker = self._topic.tracker
            limit_bytes = self.limit_bytes
            room = max(limit_bytes // LEAST_PART, limit_bytes - self._topic.changes.memory_bytes)
            if tracker.buffer_memory_usage >= room:
                tracker.shrink()  # the index goes on from disk
            self._is_reached = tracker.buffer_memory_usage >= room and tracker.number_of_delayed_messages > 0
            self._measured = count
        return self._is_reached
