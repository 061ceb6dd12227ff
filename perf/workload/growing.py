"""Stores with many segments, streams or transactions. Their messages and files are small."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from ...store import MessageStore, ShardWriter, commit_shards
from ...testing import TunedConfig

SEGMENT_BYTES = 64 << 10
BUSY, IDLE, WIDE = "busy", "idle", "wide"
BUSY_QUEUES = 16
IDLE_MESSAGES = 5
MESSAGE_BYTES = 1_000
SETTLE_WITHIN_S = 120.0
FEW_SEGMENTS = 100

SMALL = TunedConfig(segment_bytes=SEGMENT_BYTES, recent_bytes=0)


def segments_filled(store: MessageStore, segments: int) -> None:
    """Append to the busy queues until the store has so many sealed segments."""
    while (missing := segments - _held(store)) > 0:
        appended(store, min(FEW_SEGMENTS, missing))


def appended(store: MessageStore, segments: int) -> int:
    """Append messages that fill so many segments, and wait for the background. Returns the bytes of the payload."""
    payload_bytes = _append_segments(store, segments)
    settled(store)
    return payload_bytes


def _append_segments(store: MessageStore, segments: int) -> int:
    """Append messages that fill so many segments. Returns the bytes of the payload."""
    count = SEGMENT_BYTES * 7 // 8 // MESSAGE_BYTES
    streams = [(BUSY, queue) for queue in range(BUSY_QUEUES)]
    index, lengths, payload = (
        np.arange(count) % BUSY_QUEUES,
        np.full(count, MESSAGE_BYTES),
        bytes(count * MESSAGE_BYTES),
    )
    for _ in range(segments):
        store.append_columns(streams, index, lengths, payload)
    return segments * len(payload)


def _held(store: MessageStore) -> int:
    held: int = store.stats()["segments"]["sealed"]
    return held


def settled(store: MessageStore) -> None:
    """Return once the store has given each full segment its footer."""
    until = time.monotonic() + SETTLE_WITHIN_S
    while store.stats()["segments"]["open"] > store.stats()["lanes"] and time.monotonic() < until:
        time.sleep(0.002)


def streams_made(store: MessageStore, count: int) -> None:
    """Append a small message to each of so many queues, a thousand queues a topic."""
    step = 50_000
    for begin in range(0, count, step):
        streams = [(f"{WIDE}-{at // 1000}", at % 1000) for at in range(begin, min(begin + step, count))]
        store.append_columns(streams, np.arange(len(streams)), np.full(len(streams), 8), bytes(8 * len(streams)))


def committed(folder: Path, name: str, store: MessageStore | None = None) -> None:
    """Commit a transaction of one message. `store`: the writer, which is asked to attach it; None waits for it."""
    with ShardWriter(folder) as writer:
        writer.append_columns([(BUSY, 0)], [0], [8], bytes(8))
        shards = writer.finish()
    if store is None:
        commit_shards(folder, shards, name=name)
    else:
        commit_shards(folder, shards, name=name, wait_ms=0)
        store.attach_pending()
