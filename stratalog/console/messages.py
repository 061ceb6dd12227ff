"""The reads of `stratalog cat`, `tail`, `export` and `topics`."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer

from ..perf.report.figures import Figures
from ..store import (
    Message,
    OffsetOutOfRange,
    ScanFilter,
    StoreCorrupt,
    StoreLocked,
    StoreReader,
    look_into_folder,
    plan_scan,
    read_part,
)
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


def names_of(store: StoreReader, topic: str | None, queue_id: int | None) -> list[tuple[str, int]]:
    """The wanted queues, sorted. If there is none, end the command."""
    topics = store.topics() if topic is None else [topic]
    names = [(name, queue) for name in topics for queue in store.queues(name) if queue_id in (None, queue)]
    if not names and topic is not None:
        wanted = f"topic {topic!r}" if queue_id is None else f"queue {queue_id} of topic {topic!r}"
        complain(f"the store has no {wanted}")
        raise typer.Exit(NOT_THERE)
    return names


class Wanted(NamedTuple):
    """The messages to print: of which queues, from which offset of each and which time on, before which time, and how
    many in all. None: no limit."""

    topic: str | None = None
    queue_id: int | None = None
    begin: int = 0
    since_ms: int | None = None
    until_ms: int | None = None
    most: int | None = None

    def first_of(self, store: StoreReader, name: tuple[str, int]) -> int:
        """The first offset of a queue that is wanted."""
        first, _ = store.queue_bounds(*name)
        return max(first, self.begin, first if self.since_ms is None else store.offset_at(*name, self.since_ms))

    def end_of(self, store: StoreReader, name: tuple[str, int]) -> int:
        """The offset of a queue before which all wanted messages lie, as far as they are there by now."""
        _, end = store.queue_bounds(*name)
        return end if self.until_ms is None else min(end, store.offset_at(*name, self.until_ms))


def messages_of(store: StoreReader, names: list[tuple[str, int]], wanted: Wanted) -> Iterator[Message]:
    """Yield the wanted messages of these queues, queue by queue."""
    left = wanted.most
    for name in names:
        at, end = wanted.first_of(store, name), wanted.end_of(store, name)
        while at < end and left != 0:
            most = min(AT_ONCE, end - at)
            most = most if left is None else min(most, left)
            found = [message for message in _read(store, name, at, most) if message.offset < end]
            if not found:
                break  # nothing but holes is left
            at = found[-1].offset + 1
            left = None if left is None else left - len(found)
            yield from found


def ends_of(store: StoreReader, topic: str | None, queue_id: int | None) -> dict[tuple[str, int], int]:
    """The next offset of each wanted queue that is there."""
    return {name: store.queue_bounds(*name)[1] for name in _names_now(store, topic, queue_id)}


def newest_of(store: StoreReader, ends: dict[tuple[str, int], int], count: int) -> list[Message]:
    """The newest messages of some queues before these offsets, `count` in all, in the order of their times."""

    def last_ones() -> Iterator[Message]:
        for name, end in ends.items():
            at = max(store.queue_bounds(*name)[0], end - count)
            while at < end and (found := _read(store, name, at, min(AT_ONCE, end - at))):
                at = found[-1].offset + 1
                yield from (message for message in found if message.offset < end)

    newest = heapq.nlargest(count, last_ones(), key=_by_time)
    return newest[::-1]


def _by_time(message: Message) -> tuple[int, str, int, int]:
    return message.timestamp_ms, message.topic, message.queue_id, message.offset


def _read(store: StoreReader, name: tuple[str, int], at: int, most: int) -> list[Message]:
    return store.read(*name, at, max_messages=most)


def messages_to_come(
    store: StoreReader, wanted: Wanted, at: dict[tuple[str, int], int], flush: Callable[[], object]
) -> Iterator[Message]:
    """Yield the wanted messages, then each new one when it is durable. A queue may not exist yet.

    `at`: the offsets at which queues begin that are not to be read from their first wanted message on.
    """
    left, looks = wanted.most, -1
    topic, queue_id = wanted.topic, wanted.queue_id
    while left != 0:
        for name in _names_now(store, topic, queue_id):
            if name not in at:
                at[name] = wanted.first_of(store, name)
            for message in _new_messages(store, name, at, left):
                left = None if left is None else left - 1
                yield message
        flush()
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


def sizes_of(folder: Path) -> dict[str, int]:
    """The bytes of the data of each topic's messages, by a look at each frame but at no data. Raises StoreError."""
    sizes: Counter[str] = Counter()
    for part in plan_scan(folder, ScanFilter()).parts:
        for batch in read_part(part, payload=False):
            topics = batch.streams.topics
            found = np.bincount(batch.topic_index, batch.lengths, len(topics))
            sizes.update({topic: int(size) for topic, size in zip(topics, found.tolist(), strict=True)})
    return dict(sizes)


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
