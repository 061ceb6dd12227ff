"""Environments of their own, with what only a release needs."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # of the caller's environment, which must not show in ours


class CommandFailed(RuntimeError):
    """A command that has to succeed did not; its output is the text."""


def run(*command: str | Path, within: Path = ROOT, show: bool = False) -> str:
    """Run a command with nothing on its standard input. What it prints is the result, or shown at once.

    Raises CommandFailed if its exit code is not 0.
    """
    sys.stdout.flush()  # what was said before comes before
    given = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    done = subprocess.run(
        [str(part) for part in command], cwd=within, env=given, stdin=subprocess.DEVNULL, text=True, check=False,
        stdout=None if show else subprocess.PIPE, stderr=None if show else subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise CommandFailed(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout or ''}")
    return done.stdout or ""


class Environment:
    """A new virtual environment of this interpreter, in a folder. It has no pip: this interpreter's installs into it,
    as making one takes longer than all else."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        self._pip = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "--no-input")

    def install(self, *arguments: str | Path) -> None:
        """Install with pip."""
        run(*self._pip, "install", "-q", "--no-compile", *arguments)

    def installed(self) -> dict[str, str]:
        """Name -> version of each distribution, those that an environment begins with left out."""
        lines = run(*self._pip, "list", "--format=freeze").splitlines()
        found = dict(line.split("==", 1) for line in lines if "==" in line)
        return {name: version for name, version in found.items() if name not in ("pip", "setuptools")}


def interpreter() -> str:
    """The interpreter as a name for people."""
    return f"CPython {sys.version.split()[0]}"
