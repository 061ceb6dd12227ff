"""Interrupts at every place where the interpreter takes them, one by one.

A signal's handler runs behind a call that did not raise, at the beginning of a function, at the end of a loop's turn,
and while a lock is waited for; nowhere else. An `Interrupter` counts these places in some code while a piece of work
runs in this thread, and raises at one of them.
"""

from __future__ import annotations

import ctypes
import dis
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

BEHIND = {"CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"}
HANDLER = "PUSH_EXC_INFO"  # where one begins: the step before it has raised
AWAIT = "GET_AWAITABLE"  # a call that only makes a coroutine looks for no signal: the coroutine does, once it begins
MOST_PLACES = 1_000


class Interrupted(BaseException):
    """As KeyboardInterrupt comes."""


@cache
def _steps(code: CodeType) -> dict[int, str]:
    return {step.offset: step.opname for step in dis.get_instructions(code)}


@cache
def _sleeps(code: CodeType) -> set[int]:
    """Where a lock is waited for."""
    found, name = set(), ""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            name = str(step.argval)
        if step.opname == "BEFORE_WITH" or (step.opname == "CALL" and name.endswith("acquire")):
            found.add(step.offset)
    return found


@cache
def _leaves(code: CodeType) -> set[int]:
    """Where a step has left a `with` or `try` that the call before it is in: the interpreter raises at the call."""
    table = [(entry.start, entry.end, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]  # private: nothing public has it

    def handlers(offset: int) -> set[int]:
        return {target for start, end, target in table if start <= offset < end}

    return {
        step.offset
        for call, step in pairwise(dis.get_instructions(code))
        if handlers(call.offset) != handlers(step.offset)
    }


class Interrupter:
    """Counts the places of this thread in the code that `is_ours`, and raises `kind` at the one numbered `at`, once.

    Numbers begin with 1; 0 is never reached. What runs while `is_paused` says so is the work of other threads, which no
    signal reaches. Nothing is raised in a finalizer, but at the next place: nobody else hears of it there, and
    CPython 3.11 loses its stack over a trace function that raises in one. Nor between the making of a coroutine and its
    begin.

    Attributes:
        steps: the places so far.
        place: where it was raised, in words; empty before that.
    """

    def __init__(
        self, is_ours: Callable[[CodeType], bool], at: int = 0, kind: type[BaseException] = KeyboardInterrupt,
        is_paused: Callable[[], bool] = bool,
    ) -> None:  # fmt: skip
        self.at = at
        self.steps = 0
        self.place = ""
        self._is_ours = is_ours
        self._kind = kind
        self._is_paused = is_paused
        self._before: dict[int, str] = {}  # what each frame's last step was

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count in the block, and raise there."""
        tracer = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(tracer)

    def step(self, frame: FrameType, *, may_raise: bool = True) -> None:
        """A place, in this frame."""
        self.steps += 1
        if self.steps >= self.at > 0 and may_raise and not self.place and not _is_in_finalizer(frame):
            sys.settrace(None)
            code = frame.f_code
            self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} ({code.co_name})"
            raise self._kind

    def _call(self, frame: FrameType, _event: str, _given: Any) -> Any:
        if not self._is_ours(frame.f_code) or self._is_paused():
            return None
        self._before[id(frame)] = "RESUME"
        frame.f_trace = self._opcode  # first: from CPython 3.12 on, opcodes of a frame without one are not traced
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, _given: Any) -> Any:
        if event != "opcode" or self._is_paused():
            return self._opcode
        code, offset = frame.f_code, frame.f_lasti
        name = _steps(code).get(offset)
        if name is None:
            return self._opcode
        last, self._before[id(frame)] = self._before.get(id(frame), ""), name
        is_behind = last in BEHIND and name != HANDLER and offset not in _leaves(code)
        if is_behind or offset in _sleeps(code):
            self.step(frame, may_raise=name != AWAIT)
        return self._opcode


def _is_in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupt_at(
    place: int, files: tuple[str, ...], work: Callable[[], object], kind: type[BaseException] = Interrupted,
    is_paused: Callable[[], bool] = bool,
) -> tuple[bool, object]:  # fmt: skip
    """Run `work` and raise `kind` at its `place`th place in files that end so, from 0: (was it raised, the result).

    The result is what `work` returned, or the exception that it raised.
    """
    interrupter = Interrupter(lambda code: code.co_filename.endswith(files), place + 1, kind, is_paused)
    try:
        with interrupter.watching():
            result: object = work()
    except BaseException as error:
        result = error
    return bool(interrupter.place), result


def interrupt(thread: threading.Thread) -> None:
    """Raise `Interrupted` at the next bytecode of a thread. One that sleeps on a lock hears of it when it is woken."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))


def places() -> Iterator[int]:
    """0, 1, 2 ..: leave the loop when the work came to its end."""
    yield from range(MOST_PLACES)
    raise AssertionError("the work has no end")
