"""A group-commit thread: what a program writes around an engine whose threads would otherwise force one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Condition
from typing import Any

MOST_WAITING = 4096  # messages: then `hand_over` waits


class GroupCommit:
    """One thread that writes all rows that wait as one batch, and then takes those that came meanwhile.

    After a failed write every call raises its error: nothing is retried.
    """

    def __init__(self, write: Callable[[list[Any]], None], ready: Callable[[], None] | None = None) -> None:
        """Start the thread, and wait until `ready` has run in it. Raises what that raises."""
        self._write = write
        self._rows: list[Any] = []
        self._answers: list[threading.Lock] = []
        self._changed = Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._ready, self._started = ready, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait()
        self._raise()

    def append(self, row: Any) -> None:
        """Hand a row over, and wait until it is durable."""
        answer = threading.Lock()
        answer.acquire()
        with self._changed:
            self._raise()
            self._rows.append(row)
            self._answers.append(answer)
            self._changed.notify_all()
        answer.acquire()
        self._raise()

    def hand_over(self, row: Any) -> None:
        """Hand a row over; `close` waits for it."""
        with self._changed:
            while len(self._rows) >= MOST_WAITING and self._error is None:
                self._changed.wait()
            self._raise()
            self._rows.append(row)
            if len(self._rows) == 1:
                self._changed.notify_all()

    def close(self) -> None:
        """Wait for all rows, and end the thread. Raises what a write raised."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            if self._ready is not None:
                self._ready()
        except BaseException as error:  # raised in the thread that waits
            self._error = error
            return
        finally:
            self._started.set()
        while True:
            with self._changed:
                while not self._rows and not self._closed:
                    self._changed.wait()
                rows, answers = self._rows, self._answers
                self._rows, self._answers = [], []
                self._changed.notify_all()
            if not rows:
                return
            try:
                self._write(rows)
            except BaseException as error:  # raised in those who wait
                with self._changed:
                    self._error, answers = error, [*answers, *self._answers]
                    self._changed.notify_all()
            for answer in answers:
                answer.release()
            if self._error is not None:
                return
