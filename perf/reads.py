"""Reads: right after the write, of small messages, in columns, and with a cold page cache; beside LMDB."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from perf import coldreads, report, tailreads
from perf.progress import Parts
from perf.report import Figures
from perf.workload import Sizes


def one_round(base: Path, tail_bytes: int, cold_bytes: int, queues: int, seed: int) -> Figures:
    """Each figure once."""
    small = tailreads.small_reads(base, Sizes.parse("1KiB"), tail_bytes, seed)
    tail = tailreads.tail_reads(base, Sizes.parse("contest"), tail_bytes, seed)
    cold = coldreads.cold_reads(base, Sizes.parse("contest"), cold_bytes, queues, seed)
    return {"tail": tail, "small": small, "cold": cold}


def run(
    base: Path,
    *,
    tail_bytes: int,
    cold_bytes: int,
    queues: int,
    repeat: int,
    seed: int = 2021,
    parts: Parts,
) -> Figures:
    """Medians of `repeat` rounds, and the ratios that the issue asks for."""
    rounds = []
    parts.expect(repeat)
    for _ in range(repeat):
        rounds.append(one_round(base, tail_bytes, cold_bytes, queues, seed))
        parts.one_done()
    figures: Figures = report.median_of(rounds)
    tail, small, cold = figures["tail"], figures["small"], figures["cold"]
    ratios = {
        "tail_over_lmdb": _ratio(tail["get_range_messages_per_s"], tail["lmdb_messages_per_s"]),
        "small_over_lmdb": _ratio(small["get_range_messages_per_s"], small["lmdb_messages_per_s"]),
        "read_batch_over_get_range": _ratio(
            small["read_batch_messages_per_s"], small["get_range_messages_per_s"]
        ),
        "scan_over_raw": _ratio(cold["scan_mb_per_s"], cold["raw_direct_mb_per_s"]),
        "scan_over_raw_buffered": _ratio(cold["scan_mb_per_s"], cold["raw_buffered_mb_per_s"]),
        "queues_over_lmdb": _ratio(cold["queues_mb_per_s"], cold["lmdb_queues_mb_per_s"]),
        "queues_get_range_over_lmdb": _ratio(cold["queues_get_range_mb_per_s"], cold["lmdb_queues_mb_per_s"]),
    }
    return {"seed": seed, "repeat": repeat, **figures, "ratios": ratios}


def _ratio(rate: float | None, peer: float | None) -> float | None:
    return rate / peer if rate is not None and peer else None


def show(figures: Figures, console: Console) -> None:
    """A table a part."""
    titles = {
        "tail": "right after the write: get_range of 1 to 32 messages of 100 B to 17 KiB",
        "small": "32 messages of 1 KiB a call, and read_batch",
        "cold": "cold page cache",
        "ratios": "ratios",
    }
    for name, title in titles.items():
        console.print(
            report.pairs(title, {key: value for key, value in figures[name].items() if key != "missing"})
        )
    if missing := figures["tail"].get("missing"):
        console.print(missing, style="yellow", markup=False)
