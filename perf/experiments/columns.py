"""Appends of columns: append_columns of small messages beside RocksDB, and of contest sizes beside the raw device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from rich.console import Console

from ...store import BatchTicket, MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..references.device import Seconds, raw_device
from ..references.hashing import hash_and_copy
from ..references.peers import KEY, PeerMissing, RocksDb, load, seconds_of_rocksdb
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_folder
from ..workload.contest import HEADER_BYTES, IntArray, Plan, Sizes, Workload
from ..workload.settings import prewritten, space_bytes
from .amplification import COLUMNS, amplification
from .experiment import Experiment, medians, queues, repeats, setting

KEY_BYTES = 16
UNDER_WAY = 2
CONTEST_CALL_BYTES = 4 << 20  # two frames or three: the second is built while the first is with the device
WRITE_BYTES = TunedConfig().max_frame_bytes
PREWRITE_PART = 1.5
SHOWN = {"way": "way", "msg/s": "messages_per_s", "MB/s": "mb_per_s", **COLUMNS}


class Call(NamedTuple):
    """The arguments of one call, and the offsets that it must return."""

    stream_index: IntArray
    lengths: IntArray
    payload: bytes
    keys: tuple[IntArray, bytes]
    offsets: IntArray


class Job:
    """The calls of a run, made before the clock starts: up to so many messages and bytes each."""

    def __init__(self, work: Workload, total_bytes: int, call_messages: int, call_bytes: int) -> None:
        self.work = work
        self.plan: Plan = work.plan(total_bytes)[0]
        self.streams = tuple((topic, queue_id) for topic, queue_id in work.addresses)
        plan, each = self.plan, self.datas()
        ends = plan.sizes.cumsum()
        self.calls: list[Call] = []
        begin = 0
        while begin < len(plan):
            before = int(ends[begin]) - int(plan.sizes[begin])
            fitting = int(ends.searchsorted(before + call_bytes, side="right"))
            end = min(max(fitting, begin + 1), begin + call_messages)
            cut, datas = slice(begin, end), list(islice(each, end - begin))
            keys = np.full(len(datas), KEY_BYTES), b"".join([data[:KEY_BYTES] for data in datas])
            self.calls.append(Call(plan.queues[cut], plan.sizes[cut], b"".join(datas), keys, plan.serials[cut]))
            begin = end

    def datas(self) -> Iterator[bytes]:
        """The data of each message, made again at each call."""
        make = self.work.content.make
        return (make(queue, serial, size) for queue, serial, size, _ in self.plan.rows())

    def models(self) -> list[tuple[bytes, IntArray]]:
        """The figures of the model without a store."""
        return [(call.payload, call.lengths) for call in self.calls]


def append_columns(store: MessageStore, job: Job, with_keys: bool) -> float:
    """Seconds of append_columns by one producer."""
    found: list[IntArray] = []
    began = time.perf_counter()
    for call in job.calls:
        keys = call.keys if with_keys else None
        found.append(store.append_columns(job.streams, call.stream_index, call.lengths, call.payload, keys))
    seconds = time.perf_counter() - began
    check_offsets(job, found)
    return seconds


def submit_columns(store: MessageStore, job: Job) -> float:
    """Seconds of submit_columns by one producer, with two calls under way."""
    window: deque[BatchTicket] = deque()
    found: list[IntArray] = []
    began = time.perf_counter()
    for call in job.calls:
        window.append(store.submit_columns(job.streams, call.stream_index, call.lengths, call.payload))
        if len(window) >= UNDER_WAY:
            found.append(window.popleft().result())
    while window:
        found.append(window.popleft().result())
    seconds = time.perf_counter() - began
    check_offsets(job, found)
    return seconds


def append_batches(store: MessageStore, cuts: Sequence[list[tuple[str, int, bytes]]], job: Job) -> float:
    """Seconds of append_batch of the same messages."""
    began = time.perf_counter()
    found = [store.append_batch(rows) for rows in cuts]
    seconds = time.perf_counter() - began
    check_offsets(job, found)
    return seconds


def check_offsets(job: Job, found: Sequence[IntArray]) -> None:
    """Raises WrongResult if a call returned other offsets."""
    if not np.array_equal(np.concatenate(found), job.plan.serials):
        raise WrongResult("an append returned wrong offsets")


@dataclass(frozen=True, kw_only=True)
class Columns(Experiment):
    """append_columns of small messages beside RocksDB, and of contest sizes beside the raw device."""

    NAME: ClassVar[str] = "columns"
    METHOD: ClassVar[str] = (
        "acknowledged durable, one thread, columns made before; "
        f"raw device: {UNDER_WAY} writes of {WRITE_BYTES >> 20} MiB under way; {RocksDb.SETUP}"
    )

    messages: int = setting(4_000_000, "messages per round", short=10_000, least=1)
    message_bytes: int = setting(100, "bytes per message", least=HEADER_BYTES, option="size")
    batch_messages: int = setting(4096, "messages per call", least=1)
    contest_bytes: int = setting(2 << 30, "bytes of contest sizes per round", short=3 << 20, least=1)
    device_s: float = setting(2.0, "seconds of the raw device per round", short=0.05, least=0.01)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of one store after the other; RocksDB with its warm-up takes most."""
        return 2 * space_bytes(max(self.messages * (self.message_bytes + KEY_BYTES), self.contest_bytes))

    def measure(self, base: Path, run: Run) -> Figures:
        """Rates in messages and MB a second; RocksDB's are None if it is not installed."""
        small = self._job(Sizes(self.message_bytes, self.message_bytes), self.messages * self.message_bytes)
        contest = self._job(Sizes.parse("contest"), self.contest_bytes)
        ways: dict[str, Callable[[], Figures]] = {
            "append_columns": partial(self._store, base, small, run, partial(append_columns, with_keys=False)),
            "with keys": partial(self._store, base, small, run, partial(append_columns, with_keys=True)),
            "two under way": partial(self._store, base, small, run, submit_columns),
            "append_batch": partial(self._batches, base, small, run),
            "hash and copy": partial(self._model, small),
            "contest, two under way": partial(self._store, base, contest, run, submit_columns),
            "contest, hash and copy": partial(self._model, contest),
            "raw device": partial(self._device, base),
        }
        missing = None
        try:
            load("rocksdict")
            ways["rocksdb"] = partial(self._rocksdb, base, small, run)
        except PeerMissing as error:
            missing = str(error)
        found = medians(ways, self.repeat, run)
        rates = {name: row["messages_per_s"] for name, row in found.items()}
        speeds = {name: row["mb_per_s"] for name, row in found.items()}
        return {
            "ways": found,
            "append_columns_messages_per_s": rates["append_columns"],
            "rocksdb_messages_per_s": rates.get("rocksdb"),
            "rocksdb_ratio": report.ratio(rates["append_columns"], rates.get("rocksdb")),
            "time_with_keys_ratio": report.ratio(rates["append_columns"], rates["with keys"]),
            "append_batch_ratio": report.ratio(rates["append_columns"], rates["append_batch"]),
            "contest_mb_per_s": speeds["contest, two under way"],
            "raw_device_mb_per_s": speeds["raw device"],
            "raw_device_ratio": report.ratio(speeds["contest, two under way"], speeds["raw device"]),
            **({"rocksdb_missing": missing} if missing else {}),
        }

    def _job(self, sizes: Sizes, total_bytes: int) -> Job:
        work = Workload(self.seed, sizes, queues=self.queues)
        return Job(work, total_bytes, self.batch_messages, CONTEST_CALL_BYTES)

    def _store(self, base: Path, job: Job, run: Run, append: Callable[[MessageStore, Job], float]) -> Figures:
        settings = prewritten(job.plan.payload_bytes * PREWRITE_PART)
        with sub_folder(base, "store") as folder:
            with MessageStore.open(folder, config=TunedConfig(**settings)) as store:
                seconds = append(store, job)
                log = store.stats()["log"]
            run.checked(check_folder(folder, job.work))
            written = amplification(log, job.plan.payload_bytes, folder)
        return {**rates_of(job, seconds), **written}

    def _batches(self, base: Path, job: Job, run: Run) -> Figures:
        items = [(*job.streams[queue], data) for queue, data in zip(job.plan.queues.tolist(), job.datas(), strict=True)]
        cuts, at = [], 0
        for call in job.calls:
            cuts.append(items[at : at + len(call.lengths)])
            at += len(call.lengths)
        return self._store(base, job, run, lambda store, job: append_batches(store, cuts, job))

    def _model(self, job: Job) -> Figures:
        return rates_of(job, hash_and_copy(job.models()))

    def _device(self, base: Path) -> Figures:
        with sub_folder(base, "raw") as folder:
            folder.mkdir(parents=True, exist_ok=True)
            rate = raw_device(folder, WRITE_BYTES, UNDER_WAY, Seconds(self.device_s))
        return {"messages_per_s": None, "mb_per_s": rate.mb_per_s}

    def _rocksdb(self, base: Path, job: Job, run: Run) -> Figures:
        rows = zip(job.plan.rows(), job.datas(), strict=True)
        pairs = [(KEY.pack(queue, serial), data) for (queue, serial, *_), data in rows]
        with sub_folder(base, "rocksdb") as folder:
            seconds = seconds_of_rocksdb(folder, pairs, self.batch_messages, job.plan.payload_bytes)
        run.checked(len(pairs))
        return rates_of(job, seconds)

    def show(self, figures: Figures, console: Console) -> None:
        """Show one row for each way."""
        config = figures["config"]
        title = f"{config['message_bytes']} B, {config['batch_messages']:,} messages a call; contest sizes, 4 MiB"
        rows = [{"way": name, **row} for name, row in figures["ways"].items()]
        console.print(report.table(title, report.chosen(rows, SHOWN)))
        ratios = {
            "append_columns over RocksDB": figures["rocksdb_ratio"],
            "append_columns over append_batch": figures["append_batch_ratio"],
            "time with keys over time without": figures["time_with_keys_ratio"],
            "contest sizes over the raw device": figures["raw_device_ratio"],
        }
        console.print(report.pairs("ratios", {name: value for name, value in ratios.items() if value is not None}))
        if "rocksdb_missing" in figures:
            console.print(figures["rocksdb_missing"], style="yellow", markup=False)


def rates_of(job: Job, seconds: float) -> Figures:
    """Messages and MB a second."""
    return {"messages_per_s": len(job.plan) / seconds, "mb_per_s": job.plan.payload_bytes / seconds / 1e6}
