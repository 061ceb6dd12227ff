"""A clock that a test moves."""

from __future__ import annotations

import threading
import weakref

from ..device.background import report
from ..device.clock import Sleeper

FIRST_MS = 1 << 43  # of the monotonic time; see `monotonic_s`
MOST_MS = 200 * 365 * 86_400_000  # of all moves together
LATEST_MS = 253_402_300_799_999  # of the time of day: the end of the year 9999


class VirtualClock:
    """A clock that moves only when the test says so: `MessageStore.open(path, clock=clock)`. Any number of stores and
    readers may share one.

    A store takes all its times from its clock: those of messages, delays, time-outs, retention, and of calls that wait.
    When the clock is moved, all threads and coroutines that sleep by it look at it: a `receive` that waits for a day
    returns once the clock has moved by a day, and gets a message that is due in a day. As long as it stands still,
    they wait.

    The machine's time still counts for `ticket.result(timeout)`, for what other processes do, and for the short rests
    of the store's threads.

    Invariants:
        * the time of day is set before the monotonic time. So a sleeper that reads them in the other order never
          sleeps for too long;
        * both are set before anybody is told.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        """`start_ms`: the time of day, in ms since the epoch. Raises ValueError, TypeError."""
        self._wall_ms = _wall(start_ms, "start_ms")
        self._moved_ms = 0
        self._lock = threading.Lock()
        self._sleepers: dict[int, weakref.ref[Sleeper]] = {}  # by id; each access is one step of the interpreter

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._wall_ms

    def monotonic_s(self) -> float:
        """Seconds since a fixed moment.

        It is so far back that `monotonic_s() * 1000` is a whole number whatever the moves were. With a start at 0 the
        float for 1,001 ms would be 1000.9999999999999: a time-out of 1,001 ms would not be over after 1,001 ms.
        """
        return (FIRST_MS + self._moved_ms) / 1000

    def advance(self, *, ms: int) -> int:
        """Let `ms` pass, and wake all that sleep by this clock. Returns the new time of day, in ms since the epoch.

        From any thread or coroutine. It waits for nobody: what the sleepers do then, they do in their own threads.
        Raises ValueError for a negative number, and beyond some 200 years; TypeError for what is no int.
        """
        if _whole(ms, "ms") < 0:
            raise ValueError(f"time does not go back, and {ms} ms would; see `jump_wall`")
        return self._move(ms, ms)

    def jump_wall(self, *, ms: int) -> int:
        """Set the time of day on by `ms`, or back if it is negative. No time passes: time-outs and waits go on.

        Delayed messages and retention by age go by the time of day. Returns the new one, in ms since the epoch.
        Raises as `advance` does.
        """
        return self._move(_whole(ms, "ms"), 0)

    def _move(self, wall_ms: int, passed_ms: int) -> int:
        with self._lock:
            now_ms = _wall(self._wall_ms + wall_ms, "the time of day")
            if self._moved_ms + passed_ms > MOST_MS:
                raise ValueError(f"a clock moves by at most {MOST_MS} ms in all, and by {self._moved_ms} ms until now")
            self._wall_ms = now_ms
            self._moved_ms += passed_ms
        for known in list(self._sleepers.values()):
            sleeper = known()
            if sleeper is not None:
                try:
                    sleeper.wake()
                except Exception as error:  # the others are told all the same
                    report("a sleeper could not be told that its clock was moved", error)
        return now_ms

    def watch(self, sleeper: Sleeper) -> None:
        """Call `sleeper.wake()` after each move, as long as somebody else holds it. The store does this."""
        key, sleepers = id(sleeper), self._sleepers
        sleepers[key] = weakref.ref(sleeper, lambda gone: _drop(sleepers, key, gone))

    def forget(self, sleeper: Sleeper) -> None:
        """Call it no more. Again is fine."""
        self._sleepers.pop(id(sleeper), None)


def _drop(sleepers: dict[int, weakref.ref[Sleeper]], key: int, gone: weakref.ref[Sleeper]) -> None:
    if sleepers.get(key) is gone:  # another object may have its id by now
        del sleepers[key]


def _whole(number: object, name: str) -> int:
    if type(number) is not int:
        raise TypeError(f"{name} is an int, a number of milliseconds, not {type(number).__name__}")
    return number


def _wall(time_ms: object, name: str) -> int:
    if not 0 <= _whole(time_ms, name) <= LATEST_MS:
        raise ValueError(f"{name} is from 0 to {LATEST_MS} ms since the epoch, and {time_ms} is not")
    return _whole(time_ms, name)
