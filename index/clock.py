"""The clock that drives timers. It is handed in: tests and the simulation pass their own."""

from __future__ import annotations

import math
import time
from typing import Final, Protocol


class Clock(Protocol):
    """A time that never jumps. The time of day plays no part in a timer."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""


class SystemClock:
    """The monotonic time of the machine."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""
        return time.monotonic()


SYSTEM_CLOCK: Final = SystemClock()


def whole_ms(clock: Clock) -> int:
    """The milliseconds that are over: a timer of this deadline is due."""
    return math.floor(clock.monotonic_s() * 1000)
