"""`python -m tests.soak --minutes N`: exit code 1 on a violation, whose store is kept beside the run's folder."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from stratalog.perf.machine.folders import run_folder
from stratalog.perf.report.figures import console, messages_console, write_json

from . import run
from .plan import KINDS

SHORT_LIFE_S, LIFE_S = 0.4, 1.5
SHORT_UNTIL = ("acknowledged", "checked", "consumed")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for so long, and at least one life of each kind")
    parser.add_argument("--dir", type=Path, help="make the run's folder here (default: the current directory)")
    parser.add_argument("--json", type=Path, help='write the figures to this file ("-": standard output)')
    parser.add_argument("--seed", type=int, help="of what is tried (default: a new one, printed)")
    parser.add_argument("--short", action="store_true", help="a tiny run, to see that everything works")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of lives (default: all)")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    progress = messages_console()
    progress.print(f"seed {seed}", highlight=False)
    with run_folder(given.dir) as base, progress.status("soak") as status:
        tally = run.run(
            base,
            minutes=0 if given.short else given.minutes,
            seed=seed,
            kinds=given.kinds,
            until=SHORT_UNTIL if given.short else (),
            life_s=SHORT_LIFE_S if given.short else LIFE_S,
            tick=lambda tally: status.update(tally.line()),
        )
    figures = run.figures_of(tally)
    if str(given.json) != "-":
        run.show(figures, console())
    write_json(given.json, figures)
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
