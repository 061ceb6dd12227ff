"""Early seals: an idle lane gets another full footer, so that retention can remove the group of the one before.

Retention never removes the segment of a lane's newest full footer. A busy lane has the next one with its next segment;
an idle one would keep its group, up to 1,024 segments, for as long as nothing fills a segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..device.clock import Clock
from ..errors import StoreFull
from .flusher import Flusher
from .quiet import end_segment
from .sealer import Sealer

PATIENCE_S = 5.0  # so long a lane may seal by itself what it has begun


class EarlySeals:
    """Ends the open segments of idle lanes that retention waits for. Only the thread that removes segments asks it to.

    Invariant: retention asks for a full footer where the oldest segment has the newest one and more are behind it. The
    one that is made lets all of these go, and retention leaves the newest sealed segment: so it asks again when others
    have become full since. There is at most one such seal for what it frees.

    Attributes:
        flushers: of all lanes.
        sealed: how often it has ended a segment.
    """

    def __init__(self, clock: Clock, sealer: Sealer) -> None:
        self._clock = clock
        self._sealer = sealer
        self._wanted: dict[int, tuple[int, float]] = {}  # by lane: its newest sealed segment, and since when
        self.flushers: Sequence[Flusher] = ()
        self.sealed = 0

    def seal(self) -> None:
        """End what is to be ended; the sealer makes the footers. Raises OSError, StorePoisoned."""
        for flusher in self.flushers:
            if self._is_due(flusher):
                self._end(flusher)

    def _is_due(self, flusher: Flusher) -> bool:
        """Whether retention has waited for a lane's next full footer, and nothing was sealed meanwhile."""
        lane = flusher.lane
        if not (lane.groups.wants_full and lane.view.sealed):
            self._wanted.pop(lane.index, None)
            return False
        newest, now_s = lane.view.sealed[-1].segment.sequence, self._clock.monotonic_s()
        known, since_s = self._wanted.get(lane.index, (0, 0.0))
        if known != newest:
            known, since_s = self._wanted[lane.index] = newest, now_s
        return now_s - since_s >= PATIENCE_S and not self._sealer.waiting(lane)

    def _end(self, flusher: Flusher) -> None:
        lane = flusher.lane
        with flusher.building:
            is_idle = lane.under_way.is_idle and lane.durable == lane.tail
            if not is_idle or flusher.ended or lane.poison is not None:
                return
            if lane.segment is None:  # nothing was written behind the newest footer: a mark is
                with contextlib.suppress(StoreFull):
                    lane.build_mark()
            if lane.segment is not None:
                end_segment(flusher)
                self.sealed += 1
