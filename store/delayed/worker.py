"""The thread of the delayed messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..device.background import Background, Bell
from ..errors import StoreError

PAUSE_S = 0.02  # after a call: messages that come meanwhile are added together, unless somebody asks before
RETRY_S = 0.1  # after an error


class Worker:
    """Calls `work` after each ring, and when the time that it returned is over; no error ends it.

    Attributes:
        is_started: there is a thread.
        is_closing: the thread ends, or has ended.
    """

    def __init__(self, work: Callable[[], float], failed: Callable[[str], None]) -> None:
        """`work` returns the seconds until the next call; `failed` gets the text of an error."""
        self._work = work
        self._failed = failed
        self._bell = Bell()
        self._threads: list[Background] = []  # one, or more if an interrupt may have kept one from starting
        self._working = threading.Lock()  # held by the thread that works
        self.is_started = self.is_closing = False

    def ring(self) -> None:
        """There is work to do."""
        self._bell.set()

    def start(self) -> None:
        """Start the thread. A second call does no harm."""
        if not self.is_started and not self.is_closing:
            self._threads.append(Background(self._run))
            self._threads[-1].start()
            self.is_started = True

    def _run(self) -> None:
        if self._working.acquire(blocking=False):
            self._work_on()

    def _work_on(self) -> None:
        while not self.is_closing:
            self._bell.clear()
            try:
                wait_s = self._work()
            except (OSError, StoreError) as error:
                self._failed(str(error))
                wait_s = RETRY_S
            except Exception as error:  # also a bug, or no memory: without this thread nobody would be woken
                why = str(error) or type(error).__name__
                self._failed(f"delayed delivery failed, and is tried again: {why}")
                wait_s = RETRY_S
            self._bell.wait(wait_s)
            if wait_s and not self.is_closing:
                time.sleep(PAUSE_S)  # each append rings

    def stop(self) -> None:
        """End the thread. A second call does no harm."""
        self.is_closing = True
        self._bell.set()
        for thread in self._threads:
            thread.join()
