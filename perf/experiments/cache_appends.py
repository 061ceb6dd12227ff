"""What filling the message cache costs appends: the same appends with and without, by turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from store import MessageStore, StoreConfig

from ..machine.folders import sub_folder
from ..machine.threads import on_cpus
from ..machine.usage import cpu_seconds
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.comparing import check_folder
from ..workload.contest import CONTEST_QUEUES, Sizes, Workload
from ..workload.filling import check_offsets
from ..workload.memory import CONTEST_DRAM_PART, CONTEST_PMEM_PART, Memory, whole_blocks
from ..workload.phases import Drive, append_phase
from ..workload.producers import Track
from ..workload.settings import prewritten
from .experiment import by_turns
from .hotcold_run import PHASE_1_PART

PREWRITE_PART = 1.4
CACHE_FACTOR = 1.2  # with few queues nothing is evicted then
FEW_QUEUES = 1000
SMALL_BATCH_MESSAGES = 1000
SHOWN = {
    "append": "append", "queues": "queues", "off msg/s": "off_messages_per_s", "on msg/s": "on_messages_per_s",
    "on/off": "ratio", "off CPU us": "off_cpu_us", "on CPU us": "on_cpu_us", "missed": "missed_part",
    "behind at the end": "behind_messages",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One way to append."""

    name: str
    drive: Drive
    sizes: str
    size_bytes: int
    threads: int = 1
    queues: int = CONTEST_QUEUES
    cpus: int | None = None
    computed: bool = False  # admission for a cache of the contest's part; else a window over what is newest

    def memory(self) -> Memory:
        """The cached run's: as large as what is written, or with a computed threshold."""
        if not self.computed:
            return Memory(limit_bytes=0, off_heap_bytes=whole_blocks(CACHE_FACTOR * self.size_bytes))
        cache_bytes = whole_blocks((CONTEST_DRAM_PART + CONTEST_PMEM_PART) / PHASE_1_PART * self.size_bytes)
        return Memory(limit_bytes=0, off_heap_bytes=cache_bytes, expected_bytes=self.size_bytes)


def cases(size_bytes: int, threads: int, queues: int) -> list[Case]:
    """Blocking producers, one batch after the other, one producer with tickets."""
    few, batches = min(queues, FEW_QUEUES), Drive("batch", batch_messages=SMALL_BATCH_MESSAGES)
    return [
        Case(f"blocking, {threads} producers, contest, threshold computed", Drive("blocking"), "contest",
             size_bytes, threads, queues, cpus=1, computed=True),
        Case(f"blocking, {threads} producers, contest", Drive("blocking"), "contest", size_bytes, threads, few, cpus=1),
        Case(f"append_batch, 100 B x {SMALL_BATCH_MESSAGES:,}", batches, "100", size_bytes // 8, queues=few),
        Case("pipelined, contest", Drive("pipelined"), "contest", size_bytes, queues=few),
        Case("pipelined, 100 B", Drive("pipelined"), "100", size_bytes // 8, queues=few),
    ]  # fmt: skip


def append(base: Path, case: Case, memory: Memory, seed: int, run: Run) -> Figures:
    """One fresh store; the rate until the last answer, and processor time until the cache has seen all."""
    work = Workload(seed, Sizes.parse(case.sizes), case.drive.producers(case.threads), case.queues)
    tracks = [Track(plan) for plan in work.plan(case.size_bytes)]
    with sub_folder(base, "append") as folder:
        settings = prewritten(case.size_bytes * PREWRITE_PART, memory.settings(base))
        with on_cpus(case.cpus), MessageStore.open(folder, StoreConfig(**settings)) as store:
            began, cpu_0 = time.perf_counter(), cpu_seconds()
            phase = append_phase(store, work, tracks, case.drive)
            cpu_s = cpu_seconds() - cpu_0
            missed = layers.holding(store).get("missed_messages", 0)
            behind = phase.messages - layers.seen_messages(store) if memory.tier_bytes else 0
            held = layers.cached_all(store)
            seconds = time.perf_counter() - began
        check_offsets(tracks)
        run.checked(check_folder(folder, work))
    return {
        "messages_per_s": phase.messages / phase.seconds,
        "cpu_us": cpu_s / phase.messages * 1e6,
        "behind_messages": behind,
        "missed_part": (held.get("missed_messages", 0) or missed) / phase.messages,
        "until_cached_s": seconds,
    }


def measure(base: Path, *, size_bytes: int, threads: int, queues: int, repeat: int, seed: int, run: Run) -> Figures:
    """Medians of the rates, and of the ratio of the two runs of a round."""
    rows = []
    for case in cases(size_bytes, threads, queues):
        memories = {"off": Memory(limit_bytes=0), "on": case.memory()}
        ways = {name: partial(append, base, case, memory, seed, run) for name, memory in memories.items()}
        rounds = [_beside(case, **found) for found in by_turns(ways, repeat, run)]
        rows.append(report.median_of(rounds))
    return {"rows": rows}


def _beside(case: Case, off: Figures, on: Figures) -> Figures:
    return {
        "append": case.name,
        "queues": case.queues,
        **{f"off_{name}": off[name] for name in ("messages_per_s", "cpu_us")},
        **{f"on_{name}": on[name] for name in ("messages_per_s", "cpu_us")},
        "ratio": on["messages_per_s"] / off["messages_per_s"],
        **report.named(on, ("missed_part", "behind_messages", "until_cached_s")),
    }


def show(figures: Figures, console: Console) -> None:
    """A row a way to append."""
    rows = report.chosen(figures["rows"], SHOWN)
    console.print(report.table("appends with a message cache and without", rows, labels=2))
