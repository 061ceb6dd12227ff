"""Transactions: the time and the rate of one with three appends and an acknowledgement, beside a plain append."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar

from rich.console import Console

from ...store import Delivery, MessageStore, Subscription
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, medians, repeats, setting

TOPIC = "jobs"
APPENDS = 3
SOME = 64  # messages of a receive
VISIBLE_MS = 3_600_000  # nothing times out in a run
Work = Callable[[MessageStore, bytes, Delivery], None]


def append_one(store: MessageStore, data: bytes, _: Delivery) -> None:
    """One message."""
    store.append("results", 0, data)


def transact(store: MessageStore, data: bytes, delivery: Delivery) -> None:
    """Three messages to three topics, and an acknowledgement."""
    with store.transaction() as tx:
        for number in range(APPENDS):
            tx.append(f"results {number}", number, data)
        tx.ack(delivery)


WAYS: dict[str, Work] = {"append": append_one, "transaction": transact}


@dataclass(frozen=True, kw_only=True)
class Transactions(Experiment):
    """A transaction of 3 appends and 1 acknowledgement beside an append: one thread, and many."""

    NAME: ClassVar[str] = "transactions"
    METHOD: ClassVar[str] = "each durable; the messages to acknowledge are received before; a store a round"

    calls: int = setting(2_000, "calls of one thread a round", short=20, least=1)
    threads: int = setting(40, "threads of the other runs", short=4, least=1)
    calls_each: int = setting(250, "calls of each of them", short=5, least=1)
    size_bytes: int = setting(100, "of a message", least=1)
    repeat: int = repeats(5)

    def need_bytes(self) -> float:
        """The space of a round."""
        calls = self.calls + self.threads * self.calls_each
        return 4.0 * calls * (8192 + APPENDS * self.size_bytes) + (512 << 20)

    def measure(self, base: Path, run: Run) -> Figures:
        """The ways by turns, and what a transaction takes more than an append."""
        ways = {
            f"{name}, {'one thread' if threads == 1 else f'{threads} threads'}": partial(
                self._round, base, run, work, threads, calls
            )
            for threads, calls in ((1, self.calls), (self.threads, self.calls_each))
            for name, work in WAYS.items()
        }
        found = medians(ways, self.repeat, run)
        rows = [{"way": name, **figures} for name, figures in found.items()]
        return {"rows": rows, "times_an_append": round(rows[1]["median_us"] / rows[0]["median_us"], 3)}

    def _round(self, base: Path, run: Run, work: Work, threads: int, calls: int) -> Figures:
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            total = threads * calls
            store.append_batch([(TOPIC, at % 4, b"job") for at in range(total)])
            sub = store.subscribe(TOPIC, "workers")
            given = _received(sub, total)
            taken: list[float] = []
            jobs = [
                partial(self._job, store, work, given[at * calls : (at + 1) * calls], taken) for at in range(threads)
            ]
            used, seconds = time.process_time(), run_together(jobs)
            used = time.process_time() - used
            self._check(store, sub, total, is_append=work is append_one)
        run.checked(total)
        return {
            "calls": total, "per_s": round(total / seconds), "median_us": round(median(taken) * 1e6, 1),
            "processor_us": round(used / total * 1e6, 1),
        }  # fmt: skip

    def _job(self, store: MessageStore, work: Work, given: Sequence[Delivery], taken: list[float]) -> None:
        data, mine = bytes(self.size_bytes), []
        for delivery in given:
            began = time.perf_counter()
            work(store, data, delivery)
            mine.append(time.perf_counter() - began)
        taken += mine

    def _check(self, store: MessageStore, sub: Subscription, total: int, *, is_append: bool) -> None:
        names = [("results", 0)] if is_append else [(f"results {number}", number) for number in range(APPENDS)]
        ends = [store.queue_bounds(*name)[1] for name in names]
        left = sub.backlog().total
        if ends != [total] * len(names) or left != (total if is_append else 0):
            raise WrongResult(f"there are {ends} results of {total}, and {left} messages are not acknowledged")

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        shown = {
            "way": "way", "calls": "calls", "calls/s": "per_s", "median us": "median_us",
            "processor us a call": "processor_us",
        }  # fmt: skip
        console.print(report.table("transactions", report.chosen(figures["rows"], shown)))
        console.print(f"a transaction takes {figures['times_an_append']} x an append, by the medians of one thread")


def _received(sub: Subscription, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        found += sub.receive(SOME, visibility_timeout_ms=VISIBLE_MS)
    return found
