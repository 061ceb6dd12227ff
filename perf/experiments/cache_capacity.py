"""The part of the message cache's memory that holds messages: by the admission threshold, for sizes of any kind; and by
lending the ends of last blocks, with many queues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.contest import IntArray, running_serials
from ..workload.memory import SMALL_MESSAGE_BYTES, Memory, whole_blocks

TOPIC = "capacity"
LARGEST_BYTES = 17 << 10
CACHE_PART = 0.4  # of the written bytes
STEP_BYTES = 4 << 20  # appended before the cache is waited for
POOL_BYTES = 1 << 20
STRIDE = 40_503  # a message's bytes begin here times its number, in the pool
REMAINDER_BLOCK_BYTES = 32 << 10
ADMISSION = {
    "sizes": "sizes", "capacity MB": "capacity_mb", "used": "used_part", "median threshold B": "threshold_bytes",
    "under it": "messages_under", "of these on the device": "device_served_under",
    "lowest B": "lowest_threshold_bytes", "on the device under that": "device_served_under_lowest",
    "cached": "cached_messages", "best possible": "best_messages", "refused": "refused_messages",
    "missed": "missed_messages",
}  # fmt: skip


def draws(rng: np.random.Generator, count: int) -> dict[str, IntArray]:
    """Sizes of `count` messages, a column for each distribution."""
    small = rng.random(count) < 0.8
    bimodal = np.where(small, rng.integers(100, 500, count), rng.integers(12_000, LARGEST_BYTES, count))
    normal = np.clip(rng.lognormal(7.5, 1.0, count), 20, LARGEST_BYTES)
    return {
        "uniform, 0.1 to 17 KiB": rng.integers(100, LARGEST_BYTES + 1, count).astype(np.int64),
        "log-normal, median 1.8 KB": normal.astype(np.int64),
        "bimodal, 80 % under 500 B": bimodal.astype(np.int64),
        "constant, 4,000 B": np.full(count, 4000, np.int64),
    }


@dataclass(frozen=True)
class Job:
    """Messages to append: the queue and the size of each, in order."""

    queues: IntArray
    sizes: IntArray
    pool: bytes

    def data(self, number: int) -> bytes:
        """The bytes of a message."""
        begin = number * STRIDE % (POOL_BYTES - LARGEST_BYTES)
        return self.pool[begin : begin + int(self.sizes[number])]

    def append_step(self, store: MessageStore, begin: int) -> int:
        """Append a few MiB from message `begin` on. Returns the next message."""
        ends = self.sizes[begin:].cumsum()
        end = begin + max(1, int(np.searchsorted(ends, STEP_BYTES, side="right")))
        numbers = range(begin, min(end, len(self.sizes)))
        queues = self.queues[begin:end].tolist()
        store.append_batch([(TOPIC, queue, self.data(at)) for at, queue in zip(numbers, queues, strict=True)])
        return end

    def fill(self, store: MessageStore) -> tuple[Figures, list[int]]:
        """Append all, a few MiB at a time, so that the cache sees every message: what it holds then, and the threshold
        after each step."""
        begin, thresholds = 0, []
        while begin < len(self.sizes):
            begin = self.append_step(store, begin)
            layers.wait_until_seen(store, begin)
            thresholds.append(layers.holding(store)["threshold_bytes"])
        return layers.cached_all(store), thresholds

    def read(self, store: MessageStore, largest_bytes: int, run: Run) -> int:
        """Read and compare all messages of up to that size, one by one. Returns how many of them the device served."""
        offsets = running_serials(self.queues, np.zeros(int(self.queues.max()) + 1, np.int64)).tolist()
        before = store.stats()["reads"]["device_messages"]
        for number in np.flatnonzero(self.sizes <= largest_bytes).tolist():
            queue, offset = int(self.queues[number]), offsets[number]
            if store.get_range(TOPIC, queue, offset, 1) != {0: self.data(number)}:
                raise WrongResult(f"queue {queue}: what came from offset {offset} is not what was written")
            run.checked(1)
        return int(store.stats()["reads"]["device_messages"] - before)


def admission(base: Path, *, messages: int, queues: int, block_bytes: int, seed: int, run: Run) -> Figures:
    """A row a distribution: a cache of 40 % of the bytes, the threshold computed."""
    rng = np.random.default_rng([seed, 5])
    rows, drawn = [], draws(rng, messages)
    run.expect(len(drawn))
    for name, sizes in drawn.items():
        job = Job(rng.integers(0, queues, messages), sizes, rng.bytes(POOL_BYTES))
        rows.append({"sizes": name, **_admitted(base, job, block_bytes, run)})
        run.one_done()
    return {"rows": rows}


def _admitted(base: Path, job: Job, block_bytes: int, run: Run) -> Figures:
    total = int(job.sizes.sum())
    memory = Memory(
        off_heap_bytes=whole_blocks(total * CACHE_PART, block_bytes),
        expected_bytes=total,
        block_bytes=block_bytes,
        largest_message_bytes=SMALL_MESSAGE_BYTES,
        recent_bytes=4 * STEP_BYTES,
    )
    config = TunedConfig(**memory.settings(base))
    with sub_folder(base, "capacity") as folder, MessageStore.open(folder, config) as store:
        held, thresholds = job.fill(store)
        usual, lowest = int(np.median(thresholds)), min(thresholds)
        return {
            "capacity_mb": held["capacity_bytes"] / 1e6,
            "used_part": held["used_part"],
            "threshold_bytes": usual,
            "lowest_threshold_bytes": lowest,
            "messages_under_lowest": int((job.sizes <= lowest).sum()),
            "device_served_under_lowest": job.read(store, lowest, run),
            "messages_under": int((job.sizes <= usual).sum()),
            "device_served_under": job.read(store, usual, run),
            "cached_messages": held["filled_messages"],
            # What a cache of these bytes could hold at most, known only afterwards.
            "best_messages": int((np.sort(job.sizes).cumsum() <= held["capacity_bytes"]).sum()),
            "refused_messages": held["refused_messages"],
            "missed_messages": held["missed_messages"],
        }


def remainder(base: Path, *, queues: int, seed: int, run: Run) -> Figures:
    """Many queues, blocks of 32 KiB, first come: the capacity lost without lent blocks, and what of it is recovered."""
    rng = np.random.default_rng([seed, 6])
    capacity = queues * REMAINDER_BLOCK_BYTES
    sizes = rng.integers(100, LARGEST_BYTES + 1, int(capacity * 1.2 / ((100 + LARGEST_BYTES) / 2))).astype(np.int64)
    numbers = rng.integers(0, queues, len(sizes))
    plain = Memory(
        off_heap_bytes=capacity, block_bytes=REMAINDER_BLOCK_BYTES, evict=False, remainders=False,
        largest_message_bytes=SMALL_MESSAGE_BYTES, recent_bytes=4 * STEP_BYTES,
    )  # fmt: skip
    job, found = Job(numbers, sizes, rng.bytes(POOL_BYTES)), {}
    run.expect(2)
    for name, memory in (("off", plain), ("on", replace(plain, remainders=True))):
        config = TunedConfig(**memory.settings(base))
        with sub_folder(base, "capacity") as folder, MessageStore.open(folder, config) as store:
            found[name], _ = job.fill(store)
            job.read(store, LARGEST_BYTES, run)
        run.one_done()
    lost = capacity - found["off"]["used_bytes"]
    recovered = found["on"]["used_bytes"] - found["off"]["used_bytes"]
    return {
        "queues": queues,
        "block_bytes": REMAINDER_BLOCK_BYTES,
        "capacity_mb": capacity / 1e6,
        "used_part_without": found["off"]["used_part"],
        "used_part_with": found["on"]["used_part"],
        "lost_mb": lost / 1e6,
        "recovered_part": recovered / max(1, lost),
        "missed_messages": found["on"]["missed_messages"],
    }


def show_admission(figures: Figures, console: Console) -> None:
    """A row a distribution."""
    rows = report.chosen(figures["rows"], ADMISSION)
    console.print(report.table("use of a cache of 40 % of the bytes, threshold computed", rows))


def show_remainder(figures: Figures, console: Console) -> None:
    """Show one figure a line."""
    console.print(report.pairs("shared remainder blocks", figures))
