"""The contest's hot/cold run (R1), checked message by message, beside the references of the same run.

Phase 1 appends 60 % of the size. Phase 2 appends the rest while every queue is read, half of them from their newest
offset and half from 0; then reading goes on until nothing is left. Afterwards the store is opened again, and every
message of it is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from ...store import MessageStore, StoreConfig
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..machine.threads import on_all_cpus, on_cpus
from ..machine.usage import cpu_seconds, device_bytes, moved_mb, peak_rss_mb
from ..references import no_engine
from ..references.device import RAW_FILE_BYTES, Seconds, raw_device
from ..references.no_engine import NoEngineRate, tasks_without_engine, threads_without_engine
from ..references.rawfile import round_up
from ..report import layers
from ..report.figures import Figures, ratio
from ..report.layers import Mark
from ..report.progress import NOWHERE, Count, watched
from ..workload.checker import Counts, WrongResult
from ..workload.comparing import check_folder
from ..workload.contest import CONTEST_QUEUES, IntArray, Sizes, Workload
from ..workload.memory import Memory
from ..workload.phases import Drive, PhaseResult, ReadSide, append_phase, mixed_phase, reader_queues
from ..workload.producers import Track
from ..workload.settings import prewritten
from .amplification import amplification

PHASE_1_PART = 0.6
PROBE_PART = 0.05
PROBE_BYTES_MAX = 128 << 20
# Frames: columns of 12 to 15 bytes a message and, when padded, up to half a block a write.
PREWRITE_PART = 1.05
METADATA_BYTES_MAX = 16
# A lane's first segments, and one that is made ahead.
SPARE_SEGMENTS = 2
# JSON names of the producers without an engine: on the run's own CPUs; without making messages; on all CPUs.
NO_ENGINE = ("thread_floor", "thread_floor_bare", "thread_floor_all_cpus")


@dataclass(frozen=True)
class Options:
    """One run's settings. `settings` goes to StoreConfig as it is."""

    size_bytes: int = 1 << 30
    threads: int = 40
    sizes: Sizes = field(default_factory=lambda: Sizes.parse("contest"))
    drive: Drive = field(default_factory=lambda: Drive("blocking"))
    seed: int = 2021
    queues: int = CONTEST_QUEUES
    prewrite: bool = True
    reference_s: float = 1.5
    reference_file_bytes: int = no_engine.FILE_BYTES
    cpus: int | None = None  # None: all
    memory: Memory = field(default_factory=Memory)
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, folder: Path) -> StoreConfig:
        """The store's settings, with segments pre-written for the whole run unless that is turned off."""
        settings = {**self.memory.settings(folder), **self.settings}
        return TunedConfig(**(prewritten(self.log_bytes, settings) if self.prewrite else settings))

    @property
    def log_bytes(self) -> float:
        """The most bytes of the log."""
        return self.size_bytes * PREWRITE_PART * (1 + METADATA_BYTES_MAX / self.sizes.mean)

    def need_bytes(self) -> int:
        """Free space that a run takes at most: the segments with those made ahead, or the references' files, which are
        gone before and come after."""
        config = self.config(Path())
        lanes = config.lanes or 1
        store_bytes = int(self.log_bytes) + lanes * SPARE_SEGMENTS * config.segment_bytes
        raw_bytes = lanes * min(self.reference_file_bytes, RAW_FILE_BYTES)
        return max(store_bytes + self.memory.private_file_bytes, raw_bytes, self.reference_file_bytes)

    def as_dict(self, config: StoreConfig) -> Figures:
        """JSON-ready: the run's settings and the store's."""
        return {**asdict(self), "store": asdict(config)}


@dataclass(frozen=True)
class Job:
    """A run's plans: each phase's tracks, and the messages of each queue that phase 1 writes."""

    work: Workload
    first: list[Track]
    written: IntArray
    second: list[Track]

    @classmethod
    def of(cls, options: Options) -> Job:
        """Draw everything before the clock starts."""
        work = Workload(options.seed, options.sizes, options.drive.producers(options.threads), options.queues)
        first = [Track(plan) for plan in work.plan(int(options.size_bytes * PHASE_1_PART))]
        written = work.written.copy()
        second = [Track(plan) for plan in work.plan(int(options.size_bytes * (1 - PHASE_1_PART)))]
        return cls(work, first, written, second)


def run_store(options: Options, folder: Path, console: Console) -> Figures:
    """Both phases on a fresh store in `folder`; every figure but the references."""
    job = Job.of(options)
    config = options.config(folder.parent)
    written_0, began = device_bytes("write_bytes"), time.perf_counter()
    with watched(console, Count("writing segments ahead" if options.prewrite else "opening the store")):
        store = MessageStore.open(folder, config=config)
    with store:
        open_s = time.perf_counter() - began
        figures = _run_phases(store, options, job, console)
        began = time.perf_counter()
    close_s = time.perf_counter() - began
    kernel_mb = moved_mb(written_0, device_bytes("write_bytes"))
    log, payload_bytes = figures["stats"]["log"], figures["phase1"]["bytes"] + figures["phase2"]["bytes"]
    with watched(console, Count("comparing the whole store")):
        written = amplification(log, payload_bytes, folder)
        found = compare(folder, job.work)
    return {
        **figures,
        **{name: figures[name] + count for name, count in asdict(found).items()},
        "checked_messages": int(job.work.written.sum()),
        "prewrite_s": open_s,
        "close_s": close_s,
        "total_s_with_prewrite_and_close": open_s + figures["total_s"] + close_s,
        **written,
        "kernel_write_mb": kernel_mb,
    }


def compare(folder: Path, work: Workload) -> Counts:
    """Open the closed store again and compare all of it; a difference counts as one damaged message."""
    try:
        check_folder(folder, work)
    except WrongResult:
        return Counts(corrupted=1)
    return Counts()


def _run_phases(store: MessageStore, options: Options, job: Job, console: Console) -> Figures:
    hot = job.work.choose_hot()
    reads = ReadSide(store, job.work, job.written, hot, reader_queues(job.work, options.drive))
    stats_0, cpu_0 = store.stats(), cpu_seconds()
    with watched(console, Count("phase 1: append", _planned(job.first), _done(job.first))):
        phase_1 = append_phase(store, job.work, job.first, options.drive)
    stats_1 = store.stats()
    held, mark = layers.cached_all(store), Mark.now(store)
    appended = Count("phase 2: append", _planned(job.second), _done(job.second))
    # Cold queues are read from their beginning; it goes on after the last append, until nothing is left.
    to_read = int(job.written[~hot].sum()) + _planned(job.second)
    with watched(console, appended, Count("         read", to_read, lambda: reads.messages)):
        phase_2 = mixed_phase(store, job.work, job.second, options.drive, reads)
    stats, cpu_s, served = store.stats(), cpu_seconds() - cpu_0, layers.served(mark, Mark.now(store))
    counts = reads.finish()
    counts.wrong_offsets += sum(track.wrong_offsets for track in (*job.first, *job.second))
    log = stats["log"]
    return {
        **asdict(counts),
        "seed": options.seed,
        "config": options.as_dict(store.config),
        "total_s": phase_1.seconds + phase_2.seconds,
        "phase1": phase_1.as_dict(),
        "phase2": phase_2.as_dict(),
        "reads": _read_rates(reads, phase_2, served),
        "served": served,
        "cache_after_phase1": held,
        "forces": log["forces"],
        "mean_batch": log["messages"] / max(1, log["forces"]),
        "mean_write_bytes": _mean_write_bytes(stats_0["log"], stats_1["log"]),
        "cpu_s": cpu_s,
        "peak_rss_mb": peak_rss_mb(),
        "stats": stats,
    }


def _read_rates(reads: ReadSide, phase: PhaseResult, served: Figures) -> Figures:
    return {
        "messages": reads.messages,
        "bytes": reads.bytes,
        "messages_per_s": reads.messages / phase.seconds,
        "mb_per_s": reads.bytes / phase.seconds / 1e6,
        "device_mb": served["device_mb"],
    }


def _planned(tracks: list[Track]) -> int:
    return sum(len(track.plan) for track in tracks)


def _done(tracks: list[Track]) -> Callable[[], int]:
    return lambda: sum(track.done for track in tracks)


def _mean_write_bytes(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    return float((after["written_bytes"] - before["written_bytes"]) / max(1, after["writes"] - before["writes"]))


def references(options: Options, folder: Path, write_bytes: float, writers: int) -> Figures:
    """The raw device once and, if producers wait one by one, the producers without an engine."""
    seconds, file_bytes = options.reference_s, options.reference_file_bytes
    size = round_up(round(write_bytes))
    raw = raw_device(folder, size, writers, Seconds(seconds), file_bytes=min(file_bytes, RAW_FILE_BYTES))
    rates: dict[str, NoEngineRate] = {}

    def measured(name: str, *, bare: bool = False) -> None:
        given = (folder, options.threads, options.sizes, seconds, Seconds(seconds))
        if options.drive.api == "asyncio":
            rates[name] = tasks_without_engine(*given, file_bytes=file_bytes)
        else:
            rates[name] = threads_without_engine(*given, bare=bare, file_bytes=file_bytes)

    if options.drive.api in ("blocking", "asyncio"):
        measured("thread_floor")
    if options.drive.api == "blocking":
        measured("thread_floor_bare", bare=True)
        if options.cpus is not None:
            with on_all_cpus():
                measured("thread_floor_all_cpus")
    figures: Figures = {
        "raw_device_mb_per_s": raw.mb_per_s,
        "raw_device_write_bytes": size,
        "raw_device_call": raw.call,
        "thread_floor_mean_batch": rates["thread_floor"].mean_batch if "thread_floor" in rates else None,
    }
    for name in NO_ENGINE:
        figures[f"{name}_messages_per_s"] = rates[name].messages_per_s if name in rates else None
    return figures


def with_ratios(figures: Figures, before: Figures, after: Figures) -> Figures:
    """The references as the mean of before and after the run, since the machine is noisy; and the ratios to them."""
    merged = {
        name: fmean((before[name], value)) if isinstance(value, float) else value for name, value in after.items()
    }
    rate = figures["phase1"]["messages_per_s"]
    return {
        **figures,
        **merged,
        "raw_device_ratio": figures["phase1"]["mb_per_s"] / merged["raw_device_mb_per_s"],
        **{f"{name}_ratio": ratio(rate, merged[f"{name}_messages_per_s"]) for name in NO_ENGINE},
        "references": {"before": before, "after": after},
    }


def run_once(options: Options, base: Path, console: Console, reference: bool = True) -> Figures:
    """One fresh run on its CPUs, with the references measured before and after it."""
    with on_cpus(options.cpus):
        if not reference:
            with sub_folder(base, "store") as folder:
                return run_store(options, folder, console)
        # A small run first: it warms everything up and tells the write size at which to measure the device.
        probe_bytes = min(PROBE_BYTES_MAX, int(options.size_bytes * PROBE_PART))
        small, quiet = replace(options, size_bytes=probe_bytes, memory=Memory()), NOWHERE
        with watched(console, Count("warming up")), sub_folder(base, "probe") as folder:
            probe = run_store(small, folder, quiet)
        lanes = probe["stats"]["lanes"]
        measuring = Count("measuring the device, and producers without an engine")
        with watched(console, measuring), sub_folder(base, "reference") as folder:
            before = references(options, folder, probe["mean_write_bytes"], lanes)
        with sub_folder(base, "store") as folder:
            figures = run_store(options, folder, console)
        with watched(console, measuring), sub_folder(base, "reference") as folder:
            after = references(options, folder, figures["mean_write_bytes"], lanes)
        return with_ratios(figures, before, after)


COUNT_NAMES = tuple(asdict(Counts()))


def clean(figures: Figures) -> bool:
    """Whether no message was lost, repeated, reordered, damaged or answered with a wrong offset."""
    return Counts(**{name: figures[name] for name in COUNT_NAMES}).clean


def counts_line(figures: Figures) -> str:
    """The counts of broken promises: "lost 0  duplicated 0 .."."""
    return "  ".join(f"{name} {figures[name]}" for name in COUNT_NAMES)
