"""1, 2 and 4 append lanes (R1, R3), beside the raw device with as many writers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, get_args

from rich.console import Console

from ..machine.folders import sub_folder
from ..references.device import Seconds, raw_device
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.phases import Api
from ..workload.settings import space_bytes
from .cells import Cell, blocking_bytes, run_cell
from .experiment import Experiment, medians, queues, repeats, setting

LANES = (1, 2, 4)
SHOWN = (
    "api", "lanes", "mb_per_s", "messages_per_s", "forces", "mean_write_kib", "p50_us", "p99_us",
    "raw_device_mb_per_s", "raw_device_ratio",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lanes(Experiment):
    """1, 2 and 4 append lanes, beside the raw device with as many writers."""

    NAME: ClassVar[str] = "lanes"
    METHOD: ClassVar[str] = (
        "a fresh store a row; right after it the device at the row's mean write size, with a writer a lane"
    )

    size_bytes: int = setting(1 << 30, "largest payload of a row", short=4 << 20)
    threads: int = setting(40, "producers of blocking and asyncio", short=4, least=1)
    seconds: float = setting(2.0, "seconds per row of blocking producers, about", short=0.05, least=0)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of a row."""
        return space_bytes(self.size_bytes)

    def cells(self) -> list[Cell]:
        """The cells: for each API all numbers of lanes in a row."""
        sizes = Sizes.parse("contest")
        slow = min(self.size_bytes, blocking_bytes(self.threads, sizes, self.seconds))
        return [
            Cell(
                {"api": api, "lanes": lanes}, sizes, slow if api == "blocking" else self.size_bytes, self.threads, api,
                seed=self.seed, queues=self.queues, settings={"lanes": lanes},
            )
            for api in get_args(Api)
            for lanes in LANES
        ]  # fmt: skip

    def measure(self, base: Path, run: Run) -> Figures:
        """One row for each cell, with the device measured in the same minute."""
        ways = {cell.name: partial(self._row, base, cell, run) for cell in self.cells()}
        return {"rows": list(medians(ways, self.repeat, run).values())}

    def _row(self, base: Path, cell: Cell, run: Run) -> Figures:
        row = run_cell(base, cell, run)
        with sub_folder(base, "raw") as folder:
            size = round(row["mean_write_kib"] * 1024)
            device = raw_device(folder, size, row["lanes"], Seconds(self.seconds / 2))
        ratio = row["mb_per_s"] / device.mb_per_s
        return {**row, "raw_device_mb_per_s": device.mb_per_s, "raw_device_ratio": ratio, "device_call": device.call}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        rows = [report.named(row, SHOWN) for row in figures["rows"]]
        console.print(report.table("lanes", rows, labels=2))
