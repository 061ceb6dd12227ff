"""What the commands' options have in common, and how a command ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from perf import report
from perf.folders import TooLittleSpace
from perf.tables import plain
from perf.workload import Sizes, parse_bytes
from store import StoreError

SHORT_QUEUES = 200
WRONG, FAILED, INTERRUPTED, TERMINATED = 1, 3, 130, 143


def writable(path: Path | None) -> Path | None:
    """The --json option's file; a usage error when it cannot be written, said before the work and not after it."""
    try:
        # To open a pipe and close it again would end it for its reader.
        if path is not None and str(path) != "-" and (path.is_file() or path.is_dir() or not path.exists()):
            new = not path.exists()
            path.open("a").close()
            if new:
                path.unlink()
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from error
    return path


Where = Annotated[
    Path | None, typer.Option("--dir", help="make the run's folder here (default: the current directory)")
]
Json = Annotated[
    Path | None,
    typer.Option("--json", callback=writable, help='write the figures to this file ("-": standard output)'),
]
Seed = Annotated[int, typer.Option(min=0, help="the same seed gives the same messages")]
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


def run_app(app: typer.Typer, name: str) -> None:
    """Runs the command line. What the store or the system refuses is said in a sentence, with exit code 3; wrong
    results with 1. SIGTERM ends it as Ctrl-C does, so that folders are removed."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name=name)
    except report.WrongResult as error:
        _end(f"{type(error).__name__}: {error}", WRONG)
    except (StoreError, TooLittleSpace) as error:
        _end(f"{type(error).__name__}: {error}", FAILED)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"the system refused: {error.strerror or error}{where}", FAILED)
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        _end("interrupted", INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Once: a second one would interrupt the removal of the folders."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(TERMINATED)


def _end(sentence: str, code: int) -> None:
    report.messages_console().print(plain(sentence), style="red", highlight=False, soft_wrap=True)
    sys.exit(code)
