"""Readers: what those of other processes cost the writer, and how soon one that waits sees a message."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..machine.usage import Turns, turns_of
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import WrongResult
from ..workload.contest import Content
from ..workload.latencies import Latencies
from ..workload.reader_processes import (
    READ_MESSAGES,
    Process,
    Queues,
    Share,
    at_work,
    follow,
    processes,
    wait_for_each,
    wait_for_nothing,
)
from ..workload.settings import space_bytes
from .experiment import repeats, setting
from .parts import Count, Part, latencies, measured, of
from .reported import Reported, Study

QUEUES = Queues("readers", 16)
FEW_MESSAGES = READ_MESSAGES  # after a round with fewer, a reader pauses
PACE_S = 0.002
AN_HOUR_MS = 3_600_000
LONGEST_S = 60  # for what a reader has still to read after a slice
PAUSE_S = 0.002
MOST_PER_S = 3_000_000
APIS = {"blocking": "one append at a time", "batch": "append_batch", "columns": "append_columns"}
ALONE, MOST_READERS = "alone", 4
Workers = Mapping[str, Sequence[Process]]
Figures = dict[str, float]


class Way(NamedTuple):
    """Readers beside the writer. In the background they take a processor only if nobody else wants it."""

    readers: int
    in_background: bool
    what: str


WAYS = {
    "one": Way(1, False, "beside 1 reader"),
    "four": Way(MOST_READERS, False, f"beside {MOST_READERS} readers"),
    "background": Way(MOST_READERS, True, f"beside {MOST_READERS} readers in the background"),
}


def _of_way(name: str, what: str) -> tuple[Count, ...]:
    beside: dict[str, Any] = {"beside_what": "alone", "beside_is_store": True}
    return (
        Count(figure=f"{name}.per_s", what=f"rate {what}", unit="msg/s", beside=f".{name}.alone_per_s", **beside,
              noise=0.25, meaning="beside the slices before and after; 1.00: the readers cost the writer nothing"),
        Count(figure=f"{name}.writer_us", what=f"processor time a message {what}", unit="us", better="lower",
              beside=f".{name}.alone_writer_us", **beside, noise=0.25),
        Count(figure=f"{name}.readers_cpu", what=f"processors that they take {what}", unit="", better="lower",
              noise=0.25),
    )  # fmt: skip


RATES = (
    Count(figure=f"{ALONE}.per_s", what="rate alone", unit="msg/s", noise=0.25),
    *(count for name, way in WAYS.items() for count in _of_way(name, way.what)),
)
IDLE = Count(figure="percent", what="processor time of all of them", unit="% of one", better="lower", noise=0.25)


class _Sample(NamedTuple):
    """The writer at a moment, and the processor time of the readers."""

    at_s: float
    messages: int
    writer: Turns | None
    readers: list[Turns | None]


@dataclass(frozen=True)
class _Writer:
    """A store that its producers fill as fast as they can, until `stopping`, but for pauses."""

    store: MessageStore
    folder: Path
    counts: list[int]
    stopping: threading.Event = field(default_factory=threading.Event)
    pausing: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)

    def sample(self, readers: Sequence[Process]) -> _Sample:
        turns = [turns_of(reader.pid) for reader in readers]
        return _Sample(time.perf_counter(), sum(self.counts), turns_of(os.getpid()), turns)

    def produce(self, at: int, append: Callable[[], int]) -> None:
        """Append and count, until the end."""
        counts, stopping, pausing = self.counts, self.stopping, self.pausing
        try:
            while not stopping.is_set():
                if pausing.is_set():
                    time.sleep(PAUSE_S)
                else:
                    counts[at] += append()
        except BaseException as error:  # raised again in the thread that has started it
            self.errors.append(error)


@dataclass(frozen=True, kw_only=True)
class Readers(Reported):
    """Readers of other processes beside a writer; how soon a reader sees a message, here and in another process."""

    NAME: ClassVar[str] = "readers"
    TITLE: ClassVar[str] = "Readers beside a writer"
    METHOD: ClassVar[str] = (
        "one writer, which pauses while readers catch up after a slice, and by turns with no readers and some, which "
        f"share {QUEUES.count} queues and read them as they grow; a slice's rate over the mean of those alone before "
        "and after it; all counted; those in the background have SCHED_IDLE, as by `chrt --idle 0`"
    )

    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    producers: int = setting(40, "threads that block on every append", short=4, least=1)
    batch_messages: int = setting(1000, "messages per call of append_batch and append_columns", least=1)
    seconds: float = setting(0.5, "seconds of a slice", short=0.1, least=0.01)
    settle_s: float = setting(
        0.15, "seconds before a slice, in which readers come and go: the writer looks for them every 50 ms",
        short=0.02, least=0,
    )  # fmt: skip
    together_ms: float = setting(5.0, "ms in which a reader that has read little takes together what comes", least=0)
    waits: int = setting(2_000, "messages whose way to a waiting reader is timed", short=50, least=1)
    idle: int = setting(10, "processes that wait and get nothing", short=2, least=1)
    idle_s: float = setting(3.0, "seconds for which they wait", short=0.2, least=0.01)
    repeat: int = repeats(5)

    def need_bytes(self) -> float:
        """The space of one turn, whose slices share a store."""
        seconds = (2 * len(WAYS) + 1) * (self.seconds + 2 * self.settle_s)
        return space_bytes(MOST_PER_S * seconds * (self.message_bytes + 20))

    def study(self, base: Path, run: Run) -> Study:
        """Rates with 0, 1 and 4 readers, the latency, and the processor time of idle readers."""
        Latencies()  # raises before the work if its package is missing
        told = "from the answer of its append; one message each 2 ms, whatever the reader does"
        counts = (*latencies("sees a message after", told),
                  Count(figure="max", what="the longest", unit="us", better="neither"))  # fmt: skip
        with processes(MOST_READERS) as foreground, processes(MOST_READERS, in_background=True) as background:
            workers = {name: background if way.in_background else foreground for name, way in WAYS.items()}
            parts = [
                *(Part(api, partial(self._turn, base, api, workers, run), RATES, what) for api, what in APIS.items()),
                Part("wait.thread", partial(self._here, base, in_thread=True), counts, "a waiting thread"),
                Part("wait.coroutine", partial(self._here, base, in_thread=False), counts, "a waiting coroutine"),
                Part("wait.process", partial(self._elsewhere, base, in_background=False), counts, "a waiting process"),
                Part("wait.background", partial(self._elsewhere, base, in_background=True), counts,
                     "a process that waits in the background"),
                Part("idle", partial(self._idle, base), (IDLE,), f"{self.idle} processes that wait and get nothing"),
            ]  # fmt: skip
            found = measured(parts, self.repeat, run)
        chapters = (
            Chapter(title="The writer's rate beside readers", measures=of(found, *(f"{api}." for api in APIS)),
                    text=f"Messages of {self.message_bytes} B. Readers get all messages up to their slice's end."),
            Chapter(title="Readers that wait", text="For one message after the other; and for nothing.",
                    measures=of(found, "wait.", "idle.")),
        )  # fmt: skip
        names = (
            *(f"{api}.{next(iter(WAYS))}.per_s" for api in APIS),
            "wait.thread.p50",
            "wait.process.p50",
            "idle.percent",
        )
        return Study(summary=tuple(sentence(found[name]) for name in names), chapters=chapters)

    # -- the writer, and slices of its time -----------------------------------------------------------

    def _turn(self, base: Path, api: str, workers: Workers, run: Run) -> Figures:
        """A slice beside the readers of each way, and one alone before and after each."""
        alone: list[Figures] = []
        beside: dict[str, Figures] = {}
        with self._writer(base, api) as writer:
            time.sleep(self.settle_s)
            for name, way in WAYS.items():
                alone.append(self._slice(writer, (), run))
                beside[name] = self._slice(writer, workers[name][: way.readers], run)
            alone.append(self._slice(writer, (), run))
        found = {f"{name}.{figure}": value for name, one in beside.items() for figure, value in one.items()}
        for name, before, after in zip(WAYS, alone, alone[1:], strict=False):
            found |= {f"{name}.alone_{figure}": (before[figure] + after[figure]) / 2 for figure in before}
        return {**found, f"{ALONE}.per_s": float(np.mean([one["per_s"] for one in alone]))}

    @contextmanager
    def _writer(self, base: Path, api: str) -> Iterator[_Writer]:
        data = Content(self.seed, self.message_bytes).make(0, 0, self.message_bytes)
        producers = self.producers if api == "blocking" else 1
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            writer = _Writer(store, folder, [0] * producers)
            appends = [self._append(store, api, data, at) for at in range(producers)]
            threads = [threading.Thread(target=writer.produce, args=one) for one in enumerate(appends)]
            for thread in threads:
                thread.start()
            try:
                yield writer
            finally:
                writer.stopping.set()
                for thread in threads:
                    thread.join()
            if writer.errors:
                raise writer.errors[0]
            ends = [store.queue_bounds(QUEUES.topic, queue)[1] for queue in range(QUEUES.count)]
            if sum(ends) != sum(writer.counts):
                raise WrongResult(f"{sum(writer.counts):,} messages were written, and the store has {sum(ends):,}")

    def _append(self, store: MessageStore, api: str, data: bytes, at: int) -> Callable[[], int]:
        """The call that a producer repeats. Returns the number of appended messages."""
        topic, queues, many = QUEUES.topic, QUEUES.count, self.batch_messages
        if api == "blocking":
            return lambda: bool(store.append(topic, at % queues, data) + 1)
        if api == "batch":
            rows = [(topic, number % queues, data) for number in range(many)]
            return lambda: len(store.append_batch(rows))
        streams = [(topic, queue) for queue in range(queues)]
        index, lengths, payload = np.arange(many) % queues, np.full(many, len(data)), data * many
        return lambda: len(store.append_columns(streams, index, lengths, payload))

    def _slice(self, writer: _Writer, readers: Sequence[Process], run: Run) -> Figures:
        count = len(readers)
        shares = [Share(at, count, FEW_MESSAGES, self.together_ms / 1000) for at in range(count)]
        with at_work(readers, follow, [(writer.folder, QUEUES, share) for share in shares]) as pipes:
            time.sleep(self.settle_s)
            before = writer.sample(readers)
            time.sleep(self.seconds)
            after = writer.sample(readers)
            ends = [writer.store.queue_bounds(QUEUES.topic, queue)[1] for queue in range(QUEUES.count)]
            writer.pausing.set()  # a reader in the background gets no processor beside it, on a busy machine
            for pipe in pipes:
                pipe.send(ends)
            for pipe in pipes:
                if not pipe.poll(LONGEST_S):
                    raise WrongResult(f"a reader has not come to the end of its slice in {LONGEST_S} s")
                taken, expected = pipe.recv()
                if taken < expected:
                    raise WrongResult(f"a reader has {taken:,} messages of {expected:,}")
                run.counted(taken)
            writer.pausing.clear()
        return _between(before, after)

    # -- latency, and idle readers --------------------------------------------------------------------

    def _here(self, base: Path, *, in_thread: bool) -> Figures:
        """A thread or a coroutine of the writing process waits for one message after the other."""
        seen: list[int] = []

        def read(store: MessageStore) -> None:
            while len(seen) < self.waits:
                found = store.read(QUEUES.topic, 0, len(seen), max_messages=1, wait_ms=AN_HOUR_MS)
                seen.extend([time.monotonic_ns()] * len(found))

        async def read_async(store: MessageStore) -> None:
            while len(seen) < self.waits:
                found = await store.read_async(QUEUES.topic, 0, len(seen), max_messages=1, wait_ms=AN_HOUR_MS)
                seen.extend([time.monotonic_ns()] * len(found))

        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            work = partial(read, store) if in_thread else lambda: asyncio.run(read_async(store))
            reader = threading.Thread(target=work)
            reader.start()
            durable = self._paced(store)
            reader.join()
        return _after(durable, seen)

    def _elsewhere(self, base: Path, *, in_background: bool) -> Figures:
        """A process waits for one message after the other."""
        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder) as store,
            processes(1, in_background=in_background) as workers,
            at_work(workers, wait_for_each, [(folder, QUEUES.topic, self.waits)]) as (pipe,),
        ):
            return _after(self._paced(store), pipe.recv())

    def _paced(self, store: MessageStore) -> list[int]:
        """Append a message each `PACE_S`. Returns when each was durable, in ns of the monotonic clock."""
        durable = []
        for number in range(self.waits):
            store.append(QUEUES.topic, 0, b"%d" % number)
            durable.append(time.monotonic_ns())
            time.sleep(PACE_S)  # the pace of the appends
        return durable

    def _idle(self, base: Path) -> Figures:
        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder) as store,
            processes(self.idle) as workers,
        ):
            store.append(QUEUES.topic, 0, b"x")
            with at_work(workers, wait_for_nothing, [(folder, QUEUES.topic, self.idle_s)] * self.idle) as pipes:
                before = [turns_of(worker.pid) for worker in workers]
                for pipe in pipes:
                    pipe.recv()
                after = [turns_of(worker.pid) for worker in workers]
        spent = [_ran_s(*pair) for pair in zip(before, after, strict=True)]
        return {"percent": 100 * sum(spent) / self.idle_s}


def _between(before: _Sample, after: _Sample) -> Figures:
    """The rate of a slice, the writer's processor time for a message, and the readers' processors; the times if the
    kernel tells them."""
    seconds, messages = after.at_s - before.at_s, max(1, after.messages - before.messages)
    readers = sum(_ran_s(*pair) for pair in zip(before.readers, after.readers, strict=True))
    found = {"per_s": messages / seconds, "readers_cpu": readers / seconds}
    if before.writer is not None and after.writer is not None:
        found["writer_us"] = _ran_s(before.writer, after.writer) * 1e6 / messages
    return found


def _after(durable: Sequence[int], seen: Sequence[int]) -> Figures:
    """How long after its durable moment each message was seen."""
    took = Latencies()
    took.add(np.array(seen) - np.array(durable))
    return {"calls": took.count, **took.marks_us()}


def _ran_s(before: Turns | None, after: Turns | None) -> float:
    return 0.0 if before is None or after is None else (after.ran - before.ran) / 1e9
