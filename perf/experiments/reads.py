"""Reads: right after the write, of small messages, in columns, cold, and warm outside the ring; beside LMDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from ..machine.folders import sub_folder
from ..references.peers import Lmdb, PeerMissing, load
from ..report import figures as report
from ..report.figures import Figures, ratio
from ..report.progress import Run
from ..workload.contest import Sizes
from ..workload.settings import space_bytes
from .cold_reads import cold_reads, make_data, warm_reads
from .experiment import Experiment, medians, queues, repeats, setting
from .tail_reads import tail_reads

TITLES = {
    "tail": "right after the write: get_range of 1 to 32 messages of 100 B to 17 KiB",
    "small": "32 messages of 1 KiB a call, and read_batch",
    "cold": "cold page cache",
    "warm": "outside the ring, warm page cache: get_range of 1 to 32 messages of 100 B to 17 KiB",
    "ratios": "ratios",
}


@dataclass(frozen=True, kw_only=True)
class Reads(Experiment):
    """Reads right after the write, in columns, from a cold page cache, and outside the ring, beside LMDB."""

    NAME: ClassVar[str] = "reads"
    METHOD: ClassVar[str] = f"one thread; {Lmdb.SETUP}; of LMDB's cold reads the better of readahead on and off"

    size_bytes: int = setting(1 << 30, "the cold store's payload", short=4 << 20)
    tail_bytes: int = setting(256 << 20, "payload of the reads right after the write", short=2 << 20)
    queues: int = queues()
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the cold store, and of LMDB beside it."""
        return 2.5 * space_bytes(self.size_bytes)

    def measure(self, base: Path, run: Run) -> Figures:
        """Messages or MB (10^6 bytes of payload) a second, and the ratios."""
        missing = None
        try:
            load("lmdb")
        except PeerMissing as error:
            missing = str(error)
        lmdb = missing is None
        tails = medians(
            {
                "tail": partial(
                    tail_reads, base, Sizes.parse("contest"), self.tail_bytes, self.seed, run, fetch_max=32, lmdb=lmdb
                ),
                "small": partial(
                    tail_reads, base, Sizes.parse("1KiB"), self.tail_bytes, self.seed, run, fetch_max=None, lmdb=lmdb
                ),
            },
            self.repeat,
            run,
        )
        with sub_folder(base, "cold") as folder:
            data = make_data(folder, Sizes.parse("contest"), self.size_bytes, self.queues, self.seed, lmdb=lmdb)
            cold: Figures = report.median_of(cold_reads(data, self.repeat, run))
            warm: Figures = report.median_of(warm_reads(data, self.repeat, run))
        figures: Figures = {
            **tails,
            "cold": {"messages": data.messages, "payload_mb": data.payload_bytes / 1e6,
                     **{f"{name}_mb_per_s": row["mb_per_s"] for name, row in cold.items()}},
            "warm": {f"{name}_messages_per_s": row["messages_per_s"] for name, row in warm.items()},
        }  # fmt: skip
        return {**figures, "ratios": ratios(figures), **({"missing": missing} if missing else {})}

    def show(self, figures: Figures, console: Console) -> None:
        """Show one table for each part."""
        for name, title in TITLES.items():
            console.print(report.pairs(title, figures[name]))
        if "missing" in figures:
            console.print(figures["missing"], style="yellow", markup=False)


def ratios(figures: Figures) -> Figures:
    """Each way over its reference; None without LMDB."""
    tail, small, cold, warm = (figures[name] for name in ("tail", "small", "cold", "warm"))
    lmdb = max((rate for name, rate in cold.items() if name.startswith("lmdb")), default=None)
    return {
        "tail_over_lmdb": ratio(tail["get_range_messages_per_s"], tail["lmdb_messages_per_s"]),
        "small_over_lmdb": ratio(small["get_range_messages_per_s"], small["lmdb_messages_per_s"]),
        "warm_over_lmdb": ratio(warm["get_range_messages_per_s"], warm.get("lmdb_messages_per_s")),
        "read_batch_over_get_range": ratio(small["read_batch_messages_per_s"], small["get_range_messages_per_s"]),
        "scan_over_raw": ratio(cold["scan_mb_per_s"], cold["raw_direct_mb_per_s"]),
        "scan_over_raw_buffered": ratio(cold["scan_mb_per_s"], cold["raw_buffered_mb_per_s"]),
        "queues_over_lmdb": ratio(cold["queues_mb_per_s"], lmdb),
        "queues_get_range_over_lmdb": ratio(cold["queues_get_range_mb_per_s"], lmdb),
    }
