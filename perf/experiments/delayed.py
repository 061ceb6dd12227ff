"""Delayed entries: their memory, the rates of adding and draining, and the tracker on disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.console import Console

from ..machine.folders import sub_folder
from ..report import figures as report
from ..report.figures import Figures, median_of
from ..report.progress import Run
from ..workload.delayed import HEAP, LEDGER_ENTRIES, Load, fill_on_disk, in_memory, one_at_a_time, open_and_drain
from ..workload.delayed_store import StoreLoad, deliver
from .experiment import Experiment, repeats, setting

HOUR_MS = 3_600_000
STORED_BYTES = 1_000  # of a message of 100 bytes in a store, with all that is pre-written
DISK_BYTES = 40  # of an entry: the old buckets, the new one of a merge, and some more
LEAST_LOAD = 5_000
LEAST_APART = 1_000_000  # a run with fewer entries tells nothing of memory, and spares itself the processes


class Row(NamedTuple):
    """A row of the memory table: the source's figure, and the limit of ours (MB)."""

    name: str
    rate: int
    bits: int
    spread_ms: int
    source_mb: float | None
    limit_mb: float


ROWS = (
    Row("1/ms, 10 bits", 1, 10, 0, 25, 6),
    Row("4/ms, 10 bits", 4, 10, 0, 20.5, 3),
    Row("8/ms, 10 bits", 8, 10, 0, 11, 2),
    Row("8/ms, 15 bits", 8, 15, 0, 2.25, 1),
    Row("8/ms, 10 bits, random over an hour", 8, 10, HOUR_MS, 200, 40),
    Row("8/ms, 10 bits, random over 7 days", 8, 10, 7 * 24 * HOUR_MS, None, 80),
)
GRID = tuple((rate, bits) for rate in (1, 4, 16) for bits in (8, 10, 12, 15))
SHOWN = {
    "10 million delayed entries": "name", "source MB": "source_mb", "limit MB": "limit_mb", "process MB": "grown_mb",
    "bytes an entry": "bytes_per_entry", "tracker says MB": "told_mb", "as bitmaps": "bitmap_part",
    "add M/s": "add_m_per_s", "longest add ms": "longest_add_ms", "drain M/s": "drain_m_per_s",
}  # fmt: skip
SHOWN_MODEL = {
    "messages/ms, bits": "name", "messages a slot": "slot_entries", "source's model B": "model_bytes",
    "all delayed B": "all_bytes", "model, every second B": "half_model_bytes", "every second B": "half_bytes",
    "every second: o model # measured": "bar",
}  # fmt: skip


def model_bytes(rate: int, bits: int, ledger_entries: int = LEDGER_ENTRIES) -> float:
    """The source's analytical model: bytes for an entry of Roaring bitmaps without runs, by the content of one slot.

    M = rate * 2**bits entries a slot. Below 4,096 an array of 2 bytes each; else a bitmap of 8 KiB for each ledger, of
    which so many entries are delayed.
    """
    entries = rate << bits
    return 2.0 if entries < 4096 else 8192 * -(-entries // ledger_entries) / entries


def bar(model: float, measured: float) -> str:
    """Both on one line, 12 a byte: `o` the model, `#` the measured bytes, `@` where they meet."""
    line = ["."] * 30
    for value, letter in ((model, "o"), (measured, "#")):
        at = min(len(line) - 1, round(value * 12))
        line[at] = "@" if line[at] != "." else letter
    return "".join(line)


@dataclass(frozen=True, kw_only=True)
class Delayed(Experiment):
    """Delayed entries: memory by rate, precision and spread; adding and draining; the bucket tracker on disk."""

    NAME: ClassVar[str] = "delayed"
    METHOD: ClassVar[str] = (
        "each row in a fresh process; process MB: growth of its resident memory from before the tracker to the full "
        "one, unused pages given back both times; batches of 100,000; all is taken in 200 steps of time and compared "
        "with what is due"
    )

    messages: int = setting(10_000_000, "delayed entries of a row in memory", short=20_000, least=LEAST_LOAD)
    entries: int = setting(100_000_000, "delayed entries of the tracker on disk", short=120_000, least=LEAST_LOAD)
    one_in: int = setting(1, "of so many messages one is delayed, in the tracker on disk", short=1_000, least=1)
    queues: int = setting(1_000, "queues that they are in; 0: ledgers of 50,000, as the source has them", least=0)
    drained: int = setting(20_000_000, "entries that are taken from the tracker on disk", short=50_000, least=1)
    stored: int = setting(1_000_000, "delayed messages of a store, end to end; 0: none", short=2_000, least=0)
    rate: int = setting(10_000, "messages a second that are appended meanwhile", short=1_000, least=1)
    spread_ms: int = setting(60_000, "their delays are 0 to so much", short=500, least=1)
    precision_ms: int = setting(0, "precision of the subscription that gets them", short=0, least=0)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the tracker on disk."""
        stored = self.stored + self.rate * self.spread_ms // 1000
        return DISK_BYTES * self.entries + STORED_BYTES * stored

    def measure(self, base: Path, run: Run) -> Figures:
        """The memory table, single entries, the model and the tracker on disk."""
        run.expect(self.repeat * (len(ROWS) + 3) + 2 * len(GRID) + 3 + bool(self.stored))
        rows = []
        for row in ROWS:
            load = Load(self.messages, row.rate, row.spread_ms)
            rows.append({**row._asdict(), **self._rounds(run, in_memory, row.bits, load, self.seed)})
        few = Load(max(LEAST_LOAD, self.messages // 10), 8)
        heap = {"name": f"heap, {few.entries:,} entries",
                **self._rounds(run, in_memory, HEAP, few, self.seed)}  # fmt: skip
        single = [
            {"tracker": name, **self._rounds(run, one_at_a_time, kind, few)}
            for name, kind in (("heap", HEAP), ("time buckets", 10))
        ]
        with sub_folder(base, "single") as folder:
            single.append({"tracker": "on disk", **self._apart(one_at_a_time, 0, few, folder)})
            run.one_done()
        return {
            "rows": [*rows, heap], "single": single, "model": self._model(run), "disk": self._disk(base, run),
            "store": self._store(base, run),
        }  # fmt: skip

    def _store(self, base: Path, run: Run) -> Figures:
        if not self.stored:
            return {}
        with sub_folder(base, "store") as folder:
            found = deliver(folder, StoreLoad(self.stored, self.rate, self.spread_ms, self.precision_ms), self.seed)
        run.one_done()
        return found

    def _rounds(self, run: Run, measured: Callable[..., Figures], *arguments: Any) -> Figures:
        rounds = []
        for _ in range(self.repeat):
            rounds.append(self._apart(measured, *arguments))
            run.one_done()
        found: Figures = median_of(rounds)
        return found

    def _apart(self, measured: Callable[..., Figures], *arguments: Any) -> Figures:
        return in_child(measured, *arguments) if self.messages >= LEAST_APART else measured(*arguments)

    def _model(self, run: Run) -> list[Figures]:
        found = []
        for rate, bits in GRID:
            told = {}
            for name, stride in (("all_bytes", 1), ("half_bytes", 2)):
                # Every second message: neighbours are no stretch, and so bitmaps cannot write them as one.
                load = Load(max(LEAST_LOAD, self.messages // 5), rate, stride=stride)
                told[name] = self._apart(in_memory, bits, load, self.seed)["told_bytes_per_entry"]
                run.one_done()
            half = model_bytes(rate, bits, LEDGER_ENTRIES // 2)
            found.append({"name": f"{rate}, {bits}", "slot_entries": rate << bits,
                          "model_bytes": model_bytes(rate, bits), "half_model_bytes": half, **told,
                          "bar": bar(half, told["half_bytes"])})  # fmt: skip
        return found

    def _disk(self, base: Path, run: Run) -> Figures:
        load = Load(self.entries, 8, HOUR_MS, self.one_in, self.queues)
        with sub_folder(base, "buckets") as folder:
            apart = in_child if self.entries >= LEAST_APART else _here
            filled = apart(fill_on_disk, folder, load, self.seed)
            run.one_done()
            opened = apart(open_and_drain, folder, load, self.seed, self.drained)
            run.one_done()
        return {"entries": self.entries, **filled, **{f"after_{name}": value for name, value in opened.items()}}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the tables."""
        console.print(report.table("memory and speed, in memory", report.chosen(figures["rows"], SHOWN)))
        console.print(report.table("one at a time, million entries/s (best of 3 in a process)", figures["single"]))
        title = "bytes an entry, one delay for all, as the tracker says; 12 columns a byte"
        console.print(report.table(title, report.chosen(figures["model"], SHOWN_MODEL)))
        console.print(report.pairs("on disk, delays random over an hour, exact times", figures["disk"]))
        if figures["store"]:
            console.print(report.pairs("in the store, end to end, one subscription", figures["store"]))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """All entries were given, none early: a run checks this itself."""
        total = sum(figures["config"][name] for name in ("messages", "drained"))
        return True, f"{total:,} entries and more: none was early, late beyond its precision, or lost"


def _here(measured: Callable[..., Figures], *arguments: Any) -> Figures:
    return measured(*arguments)


def in_child(measured: Callable[..., Figures], *arguments: Any) -> Figures:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, *arguments).result()
