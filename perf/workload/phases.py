"""The two phases of the contest on an open store: append; then append and read, until nothing is left to read."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...store import MessageStore
from ..machine.threads import run_together
from . import producers
from .checker import Counts, QueueReader
from .contest import IntArray, Workload
from .latencies import exact_marks_us
from .producers import Acknowledged, Track

Api = Literal["blocking", "pipelined", "batch", "asyncio"]
FETCH_MESSAGES_MAX = 100
FEED_IDLE_S = 0.0005


@dataclass(frozen=True)
class Drive:
    """The way that a run appends: the API, and the messages of a batch."""

    api: Api
    batch_messages: int = producers.BATCH_MESSAGES

    def producers(self, threads: int) -> int:
        """Producers of the workload: threads or tasks; pipelined and batch have one."""
        return threads if self.api in ("blocking", "asyncio") else 1

    def jobs(
        self, store: MessageStore, work: Workload, tracks: list[Track], acknowledged: Acknowledged | None
    ) -> list[Callable[[], None]]:
        """The jobs of the producing threads (blocking: one thread for each track; else one thread)."""
        if self.api == "blocking":
            return [partial(producers.blocking, store.append, work, track, acknowledged) for track in tracks]
        if self.api == "asyncio":
            return [partial(producers.asynchronous, store.append_async, work, tracks, acknowledged)]
        if self.api == "batch":
            return [partial(producers.batch, store.append_batch, work, tracks[0], acknowledged, self.batch_messages)]
        return [partial(producers.pipelined, store.submit, work, tracks[0], acknowledged)]


@dataclass(frozen=True)
class PhaseResult:
    """A phase. `seconds` are from its first append to its end."""

    seconds: float
    messages: int
    bytes: int
    latencies_ns: IntArray

    def figures(self) -> dict[str, float]:
        """Rates a second, MB = 10^6 bytes; latencies of callers that wait for each answer, in microseconds."""
        rates = {"per_s": self.messages / self.seconds, "mb_per_s": self.bytes / self.seconds / 1e6}
        return {"seconds": self.seconds, "calls": len(self.latencies_ns), **rates, **exact_marks_us(self.latencies_ns)}


def _result(tracks: list[Track], seconds: float) -> PhaseResult:
    latencies = [np.frombuffer(track.latencies_ns, np.int64)[: track.timed] for track in tracks]
    return PhaseResult(
        seconds,
        sum(track.done for track in tracks),
        sum(int(track.plan.sizes[: track.done].sum()) for track in tracks),
        np.concatenate(latencies),
    )


def append_phase(store: MessageStore, work: Workload, tracks: list[Track], drive: Drive) -> PhaseResult:
    """Phase 1: only appends."""
    seconds = run_together(drive.jobs(store, work, tracks, None))
    return _result(tracks, seconds)


class Consumer:
    """One reading thread's part: its queues, how far each was acknowledged, and the next fetch counts."""

    def __init__(self, reader: QueueReader, seed: int) -> None:
        self.reader = reader
        counts = np.random.default_rng([seed, 2]).integers(1, FETCH_MESSAGES_MAX + 1, 4096)
        self._fetch = cycle(counts.tolist())
        self.ends: dict[int, int] = {}

    def start(self, queue: int, first_offset: int, acknowledged: int) -> None:
        """Read the queue from `first_offset`; `acknowledged` messages are durable by now."""
        self.reader.start(queue, first_offset)
        self.ends[queue] = acknowledged

    def acknowledged(self, queue: int, end_offset: int) -> None:
        """Read the queue of a durable message once, with the next random fetch count."""
        self.ends[queue] = end_offset
        if self.reader.next_offset[queue] < end_offset:
            self.reader.read(queue, next(self._fetch))

    def drain(self) -> None:
        """Read until nothing is left."""
        for queue, end in self.ends.items():
            while self.reader.next_offset[queue] < end and self.reader.read(queue, next(self._fetch)):
                pass

    def finish(self) -> Counts:
        """The reader's counts, when everything should have been seen."""
        for queue, end in self.ends.items():
            if end:
                self.reader.finish(queue, end)
        return self.reader.counts


class ReadSide:
    """The readers of all queues, hot and cold; `owned` says which queues each consumer reads."""

    def __init__(
        self,
        store: MessageStore,
        work: Workload,
        written: IntArray,
        hot: npt.NDArray[np.bool_],
        owned: list[IntArray],
    ) -> None:
        self.consumers: list[Consumer] = []
        for index, queues in enumerate(owned):
            consumer = Consumer(QueueReader(store.get_range, work.addresses, work.content), work.seed + index)
            for queue in queues.tolist():
                consumer.start(queue, int(written[queue]) if hot[queue] else 0, int(written[queue]))
            self.consumers.append(consumer)

    @property
    def messages(self) -> int:
        """Messages read so far."""
        return sum(consumer.reader.messages for consumer in self.consumers)

    @property
    def bytes(self) -> int:
        """Payload bytes read so far."""
        return sum(consumer.reader.bytes for consumer in self.consumers)

    def finish(self) -> Counts:
        """Every reader's counts together."""
        counts = Counts()
        for consumer in self.consumers:
            counts.add(consumer.finish())
        return counts


def mixed_phase(store: MessageStore, work: Workload, tracks: list[Track], drive: Drive, reads: ReadSide) -> PhaseResult:
    """Phase 2: a queue is read once after each of its appends; then everything until nothing is left.

    With the blocking API the appending thread itself reads its queue, as in the contest. With the others, a reader
    is told which queues were appended to.
    """
    if drive.api == "blocking":
        return _alternating(store, work, tracks, reads)
    return _beside(store, work, tracks, drive, reads)


def _alternating(store: MessageStore, work: Workload, tracks: list[Track], reads: ReadSide) -> PhaseResult:
    def job(index: int) -> None:
        consumer = reads.consumers[index]
        producers.blocking(store.append, work, tracks[index], consumer.acknowledged)
        consumer.drain()

    seconds = run_together([partial(job, index) for index in range(len(tracks))])
    return _result(tracks, seconds)


def _beside(store: MessageStore, work: Workload, tracks: list[Track], drive: Drive, reads: ReadSide) -> PhaseResult:
    feed: deque[tuple[int, int]] = deque()
    (consumer,) = reads.consumers
    written = threading.Event()

    def produce() -> None:
        try:
            job()
        finally:
            written.set()

    def consume() -> None:
        while True:
            last = written.is_set()
            while feed:
                consumer.acknowledged(*feed.popleft())
            if last:
                break
            time.sleep(FEED_IDLE_S)  # nothing was produced to feed on yet
        consumer.drain()

    (job,) = drive.jobs(store, work, tracks, lambda queue, end_offset: feed.append((queue, end_offset)))
    seconds = run_together([produce, consume])
    return _result(tracks, seconds)


def reader_queues(work: Workload, drive: Drive) -> list[IntArray]:
    """The queues of each consumer: its producer's with the blocking API, else all."""
    return work.owned if drive.api == "blocking" else [np.arange(len(work.addresses), dtype=np.int64)]
