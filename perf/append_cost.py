"""What filling the message cache costs appends: the same appends with and without, by turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from perf import report, served
from perf.folders import sub_folder
from perf.hotcold import PHASE_1_PART
from perf.phases import Drive, append_phase, make_tracks
from perf.progress import Parts
from perf.report import Figures, WrongResult
from perf.settings import prewritten
from perf.threads import on_cpus
from perf.tiers import CONTEST_DRAM_PART, CONTEST_PMEM_PART, Memory, whole_blocks
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS, Sizes, Workload
from store import MessageStore, StoreConfig

PREWRITE_PART = 1.4
CACHE_FACTOR = 1.2  # with few queues nothing is evicted then
FEW_QUEUES = 1000
SMALL_BATCH_MESSAGES = 1000


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


def append(base: Path, case: Case, memory: Memory, seed: int) -> Figures:
    """One fresh store; the rate until the last answer, and processor time until the cache has seen all."""
    sizes = Sizes.parse(case.sizes)
    work = Workload(seed, sizes, case.drive.producers(case.threads), min(CONTEST_TOPICS, case.queues), case.queues)
    tracks = make_tracks(work.plan(case.size_bytes))
    with sub_folder(base, "append") as folder:
        settings = prewritten(case.size_bytes * PREWRITE_PART, memory.settings(base))
        with on_cpus(case.cpus), MessageStore.open(folder, StoreConfig(**settings)) as store:
            began, cpu_0 = time.perf_counter(), report.cpu_seconds()
            phase = append_phase(store, work, tracks, case.drive)
            cpu_s = report.cpu_seconds() - cpu_0
            missed = served.holding(store).get("missed_messages", 0)
            behind = phase.messages - served.seen_messages(store) if memory.tier_bytes else 0
            held = served.cached_all(store)
            seconds = time.perf_counter() - began
    if any(track.wrong_offsets for track in tracks):
        raise WrongResult(f"{case.name}: appends returned wrong offsets")
    return {
        "messages_per_s": phase.messages / phase.seconds,
        "mb_per_s": phase.bytes / phase.seconds / 1e6,
        "cpu_us_per_message": cpu_s / phase.messages * 1e6,
        "behind_messages": behind,
        "missed_part": (held.get("missed_messages", 0) or missed) / phase.messages,
        "until_cached_s": seconds,
    }


def measure(
    base: Path,
    *,
    size_bytes: int,
    threads: int,
    queues: int,
    repeat: int,
    seed: int,
    parts: Parts,
) -> Figures:
    """Medians of the rates, and of the ratio of the two runs of a round (who goes first changes each round)."""
    rows, all_cases = [], cases(size_bytes, threads, queues)
    parts.expect(repeat * len(all_cases))
    for case in all_cases:
        rounds = []
        for number in range(repeat):
            order = [("off", Memory(limit_bytes=0)), ("on", case.memory())]
            found = {
                name: append(base, case, memory, seed)
                for name, memory in (order if number % 2 == 0 else order[::-1])
            }
            on, off = found["on"], found["off"]
            rounds.append({
                "append": case.name,
                "queues": case.queues,
                "off_messages_per_s": off["messages_per_s"],
                "on_messages_per_s": on["messages_per_s"],
                "ratio": on["messages_per_s"] / off["messages_per_s"],
                "off_cpu_us": off["cpu_us_per_message"],
                "on_cpu_us": on["cpu_us_per_message"],
                "missed_part": on["missed_part"],
                "behind_messages": on["behind_messages"],
            })  # fmt: skip
            parts.one_done()
        rows.append(report.median_of(rounds))
    return {"rows": rows}


def show(figures: Figures, console: Console) -> None:
    """A row a way to append."""
    console.print(report.table("appends with a message cache and without", [
        {"append": row["append"], "queues": row["queues"],
         "off msg/s": row["off_messages_per_s"], "on msg/s": row["on_messages_per_s"],
         "on/off": row["ratio"], "off CPU us": row["off_cpu_us"], "on CPU us": row["on_cpu_us"],
         "missed %": 100 * row["missed_part"], "behind at the end": row["behind_messages"]}
        for row in figures["rows"]
    ], labels=2))  # fmt: skip
