"""KeyboardInterrupt at a step of `open` or `close`: at an operation of the disk, or where signals are taken."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Literal

from stratalog import cache, store

from ..store.interrupts import Interrupter

How = Literal["operation", "signal"]
# What a finaliser raises is printed and goes nowhere; `pack_names` runs once a process (see `engine.py`).
NOT_COUNTED = ("__del__", "_unused", "pack_names", "<genexpr>")
HOWS: tuple[How, ...] = ("operation", "signal")
PLACES: dict[How, str] = {"operation": "an operation", "signal": "a place for signals"}

_FOLDERS = tuple(f"{Path(package.__file__).parent}/" for package in (store, cache) if package.__file__)
_TESTING = f"{_FOLDERS[0]}testing/"


def _is_counted(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(_FOLDERS) and not name.startswith(_TESTING) and code.co_name not in NOT_COUNTED


class StepInterrupter(Interrupter):
    """Counts steps of one kind, and raises KeyboardInterrupt at the one with the number `at`; 0 never does.

    `paused` holds it while the run takes the steps of other threads: an interrupt reaches the main thread alone.
    """

    def __init__(self, how: How, at: int = 0) -> None:
        super().__init__(_is_counted, at, is_paused=lambda: self.paused)
        self.how = how
        self.paused = False

    def meet(self, how: How) -> None:
        """A step of this kind is about to be taken."""
        if how == self.how and not self.paused:
            self.step(sys._getframe(1))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the places of the store's code in the block, if they are counted."""
        if self.how == "operation":
            yield
            return
        gc.disable()  # what is found in cycles would be ended at any moment, and its places be counted
        try:
            with super().watching():
                yield
        finally:
            gc.enable()
