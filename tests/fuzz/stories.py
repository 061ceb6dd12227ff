"""The stores that the fuzzer of damage harms: made once each, with all that was acknowledged.

A message says itself which one it is: its payload begins with the number of its queue and its offset. So a message
that is read under another offset or from another queue is seen at once, whatever the store says of it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

from stratalog.store import Message, MessageStore, ShardWriter, StoreConfig, commit_shards
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.shards import lane_attach
from stratalog.store.testing import TunedCacheConfig, TunedConfig
from tests.store.helpers import (
    Queue,
    Snapshot,
    crash_copy,
    flip_bit,
    frames_of,
    has_settled,
    put_snapshot,
    small_frames,
    take_snapshot,
    until,
    without_marks,
)

KIB = 1 << 10
PREFIX = struct.Struct("<HIH")  # queue, offset, salt
SALT = 0x5AFE
POOL = random.Random("payloads").randbytes(64 * KIB)
NEVER_MS = 1 << 49  # no message is so old
FIRST_DUE_MS = 1_800_000_000_000
BULK_MESSAGES = 80_000  # more than the low 16 bits of an offset can tell apart
BULK_RETIRED = 150_000
NAMES: tuple[Queue, ...] = (
    ("orders", 0), ("orders", 1), ("orders", 2), ("events", 0), ("events", 7), ("Zürich/../x", 2**31 - 1),
    ("late", 3), ("late", 4), ("empty", 0), ("rare", 5),
)  # fmt: skip
BULK, EMPTY, LATE = 0, 8, (6, 7)
WITH_IDS, WITH_DUE, EVENTS = 3, 4, "events"  # a queue whose messages have delivery times, and its topic
LEFT_OUT, NOTHING = -1, b"no message has these bytes"  # at an offset that a repair left out


class Plan(NamedTuple):
    """What kind of store is made."""

    lanes: int
    retention: bool
    closed: bool  # else the folder is a copy of one that is open: what a kill leaves
    repaired: bool  # harmed and repaired half-way
    bulk: bool
    marks: bool
    seed: int
    records: bool = False  # subscriptions, delays, bulk commits and trims: much beside messages is in the log
    small: bool = False  # a few segments: what a case costs is as many openings as there are checks, of all segments

    def __str__(self) -> str:
        words = [f"{self.lanes} lanes", "closed" if self.closed else "killed"]
        words += [
            name for name in ("retention", "repaired", "bulk", "marks", "records", "small") if getattr(self, name)
        ]
        return f"{', '.join(words)}, seed {self.seed}"

    def config(self) -> StoreConfig:
        """Small segments; what retention leaves are a few of each lane."""
        kept = (12 if self.bulk else 3 * self.lanes) * 64 * KIB
        return config(retention_bytes=kept if self.retention else None, lanes=self.lanes, block_bytes=self.block_bytes)

    @property
    def block_bytes(self) -> int:
        """Of the log's blocks: by the seed, so that half of the stores have each."""
        return 4096 if self.seed % 2 else 512


def config(**changes: Any) -> StoreConfig:
    """The smallest segments there are, and small frames."""
    return TunedConfig(
        **{
            "segment_bytes": 64 * KIB, "max_message_bytes": 16 * KIB, "max_frame_bytes": 16 * KIB, "recent_bytes": 0,
            "memory_limit_bytes": 0, **changes,
        }
    )  # fmt: skip


def with_caches() -> StoreConfig:
    """The same with a message cache and a read cache."""
    cache = TunedCacheConfig(off_heap_bytes=256 * KIB, block_bytes=4096)
    return config(cache=cache, read_cache_bytes=256 * KIB)


@dataclass
class Told:
    """What was acknowledged of one queue: the message at each offset is given by its length alone.

    `first` and `there` are what the unharmed store has: retention, or a repair, may have taken the rest.
    """

    number: int
    name: Queue
    lengths: list[int] = field(default_factory=list)
    first: int = 0
    there: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    @cached_property
    def payloads(self) -> list[bytes]:
        """The bytes of each message. Not to be asked for before the queue is complete."""
        rows = enumerate(self.lengths)
        return [payload(self.number, offset, length) if length != LEFT_OUT else NOTHING for offset, length in rows]


@dataclass
class Story:
    """A made store: its folder at several moments, the last of which is harmed, and what was acknowledged."""

    plan: Plan
    moments: list[Snapshot]
    queues: list[Told]
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)  # of the topic EVENTS: queue id and offset

    @property
    def final(self) -> Snapshot:
        """The folder that is harmed."""
        return self.moments[-1]

    def known(self) -> list[Told]:
        """The queues that have messages."""
        return [told for told in self.queues if told.lengths]


def payload(number: int, offset: int, length: int) -> bytes:
    """The message at an offset of a queue. Only messages of the queue EMPTY have no prefix."""
    if number == EMPTY:
        return b""
    begin = (offset * 7919 + number * 104729) % (len(POOL) // 2)
    return PREFIX.pack(number, offset, SALT) + POOL[begin : begin + length - PREFIX.size]


def extras_of(offset: int) -> dict[str, Any]:
    """Key, properties and delivery time of a message in a queue that has them."""
    return {
        "key": b"key-%d" % offset if offset % 3 else None,
        "properties": {"n": str(offset), "ü": "x" * (offset % 50)} if offset % 4 else None,
        "deliver_at_ms": FIRST_DUE_MS + offset if offset % 5 == 0 else None,
    }


def has_extras(number: int) -> bool:
    """Has the queue's every message key, properties or delivery time?"""
    return number in (2, 4)


def same_extras(message: Message) -> bool:
    """Has a message of such a queue its right ones?"""
    wanted = extras_of(message.offset)
    found = message.properties if message.properties is None else dict(message.properties)
    return (message.key, found, message.deliver_at_ms) == (
        wanted["key"], wanted["properties"], wanted["deliver_at_ms"]
    )  # fmt: skip


# -- making one -------------------------------------------------------------------------------------


class Maker:
    """Writes a store from one thread, a frame at a time, so that a seed always gives the same frames."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.path = folder / "made"
        self.copies = folder / "copy"
        self.chance = random.Random(f"story {plan}")
        self.queues = [Told(number, name) for number, name in enumerate(NAMES)]
        self.moments: list[Snapshot] = []
        self.ids: dict[str, tuple[int, int]] = {}
        self.store = self.open()

    def open(self, **how: Any) -> MessageStore:
        """Open the store."""
        store: MessageStore = MessageStore.open(self.path, self.plan.config(), **how)
        without_marks(store)  # they come when the seed says so, not when a thread finds the time
        return store

    def settle(self) -> None:
        """Wait until the background has nothing to do: what it does must not depend on when."""
        until(lambda: has_settled(self.store) and not any(map(self.wants_spare, self.store._lanes)))

    def wants_spare(self, lane: WrittenLane) -> bool:
        """Is the lane's segment half full, and the next one not made yet?"""
        segment = lane.segment
        if segment is None or segment.base is None or self.store._upkeep._spares[lane.index]:
            return False
        return (lane.tail - segment.base) * 2 > segment.header.capacity_bytes

    def mark(self) -> None:
        """Have every lane note that it is durable."""
        for lane in self.store._lanes:
            self.store._running.mark(lane)
        self.store.flush()

    def append(self, rows: list[tuple[int, int]]) -> None:
        """A batch of (queue, length); its offsets are what comes next."""
        batch = []
        for number, length in rows:
            told = self.queues[number]
            told.lengths.append(0 if number == EMPTY else length)
            batch.append((*told.name, payload(number, len(told.lengths) - 1, length)))
        if len(batch) % 3:
            self.store.append_batch(batch)
        else:
            # Over several lanes, where there are some, and some of several frames.
            with small_frames() if len(batch) % 2 else nullcontext(), self.store.transaction() as tx:
                tx.append_batch(batch)

    def append_extras(self, number: int, length: int) -> None:
        """One message with key, properties and delivery time."""
        told = self.queues[number]
        offset = len(told.lengths)
        told.lengths.append(length)
        assert self.store.append(*told.name, payload(number, offset, length), **extras_of(offset)) == offset

    def some(self, messages: int, *, late: bool) -> None:
        """Batches and single messages of all queues; those that come late give names in the middle of the log."""
        numbers = [n for n in range(len(NAMES)) if not has_extras(n) and (late or n not in LATE)]
        while messages > 0:
            if self.plan.marks and self.chance.random() < 0.15:
                self.mark()
            if self.plan.retention:
                self.settle()
            if self.chance.random() < 0.3:
                self.append_extras(self.chance.choice((2, 4)), self.length())
                messages -= 1
                continue
            rows = [(self.chance.choice(numbers), self.length()) for _ in range(self.chance.randrange(1, 12))]
            self.append(rows)
            messages -= len(rows)

    def length(self) -> int:
        """Mostly short, some of many blocks."""
        return PREFIX.size + int(2 ** self.chance.uniform(0, 13))

    def beside(self) -> None:
        """What makes records: acknowledgements, changed settings and delays, a topic's too, a bulk commit, a trim."""
        chance, store = self.chance, self.store
        store.configure_topic(EVENTS, retention_ms=chance.choice((None, NEVER_MS)), ttl_ms=NEVER_MS)
        most = 6 if self.plan.small else 20  # each is a frame of its own
        known = [info.settings.filter for info in store.subscriptions(EVENTS)]
        subscription = store.subscribe(EVENTS, "s", filter=known[0] if known else None)
        subscription.change(filter=chance.choice((None, "TRUE", "tag IS NULL OR price > 5 OR TRUE")))  # all messages
        given = subscription.receive(chance.randrange(1, most))
        for delivery in given[:: chance.choice((1, 2, 3))]:
            subscription.ack(delivery)
        subscription.close()
        delayed = self.queues[WITH_DUE]
        for offset in range(0, len(delayed.lengths), 5)[-most:]:
            if chance.random() < 0.5:
                store.cancel_delayed(*delayed.name, offset)
            else:
                store.reschedule_delayed(*delayed.name, offset, FIRST_DUE_MS + 10 * offset)
        self.identify(chance.randrange(1, most))
        self.commit(as_segments=chance.random() < 0.5)
        told = self.queues[chance.choice((0, 1, 3))]
        first, end = store.queue_bounds(*told.name)
        if end > first:
            store.trim(*told.name, chance.randrange(first, end))

    def identify(self, count: int) -> None:
        """Messages with ids, of which the last one is sent twice."""
        self.store.configure_topic(EVENTS, id_window_ms=1 << 50)
        told = self.queues[WITH_IDS]
        for _ in range(count):
            offset, length, message_id = len(told.lengths), self.length(), f"id {len(self.ids)}"
            told.lengths.append(length)
            for _ in range(2):
                data = payload(told.number, offset, length)
                assert self.store.append(*told.name, data, message_id=message_id) == offset
            self.ids[message_id] = told.name[1], offset

    def commit(self, *, as_segments: bool) -> None:
        """A bulk commit of some queues' next messages."""
        numbers = self.chance.sample((0, 1, 3, 9), 2)
        streams = [self.queues[number].name for number in numbers]
        rows: list[tuple[int, bytes]] = []
        for _ in range(self.chance.randrange(2, 10 if self.plan.small else 40)):
            at = self.chance.randrange(len(numbers))
            told, length = self.queues[numbers[at]], self.length()
            told.lengths.append(length)
            rows.append((at, payload(told.number, len(told.lengths) - 1, length)))
        with ShardWriter(self.path) as writer:
            datas = [data for _, data in rows]
            writer.append_columns(streams, [at for at, _ in rows], list(map(len, datas)), b"".join(datas))
            shards = writer.finish()
        with mock.patch.object(lane_attach, "SMALL_BYTES", -1 if as_segments else lane_attach.SMALL_BYTES):
            commit_shards(self.path, shards, name=f"commit-{len(self.moments)}", wait_ms=0)
            self.store.attach_pending()

    def bulk(self, messages: int) -> None:
        """Very many short messages of one queue."""
        for _ in range(messages // 1000):
            self.append([(BULK, PREFIX.size)] * 1000)
            self.settle()

    def snap(self) -> None:
        """Note the folder as it is now, once the background has nothing to do."""
        self.settle()
        self.moments.append(take_snapshot(crash_copy(self.path, self.copies)))

    def again(self) -> None:
        """Close and open."""
        self.store.close()
        self.moments.append(take_snapshot(self.path))
        self.store = self.open()

    def repair(self) -> None:
        """Harm an early segment, and go on with what a repair leaves."""
        self.store.close()
        first = min(self.path.glob("lane-*/*.seg"))
        harmed = [frame for frame in frames_of(first) if frame.header.count and not frame.definitions()]  # keep names
        for frame in harmed[:4:2]:
            flip_bit(first, frame.payload_start - 1)
        self.store = self.open(repair=True)
        assert self.store.losses
        for told in self.queues:
            # Where the newest message of a queue is lost, its offset is given again, or some are left out.
            end = self.store.queue_bounds(*told.name)[1]
            told.lengths[end:] = []
            told.lengths += [LEFT_OUT] * (end - len(told.lengths))

    def make(self) -> Story:
        """The whole life."""
        plan, chance = self.plan, self.chance
        size = 30 if plan.bulk else chance.randrange(30, 80) * (plan.lanes + 2) // 3
        if plan.small:
            size //= 4
        self.some(size, late=False)
        if plan.records:
            self.beside()
        self.snap()
        if plan.repaired:
            self.repair()
        if plan.bulk:
            self.bulk(BULK_RETIRED if plan.retention else BULK_MESSAGES)
            self.snap()
        self.some(size, late=True)
        if chance.random() < 0.5:
            self.again()
        self.snap()
        if plan.records:
            self.beside()
        self.some(chance.randrange(1, size), late=True)
        if not plan.closed:
            self.snap()
        self.store.close()
        if plan.closed:
            self.moments.append(take_snapshot(self.path))
        self.note_truth()
        return Story(plan, self.moments, self.queues, self.ids)

    def note_truth(self) -> None:
        """What the unharmed store has, which must be what was acknowledged."""
        with MessageStore.open(put_snapshot(self.moments[-1], self.copies), config()) as store:
            assert not store.losses
            for told in self.queues:
                told.first, end = store.queue_bounds(*told.name)
                assert end == len(told.lengths)
                told.there = np.zeros(end, np.bool_)
                for offset, data in _contents(store, told.name, told.first, end):
                    assert data == told.payloads[offset]
                    told.there[offset] = True
                assert self.plan.repaired or told.there[told.first :].all()


def _contents(store: MessageStore, queue: Queue, at: int, end: int) -> Iterator[tuple[int, memoryview]]:
    while at < end:
        batch = store.read_batch(*queue, at)
        if not len(batch):
            return
        yield from zip(batch.offsets.tolist(), batch.payloads(), strict=True)
        at = int(batch.offsets[-1]) + 1


def plans(seed: int, count: int, *, records: bool = False) -> list[Plan]:
    """Different kinds of stores, the common ones more often than those with very many messages.

    With `records`, two of three have records beside messages, most are small, and one of 24 has very many messages.
    """
    chance = random.Random(seed)
    made = []
    for index in range(count):
        bulk = index % (24 if records else 8) == 7
        small = records and index % 5 != 4 and not bulk
        made.append(
            Plan(
                lanes=1 if bulk else chance.choice((1, 1, 2, 2 if small else 4)),
                retention=index % 16 == 15 if bulk else chance.random() < 0.3,
                closed=chance.random() < 0.5,
                repaired=chance.random() < 0.2 and not small,  # of few frames there are none to harm without names
                bulk=bulk,
                marks=chance.random() < 0.5,
                seed=chance.getrandbits(30),
                records=records and index % 3 != 0 and not bulk,
                small=small,
            )
        )
    return made
