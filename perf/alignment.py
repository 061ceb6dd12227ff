"""pad / trim / adaptive (R4, R5, R6) by number of producers and at small messages."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from perf import report
from perf.cells import Cell, blocking_bytes, median_table
from perf.progress import Parts
from perf.report import Figures
from perf.workload import Sizes

POLICIES = ("pad", "trim", "adaptive")
PRODUCERS = (1, 4, 10, 40, 200)


def cells(seconds: float, producers: tuple[int, ...], seed: int, queues: int) -> list[Cell]:
    """Policies next to each other within each (sizes, producers), for the fairest comparison."""
    made = []
    for name in ("contest", "small"):
        sizes = Sizes.parse(name)
        for threads in producers:
            made += [
                Cell(
                    {"sizes": name, "producers": threads, "alignment": policy},
                    sizes,
                    blocking_bytes(threads, sizes, seconds),
                    threads,
                    seed=seed,
                    queues=queues,
                    topics=min(100, queues),
                    settings={"alignment": policy},
                )
                for policy in POLICIES
            ]
    return made


def compare(rows: list[Figures]) -> list[Figures]:
    """What adaptive must show: throughput over the better pure policy's (>= 0.97), amplification over trim's
    (<= 1.01)."""
    found = []
    for index in range(0, len(rows), len(POLICIES)):
        pad, trim, adaptive = rows[index : index + len(POLICIES)]
        best = max(pad["mb_per_s"], trim["mb_per_s"])
        found.append(
            {
                "sizes": pad["sizes"],
                "producers": pad["producers"],
                "throughput_over_best": adaptive["mb_per_s"] / best,
                "amplification_over_trim": adaptive["write_amplification"] / trim["write_amplification"],
            }
        )
    return found


def run(
    base: Path,
    *,
    seconds: float,
    repeat: int,
    producers: tuple[int, ...] = PRODUCERS,
    seed: int = 2021,
    queues: int = 20_000,
    parts: Parts,
) -> Figures:
    """Medians of `repeat` rounds over all cells."""
    measured = cells(seconds, producers, seed, queues)
    parts.expect(repeat * len(measured))
    rows = median_table(base, measured, repeat, parts)
    return {"seed": seed, "repeat": repeat, "rows": rows, "adaptive": compare(rows)}


def show(figures: Figures, console: Console) -> None:
    """Both tables."""
    names = (
        "sizes",
        "producers",
        "alignment",
        "mb_per_s",
        "messages_per_s",
        "write_amplification",
        "held_requests",
        "mean_batch",
        "p50_us",
        "p99_us",
    )
    rows = [{name: row[name] for name in names} for row in figures["rows"]]
    console.print(report.table("alignment", rows, labels=3))
    console.print(report.table("adaptive beside the pure policies", figures["adaptive"], labels=2))
