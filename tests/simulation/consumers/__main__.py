"""The long form: `python -m tests.simulation.consumers --states 300000`.

Every seed is a run of its own; one in three meets an error of the device. A violation is printed with its seed:
`--first SEED --seeds 1` runs it again. The exit code is 1 if there was one.
"""

from __future__ import annotations

import sys

from rich.console import Console

from ..processes import parser_of, run_long_form
from .seeds import try_seed


def main() -> int:
    """The command."""
    given, console = parser_of("tests.simulation.consumers", __doc__, 300_000).parse_args(), Console()
    console.print(f"seeds from {given.first}")
    return run_long_form(try_seed, given, console)


if __name__ == "__main__":
    sys.exit(main())
