"""The console command `stratalog`: the commands that read. Those that write are in `changes` and `settled`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import typer.core
import typer.main
from rich.console import Console
from rich.progress import Progress

from .. import __version__
from ..perf.commands.json_option import JsonGroup
from ..perf.commands.options import Json
from ..perf.machine.folders import human_bytes
from ..perf.report import figures as report
from ..perf.report.figures import counted
from ..perf.report.tables import plain
from ..store import MessageStore, VerifyReport, inspect_folder, verify_folder
from . import inspected
from .changes import COMMANDS, Folder
from .ends import DAMAGED, EPILOG, console, told
from .files import format_of, new_file, result, write_json_lines, write_parquet
from .messages import (
    Wanted,
    ends_of,
    messages_of,
    messages_to_come,
    names_of,
    newest_of,
    reading,
    sizes_of,
    topic_row,
)
from .printed import lines_to
from .serve import serve_command
from .settled import TOPIC_COMMANDS
from .spark import app as spark_app
from .subscribed import subscription_line, subscription_row
from .times import TIMES, time_ms_of
from .top import top_command

BENCH = "bench"


class Group(JsonGroup):
    """The commands of `stratalog`. The measurements are loaded when they are asked for: that takes 0.2 s."""

    without_file = frozenset(
        {"cat", "tail", "export", "serve", "top", *(name for name, _ in (*COMMANDS, *TOPIC_COMMANDS))}
    )

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return [*super().list_commands(ctx), BENCH]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; None if there is none."""
        if cmd_name != BENCH:
            return super().get_command(ctx, cmd_name)
        from ..perf.commands.app import app as bench_app  # noqa: PLC0415  # see above

        around = typer.Typer(rich_markup_mode=None, add_completion=False)
        around.add_typer(bench_app, name=BENCH)
        return cast(typer.core.TyperGroup, typer.main.get_command(around)).commands[BENCH]


app = typer.Typer(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="stratalog: an embedded, durable message store.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
)
Topic = Annotated[str | None, typer.Argument(help="only this topic", metavar="TOPIC")]
QueueId = Annotated[int | None, typer.Argument(help="only this queue of the topic", metavar="QUEUE")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"begin at this time: {TIMES}")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help=f"end before this time: {TIMES}")]


def show_version(wanted: bool) -> None:
    """Print the installed version, and run no command."""
    if wanted:
        typer.echo(f"stratalog {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """stratalog: an embedded, durable message store."""


@app.command("cat")
def cat_command(
    folder: Folder,
    topic: Topic = None,
    queue_id: QueueId = None,
    begin: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="first offset of each queue")] = 0,
    count: Annotated[int | None, typer.Option("--count", min=0, metavar="N", help="at most N messages in all")] = None,
    since: Since = None,
    until: Until = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with each message as it becomes durable")
    ] = False,
    json: Json = None,
) -> None:
    """Print the messages of a store, queue by queue, in offset order. It changes nothing.

    If a program has the store open, all durable messages are printed.
    """
    if follow and until is not None:
        raise typer.BadParameter("give one of --follow and --until")
    wanted = Wanted(topic, queue_id, begin, ms_of(since), ms_of(until), count)
    with told(), lines_to(json) as lines:
        if follow:
            with MessageStore.open(folder, read_only=True) as store:
                lines.write(messages_to_come(store, wanted, {}, lines.flush))
            return
        with reading(folder) as store:
            lines.write(messages_of(store, names_of(store, topic, queue_id), wanted))


@app.command("tail")
def tail_command(
    folder: Folder,
    topic: Topic = None,
    queue_id: QueueId = None,
    count: Annotated[int, typer.Option("--number", "-n", min=0, metavar="N", help="the newest N messages in all")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with each message as it becomes durable")
    ] = False,
    json: Json = None,
) -> None:
    """Print the newest messages of a store, in the order of their times. It changes nothing."""
    wanted = Wanted(topic, queue_id)
    with told(), lines_to(json) as lines:
        if follow:
            with MessageStore.open(folder, read_only=True) as store:
                ends = ends_of(store, topic, queue_id)
                lines.write(newest_of(store, ends, count))
                lines.write(messages_to_come(store, wanted, ends, lines.flush))
            return
        with reading(folder) as store:
            names_of(store, topic, queue_id)  # an error if there is none
            lines.write(newest_of(store, ends_of(store, topic, queue_id), count))


@app.command("export")
def export_command(
    folder: Folder,
    topic: Topic = None,
    queue_id: QueueId = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="a new file; else standard output")] = None,
    format: Annotated[str | None, typer.Option("--format", help="json (lines) or parquet; else by the name")] = None,
    since: Since = None,
    until: Until = None,
    json: Json = None,
) -> None:
    """Write messages to a file that `import` and other programs read. It changes nothing.

    JSON lines are those of `cat --json`; Parquet needs pyarrow.
    """
    kind = format_of(format, to)
    to = None if to is None or str(to) == "-" else to
    if to is None and json is not None:
        raise typer.BadParameter("--json says what was exported; give --to FILE with it")
    wanted = Wanted(topic, queue_id, 0, ms_of(since), ms_of(until))
    with told():
        with reading(folder) as store:
            messages = messages_of(store, names_of(store, topic, queue_id), wanted)
            with new_file(to) as file:
                done = (write_parquet if kind == "parquet" else write_json_lines)(messages, file)
        if to is not None:
            result({"messages": done, "file": str(to)}, f"{counted(done, 'message')} in {to}", json)


def ms_of(text: str | None) -> int | None:
    """A time that may not be given."""
    return None if text is None else time_ms_of(text)


@app.command("topics")
def topics_command(
    folder: Folder,
    sizes: Annotated[bool, typer.Option("--bytes", help="and the bytes of their data: looks at each frame")] = False,
    json: Json = None,
) -> None:
    """List the topics of a store, each with its queues, messages and times. It changes nothing."""
    with told():
        with reading(folder) as store:
            rows = [topic_row(store, topic) for topic in store.topics()]
        if sizes:
            of_topic = sizes_of(folder)
            rows = [{**row, "bytes": of_topic.get(row["topic"], 0)} for row in rows]
        if str(json) != "-":
            for row in rows:
                times = " to ".join(inspected.time_text(row[name]) or "-" for name in ("first_ms", "last_ms"))
                held = f"{counted(row['queues'], 'queue')}, {counted(row['messages'], 'message')}"
                held += f", {human_bytes(row['bytes'])}" if sizes else ""
                typer.echo(f"{plain(row['topic'])}: {held}, {times}")
        report.write_json(json, {"topics": rows})


@app.command("subscriptions")
def subscriptions_command(
    folder: Folder,
    topic: Annotated[str | None, typer.Argument(help="only this topic", metavar="TOPIC")] = None,
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
            if not rows:
                typer.echo("no subscriptions")
        report.write_json(json, {"subscriptions": rows})


@app.command("inspect")
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


@app.command("verify")
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
    line(
        f"{counted(found.messages, 'message')} in {counted(found.frames, 'frame')}, {size}; "
        f"the store's own records and deleted messages count too"
    )
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


for _name, _command in (*COMMANDS, *TOPIC_COMMANDS):
    app.command(_name)(_command)
app.command("serve")(serve_command)
app.command("top")(top_command)
app.add_typer(spark_app, name="spark")
