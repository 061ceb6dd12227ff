"""A door that coroutines of any loop wait at, until some thread opens it for good."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Latch:
    """Closed at first. `open` may be called from any thread, and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_open = False

    async def wait(self) -> None:
        """Return once it is open."""
        with self._lock:
            if self.is_open:
                return
            opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(opened)
        try:
            await opened
        finally:
            with self._lock:
                self._waiting.discard(opened)

    def open(self) -> None:
        """Let all go on, and stay open."""
        with self._lock:
            self.is_open = True
            waiting, self._waiting = self._waiting, set()
        for opened in waiting:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                opened.get_loop().call_soon_threadsafe(_set, opened)


def _set(opened: asyncio.Future[None]) -> None:
    if not opened.done():
        opened.set_result(None)
