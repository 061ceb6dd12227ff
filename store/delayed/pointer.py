"""The place of one subscription in the list of a topic's due messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ...index import TrackerClosed, TrackerDamaged
from .due_list import DueList, DueMessages

if TYPE_CHECKING:
    from .topic import DelayedTopic

TAKEN_ROWS = 1 << 16
STALE_S = 10.0  # a pointer that took nothing for so long, and holds up others, loses rows
FOREVER_S = 1e9
BEHIND_S = 0.02  # between two looks while the index has not read all of the log
HELD_UP_S = 0.02  # .. and while another pointer has not taken so many rows that no more are added


class Pointer:
    """Each open subscription has one. Rows that all pointers of a topic have passed are dropped.

    Attributes:
        at: the number of the next row; `missed`: rows before it were dropped; `taken_s`: when it was last used.
            All three are the topic's, under its lock.
    """

    def __init__(self, topic: DelayedTopic, at: int, on_due: Callable[[], object] | None) -> None:
        self.at = at
        self.missed = False
        self.taken_s = topic.parts.clock.monotonic_s()
        self._next_due: tuple[int, int | None] = (-1, None)  # the topic's count of changes, and its next time then
        self._topic = topic
        self._on_due = on_due

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
            if self.missed or self.at < topic._due.end:
                return 0.0
            longest_s = BEHIND_S if topic.is_behind else FOREVER_S
            if self._next_due[0] != topic._count:
                try:
                    self._next_due = topic._count, topic.tracker.next_deadline_ms
                except (OSError, TrackerDamaged, TrackerClosed):  # `take` raises it, or builds the index again
                    return 0.0
            next_ms = self._next_due[1]
            if topic.is_held_up:
                return HELD_UP_S
        if next_ms is None:
            return longest_s
        return min(longest_s, max(0.0, (next_ms - topic.parts.clock.wall_ms()) / 1000))

    def miss(self, at: int) -> None:
        """Go on at the row `at`, without those between. Under the topic's lock."""
        self.at, self.missed = at, True

    def on_due(self) -> None:
        """Tell the subscription that there is a message to take."""
        if self._on_due is not None:
            self._on_due()

    def close(self) -> None:
        """Hold up no others any more. A second call does no harm."""
        self._topic.forget(self)


def pass_over_idle(topic: DelayedTopic, pointers: Collection[Pointer], due: DueList) -> bool:
    """Have idle pointers that hold the list up lose its rows. True if there is room now.

    Under the topic's lock.
    """
    now_s = topic.parts.clock.monotonic_s()
    topic.drop_passed()
    while topic.is_held_up:
        slowest = [pointer for pointer in pointers if pointer.at <= due.begin]
        if not all([now_s - pointer.taken_s >= STALE_S for pointer in slowest]):
            return False
        for pointer in slowest:
            pointer.miss(due.end)
        topic.drop_passed()
    return True
