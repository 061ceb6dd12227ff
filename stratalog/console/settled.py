"""The commands for what a topic is: its settings; and for its dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ..perf.commands.options import Json
from ..perf.machine.folders import human_bytes
from ..perf.report.figures import counted
from ..perf.report.tables import plain
from ..store import TopicSettings
from .changes import Folder, writing
from .ends import told
from .files import result
from .messages import names_of, reading
from .rows import MOST_QUEUE_ID
from .times import DURATIONS, duration_ms_of

REDRIVE = "stratalog.redrive"
DEFAULTS = TopicSettings()
TYPES = "normal,fifo,delay,transaction"
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


def redrive_command(
    folder: Folder,
    topic: Topic,
    queue_id: Annotated[
        int | None, typer.Argument(help="only this queue", metavar="QUEUE", min=0, max=MOST_QUEUE_ID)
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, metavar="N", help="at most N messages")] = None,
    json: Json = None,
) -> None:
    """Send dead letters back to the topics and queues that they came from, each once. They stay where they are, too."""
    with told(), writing(folder) as store:
        names_of(store, topic, queue_id)  # an error if there is none
        sent = store.redrive(topic, queue_id=queue_id, max_messages=count)
        left = sum(info.backlog.total for info in store.subscriptions(topic) if info.name == REDRIVE)
        said = f"{plain(topic)}: {counted(sent, 'message')} sent back, {left:,} not sent back"
        result({"topic": topic, "sent": sent, "left": left}, said, json)


def configure_command(
    folder: Folder,
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option("--queues", min=0, max=MOST_QUEUE_ID + 1, metavar="N", help="its queues 0 .. N - 1; 0: any queue"),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option("--retention", metavar="TIME", help=f"the age of what is removed: {DURATIONS}; 0: the store's"),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="TIME", help=f"what is older comes to no subscription: {DURATIONS}; 0: any age"),
    ] = None,
    types: Annotated[
        str | None,
        typer.Option("--types", metavar="TYPES", help=f"what RocketMQ's clients may send: some of {TYPES}; or all"),
    ] = None,
    json: Json = None,
) -> None:
    """Show the settings of a topic, or change those that are given. A topic that is not there is made by a change."""
    with told():
        changes: dict[str, Any] = {} if queues is None else {"queues": queues or None}
        changes |= {} if retention is None else {"retention_ms": duration_ms_of(retention) or None}
        changes |= {} if ttl is None else {"ttl_ms": duration_ms_of(ttl) or None}
        changes |= {} if types is None else {"types": None if types == "all" else types.split(",")}
        if changes:
            with writing(folder) as store:
                settings = store.configure_topic(topic, **(asdict(store.topic_settings(topic)) | changes))
        else:
            with reading(folder) as reader:
                names_of(reader, topic, None)  # an error if there is none
                settings = reader.topic_settings(topic)
        result({"topic": topic, **asdict(settings)}, f"{plain(topic)}: {settings_text(settings)}", json)


def settings_text(settings: TopicSettings) -> str:
    """The settings of a topic for readers."""
    queues, limit_bytes = settings.queues, settings.retention_bytes
    is_queue = settings.keep == "until_acknowledged"
    parts = ["any queue" if queues is None else f"{counted(queues, 'queue')}, 0 to {queues - 1}"]
    if settings.keep != "retention":
        parts.append("a work queue" if is_queue else f"keeps what is {settings.keep}")
    if limit_bytes is not None:
        parts.append(f"at most {human_bytes(limit_bytes)} {'not acknowledged' if is_queue else 'of it'}")
    if settings.retention_ms is not None:
        parts.append(f"removed after {settings.retention_ms:,} ms")
    if settings.ttl_ms is not None:
        parts.append(f"no subscription gets it after {settings.ttl_ms:,} ms")
    if (settings.id_window_ms, settings.id_window_count) != (DEFAULTS.id_window_ms, DEFAULTS.id_window_count):
        parts.append(
            f"knows a message id for {settings.id_window_ms:,} ms and {counted(settings.id_window_count, 'later id')}"
        )
    if settings.types is not None:
        parts.append(f"takes only {', '.join(settings.types)} of RocketMQ's clients")
    return "; ".join(parts)


TOPIC_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("redrive", redrive_command),
    ("configure", configure_command),
)
