"""Stores that hold much of one thing: segments, streams, transactions. Their messages and files are small."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...store import MessageStore, ShardWriter, commit_shards
from ...testing import TunedConfig
from ..machine.usage import cpu_seconds

SEGMENT_BYTES = 64 << 10
BUSY, IDLE, WIDE = "busy", "idle", "wide"
BUSY_QUEUES = 16
IDLE_MESSAGES = 5
MESSAGE_BYTES = 1_000
SETTLE_WITHIN_S = 120.0
FEW_SEGMENTS = 100
LEAST_CALLS, MOST_CALLS = 3, 2_000

SMALL = TunedConfig(segment_bytes=SEGMENT_BYTES, recent_bytes=0)


def segments_filled(store: MessageStore, segments: int) -> None:
    """Append to the busy queues until the store has so many sealed segments."""
    while (missing := segments - _held(store)) > 0:
        _append_segments(store, min(FEW_SEGMENTS, missing))
        settled(store)


def processor_s_a_gib(store: MessageStore, segments: int) -> float:
    """Processor seconds a GiB of payload, of appends that fill so many segments, with all that follows from them."""
    began = cpu_seconds()
    payload_bytes = 0
    for begin in range(0, segments, FEW_SEGMENTS):
        payload_bytes += _append_segments(store, min(FEW_SEGMENTS, segments - begin))
        settled(store)
    return (cpu_seconds() - began) / payload_bytes * (1 << 30)


def _append_segments(store: MessageStore, segments: int) -> int:
    """Append as much as fills so many segments; the bytes of the payload."""
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
    """One small message in each of so many queues, a thousand queues a topic."""
    step = 50_000
    for begin in range(0, count, step):
        streams = [(f"{WIDE}-{at // 1000}", at % 1000) for at in range(begin, min(begin + step, count))]
        store.append_columns(streams, np.arange(len(streams)), np.full(len(streams), 8), bytes(8 * len(streams)))


def committed(folder: Path, name: str, store: MessageStore | None = None) -> None:
    """A transaction of one message. `store`: of the writer, which is asked to attach it; None waits until it does."""
    with ShardWriter(folder) as writer:
        writer.append_columns([(BUSY, 0)], [0], [8], bytes(8))
        shards = writer.finish()
    if store is None:
        commit_shards(folder, shards, name=name)
    else:
        commit_shards(folder, shards, name=name, wait_ms=0)
        store.attach_pending()


class Timer:
    """Times calls: each at least three times, and again for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def us(self, call: Callable[[], object]) -> float:
        """The median microseconds of a call."""
        took: list[float] = []
        until = time.perf_counter() + self._seconds
        while len(took) < LEAST_CALLS or (time.perf_counter() < until and len(took) < MOST_CALLS):
            began = time.perf_counter()
            call()
            took.append(time.perf_counter() - began)
        return float(np.median(took)) * 1e6
