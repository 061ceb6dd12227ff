"""Laps of retention: when all that was said again behind the log's end comes up for removal itself.

Before a segment goes, what must outlive it is written to the log's end: cursors, changes of delays, copies of delayed
messages. Where that takes as much space as the segment had, removing more and more of them would go round for ever, and
never come below `retention_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .lane import Lane

REST_S = 60.0  # what is said again may have become less meanwhile, without a sign in the log
LEAST_GROWTH = 8  # an eighth


class _Lap(NamedTuple):
    end: int  # the number of the first segment that was not full when the lap began
    began_s: float
    held_bytes: int  # then


class Laps:
    """The laps of all lanes.

    Invariant: a segment that has nothing of users, and was begun in a lane's lap, outlives that lap until the log has
    grown by an eighth, or a minute has passed. So what retention writes for itself is bounded, by a lap a minute.
    """

    def __init__(self) -> None:
        self._laps: dict[int, _Lap] = {}  # by lane

    def rests(self, lane: Lane, at: int, now_s: float, held_bytes: Callable[[], int]) -> bool:
        """Whether the lane's segment, `at` from the oldest on, is left for now. Another sealed one follows it."""
        lap = self._laps.get(lane.index)
        if lap is None or lane.view.sealed[at].segment.sequence < lap.end:
            return False
        has_grown = held_bytes() > lap.held_bytes + lap.held_bytes // LEAST_GROWTH
        return not has_grown and now_s < lap.began_s + REST_S and not _has_users(lane, at)

    def goes_on(self, lane: Lane, at: int, now_s: float, held_bytes: int) -> None:
        """Note that the lane's segment, `at` from the oldest on, is about to be removed."""
        sealed = lane.view.sealed
        lap = self._laps.get(lane.index)
        if lap is None or sealed[at].segment.sequence >= lap.end:
            self._laps[lane.index] = _Lap(sealed[-1].segment.sequence + 1, now_s, held_bytes)


def _has_users(lane: Lane, at: int) -> bool:
    """Whether a segment of the lane has messages that are not the store's own."""
    oldest, following = lane.view.sealed[at : at + 2]
    own = sum(oldest.first_of(stream.number)[1] for stream in (*lane.hidden, lane.trims.records) if stream.number >= 0)
    return own < following.segment.header.messages_before - oldest.segment.header.messages_before
