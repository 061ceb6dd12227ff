"""The two experiments of R25: tail read and catch-up read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from ..machine.folders import human_bytes
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.memory import Memory
from ..workload.settings import space_bytes
from . import catchup, tail
from .experiment import Experiment, medians, repeats, setting
from .load import Load

SHOWN = {
    "reader": "reader", "written/s": "written_per_s", "of alone": "writers_ratio", "p50 ms": "p50_ms",
    "p99 ms": "p99_ms", "read/s": "read_per_s", "read ahead": "read_ahead_share", "device reads": "device_reads",
    "read MB": "read_mb", "device MB": "device_mb", "kernel MB": "kernel_read_mb", "CPU s": "cpu_s",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TailCatchup(Experiment):
    """Tail and catch-up reads: which layer serves them, and what they cost the writers."""

    NAME: ClassVar[str] = "tail_catchup"
    METHOD: ClassVar[str] = "calls of 330 messages, each timed from the moment when it was due"

    write: int = setting(33_000, "messages appended per second; 0: as many as possible", short=3_000, least=0)
    read: int = setting(5_000, "messages per second of the catch-up reader", short=1_000, least=1)
    message_bytes: int = setting(1045, "bytes per message", least=16, option="size")
    queues: int = setting(4, "queues", least=1)
    backlog_bytes: int = setting(1 << 30, "payload written before the first window", short=2 << 20)
    seconds: float = setting(4.0, "seconds per window", short=0.3, least=0)
    warm_messages: int = setting(2000, "messages of each queue that are read before a window", short=100, least=0)
    read_cache_bytes: int = setting(64 << 20, "bytes of the read cache", short=4 << 20)
    tail_cache_bytes: int = setting(64 << 20, "bytes of the message cache", short=4 << 20)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the backlog and of the windows."""
        return space_bytes(self.backlog_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Medians of `repeat` windows for each way."""
        load = Load(
            self.write, self.read, self.message_bytes, self.queues, self.backlog_bytes, self.seconds,
            self.warm_messages, self.seed, self.read_cache_bytes,
        )  # fmt: skip
        memory = Memory(limit_bytes=0, off_heap_bytes=self.tail_cache_bytes, read_cache_bytes=self.read_cache_bytes)
        return {
            **medians({"tail": partial(tail.measure, base, load, memory, run)}, self.repeat, run),
            "catchup": catchup.measure(base, load, self.repeat, run),
        }

    def show(self, figures: Figures, console: Console) -> None:
        """Show the layers of the tail read, and one row for each way of catching up."""
        tailed, config = figures["tail"], figures["config"]
        ring = human_bytes(tailed["ring_bytes"])
        console.print(report.table(f"tail read, a reader a queue (ring: {ring})", layers.rows(tailed["served"])))
        console.print(report.pairs("tail read", {name: value for name, value in tailed.items() if name != "served"}))
        pace = f"{config['write']:,} msg/s" if config["write"] else "all that goes"
        title = f"catch-up read of {config['read']:,} msg/s beside appends of {pace}, {config['message_bytes']:,} B"
        console.print(report.table(title, report.chosen(figures["catchup"], SHOWN)))
