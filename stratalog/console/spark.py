"""`stratalog spark NAME`: jobs on the data of stores, on Spark here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.progress import Progress

from ..perf.commands.options import Json
from ..perf.machine.folders import human_bytes
from ..perf.report import figures as report
from ..perf.report.figures import counted
from ..perf.report.tables import plain
from ..pipeline import borrowed_session, needs_spark
from ..pipeline.progress import unwrapped, watched
from .ends import DAMAGED, console, told
from .times import TIMES, time_ms_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Jobs on the data of stores, on Spark: `pip install '.[spark]'` in a checkout brings it.",
    no_args_is_help=True,
    add_completion=False,
)
Given = TypeVar("Given")
Folders = Annotated[list[Path], typer.Argument(help="folders of stores, or folders that have stores in them")]
Master = Annotated[
    str | None, typer.Option("--master", help="where Spark runs: local[*] (the default), or spark://host:7077")
]
Topic = Annotated[str | None, typer.Option("--topic", help="only these topics, with commas between")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"from this time on; {TIMES}")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help=f"before this time; {TIMES}")]


@contextmanager
def session(master: str | None) -> Iterator[SparkSession]:
    """A session with a progress bar on a terminal; errors of the store become sentences and exit codes."""
    with told():
        needs_spark()
        with unwrapped(), borrowed_session(master) as spark:
            errors = report.messages_console()
            if not errors.is_terminal:
                yield spark
                return
            with Progress(console=errors, transient=True) as bar:
                task = bar.add_task("tasks", total=None)
                with watched(spark, lambda done, total: bar.update(task, completed=done, total=total)):
                    yield spark


def wanted(topic: str | None, since: str | None, until: str | None) -> dict[str, Any]:
    """The given options of a read."""
    times = {"start_time": since, "end_time": until}
    given = {"topic": topic, **{name: None if text is None else str(time_ms_of(text)) for name, text in times.items()}}
    return {name: value for name, value in given.items() if value is not None}


def printed(json: Path | None, figures: dict[str, Any], lines: Callable[[Callable[[str], None]], None]) -> None:
    """Print figures as lines, and write them as JSON if wanted."""
    if str(json) != "-":
        out = console()
        lines(lambda text: out.print(plain(text), soft_wrap=True))
    report.write_json(json, figures)


@app.command("verify")
def verify_command(folders: Folders, master: Master = None, json: Json = None) -> None:
    """Check every checksum of some stores in parallel. It changes nothing."""
    with session(master) as spark:
        from ..pipeline.jobs import verify  # noqa: PLC0415  # it imports PySpark, an extra

        found = verify(spark, folders)

    def lines(line: Callable[[str], None]) -> None:
        for row in found.stores:
            held = f"{counted(row['messages'], 'message')}, {human_bytes(row['payload_bytes'])}"
            line(f"{row['store']}: {counted(row['segments'], 'segment')}, {held}, {row['damages']} damaged")
        for row in found.damages:
            line(f"{row['what']} in {row['file']} at byte {row['position']}")
        line("unharmed" if found.ok else f"damaged: {counted(len(found.damages), 'place')}")

    printed(json, {"ok": found.ok, **asdict(found)}, lines)
    if not found.ok:
        raise typer.Exit(DAMAGED)


@app.command("export")
def export_command(
    folders: Folders,
    to: Annotated[Path, typer.Option("--to", help="a new folder for the files")],
    format: Annotated[str, typer.Option("--format", help="parquet, json (lines) or csv")] = "parquet",
    columns: Annotated[str | None, typer.Option("--columns", help="only these columns, with commas between")] = None,
    topic: Topic = None, since: Since = None, until: Until = None, master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Write messages to files that other programs read. It changes no store."""
    options = wanted(topic, since, until) | ({} if columns is None else {"columns": columns})
    with session(master) as spark:
        from ..pipeline.jobs import export  # noqa: PLC0415  # it imports PySpark, an extra

        done = export(spark, folders, to, format, **options)
    held = f"{counted(done.messages, 'message')} in {counted(done.files, 'file')}, {human_bytes(done.size_bytes)}"
    printed(json, asdict(done), lambda line: line(f"{held}, in {to}"))


@app.command("load")
def load_command(
    files: Annotated[list[Path], typer.Argument(help="files, or folders of files")],
    to: Annotated[Path, typer.Option("--to", help="the store, or the folder of stores; made if there is none")],
    format: Annotated[str, typer.Option("--format", help="parquet, json (lines) or csv")] = "parquet",
    topic: Annotated[str | None, typer.Option("--topic", help="of all rows, if they have no column topic")] = None,
    queue: Annotated[int | None, typer.Option("--queue", help="of all rows, if they have no column queue_id")] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="of bytes in JSON and CSV: base64 or text")] = "base64",
    transaction: Annotated[
        str | None, typer.Option("--transaction", help="a name: a load that comes again under it changes nothing")
    ] = None,
    shards: Annotated[int | None, typer.Option("--shards", help="how many stores a new folder gets")] = None,
    master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Append the rows of files to a store: all of them, or none."""
    with session(master) as spark:
        from ..pipeline.jobs import load  # noqa: PLC0415  # it imports PySpark, an extra

        done = load(
            spark, files, to, format, topic=topic, queue_id=queue, encoding=encoding, transaction=transaction,
            shards=shards,
        )  # fmt: skip
    held = f"{counted(done.messages, 'message')}, {human_bytes(done.payload_bytes)}"
    printed(json, asdict(done), lambda line: line(f"{held}, in {to}"))


@app.command("reshard")
def reshard_command(
    folders: Folders,
    to: Annotated[Path, typer.Option("--to", help="a new folder")],
    shards: Annotated[int | None, typer.Option("--shards", help="how many stores it gets; without: it is one")] = None,
    lanes: Annotated[int | None, typer.Option("--lanes", help="of each new store")] = None,
    topic: Topic = None, since: Since = None, until: Until = None, master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Write the live messages of some stores to a new store, or to a new folder of stores. The old ones stay."""
    with session(master) as spark:
        from ..pipeline.jobs import reshard  # noqa: PLC0415  # it imports PySpark, an extra

        done = reshard(spark, folders, to, shards, lanes=lanes, **wanted(topic, since, until))
    held = f"{counted(done.messages, 'message')}, {human_bytes(done.payload_bytes)}"
    printed(json, asdict(done), lambda line: line(f"{held}, in {to}"))


@app.command("compact")
def compact_command(
    folders: Folders,
    segment_bytes: Annotated[
        int | None, typer.Option("--segment-bytes", help="about how large a new segment is; 1 GiB by default")
    ] = None,
    master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Rewrite closed stores in place: fewer and larger segments, without trimmed and deleted messages.

    Offsets, subscriptions and pending delays stay. A kill at any moment harms nothing.
    """
    with session(master) as spark:
        from ..pipeline.jobs import compact  # noqa: PLC0415  # it imports PySpark, an extra

        done = compact(spark, folders, segment_bytes=segment_bytes)

    def lines(line: Callable[[str], None]) -> None:
        for one in done:
            now = f"{counted(one.segments, 'segment')}, {human_bytes(one.size_bytes)}"
            before = f"{counted(one.segments_before, 'segment')}, {human_bytes(one.size_before_bytes)}"
            line(f"{one.store}: {now}; before, {before}; {counted(one.removed, 'message')} left out")

    printed(json, {"stores": [asdict(one) for one in done]}, lines)


@app.command("rebuild")
def rebuild_command(
    folders: Folders,
    footers: Annotated[bool, typer.Option(help="make lost footers again")] = True,
    delays: Annotated[bool, typer.Option(help="make the indexes of delayed messages again")] = True,
    master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Make lost footers and indexes of delayed messages of closed stores again. A kill at any moment harms nothing."""
    with session(master) as spark:
        from ..pipeline.jobs import rebuild  # noqa: PLC0415  # it imports PySpark, an extra

        done = rebuild(spark, folders, footers=footers, delays=delays)

    def lines(line: Callable[[str], None]) -> None:
        for one in done:
            line(f"{one.store}: {counted(one.footers, 'footer')} made again, {len(one.left)} left")
            for why in one.left:
                line(f"    {why}")
            for topic, count in sorted(one.delayed.items()):
                line(f"    {topic}: {counted(count, 'delayed message')} indexed")

    printed(json, {"stores": [asdict(one) for one in done]}, lines)
    if any(one.left for one in done):
        raise typer.Exit(DAMAGED)


@app.command("profile")
def profile_command(
    folders: Folders,
    html: Annotated[Path | None, typer.Option("--html", help="write a page with pictures to this file")] = None,
    topic: Topic = None, since: Since = None, until: Until = None, master: Master = None, json: Json = None,
) -> None:  # fmt: skip
    """Show rates, sizes, skew, keys and delays of topics and queues. No payload is read."""
    with session(master) as spark:
        from ..pipeline.jobs import page_of, profile  # noqa: PLC0415  # it imports PySpark, an extra

        found = profile(spark, folders, **wanted(topic, since, until))
        if html is not None:
            html.write_text(page_of(found))

    def lines(line: Callable[[str], None]) -> None:
        for one in found.topics:
            held = f"{counted(one.messages, 'message')}, {human_bytes(one.bytes)}, {counted(len(one.queues), 'queue')}"
            line(f"{one.topic}: {held}, skew {one.skew:.2f}, {one.keys:,} keys, {one.delayed:,} delayed")
            for name, count in sorted(one.lags.items()):
                line(f"    subscription {name}: {counted(count, 'message')} behind")

    printed(json, {"messages": found.messages, **asdict(found)}, lines)
