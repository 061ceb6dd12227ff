"""Readers in other processes: their cost for the writer, how soon they see a message, their cost when idle."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from rich.console import Console

from ...store import MessageStore, StoreConfig
from ..machine.folders import sub_folder
from ..machine.usage import Turns, turns_of
from ..references.copying_readers import Shared, copy_and_hash, shared_messages
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import Content
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
from .experiment import Experiment, medians, repeats, setting

QUEUES = Queues("readers", 16)
FEW_MESSAGES = READ_MESSAGES  # after a round with fewer, a reader pauses
PACE_S = 0.002
LONGEST_S = 60  # for what a reader has still to read after a slice
PAUSE_S = 0.002
MOST_PER_S = 3_000_000
APIS = ("blocking", "batch", "columns")
MODEL, STORE, BACKGROUND = "model", "store", "background"  # the last: readers of the store that give way to all others
ALONE = (None, 0)
BESIDE = tuple((of, count) for count in (1, 4) for of in (MODEL, STORE, BACKGROUND))
MOST_READERS = 4

Way = tuple[str | None, int]
Workers = Mapping[str | None, Sequence[Process]]


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
    shared: Shared
    counts: memoryview
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
class Readers(Experiment):
    """Readers in other processes, which share the queues and read everything, beside a writer."""

    NAME: ClassVar[str] = "readers"
    METHOD: ClassVar[str] = (
        "one writer, which pauses while readers catch up after a slice, and by turns with no readers and some, which "
        f"share {QUEUES.count} queues and read "
        "them as they grow; a slice's rate over the mean of those alone before and behind it, medians; all counted; "
        "those of the model have no store: they copy and hash as many bytes, with the same pauses; those in the "
        "background have SCHED_IDLE, as by `chrt --idle 0`"
    )

    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    producers: int = setting(40, "threads that block on every append", short=4, least=1)
    batch_messages: int = setting(1000, "messages per call of append_batch and append_columns", least=1)
    seconds: float = setting(0.5, "seconds of a slice", short=0.1, least=0.01)
    settle_s: float = setting(
        0.15, "seconds before a slice, in which readers come and go: the writer looks for them every 50 ms",
        short=0.02, least=0,
    )  # fmt: skip
    turns: int = setting(5, "slices of each kind", short=1, least=1)
    together_ms: float = setting(5.0, "ms in which a reader that has read little takes together what comes", least=0)
    waits: int = setting(2_000, "messages whose way to a waiting process is timed", short=50, least=1)
    idle: int = setting(10, "processes that wait and get nothing", short=2, least=1)
    idle_s: float = setting(3.0, "seconds for which they wait", short=0.2, least=0.01)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of one turn, whose slices share a store."""
        seconds = (2 * len(BESIDE) + 1) * (self.seconds + 2 * self.settle_s)
        return space_bytes(MOST_PER_S * seconds * (self.message_bytes + 20))

    def measure(self, base: Path, run: Run) -> Figures:
        """Rates with 0, 1 and 4 readers, of the model and of the store, the latency, and the processor time of idle
        readers."""
        rows: list[Figures] = []
        run.expect(len(APIS) * self.turns)
        with processes(MOST_READERS) as foreground, processes(MOST_READERS, in_background=True) as background:
            workers = {MODEL: foreground, STORE: foreground, BACKGROUND: background, None: []}
            found: dict[str, list[Figures]] = {api: [] for api in APIS}
            for number in range(self.turns):
                for api in APIS:
                    found[api] += self._turn(base, api, BESIDE[:: 1 if number % 2 == 0 else -1], workers, run)
                    run.one_done()
        for api in APIS:
            model: dict[int, float] = {}
            for way in (ALONE, *BESIDE):
                row = _medians([one for one in found[api] if (one["of"], one["readers"]) == way])
                readers, count = way
                if readers == MODEL:
                    model[count] = row["of_alone"]
                beside = model[count] if readers in (STORE, BACKGROUND) else None
                rows.append({"api": api, **row, "of_model": report.ratio(row["of_alone"], beside)})
        alone = {
            "latency": partial(self._latency, base, in_background=False),
            "background_latency": partial(self._latency, base, in_background=True),
            "idle": partial(self._idle, base),
        }
        return {"rows": rows, **medians(alone, self.repeat, run)}

    # -- the writer, and slices of its time -----------------------------------------------------------

    def _turn(self, base: Path, api: str, ways: Sequence[Way], workers: Workers, run: Run) -> list[Figures]:
        """Run a slice of each way, and one alone before and after each."""
        slices: list[Figures] = []
        with self._writer(base, api) as writer:
            time.sleep(self.settle_s)
            for way in [*(way for beside in ways for way in (ALONE, beside)), ALONE]:
                slices.append(self._slice(writer, way, workers, run))
        for before, beside, behind in zip(slices[::2], slices[1::2], slices[2::2], strict=False):
            for name, ratio in (("messages_per_s", "of_alone"), ("writer_us", "cpu_of_alone")):
                if beside[name] is not None:
                    beside[ratio] = 2 * beside[name] / (before[name] + behind[name])
        return slices

    @contextmanager
    def _writer(self, base: Path, api: str) -> Iterator[_Writer]:
        data = Content(self.seed, self.message_bytes).make(0, 0, self.message_bytes)
        producers = self.producers if api == "blocking" else 1
        with (
            shared_messages(data, producers) as (shared, counts),
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
        ):
            writer = _Writer(store, folder, shared, counts)
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
            if sum(ends) != sum(counts):
                raise WrongResult(f"{sum(counts):,} messages were written, and the store has {sum(ends):,}")

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

    def _slice(self, writer: _Writer, way: Way, workers: Workers, run: Run) -> Figures:
        readers, count = way
        mine = workers[readers][:count]
        shares = [Share(at, count, FEW_MESSAGES, self.together_ms / 1000) for at in range(count)]
        if readers == MODEL:
            there = at_work(mine, copy_and_hash, [(writer.shared, share) for share in shares])
        else:
            there = at_work(mine, follow, [(writer.folder, QUEUES, share) for share in shares])
        with there as pipes:
            time.sleep(self.settle_s)
            before = writer.sample(mine)
            time.sleep(self.seconds)
            after = writer.sample(mine)
            ends = [writer.store.queue_bounds(QUEUES.topic, queue)[1] for queue in range(QUEUES.count)]
            writer.pausing.set()  # a reader in the background gets no processor beside it, on a busy machine
            for pipe in pipes:
                pipe.send(after.messages if readers == MODEL else ends)
            for pipe in pipes:
                if not pipe.poll(LONGEST_S):
                    raise WrongResult(f"a reader has not come to the end of its slice in {LONGEST_S} s")
                taken, expected = pipe.recv()
                if taken < expected:
                    raise WrongResult(f"a reader has {taken:,} messages of {expected:,}")
                run.checked(taken if readers != MODEL else 0)
            writer.pausing.clear()
        return {"readers": count, "of": readers, **_between(before, after)}

    # -- latency, and idle readers --------------------------------------------------------------------

    def _latency(self, base: Path, *, in_background: bool) -> Figures:
        durable: list[int] = []
        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
            processes(1, in_background=in_background) as workers,
            at_work(workers, wait_for_each, [(folder, QUEUES.topic, self.waits)]) as (pipe,),
        ):
            for number in range(self.waits):
                store.append(QUEUES.topic, 0, b"%d" % number)
                durable.append(time.monotonic_ns())
                time.sleep(PACE_S)
            seen: list[int] = pipe.recv()
        took_us = np.array(seen) - np.array(durable)
        marks = np.percentile(took_us / 1e3, [50, 99, 100])
        return dict(zip(("p50_us", "p99_us", "max_us"), marks.tolist(), strict=True))

    def _idle(self, base: Path) -> Figures:
        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
            processes(self.idle) as workers,
        ):
            store.append(QUEUES.topic, 0, b"x")
            with at_work(workers, wait_for_nothing, [(folder, QUEUES.topic, self.idle_s)] * self.idle) as pipes:
                before = [turns_of(worker.pid) for worker in workers]
                for pipe in pipes:
                    pipe.recv()
                after = [turns_of(worker.pid) for worker in workers]
        spent = [_ran_s(*pair) for pair in zip(before, after, strict=True)]
        return {"processes": self.idle, "cpu_percent": 100 * sum(spent) / self.idle_s}

    def show(self, figures: Figures, console: Console) -> None:
        """Show one row for each number of readers, then the two other figures."""
        console.print(report.table("the writer's rate beside reader processes", figures["rows"], labels=3))
        for name, whom in (("latency", "a waiting process"), ("background_latency", "one in the background")):
            latency = {key: value for key, value in figures[name].items() if key != "way"}
            console.print(report.pairs(f"from the answer of an append to {whom}", latency))
        console.print(report.pairs("processes that wait and get nothing", figures["idle"]))


def _between(before: _Sample, after: _Sample) -> Figures:
    """The rate of a slice, the writer's time for a message, and the readers' part of a processor."""
    seconds, messages = after.at_s - before.at_s, max(1, after.messages - before.messages)
    ran, waited = None, None
    if before.writer is not None and after.writer is not None:
        ran = (after.writer.ran - before.writer.ran) / 1e3 / messages
        waited = (after.writer.waited - before.writer.waited) / 1e3 / messages
    readers = [_ran_s(*pair) for pair in zip(before.readers, after.readers, strict=True)]
    return {
        "messages_per_s": messages / seconds, "of_alone": None, "writer_us": ran, "cpu_of_alone": None,
        "waits_us": waited, "readers_cpu": sum(readers) / seconds,
    }  # fmt: skip


def _ran_s(before: Turns | None, after: Turns | None) -> float:
    return 0.0 if before is None or after is None else (after.ran - before.ran) / 1e9


def _medians(slices: Sequence[Figures]) -> Figures:
    """The medians of the slices of one kind, and the two ratios between which half of them lie."""
    found: Figures = report.median_of(slices)
    ratios = [one["of_alone"] for one in slices if one["of_alone"] is not None]
    quarters = np.percentile(ratios, [25, 75]).tolist() if ratios else (None, None)
    return {**found, "from": quarters[0], "to": quarters[1], "slices": len(slices)}
