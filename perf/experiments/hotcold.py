"""The main job: one hot/cold run, with all options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from rich.console import Console

from ..machine.folders import check_space, human_bytes
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.memory import BLOCK_BYTES, SHARED_MEMORY, Memory
from ..workload.phases import Api, Drive
from ..workload.producers import BATCH_MESSAGES, WINDOW_BYTES, WINDOW_MESSAGES
from .experiment import Experiment, queues, repeats, setting
from .hotcold_run import PHASE_1_PART, Options, clean, counts_line, run_once

RUN_NAMES = (
    "total_s", "prewrite_s", "close_s", "total_s_with_prewrite_and_close", "write_amplification",
    "write_amplification_with_footers", "write_amplification_with_prewriting", "prewritten_mb", "footer_mb",
    "kernel_write_mb", "forces", "mean_batch", "mean_write_bytes", "cpu_s", "peak_rss_mb", "checked_messages",
)  # fmt: skip
# Figure -> what its line says.
REFERENCE_NAMES = {
    "raw_device_mb_per_s": "raw device, MB/s",
    "raw_device_ratio": "phase 1 over the raw device",
    "thread_floor_messages_per_s": "producers without an engine, msg/s",
    "thread_floor_ratio": "phase 1 over these",
    "thread_floor_bare_messages_per_s": "the same making no messages, msg/s",
    "thread_floor_bare_ratio": "phase 1 over these making none",
    "thread_floor_all_cpus_messages_per_s": "without an engine on all CPUs, msg/s",
    "thread_floor_all_cpus_ratio": "phase 1 over these on all CPUs",
}


@dataclass(frozen=True, kw_only=True)
class HotCold(Experiment):
    """Appends, then appends and reads of new and old messages, each checked. Exit code 1 if one is lost or wrong."""

    NAME: ClassVar[str] = "hotcold"
    METHOD: ClassVar[str] = "a fresh store; device and producers without an engine before and after it, their mean"

    size_bytes: int = setting(1 << 30, "payload of both phases together, as 300MB", short=8 << 20)
    threads: int = setting(40, "producers: threads, or tasks with --api asyncio", short=8, least=1)
    api: Api = setting("blocking", "how to append")
    lanes: int | None = setting(None, "append lanes", least=1)
    alignment: Literal["pad", "trim", "adaptive"] | None = setting(None, "how writes end at blocks")
    durability: Literal["force", "os"] | None = setting(None, "what an answer means")
    sizes: str = setting("contest", '"contest" (100 B to 17 KiB), "small" (100 to 1,000 B) or one size')
    queues: int = queues()
    batch_messages: int = setting(BATCH_MESSAGES, "messages per call, with --api batch", least=1)
    window_bytes: int = setting(WINDOW_BYTES, "bytes under way, with --api pipelined")
    readers: int = setting(1, "reading threads; not with --api blocking", least=1)
    cpus: int | None = setting(None, "the number of CPUs; 0: all (without it: 1 if blocking, else all)", least=0)
    repeat: int = repeats(1)
    reference: bool = setting(True, "also measure the device, and producers without an engine")
    prewrite: bool = setting(True, "make segments before the clock starts")
    contest_memory: bool = setting(False, "tiers for a part of the data: DRAM 5.6 %, persistent memory 49 %")
    dram_bytes: int | None = setting(None, "bytes of the message cache's DRAM tiers")
    pmem_bytes: int | None = setting(None, "bytes of the persistent memory tier")
    pmem_dir: Path = setting(SHARED_MEMORY, "folder of the persistent memory tier's file")
    edge_bytes: int = setting(0, "bytes for fragments of messages that are not cached")
    block_bytes: int = setting(BLOCK_BYTES, "bytes per block of the message cache")
    expected: bool = setting(False, "compute the admission threshold from phase 1")
    release: bool = setting(False, "release messages that were read")
    recent_bytes: int | None = setting(None, "bytes of the ring of recent frames")
    read_cache_bytes: int | None = setting(None, "bytes of the read cache")
    memory_limit_bytes: int | None = setting(None, "memory_limit_bytes of the store")
    reference_s: float = setting(1.5, "seconds of each reference", short=0.1, least=0)
    reference_file_bytes: int = setting(256 << 20, "largest size of the references' file", short=16 << 20)

    def __post_init__(self) -> None:
        Sizes.parse(self.sizes)  # ValueError: a usage error

    def options(self) -> Options:
        """The wanted run."""
        given = {"lanes": self.lanes, "alignment": self.alignment, "durability": self.durability}
        return Options(
            size_bytes=self.size_bytes,
            threads=self.threads,
            sizes=Sizes.parse(self.sizes),
            drive=Drive(self.api, self.window_bytes, WINDOW_MESSAGES, self.batch_messages, self.readers),
            seed=self.seed,
            queues=self.queues,
            prewrite=self.prewrite,
            reference_s=self.reference_s,
            reference_file_bytes=self.reference_file_bytes,
            cpus=(self.cpus if self.cpus is not None else int(self.api == "blocking")) or None,
            memory=self.memory(),
            settings={name: value for name, value in given.items() if value is not None},
        )

    def memory(self) -> Memory:
        """The tiers: the contest's first, so that single sizes can be changed."""
        memory = Memory(
            persistent_folder=self.pmem_dir, edge_bytes=self.edge_bytes, block_bytes=self.block_bytes,
            recent_bytes=self.recent_bytes, read_cache_bytes=self.read_cache_bytes,
            limit_bytes=self.memory_limit_bytes, release_on_read=self.release,
        )  # fmt: skip
        if self.contest_memory:
            memory = memory.as_in_the_contest(self.size_bytes)
        if self.dram_bytes is not None:
            memory = memory.with_dram(self.dram_bytes)
        if self.pmem_bytes is not None:
            memory = replace(memory, persistent_bytes=self.pmem_bytes)
        computed = self.expected or self.contest_memory
        return replace(memory, expected_bytes=int(self.size_bytes * PHASE_1_PART)) if computed else memory

    def need_bytes(self) -> float:
        """The space of the store's segments, or of the references' files."""
        return self.options().need_bytes()

    def measure(self, base: Path, run: Run) -> Figures:
        """Medians of `repeat` fresh runs; broken promises are summed, and `runs` has each run when there are more."""
        options = self.options()
        if options.memory.persistent_bytes:
            check_space(options.memory.persistent_folder, options.memory.persistent_bytes)
        once = partial(run_once, options, base, run.console, self.reference)
        runs = [once() for _ in range(self.repeat)]
        figures: Figures = report.median_of(runs)
        run.checked(figures["checked_messages"])
        return {**figures, "runs": runs} if self.repeat > 1 else figures

    def show(self, figures: Figures, console: Console) -> None:
        """The tables of a run."""
        config, second_s = figures["config"], figures["phase2"]["seconds"]
        rows = [_row(name, figures[name]["seconds"], figures[name]) for name in ("phase1", "phase2")]
        rows.append(_row("reads in 2", second_s, figures["reads"]))
        size = human_bytes(config["size_bytes"])
        title = f"hot/cold, {size}, {config['drive']['api']}, {config['threads']} producers"
        console.print(report.table(title, rows))
        whole = report.named(figures, RUN_NAMES)
        console.print(report.pairs("whole run", {**whole, "device_read_mb": figures["reads"]["device_mb"]}))
        show_memory(figures, console)
        if "raw_device_ratio" in figures:
            found = {text: figures[name] for name, text in REFERENCE_NAMES.items() if figures[name] is not None}
            console.print(report.pairs("references of this run", found))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """The counts of broken promises."""
        return clean(figures), counts_line(figures)


def _row(name: str, seconds: float, part: Figures) -> Figures:
    """A line of the first table: a phase, or phase 2's reads (which have no latencies)."""
    latency = part.get("latency_us", {})
    return {
        "phase": name,
        "s": seconds,
        "messages": part["messages"],
        "msg/s": part["messages_per_s"],
        "MB/s": part["mb_per_s"],
        "p50 us": latency.get("p50"),
        "p99 us": latency.get("p99"),
        "p99.9 us": latency.get("p999"),
    }


def show_memory(figures: Figures, console: Console) -> None:
    """Show the layers that served the reads, and the content of the message cache, if there is one."""
    ring = human_bytes(figures["stats"]["recent_bytes"])
    console.print(report.table(f"reads of phase 2, by layer (ring: {ring})", layers.rows(figures["served"])))
    console.print(report.pairs("below the ring", layers.device_pairs(figures["served"])))
    if held := figures["cache_after_phase1"]:
        tiers = [{"tier": name, **tier} for name, tier in held["tiers"].items()]
        console.print(report.table("tiers after phase 1", tiers))
        whole = {name: value for name, value in held.items() if name != "tiers"}
        console.print(report.pairs("message cache after phase 1", whole))
