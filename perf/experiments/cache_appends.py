"""The cost of filling the message cache for appends: the same appends with and without a cache, in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ...store import MessageStore
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.memory import CONTEST_DRAM_PART, CONTEST_PMEM_PART, Memory, whole_blocks
from .cells import Cell, run_cell
from .experiment import by_turns
from .hotcold_run import PHASE_1_PART

CACHE_FACTOR = 1.2  # with few queues nothing is evicted then
FEW_QUEUES = 1000
SMALL_BATCH_MESSAGES = 1000
SHOWN = {
    "append": "append", "queues": "queues", "off msg/s": "off_messages_per_s", "on msg/s": "on_messages_per_s",
    "on/off": "ratio", "off CPU us": "off_cpu_us_per_message",
    "on CPU us": "on_cpu_us_per_message", "missed": "missed_part",
    "behind at the end": "behind_messages",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One way to append, and the way to find the threshold of the cached run."""

    cell: Cell
    computed: bool = False  # for a cache of the contest's part; else a window over the newest messages

    def memory(self) -> Memory:
        """The memory of the cached run: as large as the written bytes, or with a computed threshold."""
        size_bytes = self.cell.size_bytes
        if not self.computed:
            return Memory(limit_bytes=0, off_heap_bytes=whole_blocks(CACHE_FACTOR * size_bytes))
        cache_bytes = whole_blocks((CONTEST_DRAM_PART + CONTEST_PMEM_PART) / PHASE_1_PART * size_bytes)
        return Memory(limit_bytes=0, off_heap_bytes=cache_bytes, expected_bytes=size_bytes)


def cases(size_bytes: int, threads: int, queues: int, seed: int) -> list[Case]:
    """Blocking producers, one batch after the other, one producer with tickets."""
    contest, small, few = Sizes.parse("contest"), Sizes.parse("100"), min(queues, FEW_QUEUES)
    blocking = Cell(
        {"append": f"blocking, {threads} producers, contest, threshold computed", "queues": queues}, contest,
        size_bytes, threads, cpus=1, seed=seed, queues=queues,
    )  # fmt: skip

    def cell(name: str, **changed: Any) -> Case:
        return Case(replace(blocking, labels={"append": name, "queues": few}, queues=few, **changed))

    one: dict[str, Any] = {"threads": 1, "cpus": None}
    less: dict[str, Any] = {**one, "sizes": small, "size_bytes": size_bytes // 8}
    batches: dict[str, Any] = {**less, "api": "batch", "batch_messages": SMALL_BATCH_MESSAGES}
    return [
        Case(blocking, computed=True),
        cell(f"blocking, {threads} producers, contest"),
        cell(f"append_batch, 100 B x {SMALL_BATCH_MESSAGES:,}", **batches),
        cell("pipelined, contest", api="pipelined", **one),
        cell("pipelined, 100 B", api="pipelined", **less),
    ]


def _append(base: Path, cell: Cell, memory: Memory, run: Run) -> Figures:
    """Append to a fresh store with that memory."""

    def look(store: MessageStore) -> Figures:
        messages = store.stats()["log"]["messages"]
        behind = messages - layers.seen_messages(store) if memory.tier_bytes else 0
        held = layers.cached_all(store)
        return {"behind_messages": behind, "missed_part": held.get("missed_messages", 0) / messages}

    return run_cell(base, replace(cell, settings=memory.settings(base)), run, look)


def measure(base: Path, *, size_bytes: int, threads: int, queues: int, repeat: int, seed: int, run: Run) -> Figures:
    """Medians of the rates, and of the ratio of the two runs of a round."""
    rows = []
    for case in cases(size_bytes, threads, queues, seed):
        memories = {"off": Memory(limit_bytes=0), "on": case.memory()}
        ways = {name: partial(_append, base, case.cell, memory, run) for name, memory in memories.items()}
        rounds = [{**case.cell.labels, **_beside(**found)} for found in by_turns(ways, repeat, run)]
        rows.append(report.median_of(rounds))
    return {"rows": rows}


def _beside(off: Figures, on: Figures) -> Figures:
    return {
        **{f"off_{name}": off[name] for name in ("messages_per_s", "cpu_us_per_message")},
        **{f"on_{name}": on[name] for name in ("messages_per_s", "cpu_us_per_message")},
        "ratio": on["messages_per_s"] / off["messages_per_s"],
        **report.named(on, ("missed_part", "behind_messages")),
    }


def show(figures: Figures, console: Console) -> None:
    """Show one row for each way to append."""
    rows = report.chosen(figures["rows"], SHOWN)
    console.print(report.table("appends with a message cache and without", rows, labels=2))
