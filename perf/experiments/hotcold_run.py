"""The contest's hot/cold run (R1), checked message by message, beside the references of the same run.

Phase 1 appends 60 % of the size. Phase 2 appends the rest while every queue is read, half of them from their newest
offset and half from 0; then reading goes on until nothing is left. Afterwards the store is opened again, and every
message of it is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from ..references.no_engine import tasks_without_engine, threads_without_engine
from ..references.rawfile import round_up
from ..report import layers
from ..report.layers import Mark
from ..report.progress import NOWHERE, Count, watched
from ..workload.checker import Counts, WrongResult
from ..workload.comparing import check_folder
from ..workload.contest import CONTEST_QUEUES, IntArray, Sizes, Workload
from ..workload.memory import Memory
from ..workload.phases import Drive, ReadSide, append_phase, mixed_phase, reader_queues
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
Figures = dict[str, float | None]


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


@dataclass(frozen=True)
class Done:
    """One run: its figures, the messages that broke a promise, and how many were compared.

    Attributes:
        difference: where the closed store has something else than was written, in words; empty if nowhere.
    """

    figures: Figures
    counts: Counts
    checked_messages: int
    write_bytes: int  # of a write of phase 1, on the average
    lanes: int
    difference: str = ""


def run_store(options: Options, folder: Path, console: Console) -> Done:
    """Both phases on a fresh store in `folder`; every figure but the references."""
    job = Job.of(options)
    config = options.config(folder.parent)
    written_0, began = device_bytes("write_bytes"), time.perf_counter()
    with watched(console, Count("writing segments ahead" if options.prewrite else "opening the store")):
        store = MessageStore.open(folder, config=config)
    with store:
        open_s = time.perf_counter() - began
        figures, counts, stats, write_bytes = _run_phases(store, options, job, console)
        began = time.perf_counter()
    close_s = time.perf_counter() - began
    kernel_mb = moved_mb(written_0, device_bytes("write_bytes"))
    payload_bytes = int(sum(int(track.plan.sizes[: track.done].sum()) for track in (*job.first, *job.second)))
    with watched(console, Count("comparing the whole store")):
        written = amplification(stats["log"], payload_bytes, folder)
        difference = compare(folder, job.work)
        counts.corrupted += bool(difference)
    whole_s = open_s + float(figures["total_s"] or 0) + close_s
    opened: Figures = {"open_s": open_s, "close_s": close_s, "whole_s": whole_s, "kernel_write_mb": kernel_mb}
    checked = int(job.work.written.sum())
    return Done({**figures, **opened, **written}, counts, checked, write_bytes, stats["lanes"], difference)


def compare(folder: Path, work: Workload) -> str:
    """Open the closed store again and compare all of it. Returns the first difference in words; "" if there is none."""
    try:
        check_folder(folder, work)
    except WrongResult as error:
        return str(error)
    return ""


def _run_phases(
    store: MessageStore, options: Options, job: Job, console: Console
) -> tuple[Figures, Counts, Mapping[str, Any], int]:
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
    rates = {"reads.per_s": reads.messages / phase_2.seconds, "reads.mb_per_s": reads.bytes / phase_2.seconds / 1e6}
    figures: Figures = {
        **{f"phase1.{name}": value for name, value in phase_1.figures().items()},
        **{f"phase2.{name}": value for name, value in phase_2.figures().items()},
        **rates,
        "total_s": phase_1.seconds + phase_2.seconds,
        "forces": log["forces"],
        "mean_batch": log["messages"] / max(1, log["forces"]),
        "cpu_s": cpu_s,
        "peak_rss_mb": peak_rss_mb(),
        **{f"served.{name}": value for name, value in served.items()},
        **{f"cache.{name}": value for name, value in held.items()},
    }
    return figures, counts, stats, round(_mean_write_bytes(stats_0["log"], stats_1["log"]))


def _planned(tracks: list[Track]) -> int:
    return sum(len(track.plan) for track in tracks)


def _done(tracks: list[Track]) -> Callable[[], int]:
    return lambda: sum(track.done for track in tracks)


def _mean_write_bytes(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    return float((after["written_bytes"] - before["written_bytes"]) / max(1, after["writes"] - before["writes"]))


def references(options: Options, folder: Path, write_bytes: int, writers: int) -> dict[str, float]:
    """The raw device once and, if producers wait one by one, the producers without an engine: on the run's CPUs, there
    without making messages, and on all CPUs."""
    seconds, file_bytes = options.reference_s, options.reference_file_bytes
    raw = raw_device(
        folder, round_up(write_bytes), writers, Seconds(seconds), file_bytes=min(file_bytes, RAW_FILE_BYTES)
    )
    found = {"device.mb_per_s": raw.mb_per_s}

    def rate(*, bare: bool = False) -> float:
        given = (folder, options.threads, options.sizes, seconds, Seconds(seconds))
        if options.drive.api == "asyncio":
            return tasks_without_engine(*given, file_bytes=file_bytes).messages_per_s
        return threads_without_engine(*given, bare=bare, file_bytes=file_bytes).messages_per_s

    if options.drive.api in ("blocking", "asyncio"):
        found["no_engine.per_s"] = rate()
    if options.drive.api == "blocking":
        found["no_engine_bare.per_s"] = rate(bare=True)
        if options.cpus is not None:
            with on_all_cpus():
                found["no_engine_all_cpus.per_s"] = rate()
    return found


def run_once(options: Options, base: Path, console: Console, reference: bool = True) -> Done:
    """One fresh run on its CPUs; the references are the mean of before and after it, since the machine is noisy."""
    with on_cpus(options.cpus):
        if not reference:
            with sub_folder(base, "store") as folder:
                return run_store(options, folder, console)
        # A small run first: it warms everything up and tells the write size at which to measure the device.
        probe_bytes = min(PROBE_BYTES_MAX, int(options.size_bytes * PROBE_PART))
        small = replace(options, size_bytes=probe_bytes, memory=Memory())
        with watched(console, Count("warming up")), sub_folder(base, "probe") as folder:
            probe = run_store(small, folder, NOWHERE)
        measuring = Count("measuring the device, and producers without an engine")
        with watched(console, measuring), sub_folder(base, "reference") as folder:
            before = references(options, folder, probe.write_bytes, probe.lanes)
        with sub_folder(base, "store") as folder:
            done = run_store(options, folder, console)
        with watched(console, measuring), sub_folder(base, "reference") as folder:
            after = references(options, folder, done.write_bytes, done.lanes)
        return replace(done, figures={**done.figures, **{name: fmean((before[name], after[name])) for name in after}})
