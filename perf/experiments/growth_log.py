"""Growth of the log: by segments, streams, transactions and readers. Each gives the rows of a store of one size."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from ...store import MessageStore, StoreReader, inspect_folder, plan_scan, verify_folder
from ...testing import TunedConfig
from ..machine.folders import files_of
from ..machine.usage import cpu_seconds, give_back_free_memory, resident_bytes
from ..workload.growing import (
    BUSY,
    BUSY_QUEUES,
    IDLE,
    IDLE_MESSAGES,
    MESSAGE_BYTES,
    SMALL,
    WIDE,
    appended,
    committed,
    segments_filled,
    settled,
    streams_made,
)
from ..workload.in_turn import Rows, known, spent, timed

LOOKS = 200
TOUCHED = 100
TOUCHED_BYTES = 1 << 17  # a segment: it has room for one batch, a message each of so many streams
TOUCHING = 1024  # segments: at least one of them has a full footer, so that this counts by its share
BACKGROUND_ROUNDS, BACKGROUND_SEGMENTS = 8, 16  # 128 segments: two full tables, whatever the store holds
OPENINGS = 9
EACH = 4  # of so many messages of a queue one is read, so that each segment was looked into


def by_segments(folder: Path, segments: int) -> Rows:
    """The calls of a store of so many segments; and the processor time of more appends."""
    with MessageStore.open(folder, SMALL) as store:
        store.append_batch([(IDLE, 0, b"%d" % at) for at in range(IDLE_MESSAGES)])
        segments_filled(store, segments)
        yield spent(
            "processor seconds a GiB appended", lambda: appended(store, BACKGROUND_SEGMENTS) / (1 << 30),
            BACKGROUND_ROUNDS, scale=1,
        )  # fmt: skip
    yield timed("open, close", lambda: MessageStore.open(folder, SMALL).close(), OPENINGS)
    with MessageStore.open(folder, SMALL) as store:
        yield from _calls(store)
        with MessageStore.open(folder, read_only=True) as reader:
            yield timed("append, and a reader's look", lambda: _seen(store, reader))
        yield timed("open read_only, close", lambda: MessageStore.open(folder, read_only=True).close())
    yield timed("plan_scan", lambda: plan_scan(folder))
    yield timed("verify_folder, a segment", lambda: verify_folder(folder), 1, divided_by=segments)
    yield timed("inspect_folder, a segment", lambda: inspect_folder(folder), 1, divided_by=segments)


def _calls(store: MessageStore) -> Rows:
    """The calls of the public face."""
    rng, messages = random.Random(1), min(store.queue_bounds(BUSY, queue)[1] for queue in range(BUSY_QUEUES))
    old, young = (store.read(BUSY, 0, offset, max_messages=1)[0].timestamp_ms for offset in (0, messages - 1))

    def place() -> tuple[int, int]:
        return rng.randrange(BUSY_QUEUES), rng.randrange(messages)

    yield timed("get_range, a random old message, at first", lambda: store.get_range(BUSY, *place(), 1))
    yield timed("offset_at, the first call", lambda: store.offset_at(BUSY, 0, timestamp_ms=rng.randint(old, young)), 1)
    for queue in range(BUSY_QUEUES):  # now each segment's index has been read once, as in a store that is used
        for offset in range(0, messages, EACH):
            store.get_range(BUSY, queue, offset, 1)
    calls = {
        "get_range, idle queue": lambda: store.get_range(IDLE, 0, 0, 32),
        "read, idle queue": lambda: store.read(IDLE, 0, 0, max_messages=32),
        "read_batch, idle queue": lambda: store.read_batch(IDLE, 0, 0),
        "get_range, a random old message": lambda: store.get_range(BUSY, *place(), 1),
        "read, a random old message": lambda: store.read(BUSY, *place(), max_messages=1),
        "read_batch, a random old message": lambda: store.read_batch(BUSY, *place(), max_messages=1),
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
    for what, call in calls.items():
        yield timed(what, call)


def _one_consumer(store: MessageStore) -> None:
    sub = store.subscribe(BUSY, "growth")
    for delivery in sub.receive(max_messages=1):
        sub.ack(delivery)
    sub.close()
    store.delete_subscription(BUSY, "growth")


def _seen(store: MessageStore, reader: StoreReader) -> None:
    offset = store.append(BUSY, 0, bytes(MESSAGE_BYTES))
    assert reader.read(BUSY, 0, offset, max_messages=1, wait_ms=10_000)


def by_streams(folder: Path, streams: int) -> Rows:
    """Opening, memory, and the cost of a segment that touches a hundred of the streams."""
    with MessageStore.open(folder, TunedConfig(segment_bytes=1 << 20, recent_bytes=0)) as store:
        streams_made(store, streams)
        settled(store)
    give_back_free_memory()
    before, began = resident_bytes(), time.perf_counter()
    with MessageStore.open(folder, TunedConfig(segment_bytes=TOUCHED_BYTES, recent_bytes=0)) as store:
        took_s, resident = time.perf_counter() - began, resident_bytes() - before  # before the other sizes go on
        yield known("open", took_s * 1e6)
        yield known("resident bytes a stream", resident / streams)
        cpu_s, made, more_bytes = _touched(store, folder, streams)
        yield known("processor us a segment", cpu_s / made * 1e6)
        yield known("bytes a segment beside its payload", more_bytes / made)
        yield timed("append", lambda: store.append(f"{WIDE}-0", 0, b"x"))
        yield timed("get_range", lambda: store.get_range(f"{WIDE}-0", 0, 0, 1))
        yield timed("topics", store.topics)
        yield timed("queues of one topic", lambda: store.queues(f"{WIDE}-0"))
        yield timed("plan_scan", lambda: plan_scan(folder))


def _touched(store: MessageStore, folder: Path, streams: int) -> tuple[float, int, int]:
    """Appends to some of the streams: processor seconds, segments, and bytes on disk beside those of the payload."""
    sealed, log_bytes, cpu_s, written = store.stats()["segments"]["sealed"], _bytes(folder), cpu_seconds(), 0
    wanted = sealed + (TOUCHING if streams > 10 * TOUCHED else 2)
    while store.stats()["segments"]["sealed"] < wanted:
        rows = [(f"{WIDE}-0", at % min(streams, 1000), bytes(MESSAGE_BYTES)) for at in range(TOUCHED)]
        store.append_batch(rows)
        written += TOUCHED * MESSAGE_BYTES
    settled(store)
    cpu_s = cpu_seconds() - cpu_s
    made = max(1, store.stats()["segments"]["sealed"] - sealed)
    return cpu_s, made, max(0, _bytes(folder) - log_bytes - written)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_of(folder))


def by_transactions(folder: Path, transactions: int) -> Rows:
    """One more commit beside a writer with so many names of commits; and an opening."""
    with MessageStore.open(folder, SMALL) as store:
        store.append(BUSY, 0, b"first")
        names = (f"named-{at}" for at in count())
        for _ in range(transactions):
            committed(folder, next(names), store)
        yield timed("commit_shards, attach_pending", lambda: committed(folder, next(names), store))
        yield timed("commit_shards, which waits", lambda: committed(folder, next(names)))
    yield timed("open, close", lambda: MessageStore.open(folder, SMALL).close())


def by_readers(folder: Path, readers: int) -> Rows:
    """Processor time of an append beside so many following readers; each of them sees the message."""
    with ExitStack() as stack:
        store = stack.enter_context(MessageStore.open(folder, SMALL))
        store.append(BUSY, 0, b"first")
        following = [stack.enter_context(MessageStore.open(folder, read_only=True)) for _ in range(readers)]

        def all_look() -> int:
            offset = store.append(BUSY, 0, bytes(100))
            for reader in following:
                assert reader.read(BUSY, 0, offset, max_messages=1, wait_ms=10_000)
            return readers

        yield spent("processor us an append and reader", all_look, LOOKS)
