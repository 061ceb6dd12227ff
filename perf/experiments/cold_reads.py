"""Reads outside the ring: with nothing in the page cache, and with everything in it; beside LMDB and the raw device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...store import MessageBatch, MessageStore
from ...testing import TunedConfig
from ..machine.folders import drop_page_cache, files_of
from ..references.peers import KEY, Lmdb
from ..references.rawfile import read_sequential
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from ..workload.comparing import check_batches, check_payloads, check_store
from ..workload.contest import Plan, Sizes, Workload
from ..workload.filling import fill
from .experiment import by_turns

BATCH_MESSAGES = 4096
FETCH_MESSAGES = 100
WARM_FETCH_MESSAGES = 32
LMDB_WRITE_MESSAGES = 2048
KEEP_EVERY = 16  # calls of a timed read whose result is kept and compared after it
RING = TunedConfig(recent_bytes=0)  # the smallest: all read messages lie outside of it

Fetch = Callable[[int, int, int], "dict[int, bytes] | list[bytes] | MessageBatch"]
Step = tuple[int, int, int]  # queue, offset, messages


@dataclass(frozen=True)
class Data:
    """Some messages in a store and in LMDB (None: not installed), both closed."""

    work: Workload
    home: Path
    lmdb: Path | None
    log_bytes: int
    payload_bytes: int

    @property
    def messages(self) -> int:
        """The number of messages."""
        return int(self.work.written.sum())

    def whole_queues(self, count: int) -> Iterator[Step]:
        """Fetches of queue after queue, `count` messages a call."""
        for queue, end in enumerate(self.work.written.tolist()):
            for offset in range(0, end, count):
                yield queue, offset, min(count, end - offset)

    def scattered(self) -> list[Step]:
        """Pieces of 1 to 32 messages, all queues mixed."""
        rng, steps = np.random.default_rng([self.work.seed, 7]), []
        for queue, end in enumerate(self.work.written.tolist()):
            offset = 0
            while offset < end:
                count = min(end - offset, int(rng.integers(1, WARM_FETCH_MESSAGES + 1)))
                steps.append((queue, offset, count))
                offset += count
        rng.shuffle(steps)
        return [(int(queue), int(offset), int(count)) for queue, offset, count in steps]


def make_data(folder: Path, sizes: Sizes, size_bytes: int, queues: int, seed: int, *, lmdb: bool) -> Data:
    """Write the messages to both, in the same order."""
    work = Workload(seed, sizes, queues=queues)
    with MessageStore.open(folder / "store", config=RING) as store:
        fill(store, work, size_bytes)
        log = store.stats()["log"]
    if lmdb:
        (plan,) = Workload(seed, sizes, queues=queues).plan(size_bytes)
        _fill_lmdb(folder / "lmdb", work, plan)
    return Data(work, folder / "store", folder / "lmdb" if lmdb else None, log["written_bytes"], log["payload_bytes"])


def _fill_lmdb(folder: Path, work: Workload, plan: Plan) -> None:
    database, make = Lmdb(folder), work.content.make
    pairs: list[tuple[bytes, bytes]] = []
    for queue, serial, size, _ in plan.rows():
        pairs.append((KEY.pack(queue, serial), make(queue, serial, size)))
        if len(pairs) == LMDB_WRITE_MESSAGES:
            database.write(pairs)
            pairs.clear()
    database.write(pairs)
    database.flush()
    database.close()


def timed(fetch: Fetch, steps: list[Step], work: Workload, run: Run) -> float:
    """Seconds of all fetches. Each count is checked; each 16th result is kept, and compared after the timed part."""
    kept, short = [], 0
    began = time.perf_counter()
    for number, (queue, offset, count) in enumerate(steps):
        found = fetch(queue, offset, count)
        short += count - len(found)
        if number % KEEP_EVERY == 0:
            kept.append((queue, offset, found))
    seconds = time.perf_counter() - began
    if short:
        raise WrongResult(f"{short} of {sum(count for _, _, count in steps)} messages did not come")
    for queue, offset, found in kept:
        payloads = found.payloads() if isinstance(found, MessageBatch) else found
        values = payloads.values() if isinstance(payloads, dict) else payloads
        run.checked(check_payloads(work.content, queue, offset, values))
    return seconds


def _with_store(data: Data, read: Callable[[MessageStore], float]) -> Figures:
    """MB of payload a second of `read` on the store, just opened, with its files' pages dropped."""
    drop_page_cache(data.home)
    with MessageStore.open(data.home, config=RING) as store:
        drop_page_cache(data.home)
        return {"mb_per_s": data.payload_bytes / read(store) / 1e6}


def _scan(data: Data, run: Run, store: MessageStore) -> float:
    found, kept = 0, []
    began = time.perf_counter()
    for number, batch in enumerate(store.scan()):
        found += len(batch)
        if number % KEEP_EVERY == 0:
            kept.append(batch)
    seconds = time.perf_counter() - began
    if found != data.messages:
        raise WrongResult(f"the scan found {found} of {data.messages} messages")
    run.checked(check_batches(data.work, kept))
    return seconds


def _ranges(data: Data, run: Run, store: MessageStore) -> float:
    addresses, get_range = data.work.addresses, store.get_range
    steps = list(data.whole_queues(FETCH_MESSAGES))
    return timed(lambda queue, offset, count: get_range(*addresses[queue], offset, count), steps, data.work, run)


def _columns(data: Data, run: Run, store: MessageStore) -> float:
    """Read queue after queue by read_batch. If a call ends early, the next one goes on there."""
    kept, number = [], 0
    began = time.perf_counter()
    for queue, end in enumerate(data.work.written.tolist()):
        address, offset = data.work.addresses[queue], 0
        while offset < end:
            batch = store.read_batch(*address, offset, max_messages=BATCH_MESSAGES)
            if not len(batch):
                raise WrongResult(f"{address} ends at {offset} of {end}")
            if number % KEEP_EVERY == 0:
                kept.append((queue, offset, batch))
            offset, number = offset + len(batch), number + 1
    seconds = time.perf_counter() - began
    for queue, offset, batch in kept:
        run.checked(check_payloads(data.work.content, queue, offset, batch.payloads()))
    return seconds


def _raw(data: Data, *, direct: bool) -> Figures:
    """MB a second of reading as many bytes as the log has from the store's files, the longest first."""
    drop_page_cache(data.home)
    files = sorted(files_of(data.home), key=lambda path: path.stat().st_size, reverse=True)
    began = time.perf_counter()
    got = read_sequential(files, data.log_bytes, direct)
    return {"mb_per_s": got / (time.perf_counter() - began) / 1e6}


def _lmdb(data: Data, run: Run, *, readahead: bool) -> Figures:
    """Read one queue after the other, with one call each."""
    assert data.lmdb is not None
    drop_page_cache(data.lmdb)
    database = Lmdb(data.lmdb, readahead=readahead)
    try:
        seconds = timed(database.get_range, list(data.whole_queues(1 << 60)), data.work, run)
    finally:
        database.close()
    return {"mb_per_s": data.payload_bytes / seconds / 1e6}


def cold_reads(data: Data, repeat: int, run: Run) -> list[dict[str, Figures]]:
    """Measure each way once a round, with a cold page cache. After that the whole store is compared again."""
    ways: dict[str, Callable[[], Figures]] = {
        "raw_direct": partial(_raw, data, direct=True),
        "raw_buffered": partial(_raw, data, direct=False),
        "scan": partial(_with_store, data, partial(_scan, data, run)),
        "queues": partial(_with_store, data, partial(_columns, data, run)),
        "queues_get_range": partial(_with_store, data, partial(_ranges, data, run)),
    }
    if data.lmdb is not None:
        ways["lmdb_queues"] = partial(_lmdb, data, run, readahead=True)
        ways["lmdb_queues_no_readahead"] = partial(_lmdb, data, run, readahead=False)
    return by_turns(ways, repeat, run)


def warm_reads(data: Data, repeat: int, run: Run) -> list[dict[str, Figures]]:
    """get_range of 1 to 32 messages outside the ring, in no order, all in the page cache: messages a second."""
    steps, addresses = data.scattered(), data.work.addresses
    with MessageStore.open(data.home, config=RING) as store:
        run.checked(check_store(store, data.work))
        database = Lmdb(data.lmdb) if data.lmdb is not None else None
        get_range = store.get_range

        def from_store(queue: int, offset: int, count: int) -> dict[int, bytes]:
            return get_range(*addresses[queue], offset, count)

        def measured(fetch: Fetch) -> Figures:
            return {"messages_per_s": data.messages / timed(fetch, steps, data.work, run)}

        ways = {"get_range": partial(measured, from_store)}
        timed(from_store, steps, data.work, run)  # everything warm
        if database is not None:
            timed(database.get_range, steps, data.work, run)
            ways["lmdb"] = partial(measured, database.get_range)
        try:
            return by_turns(ways, repeat, run)
        finally:
            if database is not None:
                database.close()
