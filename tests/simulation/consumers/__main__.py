"""The long form: `python -m tests.simulation.consumers --states 300000`.

Every seed is a run of its own. A violation is printed with its seed: `--first SEED --seeds 1` runs it again. The exit
code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from ..processes import outcomes, processor_s
from .explore import Tally
from .seeds import try_seed

MOST_SHOWN = 20
SAID_EVERY_S = 60.0


def explore_many(given: argparse.Namespace) -> Tally:
    """Until the seeds are through, or enough states were tried."""
    total, said_s = Tally(), time.monotonic()
    for tally in outcomes(try_seed, given.first, given.seeds, given.jobs):
        total.add(tally)
        for violation in tally.violations:
            print(violation, flush=True)
        if time.monotonic() - said_s > SAID_EVERY_S:
            said_s = time.monotonic()
            print(f"{total.states:,} states, {total.seeds:,} seeds, {len(total.violations)} violations", flush=True)
        if total.states >= given.states or len(total.violations) >= MOST_SHOWN:
            break
    return total


def show(total: Tally, took_s: float) -> None:
    """What was tried."""
    rows: list[tuple[str, int]] = [
        ("seeds (runs)", total.seeds), ("operations of the disk", total.operations),
        ("crash states, all different within a run", total.states), ("of them inside a recovery", total.in_recovery),
        ("left out, seen before", total.same),
        *((f"survivors: {name}", count) for name, count in sorted(total.manners.items())),
        *((f"crashed in: {name}", count) for name, count in sorted(total.doing.items())),
        *((f"in the runs: {name}", count) for name, count in sorted(total.reached.items())),
        ("states a second", round(total.states / took_s)),
        ("states a second of processor time", round(total.states / processor_s())),
        ("violations", len(total.violations)),
    ]  # fmt: skip
    for name, value in rows:
        print(f"{name:45}{value:>12,}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.consumers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000_000, help="runs at the most")
    parser.add_argument("--states", type=int, default=300_000, help="crash states to try")
    parser.add_argument("--first", type=int, default=random.SystemRandom().getrandbits(30), help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    print(f"seeds from {given.first}", flush=True)
    began = time.perf_counter()
    total = explore_many(given)
    show(total, time.perf_counter() - began)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
