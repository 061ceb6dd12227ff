"""Records what the references really write: every forced write that reaches the system."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest


class Recorder:
    """Stands before `os.pwritev` and `os.fdatasync`. `refuse`: the error number for a write with a flag."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuse: int | None = None) -> None:
        self.sizes: list[int] = []  # of each write that was asked for with a flag or, where refused, without
        self.flags: list[int] = []
        self.syncs = 0
        self._refuse = refuse
        self._lock = threading.Lock()
        self._pwritev, self._fdatasync = os.pwritev, os.fdatasync
        monkeypatch.setattr(os, "pwritev", self._write)
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _write(self, descriptor: int, buffers: Sequence[memoryview], position: int, flags: int = 0) -> int:
        if flags and self._refuse is not None:
            raise OSError(self._refuse, "not here")
        written = self._pwritev(descriptor, buffers, position, flags)
        with self._lock:
            self.sizes.append(written)
            self.flags.append(flags)
        return written

    def _sync(self, descriptor: int) -> None:
        with self._lock:
            self.syncs += 1
        self._fdatasync(descriptor)

    def forget(self) -> None:
        """Begin again: what came before was set-up."""
        self.sizes.clear()
        self.flags.clear()
        self.syncs = 0


class Questions:
    """Says "over" at the Nth question: a run of as many writes on any machine."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left < 0
