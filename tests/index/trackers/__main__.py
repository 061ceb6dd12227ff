"""`python -m tests.index.trackers --seconds 60`: crashes of the tracker on disk, from fresh seeds, for so long.

A failure prints its seed; `--seed` runs that program again.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from tests.seeds import draw_seed

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


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.index.trackers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    logging.getLogger("stratalog").setLevel(logging.CRITICAL)  # files that cannot be removed are told of
    if given.seed is not None:
        print(sum(crash_states(given.seed, has_errors=errors) for errors in (False, True)), "states")
        return 0
    began, states, programs = time.monotonic(), 0, 0
    while time.monotonic() - began < given.seconds:
        seed = draw_seed()
        states += crash_states(seed, has_errors=programs % 2 == 1)
        programs += 1
    spent = time.monotonic() - began
    print(f"{states:,} states of {programs:,} programs, {states / spent:,.0f}/s: nothing lost, nothing came back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
