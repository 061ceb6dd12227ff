"""`python -m tests.planted`: each planted bug has to be found in time, and the same tests pass without it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ..checkout import copy_of_the_checkout
from .bugs import BUGS
from .plant import NOT_FINISHED, Verdict, run, try_bug

CLEAN_WITHIN_S = 600.0


def main() -> int:
    """The command; 1 if a bug was not found, or a test fails without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose name has this")
    parser.add_argument("--no-clean", action="store_true", help="leave out the tests on the sound code")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("N", "OF"),
                        help="each OF-th of those, from number N on (0: the first), for several runs")  # fmt: skip
    given = parser.parse_args()
    number, parts = given.part
    bugs = dict([(name, bug) for name, bug in BUGS.items() if given.only in name][number::parts])
    missed = []
    with tempfile.TemporaryDirectory(prefix="stratalog-planted-") as folder:
        if not given.no_clean:
            tests = tuple(sorted({test for bug in bugs.values() for test in bug.tests}))
            with copy_of_the_checkout(Path(folder) / "tree") as tree:
                clean = run(tree, tests, CLEAN_WITHIN_S)
            sound = not clean.found and clean.output != NOT_FINISHED
            print(f"without a bug: {'all pass' if sound else 'a test fails'} ({clean.seconds:.0f} s)", flush=True)
            if not sound:
                print(clean.output)
                return 1
        for name, bug in bugs.items():
            try:
                verdict = try_bug(bug, Path(folder))
            except (LookupError, RuntimeError) as error:  # the others are tried all the same
                verdict = Verdict(False, 0.0, f"cannot be planted: {error}")
            print(f"{'found' if verdict.found else 'MISSED'} in {verdict.seconds:5.1f} s: {name} ({bug.path}) "
                  f"{verdict.output[-300:].strip()}", flush=True)  # fmt: skip
            if not verdict.found:
                missed.append(name)
    print(f"{len(bugs) - len(missed)} of {len(bugs)} bugs found")
    return 1 if missed or not bugs else 0


if __name__ == "__main__":
    sys.exit(main())
