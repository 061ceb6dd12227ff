"""A clock that a test moves."""

from __future__ import annotations

import threading


class VirtualClock:
    """A clock that moves only when the test says so. `MessageStore.open(.., clock=..)` takes one.

    A store takes the times of messages, deliveries, time-outs and retention from its clock. A thread that waits in a
    call reads the clock when the machine's time of its wait is over, or when something came.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        """`start_ms`: ms since the epoch."""
        self._lock = threading.Lock()
        self._start_ms = self._now_ms = start_ms

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds since this clock was made."""
        return (self._now_ms - self._start_ms) / 1000

    def advance(self, ms: int) -> int:
        """Let `ms` pass. Returns the new time, in ms since the epoch. Raises ValueError for a negative number."""
        if ms < 0:
            raise ValueError(f"time does not go back, and {ms} ms would")
        with self._lock:
            self._now_ms += ms
            return self._now_ms
