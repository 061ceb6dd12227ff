"""A short run of the fuzzer of interrupts: `python -m tests.fuzz signals` makes long ones."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import suppress

from stratalog.store import MessageStore
from tests.seeds import draw_seed
from tests.store.helpers import PATIENCE_S, ROOT, memory_folder, tiny
from tests.store.interrupts import Interrupter

from .signals import stepwise

INTERRUPTS = 120


def test_interrupts_leave_no_lock_descriptor_or_thread_and_lose_nothing() -> None:
    """In a process of its own: the timer's signal and the trace function are the process's."""
    command = [sys.executable, "-m", "tests.fuzz", "signals", "--interrupts", str(INTERRUPTS)]
    command += ["--seed", str(draw_seed())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing broken" in done.stdout


def test_stepwise_interrupts_come_where_they_were_ordered() -> None:
    with memory_folder() as folder:
        counting = stepwise(lambda: MessageStore.open(folder / "a", tiny()).close())
        assert counting.steps > 300 and not counting.place
        step = stepwise(lambda: MessageStore.open(folder / "b", tiny()).close(), at=1)
        assert "config.py" in step.place and not (folder / "b").exists()


def test_interpreter_is_taken_to_look_behind_calls_inside_a_block_and_not_at_its_end() -> None:
    def calls(lock: object) -> None:
        print(lock)
        with memory_folder():
            print(lock)
            len("")

    interrupter = Interrupter(lambda code: code is calls.__code__)
    with interrupter.watching():
        calls(None)
    assert 4 <= interrupter.steps <= 6


def test_no_interrupt_comes_between_the_making_of_a_coroutine_and_its_begin() -> None:
    """The interpreter takes none there: a warning that a coroutine was never awaited would be of the test's making."""

    async def inner() -> None:
        len("")

    async def outer() -> None:
        await inner()

    interrupted = set[str]()
    for at in range(1, 10):
        work = outer()
        interrupter = Interrupter(lambda code: code in (inner.__code__, outer.__code__), at)
        with warnings.catch_warnings(record=True) as warned, suppress(KeyboardInterrupt, StopIteration):
            warnings.simplefilter("always")
            with interrupter.watching():
                work.send(None)
        assert not warned
        interrupted.add(interrupter.place.partition(" ")[2])
    assert interrupted == {"(outer)", "(inner)", ""}
