"""The commands that write to a store: append, import, repair, trim, delete-topic, seek, delete-subscription."""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..perf.commands.options import Json
from ..perf.report.figures import counted
from ..perf.report.tables import plain
from ..store import (
    Commit,
    InvalidMessage,
    Loss,
    MessageStore,
    Shard,
    ShardWriter,
    StoreCorrupt,
    StoreError,
    StoreReader,
    Subscription,
    SubscriptionInfo,
    abort_shards,
    commit_shards,
)
from .appended import ROWS, Appending
from .ends import NOT_THERE, complain, told
from .files import format_of, result, rows_of_json_lines, rows_of_parquet, stage
from .messages import names_of
from .rows import MOST_QUEUE_ID, Defaults
from .times import DURATIONS, TIMES, duration_ms_of, time_ms_of


def path_of(text: str) -> Path:
    """A path that was given. Raises typer.BadParameter for an empty one, which would be the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty; the current folder is .")
    return Path(text)


Folder = Annotated[Path, typer.Argument(help="the store's folder", metavar="DIR", parser=path_of)]
Queue = Annotated[int | None, typer.Option("--queue", min=0, max=MOST_QUEUE_ID, help="the queue; 0 by default")]
ATTACH_MS = 30_000


@contextmanager
def writing(folder: Path) -> Iterator[MessageStore]:
    """A store that exists, opened to be changed. Raises StoreUnusable, StoreLocked, StoreCorrupt."""
    with suppress(StoreCorrupt):  # what an opening that writes says of it is the better sentence
        StoreReader.open(folder).close()
    with MessageStore.open(folder) as store:
        yield store


def make_if_none(folder: Path) -> None:
    """Make a store in a folder that is new or empty, and say so. Raises StoreError."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        MessageStore.open(folder).close()
        typer.echo(f"a new store was made in {plain(str(folder))}", err=True)


def defaults_of(topic: str | None, queue: int | None, key: str | None = None, delay: str | None = None) -> Defaults:
    """The values of rows without their own."""
    key_bytes = None if key is None else key.encode(errors="surrogateescape")
    return Defaults(topic, queue, key_bytes, None if delay is None else duration_ms_of(delay))


def append_command(
    folder: Folder,
    topic: Annotated[str | None, typer.Option("--topic", help="the topic; JSON lines may have their own")] = None,
    queue: Queue = None,
    key: Annotated[str | None, typer.Option("--key", help="the key; JSON lines may have their own")] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help=f"deliver later: {DURATIONS}")] = None,
    format: Annotated[
        str, typer.Option("--format", help="text: a line is a message; json: a JSON object a line, as `cat --json`")
    ] = "text",
    json: Json = None,
) -> None:
    """Append the lines of the standard input as messages, as they come. A new folder becomes a store."""
    if format not in ROWS:
        raise typer.BadParameter(f"a format is {' or '.join(ROWS)}, not {format!r}")
    if format == "text" and topic is None:
        raise typer.BadParameter("give --topic: a line of text names none")
    defaults = defaults_of(topic, queue, key, delay)
    with told():
        make_if_none(folder)
        with writing(folder) as store:
            appending = Appending(store)
            appending.take(standard_input(), ROWS[format], defaults)
        result({"messages": appending.done}, f"{counted(appending.done, 'message')} appended", json)


def import_command(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="files of messages; - is the standard input, of JSON lines")],
    format: Annotated[str | None, typer.Option("--format", help="json (lines) or parquet; else by the name")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="of rows that have none")] = None,
    queue: Queue = None,
    transaction: Annotated[
        str | None, typer.Option("--transaction", help="a name: an import that comes again under it changes nothing")
    ] = None,
    json: Json = None,
) -> None:
    """Append the messages of files, as `export` writes them: all of them at once, or none. They get new offsets and
    times. It works beside a program that has the store open; a new folder becomes a store."""
    defaults = defaults_of(topic, queue)
    formats = [format_of(format, file) for file in files]
    missing = [file for file in files if str(file) != "-" and not file.is_file() and not file.is_fifo()]
    if missing:
        raise typer.BadParameter(f"there is no file {missing[0]}")
    with told():
        make_if_none(folder)
        with ShardWriter(folder, transaction=transaction or "") as writer:
            for file, kind in zip(files, formats, strict=True):
                take_file(writer, file, kind, defaults)
            name = transaction or f"import-{secrets.token_hex(8)}"
            done = commit(folder, writer.finish(), name, keep=transaction is not None)
        figures = {"messages": done.rows, "is_new": done.is_new, "is_attached": done.is_attached}
        sentence = f"{counted(done.rows, 'message')} imported"
        if not done.is_new:
            sentence = f"the transaction {transaction!r} was imported before; nothing was changed"
        elif not done.is_attached:
            sentence += "; they are durable, and appear when the program that has the store open has taken them"
        result(figures, sentence, json)


def commit(folder: Path, shards: tuple[Shard, ...], name: str, *, keep: bool) -> Commit:
    """Make shards a part of the store; those that are not become nothing. Raises StoreError."""
    try:
        return commit_shards(folder, shards, name=name, keep=keep, wait_ms=ATTACH_MS)
    except StoreError:
        with suppress(StoreError):
            abort_shards(folder, shards)  # what may be durable stays
        raise


def standard_input() -> io.BufferedReader:
    """The standard input; a closed one is empty."""
    return io.BufferedReader(io.BytesIO()) if sys.stdin is None else cast(io.BufferedReader, sys.stdin.buffer)


def take_file(writer: ShardWriter, file: Path, kind: str, defaults: Defaults) -> None:
    """Write the rows of a file to shards. Raises InvalidMessage, typer.Exit."""
    try:
        if kind == "parquet":
            stage(writer, rows_of_parquet(file, defaults), what=f"{file}: row")
        elif str(file) == "-":
            stage(writer, rows_of_json_lines(standard_input(), defaults), what="line")
        else:
            with file.open("rb") as stream:
                stage(writer, rows_of_json_lines(stream, defaults), what=f"{file}: line")
    except InvalidMessage as error:
        raise InvalidMessage(f"{file}: {error}; nothing was imported") from None


def repair_command(folder: Folder, json: Json = None) -> None:
    """Open a damaged store and set the damage aside: what was damaged is copied to the folder `quarantine`."""
    with told():
        with suppress(StoreCorrupt):
            StoreReader.open(folder).close()  # else a folder without a store would become one
        with MessageStore.open(folder, repair=True) as store:
            losses = list(store.losses)
        lines = [loss_line(loss) for loss in losses] or ["nothing was damaged that an opening refuses"]
        result({"losses": [loss._asdict() for loss in losses]}, "\n".join(lines), json)


def loss_line(loss: Loss) -> str:
    """A place that a repair gave up."""
    lost = "an unknown number of messages" if loss.messages is None else counted(loss.messages, "message")
    where = f", copied to {loss.quarantined_to}" if loss.quarantined_to else ""
    again = "; acknowledged offsets may be given again" if loss.offsets_may_repeat else ""
    return plain(f"{loss.file} at byte {loss.position}: {loss.size_bytes:,} bytes{where}; {lost} lost{again}")


def trim_command(
    folder: Folder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    queue_id: Annotated[int | None, typer.Argument(help="only this queue", metavar="QUEUE")] = None,
    before: Annotated[
        int | None, typer.Option("--before", min=0, metavar="OFFSET", help="the first offset that stays")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help=f"older than this; {TIMES}")] = None,
    json: Json = None,
) -> None:
    """Remove the messages of a topic before an offset, or before a time, for good."""
    if (before is None) == (until is None):
        raise typer.BadParameter("give one of --before OFFSET and --until TIME")
    until_ms = None if until is None else time_ms_of(until)
    with told(), writing(folder) as store:
        rows, lines = list[dict[str, Any]](), list[str]()
        for name in names_of(store, topic, queue_id):
            first, end = store.queue_bounds(*name)
            if until_ms is not None:
                keep = store.offset_at(*name, until_ms)
                keep = keep if keep > first else 0  # else newer messages that live on as copies would go as well
            else:
                keep = before or 0
                keep = keep if queue_id is not None else min(keep, end)
            now = store.trim(*name, before_offset=keep)
            removed = max(0, now - first)
            rows.append({"topic": topic, "queue": name[1], "removed": removed, "first": now})
            lines.append(f"{plain(topic)}/{name[1]}: {counted(removed, 'message')} removed, the first is {now}")
        result({"queues": rows}, "\n".join(lines), json)


def delete_topic_command(
    folder: Folder, topic: Annotated[str, typer.Argument(metavar="TOPIC")], json: Json = None
) -> None:
    """Remove all messages and the settings of a topic, for good. Its subscriptions stay."""
    with told(), writing(folder) as store:
        names = names_of(store, topic, None)
        bounds = [store.queue_bounds(*name) for name in names]
        store.delete_topic(topic)
        count = sum(end - first for first, end in bounds)
        held = f"{counted(len(names), 'queue')} with {counted(count, 'message')}"
        result({"topic": topic, "queues": len(names), "messages": count}, f"{plain(topic)}: {held} removed", json)


def seek_command(
    folder: Folder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    name: Annotated[str, typer.Argument(metavar="SUBSCRIPTION")],
    to: Annotated[str, typer.Option("--to", metavar="POSITION", help=f"earliest, latest, QUEUE:OFFSET,.., or {TIMES}")],
    json: Json = None,
) -> None:
    """Set a subscription to a position. What lies before it counts as acknowledged, and nothing after it does."""
    position = position_of(to)
    with told(), writing(folder) as store:
        info = subscription_of(store, topic, name)
        with opened(store, info) as sub:
            sub.seek(position)  # type: ignore[arg-type]  # checked there
            left = sub.backlog().total
        figures = {"topic": topic, "name": name, "unacknowledged": left}
        result(figures, f"{plain(topic)} {plain(name)}: {counted(left, 'message')} not acknowledged", json)


def position_of(text: str) -> str | int | dict[int, int]:
    """A position of `seek`. Raises typer.BadParameter."""
    if text in ("earliest", "latest"):
        return text
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) == 2 and all(one.isascii() and one.isdecimal() for one in pair) for pair in pairs):
        return {int(queue): int(offset) for queue, offset in pairs}
    try:
        return time_ms_of(text)
    except typer.BadParameter:
        raise typer.BadParameter(f"{text!r} is no position: give earliest, latest, QUEUE:OFFSET, or {TIMES}") from None


def subscription_of(store: MessageStore, topic: str, name: str) -> SubscriptionInfo:
    """A subscription that exists. Ends the command if there is none."""
    for info in store.subscriptions(topic):
        if info.name == name:
            return info
    complain(f"the topic {topic!r} has no subscription {name!r}")
    raise typer.Exit(NOT_THERE)


def opened(store: MessageStore, info: SubscriptionInfo) -> Subscription:
    """The subscription, opened with the settings that it has."""
    settings: Any = info.settings
    return store.subscribe(
        info.topic, info.name, mode=settings.mode, order_by=settings.order_by, filter=settings.filter
    )


def delete_subscription_command(
    folder: Folder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    name: Annotated[str, typer.Argument(metavar="SUBSCRIPTION")],
    json: Json = None,
) -> None:
    """Remove a subscription, for good. The messages stay."""
    with told(), writing(folder) as store:
        left = subscription_of(store, topic, name).backlog.total
        store.delete_subscription(topic, name)
        figures = {"topic": topic, "name": name, "unacknowledged": left}
        said = f"{plain(topic)} {plain(name)}: removed; {counted(left, 'message')} had not been acknowledged"
        result(figures, said, json)


COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("append", append_command),
    ("import", import_command),
    ("repair", repair_command),
    ("trim", trim_command),
    ("delete-topic", delete_topic_command),
    ("seek", seek_command),
    ("delete-subscription", delete_subscription_command),
)
