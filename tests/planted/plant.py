"""Planting a bug, and running the tests that have to see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ..checkout import CHANGING, copy_of_the_checkout

HANGS_S = 60.0  # a bug with `hangs` is found when its tests have run for so long ...
ENDS_S = 110.0  # ... and any other one never by that: only a machine that stands still takes so long
NOT_FINISHED = "not finished in time"


class Bug(NamedTuple):
    """A text of a source, another one in its place, and the tests that fail then, or, with `hangs`, do not end."""

    path: str
    before: str
    after: str
    tests: tuple[str, ...]
    hangs: bool = False


class Verdict(NamedTuple):
    """Whether the bug was found, how long that took, and the last lines of the tests' output."""

    found: bool
    seconds: float
    output: str


def plant(bug: Bug, tree: Path) -> None:
    """Put the bug into a copy. A text that is not there exactly once is an error: the bug has to be planted anew."""
    path = tree / bug.path
    text = path.read_text()
    if text.count(bug.before) != 1:
        raise LookupError(f"{bug.path} has this {text.count(bug.before)} times, and once is meant: {bug.before!r}")
    path.write_text(text.replace(bug.before, bug.after))


def run(tree: Path, tests: tuple[str, ...], within_s: float) -> Verdict:
    """Run the tests in a process of their own: found if one fails, or takes the process down."""
    # Plain assertions: to explain how two megabytes differ takes longer than the test.
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-rf", "--assert=plain", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", CHANGING: "yes"}
    environment.pop("PYTEST_ADDOPTS", None)
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verdict(False, time.monotonic() - began, NOT_FINISHED)
    if process.returncode > 1:
        raise RuntimeError(f"pytest ended with {process.returncode}: {output[-2000:]}")
    failed = [line for line in output.splitlines() if line.startswith("FAILED")]
    return Verdict(process.returncode != 0, time.monotonic() - began, " ".join(failed) or output[-1000:])


def try_bug(bug: Bug, folder: Path) -> Verdict:
    """Plant the bug in a fresh copy below `folder`, and run its tests."""
    with copy_of_the_checkout(folder / "tree") as tree:
        plant(bug, tree)
        verdict = run(tree, bug.tests, HANGS_S if bug.hangs else ENDS_S)
    return verdict._replace(found=verdict.found or (bug.hangs and verdict.output == NOT_FINISHED))
