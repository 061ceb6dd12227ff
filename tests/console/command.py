"""What the tests of the console share: a call of the command, here or in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from stratalog.console.app import app

from ..store.helpers import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


class Shown(NamedTuple):
    """What a call gave."""

    exit_code: int
    output: str  # of both outputs
    errors: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines as JSON."""
        return [json.loads(line) for line in self.output.splitlines()]


def run(*arguments: object, given: bytes = b"", code: int | None = 0) -> Shown:
    """A call with a standard input; its exit code is this one, None for any."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)
    assert code is None or done.exit_code == code, done.output
    return Shown(done.exit_code, done.output, done.stderr)


def process(*arguments: object, output: Any = subprocess.PIPE, **environment: str) -> subprocess.Popen[bytes]:
    """A call in a process of its own, with pipes; its standard output may be a file."""
    return subprocess.Popen(
        [sys.executable, "-m", "stratalog.console", *map(str, arguments)], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=output, stderr=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip


def finish(child: subprocess.Popen[bytes], given: bytes = b"") -> tuple[int, bytes, bytes]:
    """(exit code, standard output, standard error) at its end."""
    output, errors = child.communicate(given, timeout=PATIENCE_S)
    return child.returncode, output, errors
