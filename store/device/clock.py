"""Time as the store sees it, handed in like the device: tests and the simulation have clocks of their own."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Two times: one for people, which may jump, and one for waiting, which may not."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch. Messages are stamped with it, and retention by age goes by it."""

    def monotonic_s(self) -> float:
        """Seconds since any moment, never falling. Deadlines go by it."""


class SystemClock:
    """The time of the machine."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since any moment, never falling."""
        return time.monotonic()


SYSTEM_CLOCK: Final = SystemClock()
