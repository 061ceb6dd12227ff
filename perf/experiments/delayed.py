"""Delayed entries: their memory, the rates of adding and draining, the tracker on disk, and a store end to end."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ..machine.folders import sub_folder
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import WrongResult
from ..workload.delayed import HEAP, Load, fill_on_disk, in_memory, open_and_drain
from ..workload.delayed_store import StoreLoad, deliver
from ..workload.latencies import Latencies
from .experiment import repeats, setting
from .parts import TAILS, Count, Part, latencies, measured
from .reported import Reported, Study

HOUR_MS = 3_600_000
STORED_BYTES = 1_000  # of a message of 100 bytes in a store, with all that is pre-written
DISK_BYTES = 40  # of an entry: the old buckets, the new one of a merge, and some more
LEAST_LOAD = 5_000
LEAST_APART = 1_000_000  # a run with fewer entries tells nothing of memory, and spares itself the processes


class Row(NamedTuple):
    """A row of the memory table. `source_mb`: the source's figure for 10 million; 0 if it has none."""

    name: str
    what: str
    rate: int
    bits: int
    spread_ms: int
    source_mb: float


ROWS = (
    Row("1_10", "1 a ms, one delay, precision 2^10 ms", 1, 10, 0, 25),
    Row("4_10", "4 a ms, one delay, precision 2^10 ms", 4, 10, 0, 20.5),
    Row("8_10", "8 a ms, one delay, precision 2^10 ms", 8, 10, 0, 11),
    Row("8_15", "8 a ms, one delay, precision 2^15 ms", 8, 15, 0, 2.25),
    Row("hour", "random over an hour, precision 2^10 ms", 8, 10, HOUR_MS, 200),
    Row("week", "random over 7 days, precision 2^10 ms", 8, 10, 7 * 24 * HOUR_MS, 0),
)
SPEEDS = (
    Count(figure="add_m_per_s", what="added", unit="million/s", meaning="in batches of 100,000"),
    Count(figure="longest_add_ms", what="the longest batch", unit="ms", better="lower", noise=1.0),
    Count(figure="drain_m_per_s", what="taken when due", unit="million/s", meaning="each compared with what is due"),
)
DISK = (
    *SPEEDS,
    Count(figure="grown_mb", what="growth of the process while all are added", unit="MB", better="lower", noise=0.25),
    Count(figure="disk_bytes_each", what="an entry on disk", unit="B", better="lower", meaning="by time and by place"),
    Count(figure="merged_each", what="writes of an entry by merges", unit="", better="lower", meaning="once is 1"),
    Count(figure="not_sealed", what="entries that a crash takes from the index", unit="", better="neither",
          meaning="they are read again from the log: only the last bucket is in memory alone"),
    Count(figure="open_s", what="opening after the crash", unit="s", better="lower"),
    Count(figure="drain_grown_mb", what="growth of the process while they are taken", unit="MB", better="lower",
          noise=0.25),
    Count(figure="checkpoint_s", what="the checkpoint after that", unit="s", better="lower"),
)  # fmt: skip
STORE = (
    Count(figure="append_per_s", what="appended", unit="msg/s"),
    Count(figure="deliver_per_s", what="received and acknowledged", unit="msg/s", better="neither",
          meaning="their delays bound it"),
    Count(figure="cpu_us", what="processor time of a message, all in all", unit="us", better="lower"),
    Count(figure="index_mb", what="memory of the topic's index at the end", unit="MB", better="lower", noise=0.25),
    *latencies("lateness", "from its time to its receipt; messages go on coming at a fixed rate", *TAILS),
    Count(figure="all_p99", what="lateness with those that were due while the store was filled, p99", unit="us",
          better="lower", noise=TAILS["p99"]),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Delayed(Reported):
    """Delayed entries: memory by rate, precision and spread; adding and draining; on disk; and in a store."""

    NAME: ClassVar[str] = "delayed"
    TITLE: ClassVar[str] = "Delayed messages"
    METHOD: ClassVar[str] = (
        "each part in a fresh process; growth of its resident memory from before the tracker to the full one, unused "
        "pages given back both times; all is taken in 200 steps of time and compared with what is due"
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
        """The space of the tracker on disk, and of the store."""
        stored = self.stored + self.rate * self.spread_ms // 1000
        return DISK_BYTES * self.entries + STORED_BYTES * stored

    def study(self, base: Path, run: Run) -> Study:
        """The loads in memory by turns; then the tracker on disk and the store, once each."""
        Latencies()  # raises before the work if its package is missing
        memory = Chapter(
            title="Delayed entries in memory",
            text=f"{self.messages:,} entries of the time-bucket tracker, 50,000 a ledger as in the source's test; of a "
            "heap a tenth of them.",
            measures=tuple(measured(self._memory(), self.repeat, run).values()),
        )
        disk = Chapter(
            title="Delayed entries on disk",
            text=f"{self.entries:,} entries with delays that are random over an hour, exact times. The process "
            "that added them ends without closing, as in a crash; another one opens the tracker and takes "
            f"{min(self.drained, self.entries):,}.",
            measures=tuple(measured([Part("disk", partial(self._disk, base), DISK, "on disk")], 1, run).values()),
        )
        chapters = [memory, disk]
        if self.stored:
            part = Part("store", partial(self._store, base, run), STORE, "a store")
            text = (
                f"{self.stored:,} messages with delays of up to {self.spread_ms:,} ms, {self.rate:,} a second more "
                "meanwhile, one subscription. None may be early, lost or there twice."
            )
            measures = tuple(measured([part], 1, run).values())
            chapters.append(Chapter(title="Delayed messages in a store, end to end", text=text, measures=measures))
        return Study(
            summary=tuple(sentence(chapter.measures[0]) for chapter in chapters if chapter.measures),
            chapters=tuple(chapters),
            verdict=f"{self.messages:,} entries a row and more: none was early, late beyond its precision, or lost",
        )

    def _memory(self) -> list[Part]:
        parts = []
        for row in ROWS:
            load = Load(self.messages, row.rate, row.spread_ms)
            source = {"source_mb": row.source_mb * self.messages / 10_000_000} if row.source_mb else {}
            grown = Count(figure="grown_mb", what="growth of the process", unit="MB", better="lower", noise=0.25,
                          beside=".source_mb", beside_what="the source's figure")  # fmt: skip
            each = Count(figure="bytes_each", what="memory of one", unit="B", better="lower", noise=0.25)
            run = partial(self._apart, in_memory, row.bits, load, self.seed, **source)
            parts.append(Part(f"memory.{row.name}", run, (grown, each, *SPEEDS), row.what))
        each = Count(figure="bytes_each", what="memory of one", unit="B", better="lower", noise=0.25)
        few = Load(max(LEAST_LOAD, self.messages // 10), 8)
        heap = partial(self._apart, in_memory, HEAP, few, self.seed)
        return [*parts, Part("memory.heap", heap, (each, *SPEEDS), "a heap of triples, one delay")]

    def _apart(self, work: Callable[..., dict[str, float]], *arguments: Any, **told: float) -> dict[str, float]:
        """The figures of work in a fresh process, if memory counts; and what is `told`, which stands beside them."""
        found = in_child(work, arguments) if self.messages >= LEAST_APART else work(*arguments)
        return {**found, **told}

    def _disk(self, base: Path) -> dict[str, float]:
        load = Load(self.entries, 8, HOUR_MS, self.one_in, self.queues)
        with sub_folder(base, "buckets") as folder:
            figures = [
                in_child(work, arguments) if self.entries >= LEAST_APART else work(*arguments)
                for work, arguments in (
                    (fill_on_disk, (folder, load, self.seed)),
                    (open_and_drain, (folder, load, self.seed, self.drained)),
                )
            ]
        filled, opened = figures
        if opened["added_again"] != filled["not_sealed"]:
            raise WrongResult(
                f"{filled['not_sealed']:,} entries were in memory alone, {opened['added_again']:,} are lost"
            )
        return {**filled, **opened}

    def _store(self, base: Path, run: Run) -> dict[str, float]:
        with sub_folder(base, "store") as folder:
            found = deliver(folder, StoreLoad(self.stored, self.rate, self.spread_ms, self.precision_ms), self.seed)
        run.checked(int(found["messages"]))
        return found


def in_child(work: Callable[..., dict[str, float]], arguments: Sequence[Any]) -> dict[str, float]:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
