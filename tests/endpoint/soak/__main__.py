"""`python -m tests.endpoint.soak --deaths N`: exit code 1 on a violation."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..node_package import installed
from .ledger import Ledger, Violation
from .run import KINDS, Kind, run


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endpoint.soak", description=__doc__)
    parser.add_argument("--deaths", type=int, default=100, help="of each kind (default: 100)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of deaths (default: all)")
    parser.add_argument(
        "--client", choices=("python", "node"), default="python", help="whose clients (default: python)"
    )
    parser.add_argument("--seed", type=int, help="of what is tried (default: a new one, printed)")
    parser.add_argument("--dir", type=Path, help="make the stores' folders here")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="node client ") as made:
        node = Path(made) if given.client == "node" else None
        if node is not None and (reason := installed(node)):
            print(f"skipped: {reason}")
            return 0
        return soak(given.kinds, given.deaths, seed, given.dir, node)


def soak(kinds: Sequence[Kind], deaths: int, seed: int, parent: Path | None, node: Path | None) -> int:
    """A run of each kind; the exit code."""
    for kind in kinds:
        began_s = time.monotonic()

        def tick(death: int, ledger: Ledger, kind: str = kind, began_s: float = began_s) -> None:
            print(f"{kind} {death}, {time.monotonic() - began_s:.0f} s: {ledger.line()}", flush=True)

        with tempfile.TemporaryDirectory(dir=parent) as folder:
            try:
                ledger = run(Path(folder), kind, deaths, seed, tick, node)
            except Violation as violation:
                print(f"VIOLATION {kind}: {violation}", flush=True)
                return 1
        print(f"{kind}: {deaths} deaths, no violation; {ledger.line()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
