"""A thread of the store's: its start may be interrupted, and its end can always be waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

STEP_S = 50e-6
LOOK_S = 0.05


class Background:
    """A daemon thread that does one piece of work.

    `Thread.start` may be interrupted before the thread exists, or when it runs already, and cannot tell which. So the
    thread and whoever waits for it make out between them who came first: a thread that comes second does no work.

    Invariant: once `join` has returned, the work is over or is never begun.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work: Callable[[], None] | None = work
        self._first: dict[Literal["came first"], str] = {}
        self._is_over = False
        self._over = threading.Lock()  # taken until then
        self._over.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def _run(self) -> None:
        if self._came_first("the thread") != "the thread":
            return
        try:
            if self._work is not None:
                self._work()
        finally:
            self._work = None  # whatever else refers to the thread, the store is not kept by it
            self._is_over = True
            self._over.release()

    def _came_first(self, name: str) -> str:
        return self._first.setdefault("came first", name)  # one step for the interpreter, so one of them alone is first

    def join(self) -> None:
        """Wait for the end of the work; its own thread does not wait. The work must have been told to end."""
        if self._came_first("join") == "join":
            self._work = None
        elif self._thread.ident != threading.get_ident():
            while not self._is_over:  # and not the lock alone: an interrupt may leave it taken
                if self._over.acquire(timeout=LOOK_S):
                    self._over.release()
            # Not `Thread.join`: a thread that is none of `threading`'s may be the one that waits.
            while self._thread.is_alive():
                time.sleep(STEP_S)
