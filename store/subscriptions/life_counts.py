"""Counts of messages by subscription, since the store was opened."""

from __future__ import annotations

import threading


class LifeCounts:
    """How many messages of some kind each subscription has had. Any number of threads may use it.

    A subscription that was deleted and made again begins with 0.

    Attributes:
        total: of all subscriptions, also of those that were deleted since.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}  # by topic and name: the life, and its count
        self._lock = threading.Lock()

    def of(self, topic: str, name: str, life: int) -> int:
        """The count of one life of a subscription."""
        known = self._counts.get((topic, name))
        return known[1] if known is not None and known[0] == life else 0

    def all(self) -> dict[tuple[str, str, int], int]:
        """The counts of all subscriptions, by topic, name and life."""
        with self._lock:
            return {(topic, name, life): count for (topic, name), (life, count) in self._counts.items()}

    def add(self, topic: str, name: str, life: int, count: int) -> bool:
        """Count more messages. True if they are the first ones of this life."""
        with self._lock:
            before = self.of(topic, name, life)
            self._counts[topic, name] = life, before + count
            self.total += count
        return not before

    def forget(self, topic: str, name: str) -> None:
        """Forget a deleted subscription."""
        with self._lock:
            self._counts.pop((topic, name), None)
