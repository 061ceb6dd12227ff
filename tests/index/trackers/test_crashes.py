"""The tracker on disk, crashed at each step of its files, and with an error at each step."""

from __future__ import annotations

import random

import pytest

from tests.seeds import draw_seed

from .crashes import Program, rows_of

PROGRAMS = 2  # of a seed each
CALLS = 20


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_crash_at_any_step_loses_nothing_and_brings_nothing_back(number: int) -> None:
    seed = draw_seed() + number
    program, chance = Program(seed), random.Random(seed)
    program.files.on_step = lambda: program.check_crash(chance.getrandbits(32))
    program.run(CALLS)
    program.check_crash(0)
    assert rows_of(program.tracker) == program.pending


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_error_of_the_disk_at_any_step_loses_nothing(number: int) -> None:
    seed = draw_seed() + number
    program, chance = Program(seed), random.Random(seed)

    def fail_now_and_then() -> None:
        if chance.random() < 0.1:
            program.files.fail_at = program.files.steps
        program.check_crash(chance.getrandbits(32))

    program.files.on_step = fail_now_and_then
    program.run(CALLS)
    program.files.on_step = None
    program.check_crash(0)
    assert rows_of(program.tracker) == program.pending


def test_same_seed_is_the_same_run() -> None:
    seed = draw_seed()
    runs = []
    for _ in range(2):
        program = Program(seed)
        program.run(CALLS)
        runs.append((program.log, program.files.steps, program.tracker.stats()))
    assert runs[0] == runs[1]
