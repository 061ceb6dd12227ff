"""The `ttl_ms` of one topic, for those who ask with each message."""

from __future__ import annotations

from collections.abc import Callable


class TopicTtl:
    """The age from which on subscriptions do not get a topic's messages. Any number of threads may use it.

    Invariant: `is_used` is False only while the topic has no `ttl_ms`. A change sets it before it begins.

    Attributes:
        is_used: the topic may have a `ttl_ms`; else nobody need ask.
    """

    __slots__ = ("__weakref__", "_read", "is_used")

    def __init__(self, read: Callable[[TopicTtl], int | None]) -> None:
        """`read` gives it by the topic's settings, and corrects `is_used`."""
        self._read = read
        self.is_used = True

    def ms(self) -> int | None:
        """The age; None if there is none. Raises StoreUnreadable."""
        return self._read(self) if self.is_used else None
