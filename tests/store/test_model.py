"""The whole store against a dict: any sequence of appends, reads, closes and crashes says the same as a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store import CacheConfig, Message, MessageStore, OffsetOutOfRange, StoreConfig, Ticket

from .disks import StillDisk
from .helpers import PATIENCE_S, Queue, crash_copy, memory_folder, scanned, tiny

QUEUES: list[Queue] = [("a", 0), ("a", 1), ("b/../c", 5), ("ü", 2_147_483_647)]
queues = st.sampled_from(QUEUES)
small_data = st.binary(max_size=60)
sizes = st.sampled_from([0, 1, 100, 4096, 9000, 30_000, 65_536])
keys = st.none() | st.binary(max_size=10)
properties = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
times = st.none() | st.integers(0, 1 << 61)
caches = st.builds(
    CacheConfig, heap_bytes=st.sampled_from([0, 8 << 10]), off_heap_bytes=st.sampled_from([0, 32 << 10]),
    block_bytes=st.sampled_from([512, 4096]), expected_bytes=st.sampled_from([None, 200_000]),
    edge_bytes=st.sampled_from([0, 16 << 10]), active_backlog_messages=st.sampled_from([0, 50]),
    release_on_read=st.booleans(),
)  # fmt: skip


class StoreMachine(RuleBasedStateMachine):
    """`model` has what was acknowledged: (data, key, properties, delivery time) of each offset."""

    config: StoreConfig

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Queue, list[tuple[Any, ...]]] = {name: [] for name in QUEUES}
        self.pending: list[tuple[Queue, Ticket, tuple[Any, ...]]] = []
        self.holder = memory_folder()
        self.home = self.holder.__enter__()
        self.generation = 0
        self.filler = 0

    @property
    def path(self) -> Path:
        return self.home / f"store-{self.generation}"

    @initialize(
        lanes=st.sampled_from([1, 1, 2, 4]),
        alignment=st.sampled_from(["pad", "trim", "adaptive"]),
        durability=st.sampled_from(["force", "force", "os"]),
        recent_bytes=st.sampled_from([0, 8 << 20]),
        cache=st.none() | caches,
        read_cache_bytes=st.sampled_from([0, 0, 64 << 10]),
    )
    def begin(self, **settings_: Any) -> None:
        self.config = tiny(**settings_)
        self.store = self.opened()

    def opened(self, *, repair: bool = False) -> MessageStore:
        """The store, on a disk that can stand still for the copy of a crash: flushers are at work then."""
        self.disk = StillDisk()
        return MessageStore.open(self.path, self.config, repair=repair, disk=self.disk)

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
        begin = int(where * len(rows))
        expected = rows[begin : begin + count]
        messages = self.store.read(*name, begin, count, 1 << 30)
        assert [message.offset for message in messages] == list(range(begin, begin + len(expected)))
        assert [row_of(message) for message in messages] == expected
        batch = self.store.read_batch(*name, begin, count)
        assert [batch.message(index) for index in range(len(batch))] == messages
        datas = {index: row[0] for index, row in enumerate(expected)}
        assert self.store.get_range(*name, begin, count) == datas

    @rule(name=queues, beyond=st.integers(1, 1000))
    def read_beyond_the_end(self, name: Queue, beyond: int) -> None:
        self.settle()
        end = len(self.model[name])
        assert self.store.read(*name, end) == []
        with pytest.raises(OffsetOutOfRange):
            self.store.read(*name, end + beyond)

    @rule()
    def scan(self) -> None:
        self.settle()
        expected = {name: {at: row[0] for at, row in enumerate(rows)} for name, rows in self.model.items() if rows}
        assert scanned(self.store) == expected

    @rule()
    def let_the_cache_catch_up(self) -> None:
        if self.store._feeder is not None:
            self.store._feeder.settle()

    # -- ending and beginning again -------------------------------------------------------------------

    @rule(repair=st.sampled_from([False, False, False, True]))
    def close_and_reopen(self, repair: bool) -> None:
        self.store.close()
        self.settle()
        self.store = self.opened(repair=repair)
        assert self.store.losses == []

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
            assert first == 0
            assert known <= end <= len(rows) + len(mine), "acknowledged messages are missing"
            rows.extend(mine[: end - len(rows)])

    @precondition(lambda self: not self.pending)
    @invariant()
    def bounds_are_right(self) -> None:
        if hasattr(self, "store"):
            for name, rows in self.model.items():
                assert self.store.queue_bounds(*name) == (0, len(rows))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.settle()
            for name in QUEUES:
                self.read(name, 0.0, 10**6)
            assert self.store.stats()["cache"]["error"] is None
            assert self.store.stats()["reads"]["unsound_messages"] == 0
            self.store.close()
        self.holder.__exit__(None, None, None)


def row_of(message: Message) -> tuple[Any, ...]:
    return message.data, message.key, message.properties, message.deliver_at_ms


StoreMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
TestStoreAgainstADict = StoreMachine.TestCase
