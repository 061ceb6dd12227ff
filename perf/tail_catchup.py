"""The two experiments of R25: tail read and catch-up read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from perf import catchup, report, served, tail
from perf.catchup import Load
from perf.progress import Parts
from perf.report import Figures
from perf.tiers import Memory


def run(base: Path, load: Load, *, tail_cache_bytes: int, repeat: int, parts: Parts) -> Figures:
    """Medians of `repeat` windows each."""
    memory = Memory(limit_bytes=0, off_heap_bytes=tail_cache_bytes, read_cache_bytes=load.read_cache_bytes)
    tails = []
    parts.expect(repeat * (1 + len(catchup.READERS)))
    for _ in range(repeat):
        tails.append(tail.measure(base, load, memory))
        parts.one_done()
    return {
        **asdict(load),
        "repeat": repeat,
        "tail": report.median_of(tails),
        "catchup": catchup.measure(base, load, repeat, parts),
    }


def show(figures: Figures, console: Console) -> None:
    """The layers of the tail read; a row a way of catching up."""
    tailed = figures["tail"]
    ring = report.human_bytes(tailed["ring_bytes"])
    console.print(report.table(f"tail read, a reader a queue (ring: {ring})", served.rows(tailed["served"])))
    console.print(report.pairs("tail read", {name: value for name, value in tailed.items() if name != "served"}))
    pace = f"{figures['write_per_s']:,} msg/s" if figures["write_per_s"] else "all that goes"
    title = f"catch-up read of {figures['read_per_s']:,} msg/s beside appends of {pace}, {figures['message_bytes']:,} B"
    console.print(report.table(title, [
        {"reader": row["reader"], "written/s": row["written_per_s"], "of alone": row["writers_ratio"],
         "p50 ms": row["p50_ms"], "p99 ms": row["p99_ms"], "read/s": row["read_per_s"],
         "read-ahead %": 100 * row["read_ahead_share"], "device reads": row["device_reads"],
         "read MB": row["read_mb"], "device MB": row["device_mb"], "kernel MB": row["kernel_read_mb"],
         "CPU s": row["cpu_s"]}
        for row in figures["catchup"]
    ]))  # fmt: skip
