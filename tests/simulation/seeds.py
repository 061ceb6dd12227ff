"""One seed's run, for processes that are started for many of them: they import it from here."""

from __future__ import annotations

import gc
import random

from .check import BrokenPromise
from .explore import Effort, Tally, draw_fault, explore

FAULTY = 4  # one seed in so many meets an error


def try_seed(seed: int) -> Tally:
    """One run; a violation is in the tally."""
    gc.set_threshold(20_000, 50)  # stores come and go by the thousand, and few of their objects are in cycles
    chance = random.Random(f"fault {seed}")
    faults = [draw_fault(chance)] if seed % FAULTY == FAULTY - 1 else []
    try:
        return explore(seed, effort=Effort(subsets=5, again=0.1), faults=faults)
    except BrokenPromise as error:
        return Tally(seeds=1, violations=[str(error)])
    except Exception as error:
        return Tally(seeds=1, violations=[f"seed {seed}: {type(error).__name__}: {error}"])
