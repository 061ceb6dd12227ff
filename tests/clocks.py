"""Clocks for tests."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.store.device.clock import SystemClock


class WallClock(SystemClock):
    """The time of day is what `wall` says; waiting goes by the machine's time."""

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._wall()


class SteppedClock(SystemClock):
    """The monotonic time is `now`, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_s(self) -> float:
        """The time that the test has set."""
        return self.now
