"""KeyboardInterrupt at a step of `open` or `close`: at an operation of the disk, or at a line of the store's code."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache as cache_of
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

from stratalog import cache, store

How = Literal["operation", "line"]
# What a finaliser raises is printed and goes nowhere; `pack_names` runs once a process (see `engine.py`).
NOT_COUNTED = ("__del__", "_unused", "pack_names", "<genexpr>")
HOWS: tuple[How, ...] = ("operation", "line")
LEFT_BY_ERROR = ("PUSH_EXC_INFO", "WITH_EXCEPT_START")
PLACES: dict[How, str] = {"operation": "an operation", "line": "a line"}

_FOLDERS = tuple(f"{Path(package.__file__).parent}/" for package in (store, cache) if package.__file__)
_TESTING = f"{_FOLDERS[0]}testing/"


class Interrupter:
    """Counts steps, and raises KeyboardInterrupt at the one with the number `at`; 0 never does.

    `paused` holds it while the run takes the steps of other threads: an interrupt reaches the main thread alone.
    """

    def __init__(self, how: How, at: int = 0) -> None:
        self.how = how
        self.at = at
        self.steps = 0
        self.struck = False
        self.paused = False

    def step(self, how: How) -> None:
        """A step of this kind is about to be taken."""
        if how == self.how and not self.paused:
            self.steps += 1
            if self.steps == self.at:
                self.struck = True
                raise KeyboardInterrupt

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the lines that the store's code runs in the block, if lines are counted."""
        if self.how != "line":
            yield
            return
        before = sys.gettrace()
        gc.disable()  # what is found in cycles would be ended at any moment, and its lines be counted
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            gc.enable()

    def _enter(self, frame: FrameType, _event: str, _given: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        ours = name.startswith(_FOLDERS) and not name.startswith(_TESTING)
        return self._line if ours and frame.f_code.co_name not in NOT_COUNTED else None

    def _line(self, frame: FrameType, event: str, _given: Any) -> Callable[..., Any]:
        if event == "line" and frame.f_lasti not in _no_places(frame.f_code):
            self.step("line")
        return self._line


@cache_of
def _no_places(code: CodeType) -> frozenset[int]:
    """Where no interrupt comes. A `with` is left: `__exit__` is called, with three times None or an exception.

    The interpreter does not look for signals between the last call of the block, or what it raised, and this one, so no
    interrupt comes here; one that a trace function raises here would leave a lock locked.
    """
    steps = list(dis.get_instructions(code))
    runs = zip(steps, steps[1:], steps[2:], steps[3:], strict=False)
    plain = (
        first.offset for first, *loads, call in runs
        if all(one.opname == "LOAD_CONST" and one.argval is None for one in (first, *loads))
        and call.opname in ("PRECALL", "CALL")
    )  # fmt: skip
    raised = (one.offset for one, two in pairwise(steps) if (one.opname, two.opname) == LEFT_BY_ERROR)
    # Where a `try` in a `with` begins there is an instruction that cannot raise, and so no handler that lets go.
    begins = (one.offset for one in steps if one.opname == "NOP")
    return frozenset((*plain, *raised, *begins))
