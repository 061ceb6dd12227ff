"""The console command `stratalog`: bench, inspect, verify."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from ..perf.commands.app import app as bench_app
from ..perf.commands.end import run_app
from ..perf.commands.options import Json
from ..perf.machine.folders import human_bytes
from ..perf.report import figures as report
from ..perf.report.figures import counted
from ..perf.report.tables import plain
from ..store import StoreCorrupt, StoreError, VerifyReport, inspect_folder, verify_folder
from . import inspected

DAMAGED, NO_STORE = 1, 2
app = typer.Typer(
    help="stratalog: an embedded, durable message store.", no_args_is_help=True, add_completion=False
)
app.add_typer(bench_app, name="bench")
Folder = Annotated[Path, typer.Argument(help="the store's folder")]


def show_version(wanted: bool) -> None:
    """The installed version, and no command."""
    if wanted:
        try:
            typer.echo(f"stratalog {version('stratalog')}")
        except PackageNotFoundError:
            typer.echo("stratalog, not installed")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """stratalog: an embedded, durable message store."""


def complain(error: StoreError) -> typer.Exit:
    """The error's sentence on standard error, and the exit code: 1 is damage, 2 is no store."""
    report.messages_console().print(plain(str(error)), style="red", highlight=False, soft_wrap=True)
    return typer.Exit(DAMAGED if isinstance(error, StoreCorrupt) else NO_STORE)


@app.command("inspect")
def inspect_command(
    folder: Folder,
    everything: Annotated[bool, typer.Option("--all", help="show all queues")] = False,
    json: Json = None,
) -> None:
    """What a store's folder holds: segments and queues. Reads only; exit code 1 is damaged, 2 no store."""
    try:
        figures = inspect_folder(folder)
    except StoreError as error:
        raise complain(error) from error
    if str(json) != "-":
        inspected.show(folder, figures, report.console(), everything=everything)
    report.write_json(json, figures)
    if figures["problems"]:
        raise typer.Exit(DAMAGED)


@app.command("verify")
def verify_command(folder: Folder, json: Json = None) -> None:
    """Reads every frame and checks every checksum: exit code 0 is unharmed, 1 damaged, 2 no store."""
    try:
        found = verify_watched(folder, report.messages_console())
    except StoreError as error:
        raise complain(error) from error
    if str(json) != "-":
        show_report(found, report.console())
    report.write_json(json, report_figures(found))
    if not found.ok:
        raise typer.Exit(DAMAGED)


def verify_watched(folder: Path, console: Console) -> VerifyReport:
    """The check, with a progress bar on a terminal."""
    if not console.is_terminal:
        return verify_folder(folder)
    with Progress(console=console) as bar:
        task = bar.add_task("verify", total=None)
        return verify_folder(folder, lambda done, total: bar.update(task, completed=done, total=total))


def report_figures(found: VerifyReport) -> report.Figures:
    """What a check found, ready for JSON."""
    return {
        "ok": found.ok,
        "segments": found.segments,
        "frames": found.frames,
        "messages": found.messages,
        "bytes": found.bytes,
        "torn_bytes": found.torn_bytes,
        "damages": [asdict(place) for place in found.places],
        "remarks": found.remarks,
    }


def show_report(found: VerifyReport, console: Console) -> None:
    """What a check found, in lines; the verdict is the last one."""

    def line(text: str, style: str = "") -> None:
        console.print(plain(text), style=style, soft_wrap=True)

    size = human_bytes(found.bytes)
    line(f"{counted(found.messages, 'message')} in {counted(found.frames, 'frame')}, {size}")
    if found.torn_bytes:
        line(f"harmless: {found.torn_bytes:,} bytes behind the end of the log, which nobody acknowledged", "yellow")
    for remark in found.remarks:
        line(f"harmless: {remark}", "yellow")
    for damage in found.damages:
        line(damage, "red")
    if found.ok:
        line("unharmed", "green")
    else:
        line(f"damaged: {counted(len(found.places), 'place')}", "bold red")


def main() -> None:
    """Entry point of the console command."""
    run_app(app, "stratalog")
