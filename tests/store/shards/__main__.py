"""`python -m tests.store.shards --states 100000`: power cuts at each step of bulk commits, from fresh seeds.

A failure prints its seed; `--seed` runs that round again.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.seeds import draw_seed

from .crashes import run_round


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.shards", description=__doc__)
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.seed is not None:
        print(run_round(given.seed, share=1.0), "states")
        return 0
    began, states, rounds = time.monotonic(), 0, 0
    while states < given.states:
        states += run_round(draw_seed(), share=1.0)
        rounds += 1
    spent = time.monotonic() - began
    print(f"{states:,} states of {rounds:,} rounds in {spent:,.0f} s: each commit done or not done, and once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
