"""The long form: `python -m tests.simulation --seeds 2000 --states 1000000`.

Every seed is a run of its own; one in four meets an error of the device. A violation is printed with its seed:
`--first SEED --seeds 1` runs it again. The exit code is 1 if there was one. `--without relative,repair` leaves parts of
the schedule out.

`python -m tests.simulation transactions --states 100000` tries crashes only while a transaction is under way, in stores
of 1 and of 4 lanes, with acknowledgements, message ids, and readers beside.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from rich.console import Console
from rich.table import Table

from . import transactions
from .flips import flip_everything
from .processes import parser_of, run_long_form
from .seeds import try_seed
from .shape import PARTS


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
    parser = parser_of("tests.simulation", __doc__, 1_000_000)
    parser.add_argument("what", nargs="?", choices=("crashes", "flips", "transactions"), default="crashes")
    parser.add_argument("--without", type=_parts, default=(), help=f"parts to leave out: {','.join(sorted(PARTS))}")
    parser.add_argument("--every", type=int, default=1, help="flips: every how manieth bit")
    given = parser.parse_args()
    console = Console()
    console.print(f"seeds from {given.first}")
    if given.what == "flips":
        return 0 if show_flips(given, console) else 1
    if given.what == "transactions":
        return run_long_form(transactions.try_seed, given, console)
    return run_long_form(partial(try_seed, parts=PARTS - set(given.without)), given, console)


if __name__ == "__main__":
    sys.exit(main())
