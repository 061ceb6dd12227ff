"""Pre-written against new files (R7): the device alone, and the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, get_args

from rich.console import Console

from ..machine.folders import sub_folder
from ..references.device import Seconds, raw_device
from ..references.rawfile import Preparation
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.phases import Api
from ..workload.settings import space_bytes
from .amplification import COLUMNS
from .cells import Cell, run_cell
from .experiment import Experiment, medians, queues, repeats, setting

WRITE_BYTES = (88 << 10, 256 << 10)
SHOWN = {
    "api": "api", "segments": "segments", "MB/s": "mb_per_s", "msg/s": "messages_per_s", "p50 us": "p50_us",
    "p99 us": "p99_us", "write KiB": "mean_write_kib", "open s": "open_s", "append s": "append_s",
    "close s": "close_s", "MB/s with open and close": "mb_per_s_with_open_and_close", **COLUMNS,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Prewrite(Experiment):
    """Pre-written files against new files: the device alone, and the store."""

    NAME: ClassVar[str] = "prewrite"
    METHOD: ClassVar[str] = "a fresh file or store a row; opening writes the zeros of pre-written segments"

    size_bytes: int = setting(512 << 20, "bytes per row", short=4 << 20)
    threads: int = setting(40, "blocking producers", short=4, least=1)
    seconds: float = setting(1.5, "seconds per row of the device alone", short=0.05, least=0)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of a row."""
        return space_bytes(self.size_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Both tables."""
        raw: dict[str, Callable[[], Figures]] = {
            f"{size} {preparation}": partial(self._raw, base, size, preparation)
            for size in WRITE_BYTES
            for preparation in get_args(Preparation)
        }
        cells = {cell.name: partial(run_cell, base, cell, run) for cell in self.cells()}
        return {
            "raw": list(medians(raw, self.repeat, run).values()),
            "store": list(medians(cells, self.repeat, run).values()),
        }

    def _raw(self, base: Path, write_bytes: int, preparation: Preparation) -> Figures:
        with sub_folder(base, "raw") as folder:
            rate = raw_device(
                folder, write_bytes, 1, Seconds(self.seconds), preparation=preparation, file_bytes=self.size_bytes
            )
        return {"file": preparation, "write_kib": write_bytes // 1024, "mb_per_s": rate.mb_per_s,
                "forces_per_s": rate.forces_per_s, "call": rate.call}  # fmt: skip

    def cells(self) -> list[Cell]:
        """The store with segments made ahead, and with segments made while it runs."""
        apis: tuple[tuple[Api, int], ...] = (("blocking", self.threads), ("batch", 1))
        return [
            Cell(
                {"api": api, "segments": "pre-written" if prewrite else "made in the run"}, Sizes.parse("contest"),
                self.size_bytes, threads, api, prewrite, self.seed, self.queues,
            )
            for api, threads in apis
            for prewrite in (True, False)
        ]  # fmt: skip

    def show(self, figures: Figures, console: Console) -> None:
        """Both tables."""
        console.print(report.table("the device alone: forced writes, one writer", figures["raw"], labels=2))
        console.print(report.table("the store", report.chosen(figures["store"], SHOWN), labels=2))
