"""Delayed entries as in the source's test, and the measurements of a tracker in its own process.

The source (R27) writes x messages a millisecond, 50,000 a ledger, all with one delay. Each function here that measures
runs in a fresh process, so that its growth is the tracker's alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...index import BucketTracker, HeapTracker, TimeBucketTracker, Tracker
from ..machine.usage import give_back_free_memory, resident_bytes
from .checker import WrongResult

LEDGER_ENTRIES = 50_000
BATCH = 100_000
FIRST_DELAY_MS = 3_600_000
STEPS = 200  # of the time, while all is taken
TAKEN = 100_000  # at most, by one call
WARM_ENTRIES = 300_000
HEAP = "heap"

Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


class Load(NamedTuple):
    """So many entries, `rate` a millisecond. With a spread, delays are random below it; else all are equal.

    `stride`: with 3, each third message is delayed. `queues`: positions are those of a store, in turn in so many
    queues; 0: those of the source.
    """

    entries: int
    rate: int
    spread_ms: int = 0
    stride: int = 1
    queues: int = 0

    def batches(self, seed: int) -> Iterator[Batch]:
        """(ledgers, entries, times)."""
        chance = np.random.default_rng([seed, self.rate, self.spread_ms % (1 << 32)])
        for first in range(0, self.entries, BATCH):
            number = np.arange(first, min(first + BATCH, self.entries)) * self.stride
            times = number // (self.rate * self.stride) + FIRST_DELAY_MS
            if self.spread_ms:
                times += chance.integers(0, self.spread_ms, len(number)) - FIRST_DELAY_MS
            if self.queues:
                delayed = np.arange(first, first + len(number))
                yield delayed % self.queues, delayed // self.queues * self.stride, times
            else:
                yield number // LEDGER_ENTRIES, number % LEDGER_ENTRIES, times

    @property
    def end_ms(self) -> int:
        """All times are before this."""
        return self.entries // self.rate + 1 + (self.spread_ms or FIRST_DELAY_MS + 1)


class _Timed:
    """Seconds in the calls of a tracker, and the longest call."""

    def __init__(self) -> None:
        self.seconds = self.longest = 0.0

    def add(self, tracker: Tracker, batch: Batch) -> None:
        """Add a batch."""
        began = time.perf_counter()
        tracker.add_messages(*batch)
        took = time.perf_counter() - began
        self.seconds += took
        self.longest = max(self.longest, took)


def made(kind: int | str) -> Tracker:
    """A time-bucket tracker of so many bits, or the heap."""
    return TimeBucketTracker(kind) if isinstance(kind, int) else HeapTracker()


def edges_of(load: Load, precision_ms: int) -> npt.NDArray[np.int64]:
    """The times of the steps at which all due entries are taken."""
    return np.linspace(0, load.end_ms + precision_ms, STEPS + 1).astype(np.int64)[1:]


class DueCounts:
    """The numbers of entries that must be given at each step, and that may be."""

    def __init__(self, load: Load, seed: int, precision_ms: int) -> None:
        self.edges = edges_of(load, precision_ms)
        self.may = np.zeros(STEPS, np.int64)
        self.must = np.zeros(STEPS, np.int64)
        for _, _, times in load.batches(seed):
            ordered = np.sort(times)
            self.may += np.searchsorted(ordered, self.edges, side="right")
            self.must += np.searchsorted(ordered, self.edges - (precision_ms - 1), side="right")


def drain(tracker: Tracker, due: DueCounts, most: int) -> float:
    """Seconds for each entry, to take all or `most`. Raises WrongResult if an entry is early, late or lost."""
    taken, seconds = 0, 0.0
    for now_ms, must, may in zip(due.edges.tolist(), due.must.tolist(), due.may.tolist(), strict=True):
        began = time.perf_counter()
        while True:
            ledgers, _ = tracker.get_scheduled_messages(now_ms, TAKEN)
            taken += len(ledgers)
            if len(ledgers) < TAKEN:
                break
        seconds += time.perf_counter() - began
        if not must <= taken <= may:
            raise WrongResult(f"at {now_ms:,} ms {taken:,} entries were given; {must:,} to {may:,} are due")
        if taken >= most:
            break
    return seconds / max(1, taken)


def in_memory(kind: int | str, load: Load, seed: int) -> dict[str, float]:
    """Add all in batches, measure the process, take all. `kind`: bits of precision, or the heap."""
    precision_ms = 1 << kind if isinstance(kind, int) else 1
    due = DueCounts(load, seed, precision_ms)
    with made(kind) as warm:  # what code and libraries take is no tracker's
        for batch in load._replace(entries=min(load.entries, WARM_ENTRIES)).batches(seed):
            warm.add_messages(*batch)
        warm.get_scheduled_messages(load.end_ms + precision_ms, load.entries)
    del warm, batch
    gc.collect()
    give_back_free_memory()
    before, timed = resident_bytes(), _Timed()
    tracker = made(kind)
    for batch in load.batches(seed):
        timed.add(tracker, batch)
    del batch
    gc.collect()
    give_back_free_memory()
    grown = resident_bytes() - before
    return {
        "grown_mb": grown / 1e6, "bytes_each": grown / load.entries,
        "add_m_per_s": load.entries / timed.seconds / 1e6, "longest_add_ms": timed.longest * 1e3,
        "drain_m_per_s": 1e-6 / drain(tracker, due, load.entries),
    }  # fmt: skip


def fill_on_disk(folder: Path, load: Load, seed: int) -> dict[str, float]:
    """Add all, and measure the memory meanwhile. The tracker is not closed: its process ends, as in a crash."""
    tracker, timed = BucketTracker(folder), _Timed()
    before = most = resident_bytes()
    for batch in load.batches(seed):
        timed.add(tracker, batch)
        most = max(most, resident_bytes())
    stats = tracker.stats()
    return {
        "add_m_per_s": load.entries / timed.seconds / 1e6, "longest_add_ms": timed.longest * 1e3,
        "grown_mb": (most - before) / 1e6, "disk_bytes_each": stats["disk_bytes"] / max(1, stats["sealed"]),
        "merged_each": stats["merged_rows"] / load.entries, "not_sealed": stats["mutable"]["pending"],
    }  # fmt: skip


def open_and_drain(folder: Path, load: Load, seed: int, most: int) -> dict[str, float]:
    """Open after that, add again the unsealed entries, take `most`, and measure the memory meanwhile."""
    due, before = DueCounts(load, seed, 1), resident_bytes()
    began = time.perf_counter()
    tracker = BucketTracker(folder)
    open_s = time.perf_counter() - began
    lost = load.entries - len(tracker)
    again = 0
    for number, batch in enumerate(load.batches(seed)):
        if (number + 2) * BATCH >= load.entries - lost:
            again += tracker.add_messages(*batch)
    if again != lost or len(tracker) != load.entries:
        raise WrongResult(f"{len(tracker):,} of {load.entries:,} entries are there, {again:,} of them added again")
    drain_s = drain(tracker, due, most)
    grown = resident_bytes() - before
    began = time.perf_counter()
    tracker.checkpoint()
    checkpoint_s = time.perf_counter() - began
    tracker.close()
    return {"open_s": open_s, "added_again": again, "drain_m_per_s": 1e-6 / drain_s, "drain_grown_mb": grown / 1e6,
            "checkpoint_s": checkpoint_s}  # fmt: skip
