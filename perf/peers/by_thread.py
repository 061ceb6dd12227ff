"""One connection for each thread that asks for one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class ByThread:
    """Connections made by `make` in the thread that uses them, and closed together."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._mine, self._all = make, threading.local(), list[Any]()
        self._lock = threading.Lock()

    def get(self) -> Any:
        """This thread's connection."""
        found = getattr(self._mine, "connection", None)
        if found is None:
            with self._lock:  # they set modes of the same file
                found = self._make()
                self._all.append(found)
            self._mine.connection = found
        return found

    def close(self) -> None:
        """Close all of them; no thread may use one any more."""
        with contextlib.ExitStack() as closed:
            for one in self._all:
                closed.callback(one.close)
            self._all.clear()
