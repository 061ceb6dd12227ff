"""What tests of the measurements may ask for beside the time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

import pytest

from perf.rawfile import RawFile

WRITES = 20


class TimerOfWrites:
    """Stands in for `threading.Timer`: the time is up when some writes have been made since it was started."""

    running: ClassVar[set[TimerOfWrites]] = set()

    def __init__(self, _seconds: float, then: Callable[[], object]) -> None:
        self._then = then
        self._left = WRITES

    def start(self) -> None:
        """Begin to count."""
        self.running.add(self)

    def cancel(self) -> None:
        """Count no more."""
        self.running.discard(self)

    def write_made(self) -> None:
        """One more."""
        self._left -= 1
        if self._left == 0:
            self._then()


@pytest.fixture
def time_for_some_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The floors are measured for some writes, not for some time: on a machine that stalls there would be none."""
    write_forced = RawFile.write_forced

    def noting(file: RawFile, size_bytes: int) -> int:
        written = write_forced(file, size_bytes)
        for timer in list(TimerOfWrites.running):
            timer.write_made()
        return written

    monkeypatch.setattr(RawFile, "write_forced", noting)
    monkeypatch.setattr(threading, "Timer", TimerOfWrites)
