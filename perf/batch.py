"""Small messages in bulk: append_batch and submit from one thread, beside RocksDB's write batches in the same
run."""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console

from perf import report
from perf.folders import sub_folder
from perf.peers import KEY, PeerMissing, RocksDb
from perf.producers import TicketLike
from perf.progress import Parts
from perf.report import Figures, WrongResult
from perf.settings import prewritten
from perf.workload import IntArray, Sizes, Workload
from store import MessageStore, StoreConfig

SUBMIT_WINDOW_MESSAGES = 16_384


def make_items(
    messages: int, size_bytes: int, queues: int, seed: int
) -> tuple[list[tuple[str, int, bytes]], IntArray]:
    """(topic, queue id, data) of each message, and the offset that each must get. Made before the clock
    starts."""
    work = Workload(seed, Sizes(size_bytes, size_bytes), 1, min(100, queues), queues)
    (plan,) = work.plan(messages * size_bytes)
    make, addresses = work.content.make, work.addresses
    return [
        (*addresses[queue], make(queue, serial, size)) for queue, serial, size, _ in plan.rows()
    ], plan.serials


def append_batches(
    folder: Path, items: list[tuple[str, int, bytes]], serials: IntArray, batch_messages: int
) -> float:
    """Messages a second, acknowledged durable, of append_batch by one producer."""
    size = sum(len(data) for _, _, data in items)
    cuts = [items[first : first + batch_messages] for first in range(0, len(items), batch_messages)]
    answers = []
    with MessageStore.open(folder, config=StoreConfig(**prewritten(size * 1.5))) as store:
        began = time.perf_counter()
        for cut in cuts:
            answers.append(store.append_batch(cut))
        seconds = time.perf_counter() - began
    if not np.array_equal(np.concatenate(answers), serials):
        raise WrongResult("append_batch returned wrong offsets")
    return len(items) / seconds


def submits(folder: Path, items: list[tuple[str, int, bytes]], serials: IntArray) -> float:
    """Messages a second, acknowledged durable, of submit by one thread with a window of outstanding
    tickets."""
    size = sum(len(data) for _, _, data in items)
    window: deque[TicketLike] = deque()
    offsets: list[int] = []
    with MessageStore.open(folder, config=StoreConfig(**prewritten(size * 1.5))) as store:
        submit, push, pull, keep = store.submit, window.append, window.popleft, offsets.append
        began = time.perf_counter()
        for index, (topic, queue_id, data) in enumerate(items):
            push(submit(topic, queue_id, data))
            if index >= SUBMIT_WINDOW_MESSAGES:
                keep(pull().result())
        while window:
            keep(pull().result())
        seconds = time.perf_counter() - began
    if offsets != serials.tolist():
        raise WrongResult("submit returned wrong offsets")
    return len(items) / seconds


def rocksdb_batches(
    folder: Path, items: list[tuple[str, int, bytes]], serials: IntArray, batch_messages: int
) -> float:
    """Messages a second of RocksDB's forced write batches: the same payloads, keys of queue and offset."""
    numbers: dict[tuple[str, int], int] = {}
    pairs = [
        (KEY.pack(numbers.setdefault((topic, queue_id), len(numbers)), serial), data)
        for (topic, queue_id, data), serial in zip(items, serials.tolist(), strict=True)
    ]
    edges = [*range(0, len(pairs), batch_messages), len(pairs)]
    cuts = [pairs[first:last] for first, last in pairwise(edges)]
    database = RocksDb(folder)
    try:
        began = time.perf_counter()
        for cut in cuts:
            database.write(cut)
        return len(items) / (time.perf_counter() - began)
    finally:
        database.close()


def one_round(
    base: Path, *, messages: int, size_bytes: int, batch_messages: int, queues: int, seed: int
) -> Figures:
    """Each rate once, in messages a second; RocksDB's is None when it is not installed."""
    items, serials = make_items(messages, size_bytes, queues, seed)
    figures: Figures = {}
    with sub_folder(base, "batches") as folder:
        figures["append_batch_messages_per_s"] = append_batches(folder, items, serials, batch_messages)
    with sub_folder(base, "rocksdb") as folder:
        try:
            figures["rocksdb_messages_per_s"] = rocksdb_batches(folder, items, serials, batch_messages)
        except PeerMissing as missing:
            figures["rocksdb_messages_per_s"], figures["rocksdb_missing"] = None, str(missing)
    with sub_folder(base, "submits") as folder:
        figures["submit_messages_per_s"] = submits(folder, items, serials)
    return figures


def run(
    base: Path,
    *,
    messages: int,
    size_bytes: int,
    batch_messages: int,
    queues: int,
    repeat: int,
    seed: int = 2021,
    parts: Parts,
) -> Figures:
    """Medians of `repeat` rounds."""
    rounds = []
    parts.expect(repeat)
    for _ in range(repeat):
        rounds.append(
            one_round(
                base,
                messages=messages,
                size_bytes=size_bytes,
                batch_messages=batch_messages,
                queues=queues,
                seed=seed,
            )
        )
        parts.one_done()
    figures: Figures = report.median_of(rounds)
    peer = figures["rocksdb_messages_per_s"]
    return {
        "seed": seed,
        "repeat": repeat,
        "messages": messages,
        "size_bytes": size_bytes,
        "batch_messages": batch_messages,
        "queues": queues,
        **figures,
        "rocksdb_ratio": figures["append_batch_messages_per_s"] / peer if peer else None,
    }


def show(figures: Figures, console: Console) -> None:
    """One line a figure."""
    console.print(
        report.pairs(
            f"{figures['size_bytes']} B messages, batches of {figures['batch_messages']}",
            {name: value for name, value in figures.items() if "per_s" in name or "ratio" in name},
        )
    )
    if "rocksdb_missing" in figures:
        console.print(figures["rocksdb_missing"], style="yellow", markup=False)
