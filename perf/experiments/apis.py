"""The hot/cold run by each way to append, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import NOWHERE, Run
from ..workload.contest import Sizes
from ..workload.phases import Drive
from .amplification import COLUMNS
from .experiment import Experiment, medians, queues, repeats, setting
from .hotcold_run import COUNT_NAMES, Options, clean, counts_line, run_once

SMALL_PART = 16  # small messages: of the size
SHOWN = {
    "append": "append", "sizes": "sizes", "CPUs": "cpus", "msg/s": "messages_per_s", "MB/s": "mb_per_s",
    "p50 us": "p50_us", "p99 us": "p99_us", "over no engine": "thread_floor_ratio",
    "over no engine, all CPUs": "thread_floor_all_cpus_ratio", "over raw device": "raw_device_ratio",
    "total s": "total_s", "with open and close": "total_s_with_prewrite_and_close", **COLUMNS,
}  # fmt: skip
KEPT = (
    "total_s", "total_s_with_prewrite_and_close", *COLUMNS.values(), "raw_device_mb_per_s", "raw_device_ratio",
    "thread_floor_messages_per_s", "thread_floor_ratio", "thread_floor_all_cpus_messages_per_s",
    "thread_floor_all_cpus_ratio", "checked_messages", *COUNT_NAMES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Apis(Experiment):
    """The hot/cold run with each way to append: threads, coroutines, tickets, batches."""

    NAME: ClassVar[str] = "apis"
    METHOD: ClassVar[str] = (
        "rates of phase 1; a fresh store a row; device and producers without an engine before and after each row"
    )

    size_bytes: int = setting(256 << 20, "payload of each run; a sixteenth for small messages", short=1 << 20)
    threads: int = setting(40, "producers: threads, and tasks of asyncio", short=4, least=1)
    queues: int = queues()
    repeat: int = repeats()
    reference_s: float = setting(1.5, "seconds of each reference", short=0.02, least=0)
    reference_file_bytes: int = setting(256 << 20, "largest size of the references' file", short=4 << 20)

    def runs(self) -> list[tuple[Figures, Options]]:
        """The labels and the run of each row."""
        base = Options(
            self.size_bytes, self.threads, seed=self.seed, queues=self.queues, reference_s=self.reference_s,
            reference_file_bytes=self.reference_file_bytes,
        )  # fmt: skip
        small: dict[str, Any] = {"sizes": Sizes.parse("small"), "size_bytes": self.size_bytes // SMALL_PART}
        many = {"append": f"append, {self.threads} threads"}
        return [
            ({**many, "sizes": "contest", "cpus": "1"}, replace(base, cpus=1)),
            ({**many, "sizes": "contest", "cpus": "all"}, base),
            ({**many, "sizes": "small", "cpus": "1"}, replace(base, cpus=1, **small)),
            ({"append": f"append_async, {self.threads} tasks", "sizes": "contest", "cpus": "all"},
             replace(base, drive=Drive("asyncio"))),
            ({"append": "submit, 1 thread", "sizes": "contest", "cpus": "all"},
             replace(base, drive=Drive("pipelined"))),
            ({"append": "append_batch of 256, 1 thread", "sizes": "contest", "cpus": "all"},
             replace(base, drive=Drive("batch"))),
        ]  # fmt: skip

    def need_bytes(self) -> float:
        """The space of the largest run."""
        return max(options.need_bytes() for _, options in self.runs())

    def measure(self, base: Path, run: Run) -> Figures:
        """One row for each way, and the counts of all."""
        ways: dict[str, Callable[[], Figures]] = {
            " ".join(labels.values()): partial(self._row, base, labels, options, run) for labels, options in self.runs()
        }
        rows = list(medians(ways, self.repeat, run).values())
        return {"rows": rows, **{name: sum(row[name] for row in rows) for name in COUNT_NAMES}}

    def _row(self, base: Path, labels: Figures, options: Options, run: Run) -> Figures:
        figures = run_once(options, base, NOWHERE)
        run.checked(figures["checked_messages"])
        phase = figures["phase1"]
        latency = {f"{name}_us": mark for name, mark in phase["latency_us"].items()}
        rates = {"messages_per_s": phase["messages_per_s"], "mb_per_s": phase["mb_per_s"], **latency}
        return {**labels, **rates, **report.named(figures, KEPT)}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        console.print(report.table("hot/cold, phase 1", report.chosen(figures["rows"], SHOWN), labels=3))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """The counts of broken promises over all rows."""
        return clean(figures), counts_line(figures)
