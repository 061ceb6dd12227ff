"""Delayed messages end to end: appended, delivered by a subscription at their time, and acknowledged."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...store import MessageStore, StoreConfig, Subscription
from .checker import WrongResult
from .latencies import Latencies

TOPIC = "delayed"
QUEUES = 16
BATCH = 4_096
RECEIVED = 4_096
TICK_S = 0.02  # of the producer that goes on appending
MS_NS = 1_000_000
SLACK_S = 60.0  # after the last delay, until missing messages count as lost

Int64s = npt.NDArray[np.int64]


class StoreLoad(NamedTuple):
    """`messages` with random delays of 0 to `spread_ms`, while `rate` a second more are appended, delayed alike."""

    messages: int
    rate: int
    spread_ms: int
    precision_ms: int = 0  # of the subscription
    size_bytes: int = 100


def now_ms() -> int:
    """The time of the store's clock."""
    return time.time_ns() // 1_000_000


def deliver(folder: Path, load: StoreLoad, seed: int) -> dict[str, float]:
    """Append, receive and acknowledge all of it. Raises WrongResult if a message is early, or lost, or comes twice.

    All are received from the first one on. "p50", "p99", "p99.9" and "max" of the lateness, in microseconds, leave out
    what comes before a tenth of the spread has passed since the filling, because it waits for that; "all_p99" has all.
    """
    with (
        MessageStore.open(folder, StoreConfig()) as store,
        store.subscribe(TOPIC, "all", precision_ms=load.precision_ms) as sub,
    ):
        producer = _Producer(store, load, np.random.default_rng(seed))
        began, used_s = time.perf_counter(), time.process_time()
        producer.start()
        received = _receive(sub, producer, load)
        deliver_s, used_s = time.perf_counter() - began, time.process_time() - used_s
        producer.join()
        counts, early = received.counts, received.early
        if producer.error is not None:
            raise producer.error
        if early or received.messages != producer.count or counts.max() > 1:
            lost, twice = producer.count - received.messages, int((counts > 1).sum())
            raise WrongResult(f"{early} early, {lost} lost, {twice} twice")
        late, all_late = np.concatenate(received.settled), np.concatenate([*received.settled, *received.first])
        found, of_all = Latencies(), Latencies()
        found.add(late * MS_NS)
        of_all.add(all_late * MS_NS)
        return {
            "messages": producer.count, "append_per_s": load.messages / producer.filled_s,
            "deliver_per_s": received.messages / deliver_s, "cpu_us": used_s / received.messages * 1e6,
            "index_mb": store.stats()["delayed"][TOPIC]["memory_bytes"] / 1e6, **found.marks_us(),
            "all_p99": of_all.marks_us()["p99"],
        }  # fmt: skip


class _Received:
    """The received messages: how late, how often each came, and how many came early."""

    def __init__(self, counts: int) -> None:
        self.first: list[Int64s] = []
        self.settled: list[Int64s] = [np.zeros(1, np.int64)]
        self.counts = np.zeros(counts, np.uint8)
        self.messages = self.early = 0


def _receive(sub: Subscription, producer: _Producer, load: StoreLoad) -> _Received:
    """Receive and acknowledge until all messages have come, or no more can come."""
    found = _Received(QUEUES * producer.most)
    patience = time.monotonic() + 2 * load.spread_ms / 1000 + SLACK_S
    while (producer.is_alive() or found.messages < producer.count) and time.monotonic() < patience:
        batch = sub.receive_batch(RECEIVED, wait_ms=200)
        if not len(batch):
            continue
        due_ms = batch.columns().deliver_at_ms
        assert due_ms is not None, "all of them are delayed"
        late = now_ms() - due_ms
        found.early += int((late < 0).sum())
        (found.settled if time.monotonic() >= producer.settled_s else found.first).append(late)
        np.add.at(found.counts, batch.queue_ids * producer.most + batch.offsets, 1)
        sub.ack_batch(batch.receipts)
        found.messages += len(batch)
    return found


class _Producer(threading.Thread):
    """Appends in columns: all at first, then at the rate.

    Attributes:
        count: messages that were appended so far; `most` bounds the offsets of a queue.
        filled_s: how long the first ones took; `settled_s`: when a tenth of the spread has passed since then.
        error: what it ended with, or None.
    """

    def __init__(self, store: MessageStore, load: StoreLoad, chance: np.random.Generator) -> None:
        super().__init__()
        self.count = 0
        self.filled_s = 0.0
        self.settled_s = float("inf")
        self.error: Exception | None = None
        self.most = load.messages + 2 * load.rate * max(1, load.spread_ms // 1000)
        self._store = store
        self._load = load
        self._chance = chance
        self._streams = tuple((TOPIC, queue_id) for queue_id in range(QUEUES))

    def run(self) -> None:
        """Append all."""
        try:
            began = time.perf_counter()
            self.append(self._load.messages)
            self.filled_s = time.perf_counter() - began
            self.settled_s = time.monotonic() + self._load.spread_ms / 10_000
            self.go_on()
        except Exception as error:  # the receiving thread raises it
            self.error = error

    def append(self, count: int) -> None:
        """Append so many, in batches; their delays begin now."""
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
        """Append at the rate, as long as the first messages are delayed."""
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self._load.spread_ms / 1000:
            wanted = int(passed * self._load.rate) - done
            if wanted > 0:
                self.append(wanted)
                done += wanted
            time.sleep(TICK_S)  # a batch every so often
