"""The console command `stratalog`: bench, inspect, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.tree import Tree

from perf import report
from perf.bench import app as bench_app
from perf.options import Json, run_app
from store import StoreCorrupt, StoreError, inspect_folder, verify_folder

DAMAGED, NO_STORE = 1, 2
app = typer.Typer(
    help="stratalog: an embedded, durable message store.", no_args_is_help=True, add_completion=False
)
app.add_typer(bench_app, name="bench")
Folder = Annotated[Path, typer.Argument(help="the store's folder")]


def complain(error: StoreError) -> typer.Exit:
    """The error's sentence on standard error, and the exit code: 1 is damage, 2 is no store."""
    Console(stderr=True).print(str(error), style="red", markup=False)
    return typer.Exit(DAMAGED if isinstance(error, StoreCorrupt) else NO_STORE)


def tree_of(label: str, value: Any) -> Tree:
    """Nested dicts and lists as a tree of names and figures."""
    tree = Tree(label)
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in entries:
        if isinstance(inner, (dict, list)):
            tree.add(tree_of(str(name), inner))
        else:
            tree.add(f"{name}: {report.figure(inner)}")
    return tree


@app.command("inspect")
def inspect_command(folder: Folder, json: Json = None) -> None:
    """What a store's folder holds: segments, topics, queues. Reads only; exit code 2 when it is no store."""
    try:
        figures = inspect_folder(folder)
    except StoreError as error:
        raise complain(error) from error
    if str(json) != "-":
        report.console().print(tree_of(str(folder), figures))
    report.write_json(json, figures)


@app.command("verify")
def verify_command(folder: Folder, json: Json = None) -> None:
    """Reads every frame and checks every checksum: exit code 0 is unharmed, 1 damaged, 2 no store."""
    console = report.console()
    try:
        if console.is_terminal and str(json) != "-":
            with Progress(console=console) as bar:
                task = bar.add_task("verify", total=None)
                found = verify_folder(
                    folder, lambda done, total: bar.update(task, completed=done, total=total)
                )
        else:
            found = verify_folder(folder)
    except StoreError as error:
        raise complain(error) from error
    figures = {
        "ok": found.ok,
        "frames": found.frames,
        "messages": found.messages,
        "bytes": found.bytes,
        "damages": found.damages,
        "remarks": found.remarks,
    }
    if str(json) != "-":
        console.print(
            f"{found.messages:,} messages in {found.frames:,} frames, {report.human_bytes(found.bytes)}"
        )
        for remark in found.remarks:
            console.print(f"harmless: {remark}", style="yellow", markup=False)
        for damage in found.damages:
            console.print(damage, style="red", markup=False)
        console.print(
            "unharmed" if found.ok else f"damaged: {len(found.damages)} places",
            style="green" if found.ok else "bold red",
        )
    report.write_json(json, figures)
    if not found.ok:
        raise typer.Exit(DAMAGED)


def main() -> None:
    """Entry point of the console command."""
    run_app(app, "stratalog")
