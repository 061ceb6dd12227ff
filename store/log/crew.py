"""Threads that make the writes of several lanes side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from ..device.background import Background, NoThread


class Crew:
    """Threads that make some calls side by side: a force takes its time in each lane, and not one after the other."""

    def __init__(self) -> None:
        self._hands: list[tuple[Background, SimpleQueue[Callable[[], None] | None]]] = []

    def do_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make all calls; when it returns, all have ended. Raises the first error of one of them."""
        over, failed = threading.Semaphore(0), list[BaseException]()

        def one(call: Callable[[], None]) -> None:
            try:
                call()
            except BaseException as error:
                failed.append(error)
            finally:
                over.release()

        hands = self._have(len(calls) - 1)
        for (_, queue), call in zip(hands, calls, strict=False):
            queue.put(partial(one, call))
        for call in calls[len(hands) :]:
            one(call)
        for _ in calls:
            over.acquire()
        if failed:
            raise failed[0]

    def _have(self, count: int) -> list[tuple[Background, SimpleQueue[Callable[[], None] | None]]]:
        """So many threads, or fewer if no more can be started."""
        with suppress(NoThread):
            while len(self._hands) < count:
                calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
                thread = Background(partial(_work, calls))
                thread.start()
                self._hands.append((thread, calls))
        return self._hands[:count]

    def close(self) -> None:
        """End the threads. It may be called again."""
        for thread, calls in self._hands:
            calls.put(None)
            thread.join()


def _work(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
