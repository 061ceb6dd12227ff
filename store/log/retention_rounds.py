"""Rounds of retention: a round ends when retention comes to the records that it has itself written at the log's end.

Before a segment goes, what must outlive it is written again at the log's end: cursors, changes of delays, copies of
delayed messages. Where that takes as much space as the segment had, removal would write the same records again for
ever, and never come below `retention_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .lane import Lane

REST_S = 60.0  # meanwhile these records may have become fewer, without a sign in the log
LEAST_GROWTH = 8  # an eighth


class _Round(NamedTuple):
    end: int  # the number of the first segment that was not full when the round began
    began_s: float
    held_bytes: int  # then


class RetentionRounds:
    """The rounds of all lanes.

    Invariant: a segment that has nothing of users, and was begun in a lane's round, outlives that round until the log
    has grown by an eighth, or a minute has passed. So what retention writes for itself is bounded, by a round a minute.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}  # by lane
        self._users: dict[int, tuple[int, bool]] = {}  # by lane: the segment that was asked about, and the answer

    def rests(self, lane: Lane, at: int, now_s: float, held_bytes: Callable[[], int]) -> bool:
        """Whether the lane's segment, `at` from the oldest on, is left for now. Another sealed one follows it."""
        known = self._rounds.get(lane.index)
        if known is None or lane.view.sealed[at].segment.sequence < known.end:
            return False
        has_grown = held_bytes() > known.held_bytes + known.held_bytes // LEAST_GROWTH
        return not has_grown and now_s < known.began_s + REST_S and not self._has_users(lane, at)

    def _has_users(self, lane: Lane, at: int) -> bool:
        """As the function `_has_users`, asked once for each segment: it goes through all of the store's own streams."""
        sequence = lane.view.sealed[at].segment.sequence
        known = self._users.get(lane.index)
        if known is None or known[0] != sequence:
            known = self._users[lane.index] = sequence, _has_users(lane, at)
        return known[1]

    def goes_on(self, lane: Lane, at: int, now_s: float, held_bytes: int) -> None:
        """Note that the lane's segment, `at` from the oldest on, is about to be removed."""
        sealed = lane.view.sealed
        known = self._rounds.get(lane.index)
        if known is None or sealed[at].segment.sequence >= known.end:
            self._rounds[lane.index] = _Round(sealed[-1].segment.sequence + 1, now_s, held_bytes)


def _has_users(lane: Lane, at: int) -> bool:
    """Whether a segment of the lane has messages that are not the store's own."""
    oldest, following = lane.view.sealed[at : at + 2]
    own = sum(oldest.first_of(stream.number)[1] for stream in (*lane.hidden, lane.lows.records) if stream.number >= 0)
    return own < following.segment.header.messages_before - oldest.segment.header.messages_before
