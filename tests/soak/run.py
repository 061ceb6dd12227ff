"""A random workload, kills and faults, for as long as is asked for. After each life everything that was acknowledged
must be there.

A store lives through several lives of a child process (`child`), each with settings and a fault of its own (`plan`),
and is checked after each (`ledger`); then the next store begins.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from stratalog.perf.machine.folders import sub_folder
from stratalog.perf.report import figures as report
from stratalog.perf.report.figures import Figures
from stratalog.store import StoreError

from .child import Plan
from .ledger import TIMED, Ledger, Violation
from .plan import KINDS, QUEUE, draw, draw_queue
from .queue_ledger import QueueLedger

LIVES_MAX = 15  # of one store
LIVES_MOST = 200  # of a soak that waits for what has not come yet
STUCK_S = 60.0
KILLED_OPENING = 4  # one death of so many comes about when the store is opened
QUEUES_IN = 8  # one store of so many is a queue of jobs
CHECKED_TWICE = 4  # one life of so many
START_S = 0.2  # what an interpreter takes to get that far
ROOT = Path(__file__).resolve().parents[2]

# What the documentation allows when there is a fault. Without one no call may fail.
DOCUMENTED = {
    "open": {"StoreUnusable", "StoreFull"},
    "append": {"StorePoisoned", "StoreFull"},
    "read": {"StoreUnreadable"},
    "consume": {"StorePoisoned", "StoreFull", "StoreUnreadable"},
}


@dataclass
class Tally:
    """What was tried, and what came of it."""

    seed: int
    seconds: float = 0.0
    stores: int = 0
    cycles: int = 0
    kills: int = 0
    closes: int = 0
    lives: Counter[str] = field(default_factory=Counter)
    faults_met: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    checked: int = 0
    consumed: int = 0  # acknowledged by a consumer
    read_meanwhile: int = 0
    segments_gone: int = 0  # at the most, and not of queues of jobs
    removed_segments: int = 0  # of the queue of jobs that removed most
    disk_share: float = 0.0  # of what a queue of jobs may take on the disk, at the most
    seeds: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The running count."""
        return (
            f"{self.seconds:,.0f} s: {self.cycles:,} lives of {self.stores:,} stores, {self.kills:,} kills, "
            f"{sum(self.faults_met.values()):,} faults met, {self.acknowledged:,} messages acknowledged, "
            f"{len(self.violations)} violations"
        )


def run(
    base: Path,
    *,
    minutes: float,
    seed: int,
    life_s: float = 1.5,
    kinds: Sequence[str] = KINDS,
    until: Sequence[str] = (),
    tick: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Soak for so long, but at least one life of each of `kinds`, and until each count of `until` is more than 0.

    The counts are of the tally. A life may be over before it has done anything: the machine may be busy. Ends at the
    first violation, and leaves its store.
    """
    chance, tally, began = random.Random(seed), Tally(seed), time.monotonic()

    def over() -> bool:
        tally.seconds = time.monotonic() - began
        is_all = tally.cycles >= len(kinds) and (QUEUE not in kinds or tally.lives[QUEUE] > 0)
        is_all = is_all and (all(getattr(tally, count) for count in until) or tally.cycles >= LIVES_MOST)
        return bool(tally.violations) or (tally.seconds >= minutes * 60 and is_all)

    def is_queue(store_seed: int) -> bool:
        if QUEUE not in kinds or tally.cycles < len(others):
            return False
        is_all_that_lacks = not tally.lives[QUEUE] and tally.seconds >= minutes * 60
        return not others or is_all_that_lacks or store_seed % QUEUES_IN == 0

    others = [kind for kind in kinds if kind != QUEUE]
    while not over():
        store_seed = chance.getrandbits(32)
        tally.stores += 1
        tally.seeds.append(store_seed)
        with sub_folder(base, "soak") as folder:
            try:
                if is_queue(store_seed):
                    _one_queue(folder / "store", random.Random(store_seed), tally, life_s, over, tick)
                else:
                    _one_store(folder / "store", random.Random(store_seed), tally, life_s, others, over, tick)
            except (Violation, StoreError, OSError, AssertionError) as error:
                kept = base.with_name(f"{base.name}-violation")
                shutil.copytree(folder, kept)
                what = f"seed {seed}, store seed {store_seed}, life {tally.cycles}"
                tally.violations.append(f"{what}: {type(error).__name__}: {error} (kept in {kept})")
    return tally


def _one_store(
    path: Path,
    chance: random.Random,
    tally: Tally,
    life_s: float,
    kinds: Sequence[str],
    over: Callable[[], bool],
    tick: Callable[[Tally], None],
) -> None:
    """The lives of one store, each followed by a check of everything."""
    ledger, lanes = Ledger(path), chance.choice((1, 1, 2, 4))
    for _ in range(chance.randint(3, LIVES_MAX)):
        plan, kill_after = draw(chance, str(path), lanes, tally.cycles, life_s, kinds)
        tally.cycles += 1
        tally.lives[plan.label] += 1
        ledger.begin(plan)
        _live(plan, kill_after, ledger, tally)
        ledger.end()
        found = ledger.check(retention=plan.config["retention_bytes"] is not None)
        # Recovery of a recovered store must change nothing.
        if tally.cycles % CHECKED_TWICE == 0 and ledger.check(retention=False) != found:
            raise Violation("another opening found another store")
        tally.checked += found
        tick(tally)
        if over():
            return


def _one_queue(
    path: Path, chance: random.Random, tally: Tally, life_s: float, over: Callable[[], bool],
    tick: Callable[[Tally], None],
) -> None:  # fmt: skip
    """The lives of a queue of jobs, each followed by a check of everything."""
    ledger, lanes = QueueLedger(path), chance.choice((1, 1, 2))
    for _ in range(chance.randint(3, LIVES_MAX)):
        plan, kill_after = draw_queue(chance, str(path), lanes, life_s)
        plan.carried, plan.send_again = ledger.carried(), ledger.cut()
        tally.cycles += 1
        tally.lives[plan.label] += 1
        ledger.begin(plan)
        _live(plan, kill_after, ledger, tally)
        tally.checked += ledger.check()
        tally.removed_segments = max(tally.removed_segments, ledger.removed_segments)
        tally.disk_share = max(tally.disk_share, ledger.disk_share)
        tick(tally)
        if over():
            return


def _live(plan: Plan, kill_after: float | None, ledger: Ledger | QueueLedger, tally: Tally) -> None:
    """One life of the child. Raises Violation if it ended by an error that is not documented."""
    with tempfile.TemporaryFile() as complaints:  # a pipe that nobody empties would stop the child
        code, ended = _run_child(plan, kill_after, complaints, lambda line: _note(line, plan, ledger, tally))
        complaints.seek(0)
        complaint = complaints.read().decode(errors="replace")
    if code == -signal.SIGKILL and kill_after is not None:
        tally.kills += 1
    elif code == 0 and ended:
        tally.closes += 1
    else:
        raise Violation(f"a life of kind {plan.label} ended with {code}: {complaint[-2000:]}; the plan: {plan}")


def _run_child(
    plan: Plan, kill_after: float | None, complaints: IO[bytes], note: Callable[[list[Any]], None]
) -> tuple[int, bool]:
    """The child's exit code, and whether it said that it came to its end."""
    before = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *([before] if before else [])])}
    module = "tests.soak.queue_child" if plan.label == QUEUE else "tests.soak.child"
    command = [sys.executable, "-m", module, plan.as_json()]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, env=environment)
    assert child.stdout is not None
    timers = [threading.Timer(STUCK_S, child.send_signal, [signal.SIGABRT])]
    opening = kill_after is not None and plan.seed % KILLED_OPENING == 0
    if kill_after is not None:
        delay = START_S + kill_after / 10 if opening else kill_after
        timers.append(threading.Timer(delay, child.send_signal, [signal.SIGKILL]))
    ended, started = False, 2 if opening else 1
    try:
        for timer in timers[:started]:
            timer.start()
        for line in child.stdout:
            if not line.endswith(b"\n"):
                break  # the kill came in the middle of it
            said = json.loads(line)
            if said[0] in ("open", "error"):
                for timer in timers[started:]:
                    timer.start()
                started = len(timers)
            ended = ended or said[0] == "end"
            note(said)
        return child.wait(), ended
    finally:
        for timer in timers:
            timer.cancel()
        child.kill()
        child.wait()
        child.stdout.close()


def _note(line: list[Any], plan: Plan, ledger: Ledger | QueueLedger, tally: Tally) -> None:
    """What the child said."""
    what, *rest = line
    if isinstance(ledger, QueueLedger):
        ledger.note(what, rest)
        tally.acknowledged += len(rest) if what == "sent" else 0
        tally.consumed += len(rest) - 1 if what == "acked" else 0
    elif what == "told":
        for queue, offset, seed, due_ms, in_time in rest:
            ledger.note(queue, offset, seed, due_ms, in_time=in_time)
        tally.acknowledged += len(rest)
    elif what == "error":
        stage, name, text = rest
        tally.errors[f"{stage}: {name}"] += 1
        fault = plan.disk_fault is not None or plan.file_bytes is not None
        if not fault or name not in DOCUMENTED.get(stage, ()):
            raise Violation(f"{stage} raised {name}: {text}; the plan: {plan}")
        if plan.file_bytes is not None:
            tally.faults_met[plan.label] += 1
    elif what == "struck":
        tally.faults_met[plan.label] += 1
    elif what == "read":
        tally.read_meanwhile += rest[0]
    elif what == "going":
        ledger.note_going([(lane, segment, messages, size) for lane, segment, messages, size in rest])
        tally.segments_gone += len(rest)
    elif what == "subscribed":
        ledger.is_subscribed = True
    elif what not in ("open", "end"):
        time_ms = rest.pop(0) if what in TIMED else 0
        ledger.note_consumer(what, [(queue, offset) for queue, offset in rest], time_ms)
        tally.consumed += len(rest) if what == "acked" else 0


def figures_of(tally: Tally) -> Figures:
    """The tally as plain figures."""
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(tally).items()}


def show(figures: Figures, console: Console) -> None:
    """What was tried, and the verdict."""
    counts = {name: value for name, value in figures.items() if isinstance(value, int | float) and name != "seed"}
    console.print(report.pairs(f"soak, seed {figures['seed']}", counts))
    met = figures["faults_met"]
    rows = [{"kind": kind, "lives": lives, "met": met.get(kind)} for kind, lives in sorted(figures["lives"].items())]
    console.print(report.table("lives", rows))
    if figures["errors"]:
        console.print(report.pairs("errors, all documented", figures["errors"]))
    console.print(f"seeds of the stores: {' '.join(map(str, figures['seeds']))}", highlight=False)
    for violation in figures["violations"]:
        console.print(violation, style="bold red", markup=False)
    style = "bold red" if figures["violations"] else "green"
    console.print(f"violations {len(figures['violations'])}", style=style, highlight=False)
