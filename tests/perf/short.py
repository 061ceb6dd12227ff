"""A command in its short form, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from stratalog.perf.commands.app import app
from stratalog.perf.report.record import Report, report_of


def figures_of(tmp_path: Path, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """The JSON of a short run; nothing may be left of its folder."""
    runs, out = tmp_path / "runs", tmp_path / "out.json"
    runs.mkdir(exist_ok=True)
    done = CliRunner().invoke(app, [*arguments, "--short", "--dir", str(runs), "--json", str(out)])
    assert done.exit_code == exit_code, (done.output, done.exception)
    assert list(runs.iterdir()) == []
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


def report_of_run(tmp_path: Path, *arguments: str, exit_code: int = 0) -> Report:
    """The report of a short run."""
    return report_of(figures_of(tmp_path, *arguments, exit_code=exit_code), "a short run")


def error_of(tmp_path: Path, *arguments: str) -> BaseException | None:
    """The error that ends a short run; None if none does."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    done = CliRunner().invoke(app, [*arguments, "--short", "--dir", str(tmp_path / "runs")])
    return done.exception
