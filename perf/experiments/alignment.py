"""pad / trim / adaptive (R4, R5, R6) by number of producers, contest sizes and small messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.settings import space_bytes
from .amplification import COLUMNS
from .cells import Cell, blocking_bytes, run_cell
from .experiment import Experiment, medians, queues, repeats, setting

POLICIES = ("pad", "trim", "adaptive")
PRODUCERS = (1, 4, 10, 40, 200)
SHOWN = {
    "sizes": "sizes", "producers": "producers", "alignment": "alignment", "MB/s": "mb_per_s",
    "msg/s": "messages_per_s", **COLUMNS, "held requests": "held_requests", "mean batch": "mean_batch",
    "p50 us": "p50_us", "p99 us": "p99_us",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Alignment(Experiment):
    """The settings pad, trim and adaptive with 1 to 200 producers, contest sizes and small messages."""

    NAME: ClassVar[str] = "alignment"
    METHOD: ClassVar[str] = "a fresh store a row, segments pre-written before the clock starts"

    seconds: float = setting(1.5, "seconds per row, about", short=0.05, least=0)
    producers_most: int = setting(200, "the largest number of producers", short=4, least=1)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the largest row."""
        return space_bytes(max(cell.size_bytes for cell in self.cells()))

    def cells(self) -> list[Cell]:
        """The cells: for each (sizes, producers) all policies in a row."""
        return [
            Cell(
                {"sizes": name, "producers": threads, "alignment": policy}, sizes,
                blocking_bytes(threads, sizes, self.seconds), threads, seed=self.seed, queues=self.queues,
                settings={"alignment": policy},
            )
            for name, sizes in (("contest", Sizes.parse("contest")), ("small", Sizes.parse("small")))
            for threads in PRODUCERS if threads <= self.producers_most
            for policy in POLICIES
        ]  # fmt: skip

    def measure(self, base: Path, run: Run) -> Figures:
        """One row for each cell, and adaptive beside the pure policies."""
        cells = {cell.name: partial(run_cell, base, cell, run) for cell in self.cells()}
        rows = list(medians(cells, self.repeat, run).values())
        return {"rows": rows, "adaptive": compare(rows)}

    def show(self, figures: Figures, console: Console) -> None:
        """Show both tables."""
        rows = report.chosen(figures["rows"], SHOWN)
        console.print(report.table("alignment", rows, labels=3))
        console.print(report.table("adaptive beside the pure policies", figures["adaptive"], labels=2))


def compare(rows: list[Figures]) -> list[Figures]:
    """Adaptive's throughput over that of the better pure policy, and its write amplification over trim's."""
    found = []
    for index in range(0, len(rows), len(POLICIES)):
        pad, trim, adaptive = rows[index : index + len(POLICIES)]
        found.append({
            "sizes": pad["sizes"],
            "producers": pad["producers"],
            "throughput_over_best": adaptive["mb_per_s"] / max(pad["mb_per_s"], trim["mb_per_s"]),
            "amplification_over_trim": adaptive["write_amplification"] / trim["write_amplification"],
        })  # fmt: skip
    return found
