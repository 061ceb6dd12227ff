"""What the commands' options have in common, and how a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perf import report
from perf.workload import Sizes, parse_bytes
from store import StoreError

SHORT_QUEUES = 200
WRONG, FAILED = 1, 3
Where = Annotated[
    Path | None, typer.Option("--dir", help="make the run's folder here (default: the current directory)")
]
Json = Annotated[
    Path | None, typer.Option("--json", help='write the figures to this file ("-": standard output)')
]
Seed = Annotated[int, typer.Option(help="the same seed gives the same messages")]
Short = Annotated[bool, typer.Option("--short", help="a tiny run, to see that everything works")]
Repeat = Annotated[int | None, typer.Option(min=1, help="medians over so many rounds")]


def either(short: bool, small: int, normal: int) -> int:
    """`small` in a short run, else `normal`."""
    return small if short else normal


def bytes_option(text: str | None, default: int) -> int:
    """A size option's bytes; a usage error when it is no size."""
    if text is None:
        return default
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def maybe_bytes(text: str | None) -> int | None:
    """A size option's bytes, None when it was not given."""
    return None if text is None else bytes_option(text, 0)


def sizes_option(text: str) -> Sizes:
    """The --sizes option; a usage error when it is none."""
    try:
        return Sizes.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def finish(
    figures: report.Figures, json: Path | None, show: Callable[[report.Figures, Console], None]
) -> None:
    """The tables (unless the JSON has the standard output), then the JSON."""
    if str(json) != "-":
        show(figures, report.console())
    report.write_json(json, figures)


def per_part(label: str) -> Callable[[], None]:
    """To be called after each part of a long measurement: a line on a terminal, nothing elsewhere."""
    console, parts = Console(stderr=True), [0]

    def tick() -> None:
        parts[0] += 1
        if console.is_terminal:
            console.print(f"{label}: part {parts[0]} done", end="\r")

    return tick


def run_app(app: typer.Typer, name: str) -> None:
    """Runs the command line. What the store refuses is said in its own sentence, with exit code 3; wrong
    results with 1."""
    try:
        app(prog_name=name)
    except (StoreError, report.WrongResult) as error:
        Console(stderr=True).print(f"{type(error).__name__}: {error}", style="red", markup=False)
        sys.exit(WRONG if isinstance(error, report.WrongResult) else FAILED)
