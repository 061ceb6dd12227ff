"""Early seals: an idle lane gets another full footer, so that retention can remove the group of the one before.

Retention never removes the segment of a lane's newest full footer. A busy lane gets another full footer with its next
segment. An idle one would keep its group, up to 1,024 segments, until something fills a segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..device.clock import Clock
from ..errors import StoreFull
from .flusher import Flusher
from .sealer import Sealer
from .stopping import end_segment

PATIENCE_S = 5.0  # retention waits so long for the lane to seal its open segment by itself


class EarlySeals:
    """Ends the open segments of idle lanes that retention waits for. Only the thread that removes segments asks it to.

    Invariant: retention asks for a full footer if the oldest segment has the newest one, and more segments follow it.
    With another full footer all of these can go but the newest sealed one, so it asks again only when more segments
    have become full. At most one early seal is made for the segments that it frees.

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
        """End the segments that retention waits for; the sealer makes footers. Raises OSError, StorePoisoned."""
        for flusher in self.flushers:
            if self._is_due(flusher):
                self._end(flusher)

    def _is_due(self, flusher: Flusher) -> bool:
        """Whether retention has waited `PATIENCE_S` for a lane's full footer, and nothing was sealed meanwhile."""
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
            if lane.segment is None:  # no frame since the newest footer: make one
                with contextlib.suppress(StoreFull):
                    lane.build_mark()
            if lane.segment is not None:
                end_segment(flusher)
                self.sealed += 1
