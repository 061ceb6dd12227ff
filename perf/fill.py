"""Fills a store in bulk, here or in a child process that dies without closing it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perf.phases import Drive, append_phase, make_tracks
from perf.report import WrongResult
from perf.workload import Sizes, Workload
from store import MessageStore, StoreConfig

FILL_BATCH_MESSAGES = 512
SAMPLE_QUEUES = 200
SAMPLE_FETCH = 100


def fill(store: MessageStore, work: Workload, size_bytes: int) -> int:
    """Appends `size_bytes` of the workload's next messages, in batches by one producer; how many messages."""
    tracks = make_tracks(work.plan(size_bytes))
    append_phase(store, work, tracks, Drive("batch", batch_messages=FILL_BATCH_MESSAGES))
    if any(track.wrong_offsets for track in tracks):
        raise WrongResult("append_batch returned a wrong offset")
    return sum(track.done for track in tracks)


def fill_and_die(folder: Path, work: Workload, size_bytes: int, settings: Mapping[str, Any]) -> None:
    """The same in a process of its own that ends at once after its last answer, without a close.

    Here the same plan is made again, so that `work.written` says afterwards what must be in the store.
    """
    context = multiprocessing.get_context("spawn")
    shape = (work.seed, work.sizes, 1, work.topics, len(work.addresses))
    arguments = (folder, shape, size_bytes, dict(settings))
    child = context.Process(target=_child, args=arguments)
    child.start()
    try:
        child.join()
    except BaseException:
        child.kill()  # it would go on writing to a folder that is being removed
        child.join()
        raise
    if child.exitcode != 0:
        raise RuntimeError(f"the filling process ended with {child.exitcode}")
    work.plan(size_bytes)


def _child(
    folder: Path, shape: tuple[int, Sizes, int, int, int], size_bytes: int, settings: dict[str, Any]
) -> None:
    store = MessageStore.open(folder, config=StoreConfig(**settings))
    fill(store, Workload(*shape), size_bytes)
    os._exit(0)


def check_store(store: MessageStore, work: Workload) -> None:
    """Raises unless every queue holds exactly what was acknowledged, and a sample of queues holds it to the
    byte."""
    written = work.written.nonzero()[0].tolist()
    every = max(1, len(written) // SAMPLE_QUEUES)
    for index, queue in enumerate(written):
        address, count = work.addresses[queue], int(work.written[queue])
        bounds = tuple(store.queue_bounds(*address))
        if bounds != (0, count):
            raise WrongResult(f"{address} holds offsets {bounds}, acknowledged were 0 to {count}")
        if index % every == 0:
            _check_queue(store, work, queue, count)


def _check_queue(store: MessageStore, work: Workload, queue: int, count: int) -> None:
    address, offset = work.addresses[queue], 0
    while offset < count:
        found = store.get_range(*address, offset, SAMPLE_FETCH)
        right = [work.content.matches(data, queue, offset + index) for index, data in found.items()]
        if not right or not all(right):
            raise WrongResult(f"{address}: what comes at offset {offset} is not what was acknowledged")
        offset += len(right)
