"""Delayed messages end to end: appended, delivered by a subscription at their time, and acknowledged."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...store import MessageStore, StoreConfig
from .checker import WrongResult

TOPIC = "delayed"
QUEUES = 16
BATCH = 4_096
RECEIVED = 4_096
TICK_S = 0.02  # of the producer that goes on appending
SLACK_S = 60.0  # beyond the last delay, until what is missing counts as lost

Int64s = npt.NDArray[np.int64]


class StoreLoad(NamedTuple):
    """`messages` with random delays of 0 to `spread_ms`, while `rate` a second more are appended, delayed alike."""

    messages: int
    rate: int
    spread_ms: int
    size_bytes: int = 100


def now_ms() -> int:
    """As the store's clock has it."""
    return time.time_ns() // 1_000_000


def deliver(folder: Path, load: StoreLoad, seed: int) -> dict[str, Any]:
    """Append, receive and acknowledge all of it. Raises WrongResult if a message is early, or lost, or comes twice."""
    with MessageStore.open(folder, StoreConfig()) as store, store.subscribe(TOPIC, "all") as sub:
        producer = _Producer(store, load, np.random.default_rng(seed))
        began = time.perf_counter()
        producer.append(load.messages)
        filled_s = time.perf_counter() - began
        going_on = threading.Thread(target=producer.go_on)
        going_on.start()
        lateness: list[Int64s] = []
        counts = np.zeros(QUEUES * producer.most, np.uint8)
        got, patience = 0, time.monotonic() + 2 * load.spread_ms / 1000 + SLACK_S
        early = 0
        while (going_on.is_alive() or got < producer.count) and time.monotonic() < patience:
            batch = sub.receive_batch(RECEIVED, wait_ms=200)
            if not len(batch):
                continue
            due_ms = batch.columns().deliver_at_ms
            assert due_ms is not None, "all of them are delayed"
            late = now_ms() - due_ms
            early += int((late < 0).sum())
            lateness.append(late)
            np.add.at(counts, batch.queue_ids * producer.most + batch.offsets, 1)
            sub.ack_batch(batch.receipts)
            got += len(batch)
        going_on.join()
        if early or got != producer.count or counts.max() > 1:
            raise WrongResult(f"{early} early, {producer.count - got} lost, {int((counts > 1).sum())} twice")
        late = np.concatenate(lateness[len(lateness) // 10 :])  # the first part waits behind the filling
        figures = store.stats()["delayed"][TOPIC]
        return {
            "messages": producer.count, "append_per_s": load.messages / filled_s,
            "deliver_per_s": got / (time.perf_counter() - began),
            "late_p50_ms": float(np.percentile(late, 50)), "late_p99_ms": float(np.percentile(late, 99)),
            "late_most_ms": int(late.max()), "index_memory_mb": figures["memory_bytes"] / 1e6,
            "early": early, "lost": 0, "twice": 0,
        }  # fmt: skip


class _Producer:
    """Appends in columns. `count` messages were appended so far; `most` bounds the offsets of a queue."""

    def __init__(self, store: MessageStore, load: StoreLoad, chance: np.random.Generator) -> None:
        self.count = 0
        self.most = load.messages + 2 * load.rate * max(1, load.spread_ms // 1000)
        self._store = store
        self._load = load
        self._chance = chance
        self._streams = tuple((TOPIC, queue_id) for queue_id in range(QUEUES))

    def append(self, count: int) -> None:
        """So many, in batches; their delays begin now."""
        for begin in range(0, count, BATCH):
            size = min(BATCH, count - begin)
            times = now_ms() + self._chance.integers(0, self._load.spread_ms + 1, size)
            lengths = np.full(size, self._load.size_bytes)
            payload = bytes(size * self._load.size_bytes)
            self._store.append_columns(
                self._streams, self._chance.integers(0, QUEUES, size), lengths, payload, deliver_at_ms=times
            )
            self.count += size

    def go_on(self) -> None:
        """The rate, as long as the first messages are delayed."""
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self._load.spread_ms / 1000:
            wanted = int(passed * self._load.rate) - done
            if wanted > 0:
                self.append(wanted)
                done += wanted
            time.sleep(TICK_S)  # a batch every so often
