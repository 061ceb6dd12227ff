"""One seed's run, for processes that are started for many of them: they import it from here."""

from __future__ import annotations

import random

from stratalog.store.testing import KINDS

from ..explore import draw_fault
from ..seeds import tried
from ..tally import Tally
from .explore import explore

FAULTY = 3  # one seed in so many meets an error of the device
FAR = 60  # calls, until it does


def try_seed(seed: int) -> Tally:
    """One run; a violation is in the tally, with the command that replays it."""
    faulty = seed % FAULTY == FAULTY - 1
    faults = [draw_fault(random.Random(f"fault {seed}"), KINDS, FAR)] if faulty else []

    def run(tally: Tally) -> None:
        explore(seed, tally=tally, faults=faults)

    return tried(run, seed, "tests.simulation.consumers")
