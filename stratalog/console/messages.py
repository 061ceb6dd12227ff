"""The reads of `stratalog cat` and `stratalog topics`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import typer

from ..perf.report.figures import Figures
from ..store import Message, OffsetOutOfRange, StoreCorrupt, StoreLocked, StoreReader, look_into_folder
from .ends import NOT_THERE, complain

AT_ONCE = 1024
WAIT_MS = 1000
LOOK_S = 0.05


@contextmanager
def reading(folder: Path) -> Iterator[StoreReader]:
    """The store of a folder for reading: a closed one as an opening would find it, else its durable part.

    If an opening would refuse it, what can be read before the damage comes first, and then StoreCorrupt.
    """
    looking = look_into_folder(folder)
    damage: StoreCorrupt | None = None
    try:
        store = looking.__enter__()
    except StoreLocked:
        with StoreReader.open(folder) as store:
            yield store
        return
    except StoreCorrupt as error:
        damage = error
    if damage is not None:
        with StoreReader.open(folder) as store, suppress(typer.Exit):  # a topic may lie after it
            yield store
        raise damage
    try:
        yield store
    finally:
        looking.__exit__(None, None, None)


def time_ms_of(text: str) -> int:
    """A time of the command line: ms since the epoch, or ISO 8601 (UTC, if it names no zone)."""
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
        return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time: give ms since the epoch, or 2026-11-22T10:00:00") from None


def names_of(store: StoreReader, topic: str | None, queue_id: int | None) -> list[tuple[str, int]]:
    """The wanted queues, sorted. If there is none, end the command."""
    topics = store.topics() if topic is None else [topic]
    names = [(name, queue) for name in topics for queue in store.queues(name) if queue_id in (None, queue)]
    if not names and topic is not None:
        wanted = f"topic {topic!r}" if queue_id is None else f"queue {queue_id} of topic {topic!r}"
        complain(f"the store has no {wanted}")
        raise typer.Exit(NOT_THERE)
    return names


def messages_of(
    store: StoreReader, names: list[tuple[str, int]], begin: int, since_ms: int | None, count: int | None
) -> Iterator[Message]:
    """Yield the messages of these queues from offset `begin` and time `since_ms` on, at most `count` in all."""
    left = count
    for name in names:
        first, end = store.queue_bounds(*name)
        at = max(first, begin, first if since_ms is None else store.offset_at(*name, since_ms))
        while at < end and left != 0:
            found = store.read(*name, at, max_messages=AT_ONCE if left is None else min(AT_ONCE, left))
            if not found:
                break  # nothing but holes is left
            at = found[-1].offset + 1
            left = None if left is None else left - len(found)
            yield from found


def messages_to_come(
    store: StoreReader, wanted: tuple[str | None, int | None], begin: int, since_ms: int | None, count: int | None
) -> Iterator[Message]:
    """Yield the messages of these queues, then each new one when it is durable. A queue may not exist yet."""
    topic, queue_id = wanted
    left, at, looks = count, dict[tuple[str, int], int](), -1
    while left != 0:
        for name in _names_now(store, topic, queue_id):
            if name not in at:
                first, _ = store.queue_bounds(*name)
                at[name] = max(first, begin, first if since_ms is None else store.offset_at(*name, since_ms))
            for message in _new_messages(store, name, at, left):
                left = None if left is None else left - 1
                yield message
        sys.stdout.flush()
        if topic is not None and queue_id is not None:
            end = store.queue_bounds(topic, queue_id)[1]
            store.read(topic, queue_id, end, max_messages=1, wait_ms=WAIT_MS)
            continue
        while left != 0 and looks == (looks := _looks(store)):
            time.sleep(LOOK_S)  # between two checks of files that change without a notice


def _looks(store: StoreReader) -> int:
    """A number that rises when there may be new messages."""
    store.queue_bounds("-", 0)  # any name will do: the call checks for new messages
    return int(store.stats()["live"]["looks"])


def _names_now(store: StoreReader, topic: str | None, queue_id: int | None) -> list[tuple[str, int]]:
    topics = store.topics() if topic is None else [topic]
    return [(name, queue) for name in topics for queue in store.queues(name) if queue_id in (None, queue)]


def _new_messages(
    store: StoreReader, name: tuple[str, int], at: dict[tuple[str, int], int], most: int | None
) -> Iterator[Message]:
    """Yield at most `most` messages of a queue from `at` on; `at` moves past them."""
    left = most
    while left != 0 and at[name] < store.queue_bounds(*name)[1]:
        try:
            found = store.read(*name, at[name], max_messages=AT_ONCE if left is None else min(AT_ONCE, left))
        except OffsetOutOfRange as error:  # retention has removed them
            at[name] = max(at[name] + 1, error.first)
            continue
        if not found:
            return  # nothing but holes is left
        at[name] = found[-1].offset + 1
        left = None if left is None else left - len(found)
        yield from found


def topic_row(store: StoreReader, topic: str) -> Figures:
    """A few figures of a topic. Raises StoreCorrupt."""
    messages, times = 0, list[int]()
    queues = store.queues(topic)
    for queue_id in queues:
        first, end = store.queue_bounds(topic, queue_id)
        messages += end - first
        for at in (first, end - 1) if end > first else ():
            times += [message.timestamp_ms for message in store.read(topic, queue_id, at, max_messages=1)]
    return {
        "topic": topic,
        "queues": len(queues),
        "messages": messages,
        "first_ms": min(times, default=None),
        "last_ms": max(times, default=None),
    }
