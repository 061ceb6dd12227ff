"""Small messages in bulk: append_batch and submit from one thread, beside RocksDB's forced write batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from rich.console import Console

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..references.peers import KEY, PeerMissing, RocksDb, load, seconds_of_rocksdb
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_folder
from ..workload.contest import IntArray, Plan, Sizes, Workload
from ..workload.producers import TicketLike
from ..workload.settings import prewritten, space_bytes
from .amplification import COLUMNS, amplification
from .experiment import Experiment, medians, queues, repeats, setting

SUBMIT_WINDOW_MESSAGES = 16_384
PREWRITE_PART = 1.5
Item = tuple[str, int, bytes]
SHOWN = {
    "way": "way", "msg/s": "messages_per_s", "with open and close": "messages_per_s_with_open_and_close", **COLUMNS,
}  # fmt: skip


class Job:
    """The messages of a run, made before the clock starts."""

    def __init__(self, work: Workload, messages: int) -> None:
        self.work = work
        self.plan: Plan = work.plan(round(messages * work.sizes.mean))[0]
        make, addresses = work.content.make, work.addresses
        self.items: list[Item] = [
            (*addresses[queue], make(queue, serial, size)) for queue, serial, size, _ in self.plan.rows()
        ]

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The messages with keys of queue and offset."""
        rows = zip(self.plan.rows(), self.items, strict=True)
        return [(KEY.pack(queue, serial), data) for (queue, serial, *_), (_, _, data) in rows]


def append_batches(store: MessageStore, job: Job, batch_messages: int) -> float:
    """Seconds of append_batch by one producer until all messages are durable."""
    cuts = [job.items[first : first + batch_messages] for first in range(0, len(job.items), batch_messages)]
    answers: list[IntArray] = []
    began = time.perf_counter()
    for items in cuts:
        answers.append(store.append_batch(items))
    seconds = time.perf_counter() - began
    if not np.array_equal(np.concatenate(answers), job.plan.serials):
        raise WrongResult("append_batch returned wrong offsets")
    return seconds


def submits(store: MessageStore, job: Job) -> float:
    """Seconds of submit by one thread, with a window of outstanding tickets, until all messages are durable."""
    window: deque[TicketLike] = deque()
    offsets: list[int] = []
    submit, push, pull, keep = store.submit, window.append, window.popleft, offsets.append
    began = time.perf_counter()
    for index, (topic, queue_id, data) in enumerate(job.items):
        push(submit(topic, queue_id, data))
        if index >= SUBMIT_WINDOW_MESSAGES:
            keep(pull().result())
    while window:
        keep(pull().result())
    seconds = time.perf_counter() - began
    if offsets != job.plan.serials.tolist():
        raise WrongResult("submit returned wrong offsets")
    return seconds


@dataclass(frozen=True, kw_only=True)
class Batch(Experiment):
    """append_batch and submit of small messages, beside RocksDB's forced write batches."""

    NAME: ClassVar[str] = "batch"
    METHOD: ClassVar[str] = f"acknowledged durable, one thread, messages made before; {RocksDb.SETUP}"

    messages: int = setting(1_000_000, "messages per round", short=5_000, least=1)
    message_bytes: int = setting(100, "bytes per message", least=16, option="size")
    batch_messages: int = setting(1000, "messages per call", least=1)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of one store after the other; RocksDB with its warm-up takes most."""
        return 2 * space_bytes(self.messages * self.message_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Rates in messages a second; RocksDB's are None if it is not installed."""
        sizes = Sizes(self.message_bytes, self.message_bytes)
        job = Job(Workload(self.seed, sizes, queues=self.queues), self.messages)
        ways: dict[str, Callable[[], Figures]] = {
            "append_batch": partial(
                self._store, base, job, run, partial(append_batches, batch_messages=self.batch_messages)
            ),
            "submit": partial(self._store, base, job, run, submits),
        }
        missing = None
        try:
            load("rocksdict")
            ways["rocksdb"] = partial(self._rocksdb, base, job, run)
        except PeerMissing as error:
            missing = str(error)
        found = medians(ways, self.repeat, run)
        peer = found["rocksdb"]["messages_per_s"] if "rocksdb" in found else None
        return {
            "ways": found,
            **{f"{name}_messages_per_s": row["messages_per_s"] for name, row in found.items()},
            "rocksdb_messages_per_s": peer,
            "rocksdb_ratio": report.ratio(found["append_batch"]["messages_per_s"], peer),
            **({"rocksdb_missing": missing} if missing else {}),
        }

    def _store(self, base: Path, job: Job, run: Run, append: Callable[[MessageStore, Job], float]) -> Figures:
        settings = prewritten(job.plan.payload_bytes * PREWRITE_PART)
        with sub_folder(base, "store") as folder:
            began = time.perf_counter()
            with MessageStore.open(folder, config=TunedConfig(**settings)) as store:
                seconds = append(store, job)
                log = store.stats()["log"]
            total_s = time.perf_counter() - began
            run.checked(check_folder(folder, job.work))
            written = amplification(log, job.plan.payload_bytes, folder)
        count = len(job.items)
        return {"messages_per_s": count / seconds, "messages_per_s_with_open_and_close": count / total_s, **written}

    def _rocksdb(self, base: Path, job: Job, run: Run) -> Figures:
        pairs = job.pairs()
        with sub_folder(base, "rocksdb") as folder:
            seconds = seconds_of_rocksdb(folder, pairs, self.batch_messages, job.plan.payload_bytes)
        run.checked(len(pairs))
        return {"messages_per_s": len(pairs) / seconds}

    def show(self, figures: Figures, console: Console) -> None:
        """Show one row for each way."""
        title = f"{figures['config']['message_bytes']} B messages, batches of {figures['config']['batch_messages']:,}"
        rows = [{"way": name, **row} for name, row in figures["ways"].items()]
        console.print(report.table(title, report.chosen(rows, SHOWN)))
        if figures["rocksdb_ratio"] is not None:
            console.print(report.pairs("beside RocksDB", {"append_batch over RocksDB": figures["rocksdb_ratio"]}))
        if "rocksdb_missing" in figures:
            console.print(figures["rocksdb_missing"], style="yellow", markup=False)
