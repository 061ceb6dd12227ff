"""Threads of the store, and how they are woken; an interrupt of the program's own thread leaves both in order.

Python runs signal handlers in the main thread only, between two of its steps. Interrupted there, a `threading.Thread`
that is being started may never get further than its first step, and a `threading.Event` that is being set may keep its
lock for good. What is used here in their place does each thing in one step, in C.
"""

from __future__ import annotations

import errno
import logging
import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Literal

LOOK_S = 0.05
NUDGE_S = 0.01
LOGGER = logging.getLogger("stratalog")


def report(what: str, error: BaseException) -> None:
    """Log an error that no caller can catch."""
    with suppress(Exception):  # a handler or filter of the program's may raise as well
        LOGGER.error(what, exc_info=error)


class NoThread(OSError, RuntimeError):
    """The system has no thread left. Python says so with a RuntimeError; it is like a file that cannot be opened."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, "no thread can be started")


class Background:
    """A thread that does one piece of work. The interpreter does not wait for it at its end.

    `join` cannot know whether an interrupted start has begun the thread. So the two settle which of them came first: a
    thread that comes second does no work.

    The work handles its own errors. If callers wait for a thread, its work handles every exception: it tells those
    callers and goes on (following, upkeep, delays, time-outs), or it fails them all and ends (flushers). A thread that
    only helps just ends (growth of rings, the feeder of the cache). An error that the work lets out is logged.

    Invariants:
        * once `join` has returned, the work is over or is never begun;
        * `join` waits for the end of the thread, which comes whatever the work raises: no owner waits for a message of
          the thread.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._first: dict[Literal["came first"], str] = {}
        self._ident = 0
        self._is_over = False
        self._begun, self._over = threading.Lock(), threading.Lock()  # each taken until then
        self._begun.acquire()
        self._over.acquire()

    def start(self) -> None:
        """Start the thread, once; when it returns, the work is begun. Raises NoThread."""
        try:
            start_new_thread(self._run, ())
        except RuntimeError:
            raise NoThread from None
        while not self._first:
            if self._begun.acquire(timeout=LOOK_S):
                self._begun.release()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        if self._came_first("the thread") != "the thread":
            return
        self._begun.release()
        try:
            if self._work is not None:
                self._work()
        except BaseException as error:  # also SystemExit: the interpreter would not say whose thread it is
            report("a thread of the store has ended by an error", error)
        finally:
            self._work = None  # a thread that is over keeps nothing of the store
            self._is_over = True
            self._over.release()

    def _came_first(self, name: str) -> str:
        return self._first.setdefault("came first", name)  # one step for the interpreter, so one of them alone is first

    def join(self, nudge: Callable[[], object] | None = None) -> None:
        """Wait for the end of the work; its own thread does not wait. The work must have been told to end.

        `nudge` is called again and again meanwhile, for work that only this can wake.
        """
        if self._came_first("join") == "join":
            self._work = None
        elif self._ident != threading.get_ident():
            while not self._is_over:  # and not the lock alone: an interrupt may leave it taken
                if nudge is not None:
                    nudge()
                if self._over.acquire(timeout=LOOK_S if nudge is None else NUDGE_S):
                    self._over.release()


class Bell:
    """An event for one thread that waits. Any number of threads, and finalizers, may set it."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake the thread that waits, or let its next wait return at once."""
        if self._rings.empty():
            self._rings.put(None)

    def is_set(self) -> bool:
        """True from `set` to `clear`."""
        return not self._rings.empty()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False after `timeout` seconds."""
        try:
            self._rings.put(self._rings.get(timeout=timeout))
        except Empty:
            return False
        return True

    def clear(self) -> None:
        """Undo `set`."""
        try:
            while True:
                self._rings.get_nowait()
        except Empty:
            pass
