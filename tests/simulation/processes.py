"""Runs of a simulation in many processes: its long forms."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .tally import Tally

SEEDS_A_PROCESS = 100  # then a fresh one takes its place
MOST_SHOWN = 20


def parser_of(module: str, about: str | None, states: int) -> argparse.ArgumentParser:
    """The options of a long form, which tries so many states."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--seeds", type=int, default=1_000_000, help="runs at the most")
    parser.add_argument("--states", type=int, default=states, help="crash states to try")
    parser.add_argument("--first", type=int, default=random.SystemRandom().getrandbits(30), help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


def run_long_form(try_seed: Callable[[int], Tally], given: argparse.Namespace, console: Console) -> int:
    """Try the seeds that are asked for, and say what came of it; the exit code."""
    began = time.perf_counter()
    total = _explore_many(try_seed, given, console)
    _show(total, time.perf_counter() - began, given.jobs, console)
    return 1 if total.violations else 0


def _explore_many(try_seed: Callable[[int], Tally], given: argparse.Namespace, console: Console) -> Tally:
    """Until the seeds are through, or enough states were tried."""
    total = Tally()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("crash states", total=given.states, counts="")
        for tally in _outcomes(try_seed, given.first, given.seeds, given.jobs):
            total.add(tally)
            counts = f"{total.states:,} states, {total.seeds:,} seeds, {len(total.violations)} violations"
            progress.update(task, completed=total.states, counts=counts)
            for violation in tally.violations:
                console.print(violation, soft_wrap=True)
            if total.states >= given.states or len(total.violations) >= MOST_SHOWN:
                break
    return total


def _outcomes(try_seed: Callable[[int], Tally], first: int, seeds: int, jobs: int) -> Iterator[Tally]:
    """The outcomes of the runs of some seeds, as they come."""
    numbers = range(first, first + seeds)
    if jobs == 1:
        yield from map(try_seed, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=SEEDS_A_PROCESS) as pool:
        yield from pool.imap_unordered(try_seed, numbers)


def _show(total: Tally, took_s: float, jobs: int, console: Console) -> None:
    """What was tried."""
    table = Table(title="crashes and faults tried", show_header=False)
    rows: list[tuple[str, int]] = [
        ("seeds (runs)", total.seeds), ("messages", total.messages), ("operations of the disk", total.operations),
        ("crash states, all different within a run", total.states), ("of them inside a recovery", total.in_recovery),
        ("recovered twice more", total.again), ("left out, seen before", total.same),
        *((f"survivors: {name}", count) for name, count in sorted(total.manners.items())),
        *((f"crashed in: {name}", count) for name, count in sorted(total.kinds.items())),
        *((f"part: {name}", count) for name, count in sorted(total.parts.items())),
        *((f"injected: {name}", count) for name, count in sorted(total.faults.items())),
        *((f"the store said: {name}", count) for name, count in sorted(total.outcomes.items())),
        ("states a second and process", round(total.states / took_s / jobs)),
        ("states a second of processor time", round(total.states / _processor_s())),
        ("violations", len(total.violations)),
    ]  # fmt: skip
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    console.print(table)


def _processor_s() -> float:
    """The processor time of this process and of those that have ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)
