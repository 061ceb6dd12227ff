"""What a command needs beyond the core of the package, and the sentence that says so where it is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

CONSOLE = ("rich", "typer", "psutil")  # the extra `console` in pyproject.toml
USAGE = 2  # the exit code of a command that was called in a wrong way


def need_console(command: str) -> None:
    """Look for the packages of the extra `console`. If one is missing, the process ends: one sentence on standard error
    says what to install, and the exit code is 2. `command` is its name in the sentence."""
    if missing := [name for name in CONSOLE if find_spec(name) is None]:
        install = "pip install 'stratalog[console]' (in a checkout: pip install -e '.[console]')"
        print(f"{command} needs the extra `console` (without {', '.join(missing)}): {install}", file=sys.stderr)
        raise SystemExit(USAGE)
