"""The main job: the contest's hot/cold run (R1), checked message by message, beside two references of the
same run.

Phase 1 appends 60 % of the size; phase 2 appends the rest while every queue is read, half of them from their
newest offset and half from 0; then reading goes on until nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from perf import report, served
from perf.checker import Counts
from perf.folders import check_space, run_folder, sub_folder
from perf.phases import Drive, ReadSide, append_phase, make_tracks, mixed_phase, reader_queues
from perf.producers import Track
from perf.progress import Count, watched
from perf.rawfile import round_up
from perf.reference import (
    FLOOR_FILE_BYTES,
    RAW_FILE_BYTES,
    FloorRate,
    asyncio_floor,
    raw_device,
    thread_floor,
)
from perf.report import Figures
from perf.served import Mark
from perf.settings import prewritten
from perf.threads import on_all_cpus, on_cpus
from perf.tiers import Memory
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS, IntArray, Sizes, Workload
from store import MessageStore, StoreConfig

PHASE_1_PART = 0.6
PROBE_PART = 0.05
PROBE_BYTES_MAX = 128 << 20
# Frames: columns of 12 to 15 bytes a message and, when padded, up to half a block a write.
PREWRITE_PART = 1.05
METADATA_BYTES_MAX = 16
# A lane's first segments, and one that is made ahead.
SPARE_SEGMENTS = 2
# On the run's own CPUs; without messages; and, where the run keeps to some CPUs, on all of them.
FLOORS = ("thread_floor", "thread_floor_bare", "thread_floor_all_cpus")
COUNT_NAMES = ("lost", "duplicated", "out_of_order", "corrupted", "wrong_offsets")


@dataclass(frozen=True)
class Options:
    """One run's settings. `settings` goes to StoreConfig as it is."""

    size_bytes: int = 1 << 30
    threads: int = 40
    sizes: Sizes = field(default_factory=lambda: Sizes.parse("contest"))
    drive: Drive = field(default_factory=lambda: Drive("blocking"))
    seed: int = 2021
    topics: int = CONTEST_TOPICS
    queues: int = CONTEST_QUEUES
    prewrite: bool = True
    reference_s: float = 1.5
    reference_file_bytes: int = FLOOR_FILE_BYTES
    cpus: int | None = None  # None: all
    memory: Memory = field(default_factory=Memory)
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, folder: Path) -> StoreConfig:
        """The store's settings, with segments pre-written for the whole run unless that is turned off."""
        settings = {**self.memory.settings(folder), **self.settings}
        if not self.prewrite:
            return StoreConfig(**settings)
        return StoreConfig(**prewritten(self.log_bytes, settings))

    @property
    def log_bytes(self) -> float:
        """What the log takes at most."""
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
    """A run's plans: each phase's tracks, and the messages a queue that phase 1 writes."""

    work: Workload
    first: list[Track]
    written: IntArray
    second: list[Track]

    @classmethod
    def of(cls, options: Options) -> Job:
        """Everything that is drawn, before the clock starts."""
        producers = options.drive.producers(options.threads)
        work = Workload(options.seed, options.sizes, producers, options.topics, options.queues)
        first = make_tracks(work.plan(int(options.size_bytes * PHASE_1_PART)))
        written = work.written.copy()
        return cls(work, first, written, make_tracks(work.plan(int(options.size_bytes * (1 - PHASE_1_PART)))))


def run_store(options: Options, folder: Path, console: Console) -> Figures:
    """Both phases on a fresh store in `folder`; every figure but the references."""
    job = Job.of(options)
    config = options.config(folder.parent)
    began = time.perf_counter()
    with watched(console, Count("writing segments ahead" if options.prewrite else "opening the store")):
        store = MessageStore.open(folder, config=config)
    with store:
        prewrite_s = time.perf_counter() - began
        return {"prewrite_s": prewrite_s, **_run_phases(store, options, job, console)}


def _run_phases(store: MessageStore, options: Options, job: Job, console: Console) -> Figures:
    hot = job.work.choose_hot()
    reads = ReadSide(store, job.work, job.written, hot, reader_queues(job.work, options.drive))
    stats_0, cpu_0 = store.stats(), report.cpu_seconds()
    with watched(console, Count("phase 1: append", _planned(job.first), _done(job.first))):
        phase_1 = append_phase(store, job.work, job.first, options.drive)
    stats_1 = store.stats()
    held, mark = served.cached_all(store), Mark.now(store)
    appended = Count("phase 2: append", _planned(job.second), _done(job.second))
    # Cold queues are read from their beginning; it goes on after the last append, until nothing is left.
    to_read = int(job.written[~hot].sum()) + _planned(job.second)
    with watched(console, appended, Count("         read", to_read, lambda: reads.messages)):
        phase_2 = mixed_phase(store, job.work, job.second, options.drive, reads)
    stats, cpu_s, from_layers = store.stats(), report.cpu_seconds() - cpu_0, served.served(mark, Mark.now(store))
    counts = reads.finish()
    counts.wrong_offsets += sum(track.wrong_offsets for track in (*job.first, *job.second))
    log, payload_bytes = stats["log"], phase_1.bytes + phase_2.bytes
    return {
        **asdict(counts),
        "seed": options.seed,
        "config": options.as_dict(store.config),
        "total_s": phase_1.seconds + phase_2.seconds,
        "phase1": phase_1.as_dict(),
        "phase2": phase_2.as_dict(),
        "reads": {
            "messages": reads.messages,
            "bytes": reads.bytes,
            "messages_per_s": reads.messages / phase_2.seconds,
            "mb_per_s": reads.bytes / phase_2.seconds / 1e6,
            "device_mb": from_layers["device_mb"],
        },
        "served": from_layers,
        "cache_after_phase1": held,
        "write_amplification": log["written_bytes"] / payload_bytes,
        "prewritten_mb": log["prewritten_bytes"] / 1e6,
        "forces": log["forces"],
        "mean_batch": log["messages"] / max(1, log["forces"]),
        "mean_write_bytes": _mean_write_bytes(stats_0["log"], stats_1["log"]),
        "cpu_s": cpu_s,
        "peak_rss_mb": report.peak_rss_mb(),
        "stats": stats,
    }


def _planned(tracks: list[Track]) -> int:
    return sum(len(track.plan) for track in tracks)


def _done(tracks: list[Track]) -> Callable[[], int]:
    return lambda: sum(track.done for track in tracks)


def _mean_write_bytes(before: Figures, after: Figures) -> float:
    return float(
        (after["written_bytes"] - before["written_bytes"]) / max(1, after["writes"] - before["writes"])
    )


def references(options: Options, folder: Path, write_bytes: float, writers: int) -> Figures:
    """One measurement of the raw device and, where producers wait one by one, of the floors without an
    engine."""
    seconds, file_bytes = options.reference_s, options.reference_file_bytes
    size = round_up(round(write_bytes))
    raw = raw_device(folder, size, writers, seconds, file_bytes=min(file_bytes, RAW_FILE_BYTES))
    figures: Figures = {
        "raw_device_mb_per_s": raw.mb_per_s,
        "raw_device_write_bytes": size,
        "raw_device_direct": raw.direct,
    }
    floor: FloorRate | None = None
    bare: FloorRate | None = None
    free: FloorRate | None = None
    if options.drive.api == "blocking":
        floor = thread_floor(folder, options.threads, options.sizes, seconds, file_bytes=file_bytes)
        bare = thread_floor(folder, options.threads, options.sizes, seconds, bare=True, file_bytes=file_bytes)
        if options.cpus is not None:
            with on_all_cpus():
                free = thread_floor(folder, options.threads, options.sizes, seconds, file_bytes=file_bytes)
    elif options.drive.api == "asyncio":
        floor = asyncio_floor(folder, options.threads, options.sizes, seconds, file_bytes=file_bytes)
    figures["thread_floor_messages_per_s"] = floor.messages_per_s if floor else None
    figures["thread_floor_mean_batch"] = floor.mean_batch if floor else None
    figures["thread_floor_bare_messages_per_s"] = bare.messages_per_s if bare else None
    figures["thread_floor_all_cpus_messages_per_s"] = free.messages_per_s if free else None
    return figures


def _with_ratios(figures: Figures, before: Figures, after: Figures) -> Figures:
    """The references as the mean of before and after the run (the machine is noisy), and the ratios to
    them."""
    merged = {
        name: fmean((before[name], value)) if isinstance(value, float) else value
        for name, value in after.items()
    }
    rate, mb_per_s = figures["phase1"]["messages_per_s"], figures["phase1"]["mb_per_s"]
    floors = {name: merged[f"{name}_messages_per_s"] for name in FLOORS}
    return {
        **figures,
        **merged,
        "raw_device_ratio": mb_per_s / merged["raw_device_mb_per_s"],
        **{f"{name}_ratio": rate / floor if floor else None for name, floor in floors.items()},
        "references": {"before": before, "after": after},
    }


def run_once(options: Options, base: Path, console: Console, reference: bool = True) -> Figures:
    """One fresh run, with the references measured before and after it."""
    if not reference:
        with sub_folder(base, "store") as folder:
            return run_store(options, folder, console)
    # A small run first: it warms everything up and tells the write size at which to measure the device.
    probe_bytes = min(PROBE_BYTES_MAX, int(options.size_bytes * PROBE_PART))
    small, quiet = replace(options, size_bytes=probe_bytes, memory=Memory()), Console(force_terminal=False, quiet=True)
    with watched(console, Count("warming up")), sub_folder(base, "probe") as folder:
        probe = run_store(small, folder, quiet)
    lanes = probe["stats"]["lanes"]
    measuring = Count("measuring the device and the floor")
    with watched(console, measuring), sub_folder(base, "reference") as folder:
        before = references(options, folder, probe["mean_write_bytes"], lanes)
    with sub_folder(base, "store") as folder:
        figures = run_store(options, folder, console)
    with watched(console, measuring), sub_folder(base, "reference") as folder:
        after = references(options, folder, figures["mean_write_bytes"], lanes)
    return _with_ratios(figures, before, after)


def run(
    options: Options, where: Path | None, console: Console, repeat: int = 1, reference: bool = True
) -> Figures:
    """Medians over `repeat` fresh runs (broken promises are summed); `runs` has each run when there are
    several."""
    runs = []
    if options.memory.persistent_bytes:
        check_space(options.memory.persistent_folder, options.memory.persistent_bytes)
    for _ in range(repeat):
        with run_folder(where, options.need_bytes()) as base, on_cpus(options.cpus):
            runs.append(run_once(options, base, console, reference))
    figures: Figures = report.median_of(runs)
    return {**figures, "runs": runs} if repeat > 1 else figures


def clean(figures: Figures) -> bool:
    """Whether nothing was lost, repeated, reordered, damaged or answered with a wrong offset."""
    return Counts(**{name: figures[name] for name in COUNT_NAMES}).clean
