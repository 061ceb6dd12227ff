"""`python -m tests.index.trackers --seconds 60`: crashes of the tracker on disk, from fresh seeds.

A failure prints its seed; `--seed` runs that round again.
"""

from __future__ import annotations

import logging
import random
import sys

from tests.rounds import run_rounds

from .crashes import Program, rows_of

CALLS = 80


def crash_states(seed: int, *, has_errors: bool) -> int:
    """How many states one program was recovered from."""
    program, chance = Program(seed), random.Random(seed)

    def step() -> None:
        if has_errors and chance.random() < 0.1:
            program.files.fail_at = program.files.steps
        program.check_crash(chance.getrandbits(32))

    program.files.on_step = step
    program.run(CALLS)
    program.files.on_step = None
    program.check_crash(0)
    assert rows_of(program.tracker) == program.pending
    return 2 * program.files.steps


def run_round(seed: int) -> int:
    """A program without errors of its files, and again with some. Raises AssertionError."""
    return sum(crash_states(seed, has_errors=errors) for errors in (False, True))


if __name__ == "__main__":
    logging.getLogger("stratalog").setLevel(logging.CRITICAL)  # files that cannot be removed are told of
    sys.exit(run_rounds("tests.index.trackers", __doc__, run_round, "nothing lost, nothing came back"))
