"""A clock that runs by itself, and that a test can move on."""

from __future__ import annotations

import threading
import time

from stratalog.testing import VirtualClock

TICK_S = 0.01


class RunningClock(VirtualClock):
    """A `VirtualClock` that a thread moves as the machine's time passes, from now on.

    So delays and time-outs end by themselves, within 10 ms, and `advance(ms=...)` lets the rest of a long one pass at
    once. `freeze()` lets it stand still: then time passes by `advance` alone.
    """

    def __init__(self) -> None:
        super().__init__(time.time_ns() // 1_000_000)
        self._is_over = threading.Event()
        self._is_frozen = False
        self._thread = threading.Thread(target=self._run, name="stratalog-clock", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began_s, passed_ms = time.monotonic(), 0
        while not self._is_over.wait(TICK_S):
            now_ms = int((time.monotonic() - began_s) * 1000)
            if now_ms > passed_ms and not self._is_frozen:
                self.advance(ms=now_ms - passed_ms)
            passed_ms = now_ms

    def freeze(self) -> None:
        """Stand still, until `run`."""
        self._is_frozen = True

    def run(self) -> None:
        """Run with the machine's time again."""
        self._is_frozen = False

    def close(self) -> None:
        """Stand still for good, and end the thread. A second call does nothing."""
        self._is_over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
