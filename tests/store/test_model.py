"""The whole store against a dict: any sequence of appends, reads, closes and crashes says the same as a model.

Retention takes the oldest messages of a queue at moments of its own choice: the model knows what was there in all, and
the store says from which offset on it still is; that offset never falls, and what is behind it has no hole.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.store import Message, MessageStore, OffsetOutOfRange, StoreConfig, StoreReader, Ticket, look_into_folder
from stratalog.store.log.streams import lane_of
from stratalog.store.testing import TunedCacheConfig

from .consumer_rules import ConsumerRules
from .disks import StillDisk
from .helpers import (
    PATIENCE_S,
    Queue,
    calls_that_read,
    crash_copy,
    has_settled,
    memory_folder,
    scanned,
    small_frames,
    start,
    tiny,
    until,
)
from .topic_rules import TopicRules

QUEUES: list[Queue] = [("a", 0), ("a", 1), ("b/../c", 5), ("ü", 2_147_483_647)]
queues = st.sampled_from(QUEUES)
small_data = st.binary(max_size=60)
sizes = st.sampled_from([0, 1, 100, 4096, 9000, 30_000, 65_536])
keys = st.none() | st.binary(max_size=10)
properties = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
times = st.none() | st.integers(0, 1 << 61)
caches = st.builds(
    TunedCacheConfig, heap_bytes=st.sampled_from([0, 8 << 10]), off_heap_bytes=st.sampled_from([0, 32 << 10]),
    block_bytes=st.sampled_from([512, 4096]), expected_bytes=st.sampled_from([None, 200_000]),
    edge_bytes=st.sampled_from([0, 16 << 10]), active_backlog_messages=st.just(50),
    readers=st.sampled_from(["any", "once", "near"]),
)  # fmt: skip


RETAINED_BYTES = 200_000  # more than one open segment and a sealed one, which always stay
lives = st.fixed_dictionaries({
    "alignment": st.sampled_from(["pad", "trim", "adaptive"]),
    "durability": st.sampled_from(["force", "force", "os"]),
    "recent_bytes": st.sampled_from([0, 8 << 20]),
    "cache": st.none() | caches,
    "read_cache_bytes": st.sampled_from([0, 0, 64 << 10]),
    "retention_bytes": st.sampled_from([None, None, RETAINED_BYTES]),  # a lane
    "prewrite_bytes": st.sampled_from([0, 0, 128 << 10]),
})  # fmt: skip
PRODUCERS = 3


class StoreMachine(ConsumerRules, TopicRules, RuleBasedStateMachine):
    """`model` has what was acknowledged: (data, key, properties, delivery time) of each offset; `first` the first
    offset that the store still has."""

    config: StoreConfig
    topic = QUEUES[0][0]

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Queue, list[tuple[Any, ...]]] = {name: [] for name in QUEUES}
        self.first: dict[Queue, int] = dict.fromkeys(QUEUES, 0)
        self.hidden: dict[Queue, int] = dict.fromkeys(QUEUES, 0)
        self.trimmed: dict[Queue, int] = dict.fromkeys(QUEUES, 0)
        self.pending: list[tuple[Queue, Ticket, tuple[Any, ...]]] = []
        self.holder = memory_folder()
        self.home = self.holder.__enter__()
        self.generation = 0
        self.filler = 0

    @property
    def path(self) -> Path:
        return self.home / f"store-{self.generation}"

    @initialize(lanes=st.sampled_from([1, 1, 2, 4]), settings_=lives)
    def begin(self, lanes: int, settings_: dict[str, Any]) -> None:
        self.config = tiny(lanes=lanes, **of_all_lanes(settings_, lanes))
        self.store = self.opened()

    def bounds(self, name: Queue) -> tuple[int, int]:
        """The store's bounds, which must be possible; retention may move the first one, and nothing else does."""
        first, end = self.store.queue_bounds(*name)
        known = self.first[name]
        assert known <= first <= end
        assert first == known or self.config.retention_bytes is not None
        self.first[name] = first
        return first, end

    def opened(self, *, repair: bool = False) -> MessageStore:
        """The store, on a disk that can stand still for the copy of a crash: flushers are at work then."""
        self.forget_consumers()
        self.disk = StillDisk()
        store = MessageStore.open(self.path, self.config, repair=repair, disk=self.disk)
        for name in QUEUES:
            if self.is_forgotten(store, name):
                self.model[name], self.first[name], self.hidden[name], self.trimmed[name] = [], 0, 0, 0
        return store

    def is_forgotten(self, store: StoreReader, name: Queue) -> bool:
        """A queue of a deleted topic that nothing was appended to since: an opening may know nothing of it any more."""
        was_deleted = self.hidden[name] == len(self.model[name]) > 0
        return was_deleted and store.queue_bounds(*name) == (0, 0)

    def settle(self) -> None:
        """Wait for what was submitted, and add it to the model in the order of its offsets."""
        for name, ticket, row in self.pending:
            assert ticket.result(PATIENCE_S) == len(self.model[name])
            self.model[name].append(row)
        self.pending.clear()

    # -- appending ------------------------------------------------------------------------------------

    @rule(name=queues, data=small_data, key=keys, props=properties, due=times)
    def append(self, name: Queue, data: bytes, key: Any, props: Any, due: Any) -> None:
        self.settle()
        offset = self.store.append(*name, data, key=key, properties=props, deliver_at_ms=due)
        assert offset == len(self.model[name])
        self.model[name].append((data, key, props, due))

    @rule(name=queues, size=sizes)
    def append_large(self, name: Queue, size: int) -> None:
        self.settle()
        self.filler += 1
        data = (b"%08d" % self.filler * (size // 8 + 1))[:size]
        assert self.store.append(*name, data) == len(self.model[name])
        self.model[name].append((data, None, None, None))

    @rule(rows=st.lists(st.tuples(queues, small_data), max_size=30))
    def append_batch(self, rows: list[tuple[Queue, bytes]]) -> None:
        self.settle()
        offsets = self.store.append_batch([(*name, data) for name, data in rows])
        for (name, data), offset in zip(rows, offsets.tolist(), strict=True):
            assert offset == len(self.model[name])
            self.model[name].append((data, None, None, None))

    @rule(
        rows=st.lists(st.tuples(queues, small_data, keys, properties, times), max_size=24), drops=st.booleans(),
        large=st.booleans(),
    )  # fmt: skip
    def transact(self, rows: list[tuple[Any, ...]], drops: bool, large: bool) -> None:
        """Over queues, lanes and frames; some are dropped."""
        self.settle()
        tx = self.store.transaction()
        for (topic, queue_id), data, key, told, due in rows:
            tx.append(topic, queue_id, data, key=key, properties=told, deliver_at_ms=due)
        if drops:
            tx.rollback()
            return
        with small_frames() if large else nullcontext():
            tx.commit()
        for (name, *row), offset in zip(rows, tx.offsets.tolist(), strict=True):
            assert offset == len(self.model[name])
            self.model[name].append(tuple(row))

    @rule(
        rows=st.lists(st.tuples(queues, small_data, keys, properties, times), max_size=30),
        optional=st.sampled_from([True, False]), submitted=st.booleans(),
    )  # fmt: skip
    def append_columns(self, rows: list[tuple[Any, ...]], optional: bool, submitted: bool) -> None:
        self.settle()
        given = rows if optional else [(name, data, None, None, None) for name, data, *_ in rows]
        columns = columns_of(given) if optional else columns_of(given)[:4]
        offsets = (
            self.store.submit_columns(*columns).result(PATIENCE_S) if submitted else self.store.append_columns(*columns)
        )
        for (name, *row), offset in zip(given, offsets.tolist(), strict=True):
            assert offset == len(self.model[name])
            self.model[name].append(tuple(row))

    @rule(name=queues, where=st.floats(0, 1), to=queues)
    def copy_by_columns(self, name: Queue, where: float, to: Queue) -> None:
        self.settle()
        first, end = self.bounds(name)
        begin = first + int(where * (end - first))
        try:
            columns = self.store.read_batch(*name, begin, max_messages=50).columns()
        except OffsetOutOfRange:
            assert begin < self.bounds(name)[0]  # retention came in between
            return
        copied = self.model[name][begin : begin + 50]
        offsets = self.store.append_columns(*columns._replace(streams=[to]))
        assert offsets.tolist() == list(range(len(self.model[to]), len(self.model[to]) + len(copied)))
        self.model[to] += copied

    @rule(name=queues, count=st.integers(100, 700))
    def append_many(self, name: Queue, count: int) -> None:
        """Enough to roll to the next segment now and then."""
        self.settle()
        begin = len(self.model[name])
        datas = [b"%d:" % (begin + index) * 20 for index in range(count)]
        assert self.store.append_batch([(*name, data) for data in datas]).tolist() == list(range(begin, begin + count))
        self.model[name] += [(data, None, None, None) for data in datas]

    @rule(name=queues, data=small_data, key=keys)
    def submit(self, name: Queue, data: bytes, key: Any) -> None:
        self.pending.append((name, self.store.submit(*name, data, key=key), (data, key, None, None)))

    @rule(rows=st.lists(st.tuples(queues, small_data, keys), max_size=20))
    def append_async(self, rows: list[tuple[Queue, bytes, Any]]) -> None:
        self.settle()

        async def together() -> list[int]:
            return await asyncio.gather(*(self.store.append_async(*name, data, key=key) for name, data, key in rows))

        for (name, data, key), offset in zip(rows, asyncio.run(together()), strict=True):
            assert offset == len(self.model[name])
            self.model[name].append((data, key, None, None))

    @rule(rows=st.lists(st.tuples(queues, small_data), max_size=30))
    def append_batch_async(self, rows: list[tuple[Queue, bytes]]) -> None:
        self.settle()

        async def appended() -> list[int]:
            return list((await self.store.append_batch_async([(*name, data) for name, data in rows])).tolist())

        for (name, data), offset in zip(rows, asyncio.run(appended()), strict=True):
            assert offset == len(self.model[name])
            self.model[name].append((data, None, None, None))

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert all(ticket.done() for _, ticket, _ in self.pending)
        self.settle()

    # -- reading --------------------------------------------------------------------------------------

    @rule(name=queues, where=st.floats(0, 1), count=st.integers(0, 100))
    def read(self, name: Queue, where: float, count: int) -> None:
        self.settle()
        rows = self.model[name]
        first, end = self.bounds(name)
        assert end == len(rows)
        begin = first + int(where * (end - first))
        expected = rows[begin : begin + count]
        try:
            messages = self.store.read(*name, begin, max_messages=count, max_bytes=1 << 30)
            batch = self.store.read_batch(*name, begin, max_messages=count)
            datas = self.store.get_range(*name, begin, count)
        except OffsetOutOfRange:
            assert begin < self.bounds(name)[0]  # retention came in between
            return
        assert [message.offset for message in messages] == list(range(begin, begin + len(expected)))
        assert [row_of(message) for message in messages] == expected
        assert [batch.message(index) for index in range(len(batch))] == messages
        assert datas == {index: row[0] for index, row in enumerate(expected)}

    @rule(name=queues)
    def read_below_the_first(self, name: Queue) -> None:
        self.settle()
        first, _ = self.bounds(name)
        if first:
            with pytest.raises(OffsetOutOfRange):
                self.store.read(*name, first - 1)
            with pytest.raises(OffsetOutOfRange):
                self.store.get_range(*name, first - 1, 1)

    @rule(name=queues, data=small_data, readers=st.integers(1, 3), away=st.booleans())
    def wait_for_a_message(self, name: Queue, data: bytes, readers: int, away: bool) -> None:
        """Readers at the end wait; a message of another queue before theirs is not what they are given."""
        self.settle()
        end = len(self.model[name])
        given: list[list[Message]] = []

        def wait() -> None:
            given.append(self.store.read(*name, end, wait_ms=int(PATIENCE_S * 1000)))

        workers = [start(wait) for _ in range(readers)]
        if away:
            other = QUEUES[QUEUES.index(name) - 1]
            self.append(other, data, None, None, None)
        self.append(name, data, None, None, None)
        for worker in workers:
            worker.join()
        assert [[message.data for message in messages] for messages in given] == [[data]] * readers
        assert self.store.read(*name, end + 1, wait_ms=1) == []

    @rule(name=queues, beyond=st.integers(1, 1000))
    def read_beyond_the_end(self, name: Queue, beyond: int) -> None:
        self.settle()
        end = len(self.model[name])
        for read in calls_that_read(self.store).values():
            assert len(read(*name, end, max_messages=10)) == 0
            with pytest.raises(OffsetOutOfRange):
                read(*name, end + beyond, max_messages=10)

    @precondition(lambda self: self.config.retention_bytes is None)
    @rule(name=queues, where=st.floats(0, 1), later=st.integers(0, 1))
    def find_by_time(self, name: Queue, where: float, later: int) -> None:
        self.settle()
        messages = self.store.read(*name, self.first[name], max_messages=10**6, max_bytes=1 << 30)
        times = [message.timestamp_ms for message in messages]
        wanted = times[int(where * (len(times) - 1))] + later if times else 0
        expected = (message.offset for message in messages if message.timestamp_ms >= wanted)
        assert self.store.offset_at(*name, wanted) == next(expected, len(self.model[name]))

    # -- removing -------------------------------------------------------------------------------------

    @rule(name=queues, where=st.floats(0, 1))
    def trim(self, name: Queue, where: float) -> None:
        self.settle()
        first, end = self.bounds(name)
        low = int(where * (end + 1))
        if low > end:
            with pytest.raises(OffsetOutOfRange):
                self.store.trim(*name, low)
            return
        found = self.store.trim(*name, low)
        assert found >= max(first, low)
        assert found == max(first, low) or self.config.retention_bytes is not None
        self.first[name] = found
        self.trimmed[name] = max(self.trimmed[name], low)

    @rule()
    def scan(self) -> None:
        self.settle()
        if self.config.retention_bytes is not None:  # else a segment may go while it is scanned
            until(lambda: has_settled(self.store))
        expected = {}
        for name, rows in self.model.items():
            first, _ = self.bounds(name)
            if first < len(rows):
                expected[name] = {at: row[0] for at, row in enumerate(rows) if at >= first}
        assert scanned(self.store) == expected

    @precondition(lambda self: self.config.retention_bytes is None)
    @rule(counts=st.lists(st.integers(1, 40), min_size=PRODUCERS, max_size=PRODUCERS), size=st.sampled_from([10, 3000]))
    def scan_beside_producers(self, counts: list[int], size: int) -> None:
        """What a scan gives of a lane is the beginning of its log: of each producer's messages, the first ones."""
        self.settle()
        sent: list[list[tuple[Queue, int, bytes]]] = [[] for _ in counts]

        def produce(number: int, count: int) -> None:
            for index in range(count):
                name = QUEUES[(index * (number + 1)) % len(QUEUES)]
                data = b"%d/%d/%d." % (self.filler, number, index) + bytes(size)
                sent[number].append((name, self.store.append(*name, data), data))

        self.filler += 1
        workers = [start(produce, number, count) for number, count in enumerate(counts)]
        scans = [scanned(self.store) for _ in range(4)]
        for worker in workers:
            worker.join()
        for name, offset, data in sorted(row for rows in sent for row in rows):
            assert offset == len(self.model[name])
            self.model[name].append((data, None, None, None))
        for found in scans:
            self.check_no_holes(found, sent)

    def check_no_holes(
        self, found: dict[Queue, dict[int, bytes]], sent: Iterable[list[tuple[Queue, int, bytes]]]
    ) -> None:
        for name, rows in found.items():
            begin = self.first[name]
            assert sorted(rows) == list(range(begin, begin + len(rows)))
            assert all(data == self.model[name][at][0] for at, data in rows.items())
        for messages in sent:
            missing = set[int]()  # lanes of which an earlier message was not given
            for name, offset, _ in messages:
                lane = lane_of(*name, self.config.lanes or 1)
                if offset not in found.get(name, {}):
                    missing.add(lane)
                assert lane not in missing or offset not in found.get(name, {}), "a scan left out a message"

    @rule()
    def let_the_cache_catch_up(self) -> None:
        if self.store._feeder is not None:
            self.store._feeder.settle()

    # -- ending and beginning again -------------------------------------------------------------------

    @rule(repair=st.sampled_from([False, False, False, True]), changes=st.none() | lives)
    def close_and_reopen(self, repair: bool, changes: dict[str, Any] | None) -> None:
        """With the same settings or with others; the number of lanes is the folder's."""
        self.store.close()
        self.settle()
        before = {name: self.first[name] for name in QUEUES}
        retains = self.config.retention_bytes is not None
        if changes is not None:
            self.config = replace(self.config, **of_all_lanes(changes, self.config.lanes or 1))
        self.store = self.opened(repair=repair)
        assert self.store.losses == []
        if retains:  # until it was closed, and it was not asked since
            self.first = {name: self.store.queue_bounds(*name)[0] for name in QUEUES}
            assert all(first >= before[name] for name, first in self.first.items() if self.model[name])

    @rule()
    def look_into_the_closed_folder(self) -> None:
        self.store.close()
        self.settle()
        with look_into_folder(self.path) as looked:
            for name, rows in self.model.items():
                if self.is_forgotten(looked, name):
                    continue
                first, end = looked.queue_bounds(*name)
                assert self.first[name] <= first <= end == len(rows)
                assert first == self.first[name] or self.config.retention_bytes is not None
                self.first[name] = first
                found = looked.read(*name, first, max_messages=10**6, max_bytes=1 << 30)
                assert [row_of(message) for message in found] == rows[first:]
        self.store = self.opened()

    @rule()
    def crash(self) -> None:
        """The folder as it is, with everything that was acknowledged; what was in flight may be there."""
        in_flight = self.pending
        copy = self.home / f"store-{self.generation + 1}"
        with self.disk.still():
            acknowledged = [entry for entry in in_flight if entry[1].done()]
            crash_copy(self.path, copy)
        self.store.close()
        shutil.rmtree(self.path)
        self.generation += 1
        self.store = self.opened()
        self.pending = []
        for name, rows in self.model.items():
            mine = [row for owner, _, row in in_flight if owner == name]
            known = len(rows) + sum(owner == name for owner, _, _ in acknowledged)
            first, end = self.store.queue_bounds(*name)
            assert first >= self.first[name]
            assert first == self.first[name] or self.config.retention_bytes is not None
            self.first[name] = first
            assert known <= end <= len(rows) + len(mine), "acknowledged messages are missing"
            rows.extend(mine[: end - len(rows)])

    @precondition(lambda self: not self.pending)
    @invariant()
    def bounds_are_right(self) -> None:
        if hasattr(self, "store"):
            for name, rows in self.model.items():
                assert self.bounds(name)[1] == len(rows)

    def teardown(self) -> None:
        """Also of a run that failed: it is made smaller in hundreds of others, and each would keep its store open."""
        try:
            if hasattr(self, "store"):
                with self.store:
                    self.check_all()
        finally:
            self.holder.__exit__(None, None, None)

    def check_all(self) -> None:
        self.settle()
        for name in QUEUES:
            self.read(name, 0.0, 10**6)
        self.check_subscriptions()
        assert self.store.stats()["cache"]["error"] is None
        assert self.store.stats()["reads"]["unsound_messages"] == 0


def of_all_lanes(settings_: dict[str, Any], lanes: int) -> dict[str, Any]:
    """The settings of a life, with what is kept a lane as what is kept in all."""
    kept = settings_["retention_bytes"]
    return {**settings_, "retention_bytes": None if kept is None else kept * lanes}


def columns_of(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """(queue, data, key, properties, delivery time) rows as the arguments of append_columns."""
    names, datas, given_keys, given_properties, dues = zip(*rows, strict=True) if rows else ((),) * 5
    texts = [None if one is None else json.dumps(one).encode() for one in given_properties]
    return (
        QUEUES, [QUEUES.index(name) for name in names], list(map(len, datas)), b"".join(datas),
        blobs_of(given_keys), blobs_of(texts), [-1 if due is None else due for due in dues],
    )  # fmt: skip


def blobs_of(values: Iterable[bytes | None]) -> tuple[list[int], bytes]:
    given = list(values)
    return [-1 if value is None else len(value) for value in given], b"".join(value for value in given if value)


def row_of(message: Message) -> tuple[Any, ...]:
    return message.data, message.key, message.properties, message.deliver_at_ms


# A run that fails is told of as it is: it has threads, so a smaller one may fail in another way or not at all.
StoreMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=35, deadline=None, print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
TestStoreAgainstADict = StoreMachine.TestCase
