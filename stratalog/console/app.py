"""The console command `stratalog`: bench, cat, inspect, spark, subscriptions, topics, verify."""

from __future__ import annotations

import sys
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
from ..store import MessageStore, VerifyReport, inspect_folder, verify_folder
from . import inspected
from .ends import DAMAGED, EPILOG, console, told
from .messages import messages_of, messages_to_come, names_of, reading, time_ms_of, topic_row
from .printed import json_of, line_of
from .spark import app as spark_app
from .subscribed import subscription_line, subscription_row

app = typer.Typer(
    help="stratalog: an embedded, durable message store.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(bench_app, name="bench", epilog=EPILOG)
app.add_typer(spark_app, name="spark", epilog=EPILOG)
Folder = Annotated[Path, typer.Argument(help="the store's folder")]


def show_version(wanted: bool) -> None:
    """Print the installed version, and run no command."""
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


@app.command("cat", epilog=EPILOG)
def cat_command(
    folder: Folder,
    topic: Annotated[str | None, typer.Argument(help="only this topic")] = None,
    queue_id: Annotated[int | None, typer.Argument(help="only this queue of the topic", metavar="QUEUE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per line")] = False,
    begin: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="first offset of each queue")] = 0,
    count: Annotated[int | None, typer.Option("--count", min=0, metavar="N", help="at most N messages in all")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="begin at this time: ms since the epoch, or ISO 8601")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with each message as it becomes durable")
    ] = False,
) -> None:
    """Print the messages of a store, queue by queue, in offset order. It changes nothing.

    If a program has the store open, all durable messages are printed.
    """
    since_ms = None if since is None else time_ms_of(since)
    written = json_of if as_json else line_of
    with told():
        if follow:
            with MessageStore.open(folder, read_only=True) as store:
                for message in messages_to_come(store, (topic, queue_id), begin, since_ms, count):
                    sys.stdout.write(f"{written(message)}\n")
            return
        with reading(folder) as store:
            for message in messages_of(store, names_of(store, topic, queue_id), begin, since_ms, count):
                sys.stdout.write(f"{written(message)}\n")


@app.command("topics", epilog=EPILOG)
def topics_command(folder: Folder, json: Json = None) -> None:
    """List the topics of a store, each with its queues, messages and times. It changes nothing."""
    with told():
        with reading(folder) as store:
            rows = [topic_row(store, topic) for topic in store.topics()]
        if str(json) != "-":
            for row in rows:
                times = " to ".join(inspected.time_text(row[name]) or "-" for name in ("first_ms", "last_ms"))
                held = f"{counted(row['queues'], 'queue')}, {counted(row['messages'], 'message')}"
                typer.echo(f"{plain(row['topic'])}: {held}, {times}")
        report.write_json(json, {"topics": rows})


@app.command("subscriptions", epilog=EPILOG)
def subscriptions_command(
    folder: Folder,
    topic: Annotated[str | None, typer.Argument(help="only this topic")] = None,
    json: Json = None,
) -> None:
    """List the subscriptions of a store, each with its backlog and settings. It changes nothing.

    If a program has the store open, all durable messages count; those that its consumers have count as ready.
    """
    with told():
        with reading(folder) as store:
            rows = [subscription_row(one) for one in store.subscriptions(topic)]
            if topic is not None and not rows:
                names_of(store, topic, None)  # an error if there is no such topic
        if str(json) != "-":
            for row in rows:
                typer.echo(subscription_line(row))
        report.write_json(json, {"subscriptions": rows})


@app.command("inspect", epilog=EPILOG)
def inspect_command(
    folder: Folder,
    everything: Annotated[bool, typer.Option("--all", help="all rows, not only the first 20")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="show the memory plan of a store on this machine")] = False,
    json: Json = None,
) -> None:
    """Describe a store: the verdict, segments, queues, subscriptions, delayed messages. It changes nothing."""
    with told():
        figures = inspect_folder(folder)
        if str(json) != "-":
            inspected.show(folder, figures, console(), everything=everything, plan=plan)
        report.write_json(json, figures)
    if figures["problems"]:
        raise typer.Exit(DAMAGED)


@app.command("verify", epilog=EPILOG)
def verify_command(folder: Folder, json: Json = None) -> None:
    """Read every frame of a store and check every checksum. It changes nothing.

    If a program has the store open, the sealed and the durable part is checked.
    """
    with told():
        found = verify_watched(folder, report.messages_console())
        if str(json) != "-":
            show_report(found, console())
        report.write_json(json, report_figures(found))
    if not found.ok:
        raise typer.Exit(DAMAGED)


def verify_watched(folder: Path, console: Console) -> VerifyReport:
    """Check a store, with a progress bar on a terminal."""
    if not console.is_terminal:
        return verify_folder(folder)
    with Progress(console=console) as bar:
        task = bar.add_task("verify", total=None)
        return verify_folder(folder, lambda done, total: bar.update(task, completed=done, total=total))


def report_figures(found: VerifyReport) -> report.Figures:
    """The findings of a check, ready for JSON."""
    return {
        "ok": found.ok,
        "segments": found.segments,
        "frames": found.frames,
        "messages": found.messages,
        "bytes": found.bytes,
        "torn_bytes": found.torn_bytes,
        "is_live": found.is_live,
        "damages": [asdict(place) for place in found.places],
        "remarks": found.remarks,
    }


def show_report(found: VerifyReport, console: Console) -> None:
    """Print the findings of a check; the verdict is the last line."""

    def line(text: str, style: str = "") -> None:
        console.print(plain(text), style=style, soft_wrap=True)

    size = human_bytes(found.bytes)
    line(f"{counted(found.messages, 'message')} in {counted(found.frames, 'frame')}, {size}")
    if found.is_live:
        line("a program has the store open: what is sealed and what is durable was checked")
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
