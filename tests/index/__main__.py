"""`python -m tests.index --seconds 60`: the stress of the purgatory, for as long as is asked for, in rounds."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from stratalog.perf.machine.usage import cpu_seconds, resident_bytes

from .stress import Stress


def main() -> int:
    """The command; an AssertionError if an operation has not ended exactly once, or something is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.index", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for so long")
    parser.add_argument("--operations", type=int, default=200_000, help="of a round")
    parser.add_argument("--threads", type=int, default=8, help="that complete")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(24), help="of the first round")
    given = parser.parse_args()
    logging.getLogger("stratalog").setLevel(logging.CRITICAL)  # some operations raise on purpose
    until_s, seed, total, cpu = time.monotonic() + given.seconds, given.seed, 0, cpu_seconds()
    while time.monotonic() < until_s:
        stress = Stress(seed, given.threads, given.operations, until_s)
        stress.run()
        total += stress.made
        print(f"seed {seed}: {stress.made:,} operations ended once each, {stress.expired:,} by time; resident "
              f"{resident_bytes() / 1e6:.1f} MB", flush=True)  # fmt: skip
        seed += 1
    print(f"{total:,} operations, {(cpu_seconds() - cpu) / total * 1e6:.1f} us of processor time each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
