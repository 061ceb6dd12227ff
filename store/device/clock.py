"""The clock of a store. `MessageStore.open` takes one, as it takes the device: tests pass their own."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Two times: `wall_ms` may jump, `monotonic_s` may not."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch. It stamps messages, and retention by age uses it."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling. Deadlines use it."""


class SystemClock:
    """The time of the machine."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""
        return time.monotonic()


SYSTEM_CLOCK: Final = SystemClock()
