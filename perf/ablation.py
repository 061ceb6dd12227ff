"""The cache's techniques, one more a row: the hot/cold job with the same bytes of memory in each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from perf import report
from perf.folders import run_folder
from perf.hotcold import PHASE_1_PART, Options, clean, run_once
from perf.phases import Drive
from perf.progress import Parts
from perf.report import Figures, WrongResult
from perf.tiers import BLOCK_BYTES, Memory, whole_blocks
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS

EDGE_PART = 64  # of the tiers' memory


@dataclass(frozen=True)
class Shape:
    """The job that each row runs, and the bytes of memory that its tiers have together."""

    size_bytes: int
    threads: int = 40
    queues: int = CONTEST_QUEUES
    topics: int = CONTEST_TOPICS
    block_bytes: int = BLOCK_BYTES
    seed: int = 2021
    where: Path | None = None

    def tiers(self) -> Memory:
        """The contest's tiers, without any rule, and the least ring."""
        memory = Memory(block_bytes=self.block_bytes).as_in_the_contest(self.size_bytes)
        return replace(memory, recent_bytes=0, release_on_read=False, remainders=False)

    def memories(self) -> dict[str, Memory]:
        """Row -> the memory of its store."""
        tiers = self.tiers()
        bare = replace(tiers, heap_bytes=0, off_heap_bytes=0, private_file_bytes=0, persistent_bytes=0)
        admission = replace(tiers, expected_bytes=int(self.size_bytes * PHASE_1_PART))
        remainder = replace(admission, remainders=True)
        edge = whole_blocks(tiers.tier_bytes / EDGE_PART, self.block_bytes)
        edged = replace(remainder, edge_bytes=edge, persistent_bytes=remainder.persistent_bytes - edge)
        return {
            "no cache": bare,
            "one tier": replace(bare, off_heap_bytes=tiers.tier_bytes),
            "tiers": tiers,
            "+ admission": admission,
            "+ remainder": remainder,
            "+ edge": edged,
            "+ release on read": replace(edged, release_on_read=True),
            "the same without edge": replace(remainder, release_on_read=True),
        }

    def options(self, memory: Memory) -> Options:
        """A row's run."""
        return Options(
            size_bytes=self.size_bytes,
            threads=self.threads,
            drive=Drive("blocking"),
            seed=self.seed,
            topics=self.topics,
            queues=self.queues,
            cpus=1,
            memory=memory,
        )


def one_row(shape: Shape, name: str, memory: Memory) -> Figures:
    """A fresh store with that memory, both phases."""
    with run_folder(shape.where) as base:
        figures = run_once(shape.options(memory), base, Console(quiet=True), reference=False)
    if not clean(figures):
        raise WrongResult(f"{name}: messages were lost, repeated, out of order or damaged")
    reads, held = figures["served"], figures["cache_after_phase1"]
    return {
        "memory": name,
        "total_s": figures["total_s"],
        "phase1_messages_per_s": figures["phase1"]["messages_per_s"],
        "cpu_s": figures["cpu_s"],
        "device_reads": reads["device_reads"],
        "device_mb": reads["device_mb"],
        "kernel_read_mb": reads["kernel_read_mb"],
        "ring_share": reads["layers"]["ring"]["share"],
        "dram_share": reads["dram_share"],
        "pmem_share": reads["layers"].get("persistent", {}).get("share", 0.0),
        "device_share": reads["layers"]["device"]["share"],
        "edge_messages": reads["edge_messages"],
        "used_part": held.get("used_part"),
        "refused_messages": held.get("refused_messages"),
        "missed_messages": held.get("missed_messages"),
        "threshold_bytes": held.get("threshold_bytes"),
        "ring_bytes": figures["stats"]["recent_bytes"],
    }


def measure(shape: Shape, repeat: int, parts: Parts) -> Figures:
    """Medians a row; the rounds go over all rows in turn."""
    rounds, memories = [], shape.memories()
    parts.expect(repeat * len(memories))
    for _ in range(repeat):
        rows = []
        for name, memory in memories.items():
            rows.append(one_row(shape, name, memory))
            parts.one_done()
        rounds.append(rows)
    tiers = shape.tiers()
    return {
        "size_bytes": shape.size_bytes,
        "tier_bytes": tiers.tier_bytes,
        "block_bytes": shape.block_bytes,
        "queues": shape.queues,
        "rows": report.median_rows(rounds),
    }


def show(figures: Figures, console: Console) -> None:
    """Two tables of the same rows: what it took, and who served."""
    rows = figures["rows"]
    size, tiers = report.human_bytes(figures["size_bytes"]), report.human_bytes(figures["tier_bytes"])
    ring = report.human_bytes(rows[0]["ring_bytes"])
    console.print(report.table(f"hot/cold {size}, tiers of {tiers}, ring {ring} in all rows", [
        {"memory": row["memory"], "total s": row["total_s"], "phase 1 msg/s": row["phase1_messages_per_s"],
         "CPU s": row["cpu_s"], "device reads": row["device_reads"], "device MB": row["device_mb"],
         "kernel MB": row["kernel_read_mb"]}
        for row in rows
    ]))  # fmt: skip
    console.print(report.table("reads of phase 2, % served by; and the cache after phase 1", [
        {"memory": row["memory"], **{name: 100 * row[f"{name}_share"] for name in ("ring", "dram", "pmem", "device")},
         "with edges": row["edge_messages"], "used %": 100 * row["used_part"] if row["used_part"] else None,
         "refused": row["refused_messages"], "missed": row["missed_messages"]}
        for row in rows
    ]))  # fmt: skip
