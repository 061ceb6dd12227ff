"""One seed's run, for processes that are started for many of them: they import it from here."""

from __future__ import annotations

import gc
import random
import traceback
from collections.abc import Callable

from .check import BrokenPromise
from .explore import Effort, draw_fault, explore
from .shape import PARTS, Part, draw_shape
from .tally import Tally

FAULTY = 4  # one seed in so many meets an error


def try_seed(seed: int, parts: frozenset[Part] = PARTS) -> Tally:
    """One run; a violation is in the tally, with the command that replays it."""
    chance = random.Random(f"fault {seed}")
    faults = [draw_fault(chance)] if seed % FAULTY == FAULTY - 1 else []

    def run(tally: Tally) -> None:
        shape = draw_shape(random.Random(f"shape {seed}"), parts)
        explore(seed, shape, Effort(subsets=5, again=0.1), faults=faults, tally=tally)

    without = ",".join(sorted(PARTS - parts))
    return tried(run, seed, "tests.simulation", f" --without {without}" if without else "")


def tried(run: Callable[[Tally], None], seed: int, module: str, more: str = "") -> Tally:
    """What a run has tried. An error of any kind ends this run alone, and is in the tally with the command for it."""
    gc.set_threshold(20_000, 50)  # stores come and go by the thousand, and few of their objects are in cycles
    tally = Tally()
    try:
        run(tally)
        return tally
    except BrokenPromise as error:
        said = str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"seed {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    tally.violations.append(f"{said}\n    run it again: python -m {module} --first {seed} --seeds 1 --jobs 1{more}")
    return tally
