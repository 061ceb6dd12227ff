"""Runs of the simulation in many processes: for its long forms."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable, Iterator
from typing import TypeVar

SEEDS_A_PROCESS = 100  # then a fresh one takes its place

Outcome = TypeVar("Outcome")


def outcomes(try_seed: Callable[[int], Outcome], first: int, seeds: int, jobs: int) -> Iterator[Outcome]:
    """The outcomes of the runs of some seeds, as they come."""
    numbers = range(first, first + seeds)
    if jobs == 1:
        yield from map(try_seed, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=SEEDS_A_PROCESS) as pool:
        yield from pool.imap_unordered(try_seed, numbers)


def processor_s() -> float:
    """The processor time of this process and of those that have ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)
