"""Calls of callbacks: whatever a callback does, the log goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from ..device.background import Background, report


class Listeners:
    """Calls callbacks, one after the other, in a thread of its own that is started with the first one.

    Invariants:
        * each call is made once, in the order in which they were handed over;
        * a thread that hands one over does not wait for it, and gets none of its errors;
        * after `close` the thread ends once all calls were made; what comes later is called at once.
    """

    def __init__(self) -> None:
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Background | None = None
        self._closed = False

    def call(self, callback: Callable[[], object]) -> None:
        """Have the thread make this call."""
        with self._lock:
            if not self._closed and self._thread is None:
                self._start()
            is_soon = not self._closed and self._thread is not None
            if is_soon:
                self._due.put(callback)
        if not is_soon:
            _call(callback)

    def _start(self) -> None:
        thread = Background(self._run)
        with suppress(RuntimeError):  # no more threads can be started: the caller makes the call
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while (callback := self._due.get()) is not None:
            _call(callback)
            del callback  # or the thread would keep the last one's store while it waits

    def close(self) -> None:
        """Let the thread end. It may be called again."""
        with self._lock:
            self._closed = True
            self._due.put(None)

    def join(self) -> None:
        """Close, and wait until all calls were made; a callback itself does not wait."""
        if not self._closed:  # `close` found no memory: the thread would not end
            self.close()
        if self._thread is not None:
            self._thread.join()

    def after_fork(self) -> None:
        """In a child process: forget all calls, the parent makes them."""
        self._lock, self._thread, self._closed = threading.Lock(), None, True


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException as error:  # also SystemExit: it would end the thread, or be taken for the log's own failure
        report("a callback of a ticket has raised", error)
