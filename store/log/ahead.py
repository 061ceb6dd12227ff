"""How far ahead of each lane's log its files are pre-written (R7): as far as the last seconds need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..config import MIB
from ..device.clock import Clock
from ..segment.zeros import Zeros
from .written_lane import WrittenLane

LEAST_AHEAD_BYTES = 16 * MIB  # a quarter of a small segment
LOOK_BACK_S, LOOK_S = 1.0, 0.05


class Ahead:
    """Writes the zeros of one lane's open segment, in the background.

    Invariant: the zeros end at most `LEAST_AHEAD_BYTES`, or what the last `LOOK_BACK_S` appended, after the log.
    """

    def __init__(self, clock: Clock, wrote: Callable[[int], None]) -> None:
        """`wrote` is called with the bytes of each step."""
        self._clock = clock
        self._wrote = wrote
        self._looks: deque[tuple[float, int]] = deque()  # when, and the lane's tail; the first is the newest too old

    def keep(self, lane: WrittenLane, goes_on: Callable[[], bool]) -> None:
        """Write zeros as far ahead as they are wanted now, while it `goes_on`. Raises OSError."""
        segment = lane.segment
        zeros = None if segment is None else segment.writer.zeros
        if segment is None or segment.base is None or zeros is None:
            return
        base, least = segment.base, min(LEAST_AHEAD_BYTES, segment.header.capacity_bytes >> 2)
        while goes_on() and lane.segment is segment:
            tail = lane.tail
            if zeros.ready >= tail - base + max(least, self._appended(tail)):
                return
            written = zeros.step()
            if not written:
                return
            self._wrote(written)

    def _appended(self, tail: int) -> int:
        """How many bytes the log took in the last `LOOK_BACK_S`."""
        now_s, looks = self._clock.monotonic_s(), self._looks
        while len(looks) > 1 and looks[1][0] <= now_s - LOOK_BACK_S:
            looks.popleft()
        if not looks or looks[-1][0] <= now_s - LOOK_S:
            looks.append((now_s, tail))
        return tail - looks[0][1]
