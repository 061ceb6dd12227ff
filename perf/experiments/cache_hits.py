"""The cost of a hit of the message cache, beside the same call on the warm page cache and on the ring."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.folders import sub_folder
from ..report import figures as report
from ..report import layers
from ..report.figures import Figures
from ..report.layers import Mark
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_payloads
from ..workload.contest import Content
from ..workload.memory import SMALL_MESSAGE_BYTES, Memory
from .experiment import by_turns

TOPIC = "hits"
QUEUES = 64
FETCH = 32
MESSAGE_BYTES = 1024
FILL_MESSAGES = 512
KEEP_EVERY = 16


def _fill(store: MessageStore, content: Content, rounds: int, *, together: bool, cached: bool) -> None:
    """Append `rounds` x 32 messages to each queue: 32 of a queue back to back, or all queues in turn."""
    for number in range(rounds):
        rows = [(queue, number * FETCH + index) for queue in range(QUEUES) for index in range(FETCH)]
        if not together:
            rows.sort(key=lambda row: row[1])
        for first in range(0, len(rows), FILL_MESSAGES):
            cut = rows[first : first + FILL_MESSAGES]
            store.append_batch([(TOPIC, queue, content.make(queue, serial, MESSAGE_BYTES)) for queue, serial in cut])
        if cached:
            layers.wait_until_seen(store, (number + 1) * len(rows))


def _pass(store: MessageStore, content: Content, plan: list[tuple[int, int]], run: Run) -> Figures:
    """Microseconds of this thread's processor time for a call, over the whole plan; then compare the results."""
    kept, get_range = [], store.get_range
    began = time.thread_time()
    for step, (queue, offset) in enumerate(plan):
        found = get_range(TOPIC, queue, offset, FETCH)
        if step % KEEP_EVERY == 0:
            kept.append((queue, offset, found))
    seconds = time.thread_time() - began
    for queue, offset, found in kept:
        if check_payloads(content, queue, offset, found.values()) != FETCH:
            raise WrongResult(f"queue {queue}: {len(found)} of {FETCH} messages came from offset {offset}")
    run.checked(FETCH * len(kept))
    return {"us": seconds / len(plan) * 1e6}


def measure(base: Path, *, rounds: int, passes: int, seed: int, run: Run) -> Figures:
    """Medians over `passes`, in which the stores take turns; one row for each order of writing."""
    content = Content(seed, MESSAGE_BYTES)
    rows = [_one_order(base, content, rounds, passes, seed, run, together=together) for together in (True, False)]
    return {"fetch_messages": FETCH, "message_bytes": MESSAGE_BYTES, "rows": rows}


def _one_order(
    base: Path, content: Content, rounds: int, passes: int, seed: int, run: Run, *, together: bool
) -> Figures:
    written = QUEUES * rounds * FETCH * MESSAGE_BYTES
    bare = Memory(limit_bytes=0, recent_bytes=0, largest_message_bytes=SMALL_MESSAGE_BYTES)
    memories = {
        "page_cache": bare,
        "message_cache": replace(bare, off_heap_bytes=2 * written),
        "ring": replace(bare, recent_bytes=2 * written),
    }
    plan = [(queue, number * FETCH) for number in range(rounds * 3 // 4) for queue in range(QUEUES)]
    np.random.default_rng([seed, 4]).shuffle(plan)
    with sub_folder(base, "hits") as folder, ExitStack() as opened:
        stores: dict[str, MessageStore] = {}
        for name, memory in memories.items():
            config = TunedConfig(**memory.settings(folder))
            stores[name] = store = opened.enter_context(MessageStore.open(folder / name, config))
            _fill(store, content, rounds, together=together, cached=bool(memory.tier_bytes))
            layers.cached_all(store)
            _pass(store, content, plan, run)  # everything warm: the page cache too
        marks = {name: Mark.now(store) for name, store in stores.items()}
        ways = {name: partial(_pass, store, content, plan, run) for name, store in stores.items()}
        times = by_turns(ways, passes, run)
        served = {name: layers.served(marks[name], Mark.now(store)) for name, store in stores.items()}
    medians: Figures = report.median_of(times)
    return {
        "a queue's 32 messages": "together in the log" if together else "64 KiB apart",
        **{f"{name}_us": medians[name]["us"] for name in stores},
        "ratio": float(np.median([row["message_cache"]["us"] / row["page_cache"]["us"] for row in times])),
        "page_cache_reads_a_call": served["page_cache"]["device_reads"] / (len(plan) * passes),
        "off_device_share": served["page_cache"]["layers"]["device"]["share"],
        "hit_share": served["message_cache"]["layers"]["off-heap"]["share"],
        "ring_share": served["ring"]["layers"]["ring"]["share"],
    }


def show(figures: Figures, console: Console) -> None:
    """Show one row for each order."""
    title = f"get_range of {figures['fetch_messages']} x {figures['message_bytes']:,} B, us of processor time a call"
    console.print(report.table(title, figures["rows"]))
