"""Reads of new messages: rounds of a write and then the reads of all of it; only the reads are timed.

The store and LMDB get the same rounds. Which of them comes first changes each round: the second one finds more of its
data in the processor's caches. Few results are kept to be compared, so that memory is used again as a reader's is; the
whole log is compared at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..references.peers import KEY, Lmdb
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_log, check_payloads
from ..workload.contest import Content, Sizes
from ..workload.settings import prewritten

TOPIC = "tail"
QUEUES = 32
PER_QUEUE = 32
RECENT_BYTES = 64 << 20
COLUMNS_MESSAGES = 4096
KEEP_EVERY = 8  # calls of a timed read whose result is kept and compared after it

ROWS = [(queue, index) for index in range(PER_QUEUE) for queue in range(QUEUES)]  # a round's, queue by turns

Messages = list[list[bytes]]  # of each queue
Found = list[bytes] | dict[int, bytes]
Fetch = Callable[[int, int, int], Found]
Step = tuple[int, int, int]  # queue, offset, messages
Kept = tuple[Step, Found]


@dataclass
class Side:
    """The store, or LMDB: its writes and reads, and the seconds of its reads."""

    write: Callable[[Messages, int], object]
    fetch: Fetch
    seconds: float = 0.0

    def read(self, plan: list[Step]) -> list[Kept]:
        """Time all fetches of a round. Returns each eighth result."""
        fetch, kept = self.fetch, []
        began = time.perf_counter()
        for number, step in enumerate(plan):
            found = fetch(*step)
            if number % KEEP_EVERY == 0:
                kept.append((step, found))
        self.seconds += time.perf_counter() - began
        return kept


def compare(kept: list[Kept], messages: Messages, first: int) -> int:
    """Compare the results with the written messages. Returns their number."""
    for (queue, offset, count), came in kept:
        values = list(came.values()) if isinstance(came, dict) else came
        if values != messages[queue][offset - first : offset - first + count]:
            raise WrongResult(f"queue {queue}: what came from offset {offset} is not what was written")
    return sum(count for (_, _, count), _ in kept)


def fetch_plan(rng: np.random.Generator, first: int, fetch_max: int | None) -> list[Step]:
    """(queue, offset, count): every message of the round once, in counts of 1..fetch_max; None: 32 each time."""
    plan = []
    for queue in range(QUEUES):
        done = 0
        while done < PER_QUEUE:
            count = PER_QUEUE if fetch_max is None else min(PER_QUEUE - done, int(rng.integers(1, fetch_max + 1)))
            plan.append((queue, first + done, count))
            done += count
    return plan


def sides_of(store: MessageStore, lmdb: Lmdb | None) -> dict[str, Side]:
    """The store, and LMDB if it is installed."""

    def append(messages: Messages, _first: int) -> None:
        store.append_batch([(TOPIC, queue, messages[queue][index]) for queue, index in ROWS])

    sides = {"store": Side(append, partial(store.get_range, TOPIC))}
    if lmdb is not None:
        put = lmdb.write

        def write(messages: Messages, first: int) -> None:
            put([(KEY.pack(queue, first + index), messages[queue][index]) for queue, index in ROWS])

        sides["lmdb"] = Side(write, lmdb.get_range)
    return sides


def take_turn(sides: Mapping[str, Side], number: int, messages: Messages, plan: list[Step], run: Run) -> None:
    """A round's messages to each side, then its reads from each, in an order that changes with the round."""
    first = number * PER_QUEUE
    turns = list(sides.values()) if number % 2 == 0 else list(sides.values())[::-1]
    for side in turns:
        side.write(messages, first)
    for side in turns:
        run.checked(compare(side.read(plan), messages, first))


def read_columns(store: MessageStore, content: Content, total: int, run: Run) -> float:
    """Seconds of reading the whole of each queue through read_batch, payloads as views; each eighth is compared."""
    kept, number = [], 0
    began = time.perf_counter()
    for queue in range(QUEUES):
        offset = 0
        while offset < total:
            batch = store.read_batch(TOPIC, queue, offset, max_messages=COLUMNS_MESSAGES)
            if number % KEEP_EVERY == 0:
                kept.append((queue, offset, batch))
            offset, number = offset + len(batch), number + 1
    seconds = time.perf_counter() - began
    for queue, offset, batch in kept:
        run.checked(check_payloads(content, queue, offset, batch.payloads()))
    return seconds


def tail_reads(
    base: Path, sizes: Sizes, total_bytes: int, seed: int, run: Run, *, fetch_max: int | None, lmdb: bool
) -> Figures:
    """get_range right after the write, in messages a second of one thread; LMDB beside it.

    With `fetch_max` None also read_batch over all written messages, all of them in the ring.
    """
    rng, content = np.random.default_rng([seed, 3]), Content(seed, sizes.high)
    rounds = max(1, round(total_bytes / sizes.mean / (QUEUES * PER_QUEUE)))
    ring = RECENT_BYTES if fetch_max is not None else max(RECENT_BYTES, total_bytes * 5 // 4)
    config = TunedConfig(**prewritten(total_bytes * 1.25, {"recent_bytes": ring}))
    columns_s = None
    with sub_folder(base, "tail") as folder, MessageStore.open(folder / "store", config=config) as store:
        peer = Lmdb(folder / "lmdb") if lmdb else None
        sides = sides_of(store, peer)
        try:
            for number in range(rounds):
                drawn = sizes.draw(rng, QUEUES * PER_QUEUE).reshape(QUEUES, PER_QUEUE).tolist()
                messages = [
                    [content.make(queue, number * PER_QUEUE + index, size) for index, size in enumerate(drawn[queue])]
                    for queue in range(QUEUES)
                ]
                take_turn(sides, number, messages, fetch_plan(rng, number * PER_QUEUE, fetch_max), run)
            if fetch_max is None:
                columns_s = read_columns(store, content, rounds * PER_QUEUE, run)
            addresses = [(TOPIC, queue) for queue in range(QUEUES)]
            run.checked(check_log(store, addresses, [rounds * PER_QUEUE] * QUEUES, content))
        finally:
            if peer is not None:
                peer.close()
    total = rounds * QUEUES * PER_QUEUE
    figures: Figures = {
        "messages": total,
        "get_range_messages_per_s": total / sides["store"].seconds,
        "lmdb_messages_per_s": total / sides["lmdb"].seconds if "lmdb" in sides else None,
    }
    return figures if columns_s is None else {**figures, "read_batch_messages_per_s": total / columns_s}
