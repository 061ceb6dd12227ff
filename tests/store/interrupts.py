"""Interrupts at every place where the interpreter takes them, one by one.

A signal's handler runs behind a call that did not raise, at the beginning of a function, at the end of a loop's turn,
and while a lock is waited for; nowhere else. `interrupt_at` counts these places in the code of some files while a piece
of work runs in this thread, and raises at one of them.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

BEHIND = {"CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"}
HANDLER = "PUSH_EXC_INFO"  # where one begins: the step before it has raised
MOST_PLACES = 1_000


class Interrupted(BaseException):
    """As KeyboardInterrupt comes."""


@cache
def _steps(code: CodeType) -> dict[int, dis.Instruction]:
    return {step.offset: step for step in dis.get_instructions(code)}


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


def interrupt_at(
    place: int, files: tuple[str, ...], work: Callable[[], object], kind: type[BaseException] = Interrupted,
    is_paused: Callable[[], bool] = bool,
) -> tuple[bool, object]:  # fmt: skip
    """Run `work` and raise `kind` at its `place`th place, counted from 0: (did it come that far, its result).

    The result is what it returned, or the exception that it raised. What runs while `is_paused` says so is the work of
    other threads, which no signal reaches.
    """
    left, before = place, dict[int, str]()

    def opcode(frame: FrameType, event: str, _given: Any) -> Any:
        nonlocal left
        if event != "opcode" or is_paused():
            return opcode
        step = _steps(frame.f_code).get(frame.f_lasti)
        if step is None:
            return opcode
        last, before[id(frame)] = before.get(id(frame), ""), step.opname
        is_behind = last in BEHIND and step.opname != HANDLER and frame.f_lasti not in _leaves(frame.f_code)
        if is_behind or frame.f_lasti in _sleeps(frame.f_code):
            left -= 1
            if left == -1:
                raise kind
        return opcode

    def call(frame: FrameType, _event: str, _given: Any) -> Any:
        if not frame.f_code.co_filename.endswith(files) or is_paused():
            return None
        before[id(frame)] = "RESUME"
        frame.f_trace_opcodes = True
        return opcode

    tracer = sys.gettrace()
    sys.settrace(call)
    try:
        result: object = work()
    except BaseException as error:
        result = error
    finally:
        sys.settrace(tracer)
    return left < 0, result


def places() -> Iterator[int]:
    """0, 1, 2 ..: leave the loop when the work came to its end."""
    yield from range(MOST_PLACES)
    raise AssertionError("the work has no end")
