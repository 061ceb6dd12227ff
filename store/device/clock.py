"""The clock of a store. `MessageStore.open` takes one, as it takes the device: tests pass their own."""

from __future__ import annotations

import time
from typing import Final, Protocol, runtime_checkable


class Clock(Protocol):
    """Two times: `wall_ms` may jump, `monotonic_s` may not."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch. It stamps messages, and retention by age uses it."""

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling. Deadlines use it."""


class Sleeper(Protocol):
    """A part of a store, or a store's list of such parts, that sleeps by a clock."""

    def wake(self) -> object:
        """Look at the clock now. Called in any thread: it is short, and waits for nothing."""


@runtime_checkable
class MovedClock(Clock, Protocol):
    """A clock whose time passes only when it is moved. It tells its sleepers, and holds them weakly."""

    def watch(self, sleeper: Sleeper) -> None:
        """Call `sleeper.wake()` after each move. It must be told of a move that begins after this returns."""

    def forget(self, sleeper: Sleeper) -> None:
        """Call it no more. Again is fine."""


class SystemClock:
    """The time of the machine."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment, never falling."""
        return time.monotonic()


SYSTEM_CLOCK: Final = SystemClock()
