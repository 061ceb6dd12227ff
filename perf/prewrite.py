"""Pre-written against new files (R7): the device alone, and the store."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from rich.console import Console

from perf import report
from perf.cells import Cell, median_table
from perf.folders import sub_folder
from perf.progress import Parts
from perf.rawfile import Preparation
from perf.reference import raw_device
from perf.report import Figures
from perf.workload import Sizes

WRITE_BYTES = (88 << 10, 256 << 10)


def raw_rows(base: Path, seconds: float, file_bytes: int) -> list[Figures]:
    """One writer on files of each preparation."""
    rows = []
    for size in WRITE_BYTES:
        for preparation in get_args(Preparation):
            with sub_folder(base, "raw") as folder:
                rate = raw_device(folder, size, 1, seconds, preparation=preparation, file_bytes=file_bytes)
            rows.append(
                {
                    "file": preparation,
                    "write_kib": size // 1024,
                    "mb_per_s": rate.mb_per_s,
                    "forces_per_s": rate.forces_per_s,
                }
            )
    return rows


def store_cells(size_bytes: int, threads: int, seed: int, queues: int) -> list[Cell]:
    """The store with segments that stand ready, and with segments made while it runs."""
    sizes = Sizes.parse("contest")
    made = []
    for api, producers in (("blocking", threads), ("batch", 1)):
        for prewrite in (True, False):
            made.append(
                Cell(
                    {"api": api, "segments": "pre-written" if prewrite else "made in the run"},
                    sizes,
                    size_bytes,
                    producers,
                    "blocking" if api == "blocking" else "batch",
                    prewrite,
                    seed,
                    min(100, queues),
                    queues,
                )
            )
    return made


def run(
    base: Path,
    *,
    size_bytes: int,
    threads: int,
    seconds: float,
    repeat: int,
    seed: int = 2021,
    queues: int = 20_000,
    parts: Parts,
) -> Figures:
    """Medians of `repeat` rounds."""
    measured = store_cells(size_bytes, threads, seed, queues)
    parts.expect(repeat * (1 + len(measured)))
    rounds = []
    for _ in range(repeat):
        rounds.append(raw_rows(base, seconds, size_bytes))
        parts.one_done()
    raw = report.median_rows(rounds)
    rows = median_table(base, measured, repeat, parts)
    return {"seed": seed, "repeat": repeat, "raw": raw, "store": rows}


def show(figures: Figures, console: Console) -> None:
    """Both tables."""
    console.print(report.table("the device alone: write + fdatasync, one writer", figures["raw"]))
    names = ("api", "segments", "mb_per_s", "messages_per_s", "p50_us", "p99_us", "mean_write_kib", "open_s")
    rows = [{name: row[name] for name in names} for row in figures["store"]]
    console.print(report.table("the store", rows, labels=2))
