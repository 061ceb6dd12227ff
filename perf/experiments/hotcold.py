"""The main job: one hot/cold run, with all options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ..machine.folders import check_space, human_bytes
from ..report.layers import LAYERS
from ..report.progress import NOWHERE, Run
from ..report.record import Better, Chapter, Measure
from ..report.words import amount, sentence
from ..workload.checker import Counts
from ..workload.contest import Sizes
from ..workload.memory import SHARED_MEMORY, Memory
from ..workload.phases import Api, Drive
from ..workload.producers import BATCH_MESSAGES
from .experiment import queues, repeats, setting
from .hotcold_run import PHASE_1_PART, Options, run_once
from .parts import TAILS, Count, Part, latencies, measured, of
from .reported import Reported, Study

NO_ENGINE = "the same producers without an engine"


def _phase(name: str, what: str, **beside: str) -> tuple[Count, ...]:
    """The counts of a phase. `beside`: the figures that its rates stand beside."""
    return (
        Count(figure=f"{name}.per_s", what=what, unit="msg/s", meaning="messages that were answered a second",
              beside=beside.get("rate", ""), beside_what=NO_ENGINE),
        Count(figure=f"{name}.mb_per_s", what=f"{what}, payload", unit="MB/s", meaning="1 MB is 10^6 bytes",
              beside=beside.get("bytes", ""), beside_what="the device alone, forced writes of the same size"),
        *latencies(f"{what}: wait", "from a call to its durable answer; a stalled caller asks for less",
                   *TAILS, prefix=f"{name}."),
    )  # fmt: skip


def _count(figure: str, what: str, unit: str, meaning: str = "", better: Better = "lower") -> Count:
    return Count(figure=figure, what=what, unit=unit, meaning=meaning, better=better)


PHASES = (
    *_phase("phase1", "appends alone", rate=".no_engine.per_s", bytes=".device.mb_per_s"),
    *_phase("phase2", "appends beside reads"),
    _count("reads.per_s", "reads beside them", "msg/s", "messages read and compared a second", "higher"),
    _count("reads.mb_per_s", "reads beside them, payload", "MB/s", "", "higher"),
    _count("total_s", "both phases", "s"),
)
WHOLE = (
    _count("open_s", "opening the store, with segments written ahead", "s"),
    _count("close_s", "closing it", "s"),
    _count("whole_s", "both phases, with opening and closing", "s"),
    _count("write_amplification", "written to the log over payload", "", "frames, columns and padding"),
    _count("write_amplification_with_footers", "with the footers", ""),
    _count("write_amplification_with_prewriting", "with the zeros of pre-writing, too", ""),
    _count("kernel_write_mb", "written to the device as the kernel counts", "MB"),
    _count("prewritten_mb", "zeros of pre-writing", "MB"),
    _count("footer_mb", "footers", "MB"),
    _count("forces", "forces", "", "forced writes of the log", "neither"),
    _count("mean_batch", "messages a force", "", "producers that wait together share one", "neither"),
    _count("cpu_s", "processor time", "s"),
    _count("peak_rss_mb", "largest resident size", "MB"),
)
SERVED = (
    *(_count(f"served.{layer}.percent", f"served by {name}", "%", "of the messages", "neither")
      for layer, name in LAYERS.items()),
    _count("served.device_reads", "reads of the device", ""),
    _count("served.device_mb", "read from the device", "MB"),
    _count("served.kernel_mb", "read from the device as the kernel counts", "MB"),
    _count("served.unsound_messages", "copies in memory that were refused", "", "they were read from the log"),
)  # fmt: skip
CACHE = (
    _count("cache.capacity_mb", "capacity", "MB", better="neither"),
    _count("cache.used_percent", "of it in use", "%", better="higher"),
    _count("cache.filled_messages", "cached messages", "", better="higher"),
    _count("cache.not_admitted_messages", "messages above the threshold", "", better="neither"),
    _count("cache.refused_messages", "messages without room", ""),
    _count("cache.missed_messages", "messages that the cache did not see in time", ""),
    _count("cache.all_below_bytes", "every message below this was cached", "B", better="neither"),
    *(_count(f"cache.{layer}.used_mb", f"in use of {name}", "MB", better="neither") for layer, name in LAYERS.items()),
)
REFERENCES = (
    _count("device.mb_per_s", "the device alone, forced writes of phase 1's mean size", "MB/s", better="higher"),
    _count("no_engine.per_s", "producers without an engine", "msg/s",
           "as many make the same messages and wait for a real write and force", "higher"),
    _count("no_engine_bare.per_s", "the same making no messages", "msg/s", "", "higher"),
    _count("no_engine_all_cpus.per_s", "the same on all CPUs", "msg/s", "", "higher"),
)  # fmt: skip
CHAPTERS = {
    "Appends, and reads beside them": ("Phase 1 appends 60 % of the bytes. Phase 2 appends the rest while every queue "
        "is read, half of them from their newest offset, half from the first. Each message is compared.", PHASES),
    "The whole run": ("What it wrote and took, and the time with opening and closing.", WHOLE),
    "Reads of phase 2": ("By the layer that had the messages.", SERVED),
    "Message cache after phase 1": ("Its tiers hold copies of messages.", CACHE),
    "References": ("Measured before and after the run, on the same disk: their mean.", REFERENCES),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HotCold(Reported):
    """Appends, then appends and reads of new and old messages, each checked. Exit code 1 if one is lost or wrong."""

    NAME: ClassVar[str] = "hotcold"
    TITLE: ClassVar[str] = "The main job: appends, then appends and reads"
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
    cpus: int | None = setting(None, "the number of CPUs; 0: all (without it: 1 if blocking, else all)", least=0)
    repeat: int = repeats(1)
    reference: bool = setting(True, "also measure the device, and producers without an engine")
    prewrite: bool = setting(True, "make segments before the clock starts")
    contest_memory: bool = setting(False, "tiers for a part of the data: DRAM 5.6 %, persistent memory 49 %")
    pmem_dir: Path = setting(SHARED_MEMORY, "folder of the persistent memory tier's file")
    recent_bytes: int | None = setting(None, "bytes of the ring of recent frames")
    read_cache_bytes: int | None = setting(None, "bytes of the read cache")
    memory_limit_bytes: int | None = setting(None, "memory_limit_bytes of the store")
    reference_s: float = setting(1.5, "seconds of each reference", short=0.1, least=0)
    reference_file_bytes: int = setting(256 << 20, "largest size of the references' file", short=16 << 20)

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        Sizes.parse(self.sizes)  # ValueError: a usage error

    def options(self) -> Options:
        """The wanted run."""
        given = {"lanes": self.lanes, "alignment": self.alignment, "durability": self.durability}
        return Options(
            size_bytes=self.size_bytes,
            threads=self.threads,
            sizes=Sizes.parse(self.sizes),
            drive=Drive(self.api, batch_messages=self.batch_messages),
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
        """The ring, the caches and, with --contest-memory, the tiers and a threshold computed from phase 1."""
        memory = Memory(
            persistent_folder=self.pmem_dir, recent_bytes=self.recent_bytes,
            read_cache_bytes=self.read_cache_bytes, limit_bytes=self.memory_limit_bytes,
        )  # fmt: skip
        if not self.contest_memory:
            return memory
        return memory.as_in_the_contest(self.size_bytes, int(self.size_bytes * PHASE_1_PART))

    def need_bytes(self) -> float:
        """The space of the store's segments, or of the references' files."""
        return self.options().need_bytes()

    def study(self, base: Path, run: Run) -> Study:
        """Medians of `repeat` fresh runs; broken promises are summed."""
        options, counts, differences = self.options(), Counts(), list[str]()
        if options.memory.persistent_bytes:
            check_space(options.memory.persistent_folder, options.memory.persistent_bytes)

        def once() -> Mapping[str, float | None]:
            done = run_once(options, base, run.console, self.reference)
            counts.add(done.counts)
            if done.difference:
                differences.append(done.difference)
            run.checked(done.checked_messages)
            return done.figures

        every = tuple(count for _, one in CHAPTERS.values() for count in one)
        # A run has bars of its own: it does not say "part 1 of 1" between them.
        found = measured([Part(self.NAME, once, every)], self.repeat, Run(self.NAME, NOWHERE))
        chapters = tuple(
            Chapter(title=title, text=text, measures=of(found, *(f"{self.NAME}.{count.figure}" for count in one)))
            for title, (text, one) in CHAPTERS.items()
        )
        return Study(
            summary=self._summary(found), chapters=tuple(one for one in chapters if one.measures),
            right=counts.clean, verdict="; ".join((counts.line(), *differences)),
        )  # fmt: skip

    def _summary(self, found: Mapping[str, Measure]) -> tuple[str, ...]:
        rate, phase, wait = (found[f"{self.NAME}.{name}"] for name in ("phase1.per_s", "phase1.mb_per_s", "phase1.p50"))
        calm = amount(found[f"{self.NAME}.phase1.p99"].value, "us")
        reads = amount(found[f"{self.NAME}.reads.per_s"].value, "msg/s")
        memory = 100 - found[f"{self.NAME}.served.device.percent"].value
        return (
            f"{human_bytes(self.size_bytes)}, {self.api}, {self.threads} producers. " + sentence(rate),
            sentence(phase),
            f"A caller waits {amount(wait.value, 'us')} at the median, {calm} at p99.",
            f"Beside appends, {reads} were read and compared; memory had {memory:.0f} % of them.",
        )
