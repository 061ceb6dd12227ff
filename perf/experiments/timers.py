"""Timers: insert, cancel and expire by each way, at rising numbers of pending timers; and the lateness of a thread."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from ...index import SYSTEM_CLOCK, TimerThread, TimingWheel
from ..machine.usage import resident_bytes
from ..references.timers import WAYS, InBulk, Timers
from ..report import figures as report
from ..report.figures import Figures, median_of
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, repeats, setting

PENDING = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
BATCH = 100_000  # timers a call in bulk
TURN = 10_000  # inserted and cancelled again beside the pending ones
TURNS = 5
SLOW_CANCELS = 2  # where each searches through all
STEPS = 1_000  # of the time, from the first deadline to the last
LEAST_FOR_BYTES = 100_000  # pending timers, so that the process's growth tells
LATE_TIMEOUTS_MS = (5, 200)
SHOWN = {
    "way": "way", "pending": "pending", "fill M/s": "fill_m_per_s", "expire M/s": "expire_m_per_s",
    "insert ns": "insert_ns", "cancel ns": "cancel_ns", "cancel at random ns": "cancel_random_ns",
    "bytes a timer": "bytes_per_timer",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TimerRates(Experiment):
    """Timers one at a time and in bulk, beside heapq and sched: rates, bytes, and lateness on a real clock."""

    NAME: ClassVar[str] = "timers"
    METHOD: ClassVar[str] = (
        "processor time of one thread; insert and cancel: 10,000 timers beside the pending ones; a bulk call has "
        "100,000; time goes on in 1,000 steps; bytes: growth of the process"
    )

    timers: int = setting(10_000_000, "pending timers at most, in bulk", short=2_000, least=1_000)
    single: int = setting(1_000_000, "pending timers at most, one at a time", short=1_000, least=1_000)
    rate: int = setting(50_000, "timers per second of the lateness part", short=2_000, least=1)
    seconds: float = setting(5.0, "of the lateness part", short=0.2, least=0.01)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """Not disk space: a number that tells the short form from the whole one."""
        return self.timers

    def measure(self, base: Path, run: Run) -> Figures:
        """A row for each way and number of pending timers, the ratios, and the lateness."""
        cells = [
            (way, pending) for pending in PENDING for way in WAYS
            if pending <= (self.timers if way.IN_BULK else min(self.single, self.timers))
        ]  # fmt: skip
        run.expect(self.repeat * (len(cells) + 1))
        rounds: list[list[Figures]] = []
        late: list[Figures] = []
        for number in range(self.repeat):
            found = []
            for way, pending in cells:
                found.append({"way": way.NAME, "pending": pending, **self._once(way, pending, number)})
                run.one_done()
            rounds.append(found)
            late.append(lateness(self.rate, self.seconds))
            run.one_done()
        rows = [median_of(list(of)) for of in zip(*rounds, strict=True)]
        return {"rows": rows, "ratios": ratios(rows), "lateness": median_of(late)}

    def _once(self, way: type[Timers], pending: int, number: int) -> Figures:
        chance = np.random.default_rng([self.seed, number])
        deadlines = chance.integers(1, max(STEPS, pending // 100), pending, endpoint=True)
        gc.collect()
        before, timers = resident_bytes(), way()
        given = [deadlines[begin : begin + BATCH] for begin in range(0, pending, BATCH)]
        lists: list[Any] = given if way.IN_BULK else [part.tolist() for part in given]
        began = time.thread_time()
        for part in lists:
            timers.add(part)
        fill_s = time.thread_time() - began
        grown = resident_bytes() - before
        held = columns_bytes(timers, pending) if way.IN_BULK else None
        step = -(-int(deadlines.max()) // STEPS)
        began = time.thread_time()
        fired = sum(timers.advance(now_ms) for now_ms in range(0, int(deadlines.max()) + step, step))
        expire_s = time.thread_time() - began
        if fired != pending:
            raise WrongResult(f"{way.NAME}: {fired:,} of {pending:,} timers fired")
        timers = way()  # another one, because a heap keeps cancelled timers
        for part in lists:
            timers.add(part)
        beside = beside_pending(timers, deadlines, chance)
        # What fits into the memory that the process had already is no growth of it.
        is_told = pending >= LEAST_FOR_BYTES and number == 0
        return {
            "fill_m_per_s": pending / fill_s / 1e6,
            "expire_m_per_s": pending / expire_s / 1e6,
            **beside,
            "bytes_per_timer": held if way.IN_BULK else grown / pending if is_told else None,
        }

    def show(self, figures: Figures, console: Console) -> None:
        """Show the rows, the ratios, the lateness."""
        console.print(report.table("timers", report.chosen(figures["rows"], SHOWN), labels=2))
        console.print(report.table("cost at the most pending timers over that at 1,000", figures["ratios"]))
        config = figures["config"]
        console.print(report.pairs(f"a TimerThread at {config['rate']:,} timers/s", figures["lateness"]))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """Every timer has fired, and none early: a run checks this itself."""
        early = figures["lateness"]["early"]
        total = sum(row["pending"] for row in figures["rows"]) * figures["config"]["repeat"]
        return early == 0, f"{total:,} timers, each fired once; {early:,} of {figures['lateness']['fired']:,} early"


def beside_pending(timers: Timers, deadlines: Any, chance: np.random.Generator) -> Figures:
    """Nanoseconds to insert one and to cancel it while the others are pending: in the order of insertion, at random."""
    cancels = SLOW_CANCELS if timers.CANCELS_SLOWLY else TURN
    spent: dict[str, list[float]] = {"insert_ns": [], "cancel_ns": [], "cancel_random_ns": []}
    for _ in range(TURNS):
        for name in ("cancel_ns", "cancel_random_ns"):
            drawn = chance.choice(deadlines, TURN)
            mine = drawn if isinstance(timers, InBulk) else drawn.tolist()
            if timers.CANCELS_SLOWLY:
                mine = mine[:cancels]
            began = time.thread_time()
            handles = timers.add(mine)
            spent["insert_ns"].append((time.thread_time() - began) / len(mine) * 1e9)
            if name == "cancel_random_ns":
                order = chance.permutation(len(handles))
                handles = handles[order] if isinstance(timers, InBulk) else [handles[at] for at in order.tolist()]
            began = time.thread_time()
            cancelled = timers.cancel(handles)
            spent[name].append((time.thread_time() - began) / len(mine) * 1e9)
            if cancelled != len(mine):
                raise WrongResult(f"{timers.NAME}: {cancelled} of {len(mine)} timers were cancelled")
    return {name: float(np.median(values)) for name, values in spent.items()}


def columns_bytes(timers: Timers, pending: int) -> float:
    """The bytes of a bulk wheel's columns, by its own figure."""
    assert isinstance(timers, InBulk)
    return timers.wheel.memory_bytes / pending


def ratios(rows: list[Figures]) -> list[Figures]:
    """For each way: its costs with the most pending timers over those with the fewest."""
    found = []
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        names = ("insert_ns", "cancel_ns", "cancel_random_ns")
        found.append({"way": way, "pending": own[-1]["pending"],
                      **{name.replace("_ns", ""): own[-1][name] / own[0][name] for name in names}})  # fmt: skip
    return found


def lateness(rate: int, seconds: float) -> Figures:
    """The lateness of a `TimerThread`'s payloads, at so many timers a second of 5 to 200 ms."""
    late: list[float] = []
    chance = np.random.default_rng(1)

    def fire(due_s: float) -> None:
        late.append(time.monotonic() - due_s)

    wanted, added = int(rate * seconds), 0
    delays = chance.integers(*LATE_TIMEOUTS_MS, wanted, endpoint=True).tolist()
    with TimerThread(TimingWheel(), SYSTEM_CLOCK) as timers:
        began = time.monotonic()
        while added < wanted:
            until = min(int((time.monotonic() - began) * rate) + 1, wanted)
            for delay in delays[added:until]:
                timers.add_after(delay, partial(fire, time.monotonic() + delay / 1000))
            added = until
            time.sleep(0.001)  # lets the timer thread have the interpreter
        added_s = time.monotonic() - began
        limit = time.monotonic() + 60
        while len(late) < wanted and time.monotonic() < limit:
            threading.Event().wait(0.01)
    if len(late) != wanted:
        raise WrongResult(f"{len(late):,} of {wanted:,} timers fired")
    found = np.array(late) * 1000
    p50, p99 = np.percentile(found, (50, 99)).tolist()
    return {"per_s": wanted / added_s, "fired": wanted, "early": int((found < 0).sum()),
            "late_p50_ms": p50, "late_p99_ms": p99, "late_max_ms": float(found.max())}  # fmt: skip
