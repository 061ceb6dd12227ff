"""The reads of `stratalog cat` and `stratalog topics`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import typer

from ..perf.report.figures import Figures
from ..store import Message, MessageStore
from .ends import NOT_THERE, complain

AT_ONCE = 1024


def time_ms_of(text: str) -> int:
    """A time of the command line: ms since the epoch, or ISO 8601 (UTC, if it names no zone)."""
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
        return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time: give ms since the epoch, or 2026-11-22T10:00:00") from None


def names_of(store: MessageStore, topic: str | None, queue_id: int | None) -> list[tuple[str, int]]:
    """The queues asked for, sorted. If there is none, ends the command."""
    topics = store.topics() if topic is None else [topic]
    names = [(name, queue) for name in topics for queue in store.queues(name) if queue_id in (None, queue)]
    if not names and topic is not None:
        wanted = f"topic {topic!r}" if queue_id is None else f"queue {queue_id} of topic {topic!r}"
        complain(f"the store has no {wanted}")
        raise typer.Exit(NOT_THERE)
    return names


def messages_of(
    store: MessageStore, names: list[tuple[str, int]], begin: int, since_ms: int | None, count: int | None
) -> Iterator[Message]:
    """The messages of these queues from offset `begin` and time `since_ms` on, `count` of all at most."""
    left = count
    for name in names:
        first, end = store.queue_bounds(*name)
        at = max(first, begin, first if since_ms is None else store.offset_at(*name, since_ms))
        while at < end and left != 0:
            found = store.read(*name, at, AT_ONCE if left is None else min(AT_ONCE, left))
            if not found:
                break  # nothing but holes is left
            at = found[-1].offset + 1
            left = None if left is None else left - len(found)
            yield from found


def topic_row(store: MessageStore, topic: str) -> Figures:
    """A topic in a few figures. Raises StoreCorrupt."""
    messages, times = 0, list[int]()
    queues = store.queues(topic)
    for queue_id in queues:
        first, end = store.queue_bounds(topic, queue_id)
        messages += end - first
        for at in (first, end - 1) if end > first else ():
            times += [message.timestamp_ms for message in store.read(topic, queue_id, at, 1)]
    return {
        "topic": topic,
        "queues": len(queues),
        "messages": messages,
        "first_ms": min(times, default=None),
        "last_ms": max(times, default=None),
    }
