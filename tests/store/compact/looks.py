"""All that reads of a store give, to be compared with what they give of it compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stratalog.store import MessageStore, OffsetOutOfRange, StoreReader, StoreUnreadable

State = dict[tuple[str, int], tuple[int, int, list[tuple[Any, ...]]]]
NOW_MS = 1_800_000_000_000


def state(store: StoreReader) -> State:
    """All that reads give: for each queue its bounds, and its messages."""
    found: State = {}
    for topic in store.topics():
        for queue_id in store.queues(topic):
            first, end = store.queue_bounds(topic, queue_id)
            messages = (
                store.read(topic, queue_id, first, max_messages=100_000, max_bytes=1 << 30) if end > first else []
            )
            rows = [
                (one.offset, one.data, one.timestamp_ms, one.deliver_at_ms, one.key, one.properties) for one in messages
            ]
            found[topic, queue_id] = first, end, rows
    return found


def state_now(store: StoreReader) -> State | None:
    """As `state`; None where a compaction came between two calls, as retention may."""
    try:
        return state(store)
    except (OffsetOutOfRange, StoreUnreadable):
        return None


def state_of(path: Path) -> State:
    """The same of a closed store, as a reader process sees it."""
    with MessageStore.open(path, read_only=True) as store:
        return state(store)
