"""1, 2 and 4 append lanes (R1, R3), beside the raw device with as many writers."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from perf import report
from perf.cells import Cell, blocking_bytes, median_table
from perf.folders import sub_folder
from perf.phases import Api
from perf.progress import Parts
from perf.reference import raw_device
from perf.report import Figures
from perf.workload import Sizes

LANES = (1, 2, 4)


def cells(size_bytes: int, threads: int, seconds: float, seed: int, queues: int) -> list[Cell]:
    """Lanes next to each other within each API."""
    sizes = Sizes.parse("contest")
    apis: tuple[Api, ...] = ("blocking", "asyncio", "pipelined", "batch")
    made = []
    for api in apis:
        amount = blocking_bytes(threads, sizes, seconds) if api == "blocking" else size_bytes
        made += [
            Cell(
                {"api": api, "lanes": lanes},
                sizes,
                min(size_bytes, amount),
                threads,
                api,
                seed=seed,
                queues=queues,
                topics=min(100, queues),
                settings={"lanes": lanes},
            )
            for lanes in LANES
        ]
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
    """Medians of `repeat` rounds; then the device at each row's own mean write size, with a writer a lane."""
    measured = cells(size_bytes, threads, seconds, seed, queues)
    parts.expect((repeat + 1) * len(measured))
    rows = median_table(base, measured, repeat, parts)
    for row in rows:
        with sub_folder(base, "raw") as folder:
            rate = raw_device(folder, round(row["mean_write_kib"] * 1024), row["lanes"], seconds / 2)
        row["raw_device_mb_per_s"] = rate.mb_per_s
        row["raw_device_ratio"] = row["mb_per_s"] / rate.mb_per_s
        parts.one_done()
    return {"seed": seed, "repeat": repeat, "rows": rows}


def show(figures: Figures, console: Console) -> None:
    """The table."""
    names = (
        "api",
        "lanes",
        "mb_per_s",
        "messages_per_s",
        "forces",
        "mean_write_kib",
        "p50_us",
        "p99_us",
        "raw_device_mb_per_s",
        "raw_device_ratio",
    )
    rows = [{name: row[name] for name in names} for row in figures["rows"]]
    console.print(report.table("lanes", rows, labels=2))
