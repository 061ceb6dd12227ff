"""Readers in other processes: what they cost the writer, how soon they see a message, what they cost when idle."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from ...store import MessageStore, StoreConfig
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..machine.usage import cpu_seconds
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import Content
from ..workload.settings import space_bytes
from .experiment import Experiment, by_turns, medians, repeats, setting

TOPIC = "readers"
QUEUES = 16
READ_MESSAGES = 4096
FEW_MESSAGES = READ_MESSAGES  # after a round with fewer, a reader pauses
WAIT_MS = 100
PACE_S = 0.002
MOST_PER_S = 600_000
Job = Callable[[MessageStore, Connection, Any], None]


def _child(job: Job, folder: str, pipe: Connection, given: Any) -> None:
    with MessageStore.open(folder, read_only=True) as store:
        pipe.send("open")
        job(store, pipe, given)


def _follow(store: MessageStore, pipe: Connection, given: tuple[int, int, float]) -> None:
    """Read a share of the queues as they grow, until told where they end; send how many messages that were."""
    began = cpu_seconds()
    first, count, together_s = given
    at, ends = dict.fromkeys(range(first, QUEUES, count), 0), dict[int, int]()
    while at != ends:
        found = 0
        for queue in at:
            batch = store.read_batch(TOPIC, queue, at[queue], READ_MESSAGES)
            found += len(batch)
            at[queue] += len(batch)
        if not found and not ends:
            store.read(TOPIC, first, at[first], 1, wait_ms=WAIT_MS)
        elif found < FEW_MESSAGES:
            time.sleep(together_s)  # so that the next round has more
        if pipe.poll():
            ends = {queue: end for queue, end in enumerate(pipe.recv()) if queue in at}
    pipe.send((sum(at.values()), cpu_seconds() - began))


def _wait(store: MessageStore, pipe: Connection, count: int) -> None:
    """Wait for one message after the other; send when each was seen, in ns of the monotonic clock."""
    seen: list[int] = []
    while len(seen) < count:
        found = store.read(TOPIC, 0, len(seen), 1, wait_ms=60_000)
        seen += [time.monotonic_ns()] * len(found)
    pipe.send(seen)


def _idle(store: MessageStore, pipe: Connection, seconds: float) -> None:
    """Wait for a message that does not come; send the processor time that this took."""
    began = cpu_seconds()
    store.read(TOPIC, 1, 0, wait_ms=round(seconds * 1000))
    pipe.send(cpu_seconds() - began)


@contextmanager
def processes(job: Job, folder: Path, given: Sequence[Any]) -> Iterator[list[Connection]]:
    """A reader process for each of `given`, with the store open; they end with the block."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    try:
        for one in given:
            mine, theirs = context.Pipe()
            child = context.Process(target=_child, args=(job, str(folder), theirs, one), daemon=True)
            child.start()
            pipes.append(mine)
            children.append(child)
        for pipe in pipes:
            pipe.recv()
        yield pipes
    finally:
        for child in children:
            child.kill()
            child.join()


@dataclass(frozen=True, kw_only=True)
class Readers(Experiment):
    """Readers in other processes, which share the queues and read everything, beside a writer."""

    NAME: ClassVar[str] = "readers"
    METHOD: ClassVar[str] = (
        f"reader processes share {QUEUES} queues and read them as they grow; rates until the last answer; all counted"
    )

    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    producers: int = setting(40, "threads that block on every append", short=4, least=1)
    batch_messages: int = setting(1000, "messages per call of append_batch", least=1)
    seconds: float = setting(3.0, "seconds of a row", short=0.2, least=0)
    together_ms: float = setting(5.0, "ms in which a reader that has read little takes together what comes", least=0)
    waits: int = setting(2_000, "messages whose way to a waiting process is timed", short=50, least=1)
    idle: int = setting(10, "processes that wait and get nothing", short=2, least=1)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """Of a row."""
        return space_bytes(MOST_PER_S * self.seconds * (self.message_bytes + 20))

    def measure(self, base: Path, run: Run) -> Figures:
        """Rates with 0, 1 and 4 readers, the latency, and the processor time of idle readers."""
        rows: list[Figures] = []
        for api in ("blocking", "batch"):
            ways = {str(count): partial(self._row, base, api, count, run) for count in (0, 1, 4)}
            rounds = by_turns(ways, self.repeat, run)
            for count in (0, 1, 4):
                own = report.median_of([{"x": one[str(count)]} for one in rounds])["x"]
                ratios = [one[str(count)]["messages_per_s"] / one["0"]["messages_per_s"] for one in rounds]
                rows.append({**own, "of_alone": float(np.median(ratios))})
        alone = {"latency": partial(self._latency, base), "idle": partial(self._idle, base)}
        return {"rows": rows, **medians(alone, self.repeat, run)}

    def _row(self, base: Path, api: str, readers: int, run: Run) -> Figures:
        data = Content(self.seed, self.message_bytes).make(0, 0, self.message_bytes)
        counts = [0] * self.producers if api == "blocking" else [0]
        with sub_folder(base, "store") as folder, MessageStore.open(folder, StoreConfig()) as store:
            given = [(at, readers, self.together_ms / 1000) for at in range(readers)]
            append = self._append_one if api == "blocking" else self._append_many
            with processes(_follow, folder, given) as pipes:
                cpu_s = cpu_seconds()
                until = time.perf_counter() + self.seconds
                took = run_together([partial(append, store, data, counts, at, until) for at in range(len(counts))])
                cpu_s = cpu_seconds() - cpu_s
                ends = [store.queue_bounds(TOPIC, queue)[1] for queue in range(QUEUES)]
                for pipe in pipes:
                    pipe.send(ends)
                told = [pipe.recv() for pipe in pipes]
            total = sum(ends)
            if total != sum(counts) or (told and sum(count for count, _ in told) != total):
                raise WrongResult(f"{sum(counts):,} messages were written, and the readers have {told}")
        run.checked(total if told else 0)
        return {
            "api": api, "readers": readers, "messages_per_s": total / took, "writer_cpu": cpu_s / took,
            "reader_cpu": sum(cpu for _, cpu in told) / took,
        }  # fmt: skip

    def _append_one(self, store: MessageStore, data: bytes, counts: list[int], at: int, until: float) -> None:
        while time.perf_counter() < until:
            store.append(TOPIC, at % QUEUES, data)
            counts[at] += 1

    def _append_many(self, store: MessageStore, data: bytes, counts: list[int], at: int, until: float) -> None:
        rows = [(TOPIC, number % QUEUES, data) for number in range(self.batch_messages)]
        while time.perf_counter() < until:
            store.append_batch(rows)
            counts[at] += len(rows)

    def _latency(self, base: Path) -> Figures:
        durable: list[int] = []
        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
            processes(_wait, folder, [self.waits]) as (pipe,),
        ):
            for number in range(self.waits):
                store.append(TOPIC, 0, b"%d" % number)
                durable.append(time.monotonic_ns())
                time.sleep(PACE_S)
            seen: list[int] = pipe.recv()
        took_us = np.array(seen) - np.array(durable)
        marks = np.percentile(took_us / 1e3, [50, 99, 100])
        return dict(zip(("p50_us", "p99_us", "max_us"), marks.tolist(), strict=True))

    def _idle(self, base: Path) -> Figures:
        with sub_folder(base, "store") as folder, MessageStore.open(folder, StoreConfig()) as store:
            store.append(TOPIC, 0, b"x")
            with processes(_idle, folder, [self.seconds] * self.idle) as pipes:
                spent = sum(pipe.recv() for pipe in pipes)
        return {"processes": self.idle, "cpu_percent": 100 * spent / self.seconds}

    def show(self, figures: Figures, console: Console) -> None:
        """A row a number of readers, then the two other figures."""
        console.print(report.table("the writer's rate beside reader processes", figures["rows"], labels=2))
        latency = {name: value for name, value in figures["latency"].items() if name != "way"}
        console.print(report.pairs("from the answer of an append to a waiting process", latency))
        console.print(report.pairs("processes that wait and get nothing", figures["idle"]))
