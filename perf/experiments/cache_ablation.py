"""The cache's techniques, one more in each row: the hot/cold job with the same bytes of memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from ..machine.folders import human_bytes
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import NOWHERE, Run
from ..workload.checker import WrongResult
from ..workload.memory import BLOCK_BYTES, Memory, whole_blocks
from ..workload.phases import Drive
from .experiment import medians
from .hotcold_run import PHASE_1_PART, Options, clean, run_once

EDGE_PART = 64  # of the tiers' memory
COST = {
    "memory": "memory", "total s": "total_s", "phase 1 msg/s": "phase1_messages_per_s", "CPU s": "cpu_s",
    "device reads": "device_reads", "device MB": "device_mb", "kernel MB": "kernel_read_mb",
}  # fmt: skip
SERVED = {
    "memory": "memory", "ring": "ring_share", "dram": "dram_share", "pmem": "pmem_share", "device": "device_share",
    "with edges": "edge_messages", "used": "used_part", "refused": "refused_messages", "missed": "missed_messages",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The job of each row, and the bytes of memory of all its tiers together."""

    size_bytes: int
    threads: int
    queues: int
    block_bytes: int = BLOCK_BYTES
    seed: int = 2021

    def tiers(self) -> Memory:
        """The contest's tiers without any rule, and the smallest ring."""
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
        """The run of a row."""
        return Options(
            self.size_bytes, self.threads, drive=Drive("blocking"), seed=self.seed, queues=self.queues, cpus=1,
            memory=memory,
        )  # fmt: skip


def _row(base: Path, shape: Shape, name: str, memory: Memory, run: Run) -> Figures:
    """Run both phases on a fresh store with that memory."""
    figures = run_once(shape.options(memory), base, NOWHERE, reference=False)
    if not clean(figures):
        raise WrongResult(f"{name}: messages were lost, repeated, out of order or damaged")
    run.checked(figures["checked_messages"])
    reads, held = figures["served"], figures["cache_after_phase1"]
    layers = reads["layers"]
    return {
        "memory": name,
        "total_s": figures["total_s"],
        "phase1_messages_per_s": figures["phase1"]["messages_per_s"],
        "cpu_s": figures["cpu_s"],
        **report.named(reads, ("device_reads", "device_mb", "kernel_read_mb", "dram_share", "edge_messages")),
        "ring_share": layers["ring"]["share"],
        "pmem_share": layers.get("persistent", {}).get("share", 0.0),
        "device_share": layers["device"]["share"],
        **{key: held.get(key) for key in ("used_part", "refused_messages", "missed_messages", "threshold_bytes")},
        "ring_bytes": figures["stats"]["recent_bytes"],
    }


def measure(base: Path, shape: Shape, repeat: int, run: Run) -> Figures:
    """One row for each technique."""
    ways = {name: partial(_row, base, shape, name, memory, run) for name, memory in shape.memories().items()}
    return {
        "size_bytes": shape.size_bytes,
        "tier_bytes": shape.tiers().tier_bytes,
        "block_bytes": shape.block_bytes,
        "queues": shape.queues,
        "rows": list(medians(ways, repeat, run).values()),
    }


def show(figures: Figures, console: Console) -> None:
    """Show two tables of the same rows: the costs, and the layers that served."""
    rows = figures["rows"]
    size, tiers = human_bytes(figures["size_bytes"]), human_bytes(figures["tier_bytes"])
    title = f"hot/cold {size}, tiers of {tiers}, ring {human_bytes(rows[0]['ring_bytes'])} in all rows"
    console.print(report.table(title, report.chosen(rows, COST)))
    title = "parts of the reads of phase 2 by layer; and the cache after phase 1"
    console.print(report.table(title, report.chosen(rows, SERVED)))
