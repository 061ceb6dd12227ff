"""Reads with nothing in the page cache: a scan beside the raw read, and queue after queue beside LMDB."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from perf.fill import fill
from perf.folders import drop_page_cache, files_of, sub_folder
from perf.peers import KEY, Lmdb, PeerMissing
from perf.rawfile import read_sequential
from perf.report import Figures, WrongResult
from perf.workload import Sizes, Workload
from store import MessageStore, StoreConfig

BATCH_MESSAGES = 4096
LMDB_WRITE_MESSAGES = 2048


def cold_reads(base: Path, sizes: Sizes, size_bytes: int, queues: int, seed: int) -> Figures:
    """MB (10^6 bytes) of payload a second; every read checks that it got all the messages."""
    work = Workload(seed, sizes, 1, min(100, queues), queues)
    with sub_folder(base, "cold") as folder:
        home = folder / "store"
        # The least ring: what is read comes from the device.
        config = StoreConfig(recent_bytes=0)
        with MessageStore.open(home, config=config) as store:
            messages = fill(store, work, size_bytes)
            payload_bytes = store.stats()["log"]["payload_bytes"]
            log_bytes = store.stats()["log"]["written_bytes"]
        figures: Figures = {"messages": messages, "payload_mb": payload_bytes / 1e6}
        figures["raw_direct_mb_per_s"] = _raw(home, log_bytes, direct=True)
        figures["raw_buffered_mb_per_s"] = _raw(home, log_bytes, direct=False)
        figures["scan_mb_per_s"] = (
            payload_bytes / _cold(home, config, lambda store: _scan(store, messages)) / 1e6
        )
        seconds = _cold(home, config, lambda store: _queues(store, work))
        figures["queues_mb_per_s"] = payload_bytes / seconds / 1e6
        seconds = _cold(home, config, lambda store: _ranges(store, work))
        figures["queues_get_range_mb_per_s"] = payload_bytes / seconds / 1e6
    with sub_folder(base, "lmdb") as folder:
        try:
            figures["lmdb_queues_mb_per_s"] = _lmdb(
                folder, Workload(seed, sizes, 1, min(100, queues), queues), size_bytes
            )
        except PeerMissing as missing:
            figures["lmdb_queues_mb_per_s"], figures["missing"] = None, str(missing)
    return figures


def _raw(home: Path, log_bytes: int, direct: bool) -> float:
    """MB a second of reading as many bytes as the log has from the store's files, the longest first."""
    drop_page_cache(home)
    files = sorted(files_of(home), key=lambda path: path.stat().st_size, reverse=True)
    began = time.perf_counter()
    got = read_sequential(files, log_bytes, direct)
    return got / (time.perf_counter() - began) / 1e6


def _cold(home: Path, config: StoreConfig, read: Callable[[MessageStore], None]) -> float:
    """Seconds of `read` on a store that was just opened, with its files' pages dropped."""
    drop_page_cache(home)
    with MessageStore.open(home, config=config) as store:
        drop_page_cache(home)
        began = time.perf_counter()
        read(store)
        return time.perf_counter() - began


def _scan(store: MessageStore, messages: int) -> None:
    found = sum(len(batch) for batch in store.scan())
    if found != messages:
        raise WrongResult(f"the scan found {found} of {messages} messages")


def _queues(store: MessageStore, work: Workload) -> None:
    """read_batch, queue after queue."""
    for queue, count in enumerate(work.written.tolist()):
        topic, queue_id = work.addresses[queue]
        offset = 0
        while offset < count:
            got = len(store.read_batch(topic, queue_id, offset, BATCH_MESSAGES))
            if not got:
                raise WrongResult(f"{topic}/{queue_id} ends at {offset} of {count}")
            offset += got


def _ranges(store: MessageStore, work: Workload) -> None:
    """get_range of up to 100, queue after queue."""
    for queue, count in enumerate(work.written.tolist()):
        topic, queue_id = work.addresses[queue]
        offset = 0
        while offset < count:
            got = len(store.get_range(topic, queue_id, offset, 100))
            if not got:
                raise WrongResult(f"{topic}/{queue_id} ends at {offset} of {count}")
            offset += got


def _lmdb(folder: Path, work: Workload, size_bytes: int) -> float:
    """The same messages in LMDB, written in the same order in transactions of 2,048, read queue after
    queue."""
    (plan,) = work.plan(size_bytes)
    database = Lmdb(folder)
    pairs: list[tuple[bytes, bytes]] = []
    for queue, serial, size, _ in plan.rows():
        pairs.append((KEY.pack(queue, serial), work.content.make(queue, serial, size)))
        if len(pairs) == LMDB_WRITE_MESSAGES:
            database.write(pairs)
            pairs.clear()
    database.write(pairs)
    database.flush()
    database.close()
    drop_page_cache(folder)
    database = Lmdb(folder)
    began, found = time.perf_counter(), 0
    for queue, count in enumerate(work.written.tolist()):
        if count:
            found += len(database.get_range(queue, 0, count))
    seconds = time.perf_counter() - began
    database.close()
    if found != len(plan):
        raise WrongResult(f"LMDB returned {found} of {len(plan)} messages")
    return plan.payload_bytes / seconds / 1e6
