"""How threads of the store wake coroutines that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence


class LoopBells:
    """Rings the futures of coroutines in their loops: those that come before a loop has turned, by one call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def ring(self, future: asyncio.Future[None]) -> bool:
        """Have its loop set a future. From any thread. False if the loop was closed, or is broken."""
        loop = future.get_loop()
        with self._lock:
            due = self._due.setdefault(loop, [])
            due.append(future)
            is_first = len(due) == 1
        if is_first or loop.is_closed():  # one that was closed before it has turned never takes its futures
            try:
                loop.call_soon_threadsafe(self._ring_all, loop)
            except Exception:  # whatever a loop that is not asyncio's raises: nobody waits there any more
                self._take(loop)
                return False
        return True

    def _take(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Future[None]]:
        with self._lock:
            return self._due.pop(loop, [])

    def _ring_all(self, loop: asyncio.AbstractEventLoop) -> None:
        set_all(self._take(loop))


def set_all(futures: Sequence[asyncio.Future[None]]) -> None:
    """Wake the coroutines that await these futures; within their loop."""
    for future in futures:
        if not future.done():  # nor was its task cancelled
            future.set_result(None)
