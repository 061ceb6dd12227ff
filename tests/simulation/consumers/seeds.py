"""One seed's run, for processes that are started for many of them: they import it from here."""

from __future__ import annotations

import gc
import random
import traceback

from ..check import BrokenPromise
from .explore import Effort, Tally, draw_fault, explore

FAULTY = 3  # one seed in so many meets an error of the device


def try_seed(seed: int, effort: Effort | None = None) -> Tally:
    """One run; a violation is in the tally, with the command that replays it."""
    gc.set_threshold(20_000, 50)  # stores come and go by the thousand, and few of their objects are in cycles
    tally = Tally()
    faults = [draw_fault(random.Random(f"fault {seed}"))] if seed % FAULTY == FAULTY - 1 else []
    try:
        return explore(seed, effort=effort, tally=tally, faults=faults)
    except BrokenPromise as error:
        said = str(error)
    except Exception as error:  # a bug of any kind ends this run, and not the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"seed {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    again = f"python -m tests.simulation.consumers --first {seed} --seeds 1 --jobs 1"
    tally.violations.append(f"{said}\n    run it again: {again}")
    return tally
