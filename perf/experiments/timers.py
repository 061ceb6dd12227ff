"""Timers: insert, cancel and expire by each way, at rising numbers of pending timers; and the lateness of a thread."""

from __future__ import annotations

import gc
import threading
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...index import SYSTEM_CLOCK, TimerThread, TimingWheel
from ..machine.usage import give_back_free_memory, resident_bytes
from ..references.timers import WAYS, Timers, Wheel
from ..report.progress import Run
from ..report.record import Chapter, Chart, Measure
from ..report.words import amount
from ..workload.checker import WrongResult
from ..workload.latencies import Latencies
from .experiment import repeats, setting
from .parts import TAILS, Count, Part, latencies, measured, of
from .reported import Reported, Study

PENDING = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
TURN = 10_000  # inserted and cancelled again beside the pending ones
TURNS = 5
SLOW_CANCELS = 2  # where each searches through all
STEPS = 1_000  # of the time, from the first deadline to the last
LATE_TIMEOUTS_MS = (5, 200)
BESIDE = "heapq"
COSTS = {
    "insert": "to insert one while the others are pending",
    "cancel": "to cancel one, in the order in which they were inserted",
    "cancel_random": "to cancel one, in any order",
    "expire": "to give out one that is due",
}


@dataclass(frozen=True, kw_only=True)
class TimerRates(Reported):
    """Timers by a wheel, by heapq and by sched: costs, bytes, and lateness on a real clock."""

    NAME: ClassVar[str] = "timers"
    TITLE: ClassVar[str] = "Timers"
    METHOD: ClassVar[str] = (
        "processor time of one thread; insert and cancel: 10,000 timers beside the pending ones; time goes on in 1,000 "
        "steps; bytes: growth of the process, once; lateness: from the deadline to the payload's call, at a fixed rate "
        "of new timers (no coordinated omission)"
    )

    timers: int = setting(1_000_000, "pending timers at most", short=1_000, least=1_000)
    rate: int = setting(50_000, "timers per second of the lateness part", short=2_000, least=1)
    seconds: float = setting(5.0, "of the lateness part", short=0.2, least=0.01)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """No disk space."""
        return 0.0

    def study(self, base: Path, run: Run) -> Study:
        """The bytes of a timer first, while the process has no free memory; then costs and lateness by turns."""
        Latencies()  # raises before the work if its package is missing
        steps = [pending for pending in PENDING if pending <= self.timers]
        bytes_each = measured([self._bytes_part(way, steps[-1]) for way in WAYS], 1, run)
        parts = [self._part(way, pending) for pending in steps for way in WAYS]
        late = latencies("lateness of a payload", "from its deadline to its call, by a timer thread", *TAILS)
        parts.append(Part("thread", partial(lateness, self.rate, self.seconds), late))
        found = measured(parts, self.repeat, run)
        charts = tuple(chart(cost, steps, found) for cost in COSTS)
        costs = Chapter(
            title="What a timer costs",
            text="Nanoseconds of processor time while so many timers are pending.",
            measures=(*bytes_each.values(), *of(found, *(f"{way.NAME}." for way in WAYS))),
            charts=charts,
        )
        thread = Chapter(
            title="A timer thread",
            text=f"{self.rate:,} new timers a second, of 5 to 200 ms each. None may fire early.",
            measures=of(found, "thread."),
        )
        insert = found[f"{Wheel.NAME}.{steps[-1]}.insert"]
        summary = (
            f"A timer is inserted in {amount(insert.value, insert.unit)} beside {steps[-1]:,} pending ones.",
            f"A timer thread is {amount(found['thread.p50'].value, 'us')} late (p50), "
            f"{amount(found['thread.p99'].value, 'us')} (p99), and never early.",
        )
        return Study(summary=summary, chapters=(costs, thread))

    def _part(self, way: type[Timers], pending: int) -> Part:
        counts = tuple(
            Count(
                figure=cost,
                what=f"{way.NAME}, {pending:,} pending: {what}",
                unit="ns",
                better="lower",
                beside=f"{BESIDE}.{pending}.{cost}" if way.NAME != BESIDE else "",
                beside_what="heapq",
            )
            for cost, what in COSTS.items()
        )
        return Part(f"{way.NAME}.{pending}", partial(costs_of, way, pending, self.seed), counts)

    def _bytes_part(self, way: type[Timers], pending: int) -> Part:
        count = Count(
            figure="bytes",
            what=f"{way.NAME}, {pending:,} pending: memory of one",
            unit="B",
            better="lower",
            meaning="the growth of the process, which is rough below 100,000 timers",
        )
        return Part(f"{way.NAME}.memory", partial(bytes_of, way, pending, self.seed), (count,))


def drawn(pending: int, seed: int) -> list[int]:
    """Deadlines, of which many fall into each step of the time."""
    found: list[int] = np.random.default_rng(seed).integers(1, max(STEPS, pending // 100), pending).tolist()
    return found


def bytes_of(way: type[Timers], pending: int, seed: int) -> dict[str, float]:
    """The growth of the process for each timer."""
    deadlines = drawn(pending, seed)
    gc.collect()
    give_back_free_memory()
    before, timers = resident_bytes(), way()
    timers.add(deadlines)
    return {"bytes": max(0, resident_bytes() - before) / pending}


def costs_of(way: type[Timers], pending: int, seed: int) -> dict[str, float]:
    """Nanoseconds of processor time for a timer. Raises WrongResult unless each timer fires once."""
    deadlines, timers = drawn(pending, seed), way()
    timers.add(deadlines)
    last = max(deadlines)
    step = -(-last // STEPS)
    gc.collect()
    began = time.thread_time()
    fired = sum(timers.advance(now_ms) for now_ms in range(0, last + step, step))
    expire_s = time.thread_time() - began
    if fired != pending:
        raise WrongResult(f"{way.NAME}: {fired:,} of {pending:,} timers fired")
    timers = way()  # another one, because a heap keeps cancelled timers
    timers.add(deadlines)
    return {"expire": expire_s / pending * 1e9, **beside_pending(timers, deadlines, np.random.default_rng(seed))}


def beside_pending(timers: Timers, deadlines: list[int], chance: np.random.Generator) -> dict[str, float]:
    """Nanoseconds to insert one and to cancel it while the others are pending: in the order of insertion, at random."""
    count = SLOW_CANCELS if timers.CANCELS_SLOWLY else TURN
    spent: dict[str, list[float]] = {"insert": [], "cancel": [], "cancel_random": []}
    for _ in range(TURNS):
        for name in ("cancel", "cancel_random"):
            mine = chance.choice(deadlines, count).tolist()
            began = time.thread_time()
            handles = timers.add(mine)
            spent["insert"].append((time.thread_time() - began) / count * 1e9)
            if name == "cancel_random":
                handles = [handles[at] for at in chance.permutation(count).tolist()]
            began = time.thread_time()
            cancelled = timers.cancel(handles)
            spent[name].append((time.thread_time() - began) / count * 1e9)
            if cancelled != count:
                raise WrongResult(f"{timers.NAME}: {cancelled} of {count} timers were cancelled")
    return {name: float(np.median(values)) for name, values in spent.items()}


def chart(cost: str, steps: list[int], found: Mapping[str, Measure]) -> Chart:
    """The cost by the number of pending timers, a line a way."""
    return Chart(
        title=f"Nanoseconds {COSTS[cost]}",
        x_what="pending timers",
        y_what="ns",
        x=tuple(map(float, steps)),
        lines={way.NAME: tuple(found[f"{way.NAME}.{pending}.{cost}"].value for pending in steps) for way in WAYS},
        log_x=True,
        log_y=True,
        meaning="A flat line costs the same however many timers are pending.",
    )


def lateness(rate: int, seconds: float) -> dict[str, float]:
    """The lateness of a `TimerThread`'s payloads, at so many timers a second. Raises WrongResult if one is early."""
    late = array("q")
    wanted, added = max(1, int(rate * seconds)), 0
    delays = np.random.default_rng(1).integers(*LATE_TIMEOUTS_MS, wanted, endpoint=True).tolist()

    def fire(due_ns: int) -> None:
        late.append(time.monotonic_ns() - due_ns)

    with TimerThread(TimingWheel(), SYSTEM_CLOCK) as timers:
        began = time.monotonic()
        while added < wanted:
            until = min(int((time.monotonic() - began) * rate) + 1, wanted)
            for delay in delays[added:until]:
                timers.add_after(delay, partial(fire, time.monotonic_ns() + delay * 1_000_000))
            added = until
            time.sleep(0.001)  # lets the timer thread have the interpreter
        limit = time.monotonic() + 60
        while len(late) < wanted and time.monotonic() < limit:
            threading.Event().wait(0.01)
    early = sum(one < 0 for one in late)
    if len(late) != wanted or early:
        raise WrongResult(f"{len(late):,} of {wanted:,} timers fired, {early:,} of them early")
    found = Latencies()
    found.add(late)
    return {"calls": wanted, **found.marks_us()}
