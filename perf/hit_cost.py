"""What a hit of the message cache costs, beside the same call on the warm page cache with the cache off."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from perf import report, served
from perf.folders import sub_folder
from perf.progress import Parts
from perf.report import Figures, WrongResult
from perf.served import Mark
from perf.tiers import SMALL_MESSAGE_BYTES, Memory
from perf.workload import Content
from store import MessageStore, StoreConfig

TOPIC = "hits"
QUEUES = 64
FETCH = 32
MESSAGE_BYTES = 1024
CHECK_EVERY = 16


def _fill(store: MessageStore, content: Content, rounds: int, *, together: bool, cached: bool) -> None:
    """`rounds` x 32 messages a queue: a queue's 32 back to back, or all queues by turns."""
    for number in range(rounds):
        rows = [(queue, number * FETCH + index) for queue in range(QUEUES) for index in range(FETCH)]
        if not together:
            rows.sort(key=lambda row: row[1])
        for first in range(0, len(rows), 512):
            cut = rows[first : first + 512]
            store.append_batch(
                [(TOPIC, queue, content.make(queue, serial, MESSAGE_BYTES)) for queue, serial in cut]
            )
        if cached:
            served.wait_until_seen(store, (number + 1) * len(rows))


def _pass(store: MessageStore, content: Content, plan: list[tuple[int, int]]) -> float:
    """Microseconds of processor time a call of this thread, over all calls of the plan; the content is checked."""
    kept, get_range = [], store.get_range
    began = time.thread_time()
    for step, (queue, offset) in enumerate(plan):
        found = get_range(TOPIC, queue, offset, FETCH)
        if step % CHECK_EVERY == 0:
            kept.append((queue, offset, found))
    seconds = time.thread_time() - began
    for queue, offset, found in kept:
        if len(found) != FETCH or not all(content.matches(found[at], queue, offset + at) for at in found):
            raise WrongResult(f"queue {queue}: what came from offset {offset} is not what was written")
    return seconds / len(plan) * 1e6


def measure(base: Path, *, rounds: int, passes: int, seed: int, parts: Parts) -> Figures:
    """Medians over `passes`, in which the stores take turns; a row for each order of writing."""
    content = Content(seed, MESSAGE_BYTES)
    rows = []
    parts.expect(2)
    for together in (True, False):
        rows.append(_one_order(base, content, rounds, passes, seed, together=together))
        parts.one_done()
    return {"fetch_messages": FETCH, "message_bytes": MESSAGE_BYTES, "rows": rows}


def _one_order(base: Path, content: Content, rounds: int, passes: int, seed: int, *, together: bool) -> Figures:
    written = QUEUES * rounds * FETCH * MESSAGE_BYTES
    bare = Memory(limit_bytes=0, recent_bytes=0, largest_message_bytes=SMALL_MESSAGE_BYTES)
    memories = (bare, replace(bare, off_heap_bytes=2 * written), replace(bare, recent_bytes=2 * written))
    plan = [(queue, number * FETCH) for number in range(rounds * 3 // 4) for queue in range(QUEUES)]
    np.random.default_rng([seed, 4]).shuffle(plan)
    with sub_folder(base, "hits") as folder:
        stores = [
            MessageStore.open(folder / str(index), StoreConfig(**memory.settings(folder)))
            for index, memory in enumerate(memories)
        ]
        try:
            for store, memory in zip(stores, memories, strict=True):
                _fill(store, content, rounds, together=together, cached=bool(memory.tier_bytes))
                served.cached_all(store)
                _pass(store, content, plan)  # everything warm: the page cache too
            marks = [Mark.now(store) for store in stores]
            times = [[_pass(store, content, plan) for store in stores] for _ in range(passes)]
            shares = [served.served(mark, Mark.now(store)) for mark, store in zip(marks, stores, strict=True)]
        finally:
            for store in stores:
                store.close()
    page, cached, ring = np.median(np.array(times), axis=0).tolist()
    layers = shares[1]["layers"]
    return {
        "a queue's 32 messages": "together in the log" if together else "64 KiB apart",
        "page_cache_us": page,
        "message_cache_us": cached,
        "ring_us": ring,
        "ratio": float(np.median([row[1] / row[0] for row in times])),
        "page_cache_reads_a_call": shares[0]["device_reads"] / (len(plan) * passes),
        "off_device_share": shares[0]["layers"]["device"]["share"],
        "hit_share": layers["off-heap"]["share"],
        "ring_share": shares[2]["layers"]["ring"]["share"],
    }


def show(figures: Figures, console: Console) -> None:
    """A row an order."""
    title = f"get_range of {figures['fetch_messages']} x {figures['message_bytes']:,} B, us of processor time a call"
    console.print(report.table(title, figures["rows"]))
