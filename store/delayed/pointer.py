"""The place of one subscription in what becomes due of a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...index import TrackerDamaged
from .due_list import Due

if TYPE_CHECKING:
    from .topic import DelayedTopic

TAKEN_ROWS = 1 << 16
POLLED_S = 0.002  # a subscription that has looked so lately is not told: it looks again, or is told then
NAPS_S = 0.5  # it is never told


class Pointer:
    """A subscription has one while it is open. Rows that all pointers of a topic have passed are dropped.

    Attributes:
        at: the number of the next row; `missed`: rows before it were dropped; `taken_s`: when it was last used.
            All three are the topic's, under its lock.
    """

    def __init__(
        self, topic: DelayedTopic, at: int, on_due: Callable[[], object] | None, naps: Callable[[], bool]
    ) -> None:
        self.at = at
        self._naps = naps
        self.missed = False
        self.taken_s = topic.parts.clock.monotonic_s()
        self._next_due: tuple[int, int | None] = (-1, None)  # the topic's count of changes, and its next time then
        self._topic = topic
        self._on_due = on_due

    def take(self, most: int = TAKEN_ROWS) -> Due:
        """What became due, or was cancelled, since the last call; at most so many rows.

        For each row: it is to be passed over if the subscription has not got to its offset yet, since the message is
        then met in the queue; and if it is acknowledged, under way or to be redelivered already. All others were left
        out before, because `waiting` said so, and are delivered now. With `missed`, the queues have to be read again
        from the mark-delete position on.

        Raises OSError: a file of the index could not be read; nothing is lost.
        """
        return self._topic.take(self, most)

    def has_due(self) -> bool:
        """Whether `take` would find something; a look at two numbers, unless the index has changed."""
        topic = self._topic
        with topic.lock:
            if self.missed or self.at < topic._due.end:
                return True
            if self._next_due[0] != topic._count:
                try:
                    self._next_due = topic._count, topic.tracker.next_deadline_ms
                except (OSError, TrackerDamaged):  # `take` says so, or builds the index anew
                    return True
            next_ms = self._next_due[1]
        return next_ms is not None and next_ms <= topic.parts.clock.wall_ms()

    def miss(self, at: int) -> None:
        """Go on at the row `at`, without those between. Under the topic's lock."""
        self.at, self.missed = at, True

    def looks_in_s(self, now_s: float) -> float:
        """How long the subscription need not be told, as it looks itself; 0 if it may wait to be told."""
        return NAPS_S if self._naps() else max(0.0, POLLED_S - max(0.0, now_s - self.taken_s))

    def on_due(self) -> None:
        """Tell the subscription that there is something to take."""
        if self._on_due is not None:
            self._on_due()

    def close(self) -> None:
        """Hold nothing up any more. Again is fine."""
        self._topic.forget(self)
