"""Reads of what was just written: rounds of a write and then the reads of all of it, of which only the reads
are timed. The store and LMDB take turns in the same rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from perf.folders import sub_folder
from perf.peers import KEY, Lmdb, PeerMissing
from perf.report import Figures, WrongResult
from perf.settings import prewritten
from perf.workload import Content, Sizes
from store import MessageStore, StoreConfig

TOPIC = "tail"
QUEUES = 32
PER_QUEUE = 32
CHECK_EVERY = 8
RECENT_BYTES = 64 << 20

ROWS = [(queue, index) for index in range(PER_QUEUE) for queue in range(QUEUES)]  # a round's, queue by turns

Fetch = Callable[[int, int, int], list[bytes] | dict[int, bytes]]
Expected = dict[tuple[int, int], list[bytes]]


def _round_items(
    content: Content, sizes: np.ndarray[tuple[int], np.dtype[np.int64]], first: int
) -> list[list[bytes]]:
    """The messages of a round: `PER_QUEUE` a queue, from offset `first` on."""
    drawn = sizes.reshape(QUEUES, PER_QUEUE).tolist()
    return [
        [content.make(queue, first + index, size) for index, size in enumerate(drawn[queue])]
        for queue in range(QUEUES)
    ]


def _timed(
    fetch: Fetch, plan: list[tuple[int, int, int]], expected: Expected
) -> float:
    """Seconds of all the fetches of a round; the content is checked after the clock stopped, each eighth
    fetch."""
    kept = []
    began = time.perf_counter()
    for step, (queue, offset, count) in enumerate(plan):
        found = fetch(queue, offset, count)
        if step % CHECK_EVERY == 0:
            kept.append((queue, offset, count, found))
    seconds = time.perf_counter() - began
    for queue, offset, count, found in kept:
        values = list(found.values()) if isinstance(found, dict) else found
        if values != expected[queue, offset][:count]:
            raise WrongResult(f"queue {queue}: what came from offset {offset} is not what was written")
    return seconds


def _fetch_plan(rng: np.random.Generator, first: int, fetch_max: int) -> list[tuple[int, int, int]]:
    """(queue, offset, count): every message of the round once, counts of 1..fetch_max (or all 32 each
    time)."""
    plan = []
    for queue in range(QUEUES):
        done = 0
        while done < PER_QUEUE:
            count = min(PER_QUEUE - done, int(rng.integers(1, fetch_max + 1)) if fetch_max > 1 else PER_QUEUE)
            plan.append((queue, first + done, count))
            done += count
    return plan


class _Sides:
    """The store and, when installed, LMDB, fed with the same rounds; seconds that each one's reads took."""

    def __init__(self, base: Path, store: MessageStore) -> None:
        self.store = store
        self.store_s = self.lmdb_s = self.batch_s = 0.0
        self.missing: str | None = None
        self.lmdb: Lmdb | None = None
        try:
            self.lmdb = Lmdb(base / "lmdb")
        except PeerMissing as missing:
            self.missing = str(missing)

    def take_turn(self, plan: list[tuple[int, int, int]], messages: list[list[bytes]], first: int) -> None:
        """A round's messages to both, and then its reads from both, in an order that changes each round: who
        comes later finds more of its data in the processor's caches."""
        expected = {(queue, offset): messages[queue][offset - first :] for queue, offset, _ in plan}
        turns = [(self._write_store, self._read_store), (self._write_lmdb, self._read_lmdb)]
        if first // PER_QUEUE % 2:
            turns.reverse()
        for write, _ in turns:
            write(messages, first)
        for _, read in turns:
            read(plan, expected)

    def _write_store(self, messages: list[list[bytes]], first: int) -> None:
        self.store.append_batch([(TOPIC, queue, messages[queue][index]) for queue, index in ROWS])

    def _write_lmdb(self, messages: list[list[bytes]], first: int) -> None:
        if self.lmdb is not None:
            self.lmdb.write(
                [(KEY.pack(queue, first + index), messages[queue][index]) for queue, index in ROWS]
            )

    def _read_store(self, plan: list[tuple[int, int, int]], expected: Expected) -> None:
        self.store_s += _timed(partial(self.store.get_range, TOPIC), plan, expected)

    def _read_lmdb(self, plan: list[tuple[int, int, int]], expected: Expected) -> None:
        if self.lmdb is not None:
            self.lmdb_s += _timed(self.lmdb.get_range, plan, expected)

    def read_columns(self, first: int) -> int:
        """The whole of each queue so far through read_batch, payloads as views; messages read."""
        read_batch, total = self.store.read_batch, 0
        began = time.perf_counter()
        for queue in range(QUEUES):
            offset = 0
            while offset < first:
                batch = read_batch(TOPIC, queue, offset, 4096)
                offset += len(batch)
                total += len(batch)
        self.batch_s += time.perf_counter() - began
        return total

    def close(self) -> None:
        """Closes LMDB; the store is its opener's."""
        if self.lmdb is not None:
            self.lmdb.close()


def _measure(
    base: Path, sizes: Sizes, total_bytes: int, seed: int, *, fetch_max: int, columns: bool
) -> Figures:
    rng, content = np.random.default_rng([seed, 3]), Content(seed, sizes.high)
    rounds = max(1, round(total_bytes / sizes.mean / (QUEUES * PER_QUEUE)))
    messages = rounds * QUEUES * PER_QUEUE
    recent_bytes = max(RECENT_BYTES, total_bytes * 5 // 4) if columns else RECENT_BYTES
    config = StoreConfig(**prewritten(total_bytes * 1.25, {"recent_bytes": recent_bytes}))
    with sub_folder(base, "tail") as folder, MessageStore.open(folder / "store", config=config) as store:
        sides = _Sides(folder, store)
        try:
            for first in range(0, rounds * PER_QUEUE, PER_QUEUE):
                made = _round_items(content, sizes.draw(rng, QUEUES * PER_QUEUE), first)
                sides.take_turn(_fetch_plan(rng, first, fetch_max), made, first)
            read = sides.read_columns(rounds * PER_QUEUE) if columns else 0
        finally:
            sides.close()
    figures: Figures = {
        "messages": messages,
        "get_range_messages_per_s": messages / sides.store_s,
        "lmdb_messages_per_s": messages / sides.lmdb_s if sides.lmdb_s else None,
    }
    if columns:
        figures["read_batch_messages_per_s"] = read / sides.batch_s
    return {**figures, "missing": sides.missing}


def tail_reads(base: Path, sizes: Sizes, total_bytes: int, seed: int) -> Figures:
    """get_range of 1 to 32 messages right after they were written, in messages a second of one thread."""
    return _measure(base, sizes, total_bytes, seed, fetch_max=32, columns=False)


def small_reads(base: Path, sizes: Sizes, total_bytes: int, seed: int) -> Figures:
    """get_range of 32 messages a call; then read_batch of up to 4,096 over all that was written (in the
    ring)."""
    return _measure(base, sizes, total_bytes, seed, fetch_max=1, columns=True)
