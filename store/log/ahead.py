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
REST_S, FAST_BYTES = 0.25, 4 * MIB


class Ahead:
    """Writes the zeros of one lane's open segment, in the background.

    A log that has come to the end of the zeros is about as fast as the device. More zeros would take as much of that
    as the log itself, and be no help: they rest for `REST_S`, and longer while it takes more than `FAST_BYTES` in that
    time. Without zeros a slow log comes to their end with each append, too.

    Invariant: the zeros end at most `LEAST_AHEAD_BYTES`, or what the last `LOOK_BACK_S` appended, and one step after
    the log.

    Attributes:
        written_bytes: all zeros that it wrote.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.written_bytes = 0
        self._looks: deque[tuple[float, int]] = deque()  # when, and the lane's tail; all but the first are young
        self._rests: tuple[float, int] | None = None  # since when, and from which tail of the lane

    def keep(self, lane: WrittenLane, goes_on: Callable[[], bool]) -> None:
        """Write zeros as far ahead as they are wanted now, while it `goes_on`. Raises OSError."""
        segment = lane.segment
        zeros = None if segment is None else segment.writer.zeros
        if segment is None or segment.base is None or zeros is None:
            return
        tail, least = lane.tail, min(LEAST_AHEAD_BYTES, segment.header.capacity_bytes >> 2)
        end = tail - segment.base + max(least, self._appended(self._clock.monotonic_s(), tail))
        while goes_on() and lane.segment is segment and zeros.ready < end:
            written = 0 if self._rest(zeros, tail) else zeros.step()
            if not written:
                return
            self.written_bytes += written

    def _rest(self, zeros: Zeros, tail: int) -> bool:
        """Whether zeros rest now."""
        now_s = self._clock.monotonic_s()
        if self._rests is None:
            self._rests = (now_s, tail) if zeros.is_outrun else None
        elif now_s - self._rests[0] >= REST_S:
            is_fast = zeros.is_outrun and tail - self._rests[1] > FAST_BYTES
            self._rests, zeros.is_outrun = (now_s, tail) if is_fast else None, False
        return self._rests is not None

    def _appended(self, now_s: float, tail: int) -> int:
        """How many bytes the log took in the last `LOOK_BACK_S`."""
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now_s - LOOK_BACK_S:
            looks.popleft()
        if not looks or looks[-1][0] <= now_s - LOOK_S:
            looks.append((now_s, tail))
        return tail - looks[0][1]
