"""The long form: `python -m tests.simulation --seeds 2000 --states 1000000`.

Every seed is a run of its own; one in four meets an error of the device. A violation is printed with its seed:
`--first SEED --seeds 1` runs it again. The exit code is 1 if there was one. `--without relative,repair` leaves parts of
the schedule out.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .explore import Tally
from .flips import flip_everything
from .processes import outcomes, processor_s
from .seeds import try_seed
from .shape import PARTS

MOST_SHOWN = 20


def explore_many(given: argparse.Namespace, console: Console) -> Tally:
    """Until the seeds are through, or enough states were tried."""
    total = Tally()
    try_one = partial(try_seed, parts=PARTS - set(given.without))
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("crash states", total=given.states, counts="")
        for tally in outcomes(try_one, given.first, given.seeds, given.jobs):
            total.add(tally)
            counts = f"{total.states:,} states, {total.seeds:,} seeds, {len(total.violations)} violations"
            progress.update(task, completed=total.states, counts=counts)
            for violation in tally.violations:
                console.print(violation, soft_wrap=True)
            if total.states >= given.states or len(total.violations) >= MOST_SHOWN:
                break
    return total


def show(total: Tally, took_s: float, jobs: int, console: Console) -> None:
    """What was tried."""
    table = Table(title="crashes and faults tried", show_header=False)
    rows: list[tuple[str, object]] = [
        ("seeds (runs)", total.seeds), ("messages", total.messages), ("operations of the disk", total.operations),
        ("crash states, all different within a run", total.states), ("of them inside a recovery", total.in_recovery),
        ("recovered twice more", total.again), ("left out, seen before", total.same),
        *((f"survivors: {name}", count) for name, count in sorted(total.manners.items())),
        *((f"crashed before: {name}", count) for name, count in sorted(total.kinds.items())),
        *((f"part: {name}", count) for name, count in sorted(total.parts.items())),
        *((f"injected: {name}", count) for name, count in sorted(total.faults.items())),
        *((f"the store said: {name}", count) for name, count in sorted(total.outcomes.items())),
        ("states a second and process", round(total.states / took_s / jobs)),
        ("states a second of processor time", round(total.states / processor_s())),
        ("violations", len(total.violations)),
    ]  # fmt: skip
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    console.print(table)


def show_flips(given: argparse.Namespace, console: Console) -> bool:
    """Flip every bit; True if all were reported or harmless."""
    names = ("part", "bits", "reported", "naming another file", "harmless", "cut", "wrong")
    table = Table(*names, title="flipped bits")
    wrong = 0
    for part, row in flip_everything(given.first, every=given.every, console=console).items():
        wrong += len(row.wrong)
        counts = (row.bits, row.reported, row.elsewhere, row.harmless, row.cut, len(row.wrong))
        table.add_row(part, *(f"{count:,}" for count in counts))
        for place in row.wrong:
            console.print(place, soft_wrap=True)
    console.print(table)
    return wrong == 0


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = set(names) - PARTS
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}")
    return names


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("crashes", "flips"), default="crashes")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="runs at the most")
    parser.add_argument("--states", type=int, default=1_000_000, help="crash states to try")
    parser.add_argument("--first", type=int, default=random.SystemRandom().getrandbits(30), help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--without", type=_parts, default=(), help=f"parts to leave out: {','.join(sorted(PARTS))}")
    parser.add_argument("--every", type=int, default=1, help="flips: every how manieth bit")
    given = parser.parse_args()
    console = Console()
    console.print(f"seeds from {given.first}")
    if given.what == "flips":
        return 0 if show_flips(given, console) else 1
    began = time.perf_counter()
    total = explore_many(given, console)
    show(total, time.perf_counter() - began, given.jobs, console)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
