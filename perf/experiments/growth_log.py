"""Growth of the log: by segments, streams, transactions and readers. Each gives figures by what was called, in us."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from ...store import MessageStore, StoreReader, inspect_folder, plan_scan, verify_folder
from ...testing import TunedConfig
from ..machine.folders import files_of
from ..machine.usage import cpu_seconds, give_back_free_memory, resident_bytes
from ..report.figures import Figures
from ..workload.growing import (
    BUSY,
    BUSY_QUEUES,
    IDLE,
    IDLE_MESSAGES,
    MESSAGE_BYTES,
    SMALL,
    WIDE,
    Timer,
    committed,
    processor_s_a_gib,
    segments_filled,
    settled,
    streams_made,
)

LOOKS = 200
TOUCHED = 100
TOUCHING = 64  # segments, so that a full table now and then counts by its share
MEASURED_SEGMENTS = 20
EACH = 4  # of so many messages of a queue one is read, so that each segment was looked into


def by_segments(timer: Timer, folder: Path, segments: int) -> Figures:
    """The calls of a store of so many segments; and the processor time of more appends."""
    with MessageStore.open(folder, SMALL) as store:
        store.append_batch([(IDLE, 0, b"%d" % at) for at in range(IDLE_MESSAGES)])
        segments_filled(store, segments)
        cpu_s = processor_s_a_gib(store, max(MEASURED_SEGMENTS, segments // 10))
    began = time.perf_counter()
    with MessageStore.open(folder, SMALL) as store:
        opening = time.perf_counter() - began
        found = {"processor seconds a GiB appended": cpu_s, "open": opening * 1e6, **_calls(timer, store)}
        with MessageStore.open(folder, read_only=True) as reader:
            found["append, and a reader's look"] = timer.us(lambda: _seen(store, reader))
        found["open read_only, close"] = timer.us(lambda: MessageStore.open(folder, read_only=True).close())
    found["plan_scan"] = timer.us(lambda: plan_scan(folder))
    for name, tool in (("verify_folder", verify_folder), ("inspect_folder", inspect_folder)):
        began = time.perf_counter()
        tool(folder)
        found[f"{name}, a segment"] = (time.perf_counter() - began) / segments * 1e6
    return found


def _calls(timer: Timer, store: MessageStore) -> Figures:
    """Of the public face."""
    rng, messages = random.Random(1), min(store.queue_bounds(BUSY, queue)[1] for queue in range(BUSY_QUEUES))
    old, young = (store.read(BUSY, 0, offset, 1)[0].timestamp_ms for offset in (0, messages - 1))

    def place() -> tuple[int, int]:
        return rng.randrange(BUSY_QUEUES), rng.randrange(messages)

    first = {
        "get_range, a random old message, at first": timer.us(lambda: store.get_range(BUSY, *place(), 1)),
        "offset_at, the first call": _once(lambda: store.offset_at(BUSY, 0, timestamp_ms=rng.randint(old, young))),
    }
    for queue in range(BUSY_QUEUES):  # now each segment's index has been read once, as in a store that is used
        for offset in range(0, messages, EACH):
            store.get_range(BUSY, queue, offset, 1)
    calls = {
        "get_range, idle queue": lambda: store.get_range(IDLE, 0, 0, 32),
        "read, idle queue": lambda: store.read(IDLE, 0, 0, 32),
        "read_batch, idle queue": lambda: store.read_batch(IDLE, 0, 0),
        "get_range, a random old message": lambda: store.get_range(BUSY, *place(), 1),
        "read, a random old message": lambda: store.read(BUSY, *place(), 1),
        "read_batch, a random old message": lambda: store.read_batch(BUSY, *place(), 1),
        "offset_at, idle queue": lambda: store.offset_at(IDLE, 0, timestamp_ms=young),
        "offset_at, a random time": lambda: store.offset_at(BUSY, 0, timestamp_ms=rng.randint(old, young)),
        "queue_bounds": lambda: store.queue_bounds(BUSY, 1),
        "topics": store.topics,
        "queues": lambda: store.queues(BUSY),
        "stats": store.stats,
        "append": lambda: store.append(BUSY, 0, bytes(MESSAGE_BYTES)),
        # To a new message: where the old ones are few, nothing would be left to trim after some calls.
        "append, trim": lambda: store.trim(BUSY, 1, before_offset=store.append(BUSY, 1, b"x")),
        "subscribe, receive, ack, delete": lambda: _one_consumer(store),
        "subscriptions": lambda: store.subscriptions(BUSY),
    }
    return {**first, **{name: timer.us(call) for name, call in calls.items()}}


def _once(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


def _one_consumer(store: MessageStore) -> None:
    sub = store.subscribe(BUSY, "growth")
    for delivery in sub.receive(max_messages=1):
        sub.ack(delivery)
    sub.close()
    store.delete_subscription(BUSY, "growth")


def _seen(store: MessageStore, reader: StoreReader) -> None:
    offset = store.append(BUSY, 0, bytes(MESSAGE_BYTES))
    assert reader.read(BUSY, 0, offset, 1, wait_ms=10_000)


def by_streams(timer: Timer, folder: Path, streams: int) -> Figures:
    """Opening, memory, and what a segment costs that touches a hundred of the streams."""
    config = TunedConfig(segment_bytes=1 << 20, recent_bytes=0)
    with MessageStore.open(folder, config) as store:
        streams_made(store, streams)
        settled(store)
    give_back_free_memory()
    before, began = resident_bytes(), time.perf_counter()
    with MessageStore.open(folder, config) as store:
        opening = time.perf_counter() - began
        resident = (resident_bytes() - before) / streams
        sealed, log_bytes = store.stats()["segments"]["sealed"], _bytes(folder)
        cpu_s = cpu_seconds()
        written = 0
        for _ in range((TOUCHING if streams > 10 * TOUCHED else 2) * (1 << 20) // (TOUCHED * MESSAGE_BYTES) + 1):
            rows = [(f"{WIDE}-0", at % min(streams, 1000), bytes(MESSAGE_BYTES)) for at in range(TOUCHED)]
            store.append_batch(rows)
            written += TOUCHED * MESSAGE_BYTES
        settled(store)
        cpu_s = cpu_seconds() - cpu_s
        made = max(1, store.stats()["segments"]["sealed"] - sealed)
        more = max(0, _bytes(folder) - log_bytes - written) / made
        return {
            "open": opening * 1e6, "resident bytes a stream": resident,
            "processor us a segment": cpu_s / made * 1e6, "bytes a segment beside its payload": more,
            "append": timer.us(lambda: store.append(f"{WIDE}-0", 0, b"x")),
            "get_range": timer.us(lambda: store.get_range(f"{WIDE}-0", 0, 0, 1)),
            "topics": timer.us(store.topics), "queues of one topic": timer.us(lambda: store.queues(f"{WIDE}-0")),
            "plan_scan": timer.us(lambda: plan_scan(folder)),
        }  # fmt: skip


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_of(folder))


def by_transactions(timer: Timer, folder: Path, transactions: int) -> Figures:
    """One more commit beside a writer that has so many names of them; and an opening."""
    with MessageStore.open(folder, SMALL) as store:
        store.append(BUSY, 0, b"first")
        names = (f"named-{at}" for at in count())
        for _ in range(transactions):
            committed(folder, next(names), store)
        found = {
            "commit_shards, attach_pending": timer.us(lambda: committed(folder, next(names), store)),
            "commit_shards, which waits": timer.us(lambda: committed(folder, next(names))),
        }
    return {**found, "open, close": timer.us(lambda: MessageStore.open(folder, SMALL).close())}


def by_readers(timer: Timer, folder: Path, readers: int) -> Figures:
    """Processor time of an append beside so many readers that follow, of which each sees it."""
    with ExitStack() as stack:
        store = stack.enter_context(MessageStore.open(folder, SMALL))
        store.append(BUSY, 0, b"first")
        following = [stack.enter_context(MessageStore.open(folder, read_only=True)) for _ in range(readers)]
        cpu_s = cpu_seconds()
        for _ in range(LOOKS):
            offset = store.append(BUSY, 0, bytes(100))
            for reader in following:
                assert reader.read(BUSY, 0, offset, 1, wait_ms=10_000)
        return {"processor us an append and reader": (cpu_seconds() - cpu_s) / LOOKS / readers * 1e6}
