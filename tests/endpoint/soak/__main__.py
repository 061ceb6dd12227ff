"""`python -m tests.endpoint.soak --deaths N`: exit code 1 on a violation."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from .ledger import Ledger, Violation
from .run import KINDS, run


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endpoint.soak", description=__doc__)
    parser.add_argument("--deaths", type=int, default=100, help="of each kind (default: 100)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of deaths (default: all)")
    parser.add_argument("--seed", type=int, help="of what is tried (default: a new one, printed)")
    parser.add_argument("--dir", type=Path, help="make the stores' folders here")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    for kind in given.kinds:
        began_s = time.monotonic()

        def tick(death: int, ledger: Ledger, kind: str = kind, began_s: float = began_s) -> None:
            print(f"{kind} {death}, {time.monotonic() - began_s:.0f} s: {ledger.line()}", flush=True)

        with tempfile.TemporaryDirectory(dir=given.dir) as folder:
            try:
                ledger = run(Path(folder), kind, given.deaths, seed, tick)
            except Violation as violation:
                print(f"VIOLATION {kind}: {violation}", flush=True)
                return 1
        print(f"{kind}: {given.deaths} deaths, no violation; {ledger.line()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
