"""The process of the soak that is killed and given faults: a random workload on one store.

Each line of its output is a JSON list: ["open"], ["subscribed"], ["told", [queue, offset, seed, due_ms, in_time], ..]
as soon as these are acknowledged, ["going", [lane, segment, messages, bytes], ..] before these segments leave the log
(see `removals`), ["error", stage, class, text], ["struck"] when a fault is met, ["read", messages] and ["end"]. What a
consumer says is in `consumers`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stratalog.store import (
    MessageStore,
    OffsetOutOfRange,
    StoreConfig,
    StoreError,
    StoreFull,
    StorePoisoned,
)
from stratalog.store.delayed import decisions, delays
from stratalog.store.subscriptions import journal
from stratalog.store.testing import Fault, Kind, TunedCacheConfig, TunedConfig

from ..store.disks import WatchedDisk
from ..store.helpers import payload
from .consumers import KEPT, Consumer, later_ms, now_ms
from .removals import told_removals

TOPIC = "soak"
QUEUE_COUNT = 12
HEADER = struct.Struct("<IQI")  # queue, seed, length of the whole message
BATCH_MESSAGES_MAX = 40
PAUSE_S = 0.01  # after an error that may go away
CLOCK_JUMP_S = 10**8

Row = tuple[int, int, bytes]  # queue, seed, data


def message(queue: int, seed: int, length: int) -> bytes:
    """A message that says what it must be: of this queue, and every byte follows from the seed."""
    length = max(length, HEADER.size)
    return HEADER.pack(queue, seed, length) + payload(seed, length - HEADER.size)


def seed_of(queue: int, data: bytes) -> int | None:
    """The seed of an unharmed message of this queue; None if it is anything else."""
    if len(data) < HEADER.size:
        return None
    found, seed, length = HEADER.unpack_from(data)
    return int(seed) if found == queue and data == message(queue, seed, length) else None


@dataclass
class Plan:
    """One life of the child.

    Attributes:
        path: the store's folder.
        seed: of everything that it does.
        config: arguments of `StoreConfig`; those of its `CacheConfig` as a dict.
        producers: threads that append, each by calls of all kinds.
        readers: threads that read, each by calls of all kinds.
        consumers: threads that receive, acknowledge, cancel and move.
        seconds: then it closes the store, if nobody kills it before.
        disk_fault: arguments of `Fault`, for a disk that fails.
        file_bytes: RLIMIT_FSIZE from the middle of the life on.
        clock: the system's clock jumps back and forth.
        label: what kind of life this is, for the summary.
        carried: of a queue of jobs, by subscription, the bytes that are not acknowledged when the life begins.
        send_again: of a queue of jobs, those (queue, seed, size) with ids whose append was cut.
    """

    path: str
    seed: int
    config: dict[str, Any]
    producers: int = 4
    readers: int = 1
    consumers: int = 1
    seconds: float = 1.0
    disk_fault: dict[str, Any] | None = None
    file_bytes: int | None = None
    clock: bool = False
    label: str = "no fault"
    carried: dict[str, int] = field(default_factory=dict)
    send_again: list[tuple[int, int, int]] = field(default_factory=list)

    def store_config(self) -> StoreConfig:
        """The settings of the life's store."""
        cache = self.config.get("cache")
        return TunedConfig(**{**self.config, "cache": TunedCacheConfig(**cache) if cache is not None else None})

    def as_json(self) -> str:
        """As the child's argument."""
        return json.dumps(asdict(self))


class FaultyDisk(WatchedDisk):
    """The system's disk; the fault's Nth operation fails (and later ones, if it is for good), and is not done."""

    def __init__(self, fault: Fault, on_strike: Callable[[], None]) -> None:
        self._fault = fault
        self._on_strike = on_strike

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        """Raise if this operation is the one that fails."""
        if kind == self._fault.kind and self._fault.strikes():
            self._on_strike()
            raise self._fault.make_error(str(path))


class Life:
    """Carries out a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._saying = threading.Lock()
        self._over = threading.Event()
        self._reads = 0
        self._failed: list[BaseException] = []

    def say(self, *what: Any) -> None:
        """Past every buffer: what was said before a kill has been said. The lock keeps lines whole."""
        line = json.dumps(what).encode() + b"\n"
        with self._saying:
            while line:
                line = line[os.write(1, line) :]

    def complain(self, stage: str, error: BaseException) -> None:
        """Tell of an error; whether it is one that may come here, the parent judges."""
        self.say("error", stage, type(error).__name__, str(error))

    def run(self) -> None:
        """From opening to closing, or until killed."""
        plan = self.plan
        # Often in a short life.
        journal.LEAST_BYTES, decisions.COMPACT_BYTES, delays.CHECKPOINT_ROWS = 3_000, 1_000, 100
        disk = None
        if plan.disk_fault is not None:
            disk = FaultyDisk(Fault(**plan.disk_fault), lambda: self.say("struck"))
        if plan.clock:
            _make_clock_jump(random.Random(plan.seed))
        try:
            store = MessageStore.open(plan.path, plan.store_config(), disk=disk)
        except StoreError as error:
            self.complain("open", error)
            self.say("end")
            return
        self.say("open")
        try:
            store.subscribe(TOPIC, KEPT)
            self.say("subscribed")
        except StoreError as error:
            self.complain("consume", error)
        self._work(store)
        self.say("read", self._reads)
        store.close()
        self.say("end")

    def _work(self, store: MessageStore) -> None:
        """All threads, for the plan's time."""
        producers = [self._thread(self._produce, store, number) for number in range(self.plan.producers)]
        readers = [self._thread(self._read, store, number) for number in range(self.plan.readers)]
        consumers = [self._thread(self._consume, store, number) for number in range(self.plan.consumers)]
        self._over.wait(self.plan.seconds / 2)
        if self.plan.file_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.plan.file_bytes, resource.RLIM_INFINITY))
        self._over.wait(self.plan.seconds / 2)
        self._over.set()
        for thread in [*producers, *readers, *consumers]:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _thread(self, work: Callable[[MessageStore, random.Random], None], store: MessageStore, number: int) -> Any:
        chance = random.Random(f"{self.plan.seed}:{work.__name__}:{number}")

        def run() -> None:
            try:
                while not self._over.is_set():
                    work(store, chance)
            except BaseException as error:  # no error of the store's: the child ends with its traceback
                self._failed.append(error)
                self._over.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    # -- appending ------------------------------------------------------------------------------------

    def _produce(self, store: MessageStore, chance: random.Random) -> None:
        """One call, or a few, of a random kind; after an error it does what its text says."""
        ways: Sequence[Callable[[MessageStore, list[Row]], None]]
        ways = (self._append, self._append, self._submit, self._append_batch, self._append_async, self._flush)
        rows = [self._row(chance) for _ in range(chance.randrange(1, BATCH_MESSAGES_MAX))]
        try:
            chance.choice(ways)(store, rows)
        except StoreFull as error:
            self.complain("append", error)
            time.sleep(PAUSE_S)  # the refusal lasts: another try at once would be in vain
        except StorePoisoned as error:
            self.complain("append", error)
            self._stay_poisoned(store, rows)
            self._over.wait(self.plan.seconds)
        except StoreError as error:
            self.complain("append", error)

    def _row(self, chance: random.Random) -> Row:
        queue, seed = chance.randrange(QUEUE_COUNT), chance.getrandbits(63)
        return queue, seed, message(queue, seed, int(2 ** chance.uniform(4, 13)))

    def _stay_poisoned(self, store: MessageStore, rows: list[Row]) -> None:
        """A failed write is never forgotten: nothing is accepted before the store was opened again."""
        try:
            self._append(store, rows[:1])
        except StorePoisoned:
            return
        raise AssertionError("a poisoned store accepted a message")

    def _told(self, rows: Sequence[Row], offsets: Sequence[int], due_ms: int = 0) -> None:
        in_time = due_ms > now_ms()  # it was delayed when it was written
        told = [(queue, offset, seed, due_ms, in_time) for (queue, seed, _), offset in zip(rows, offsets, strict=True)]
        self.say("told", *told)

    def _append(self, store: MessageStore, rows: list[Row]) -> None:
        for row in rows[:4]:
            at_ms = later_ms(random.Random(row[1])) if row[1] % 3 == 0 else None
            self._told([row], [store.append(TOPIC, row[0], row[2], deliver_at_ms=at_ms)], at_ms or 0)

    def _submit(self, store: MessageStore, rows: list[Row]) -> None:
        tickets = [store.submit(TOPIC, queue, data, key=b"k") for queue, _, data in rows]
        for row, ticket in zip(rows, tickets, strict=True):
            self._told([row], [ticket.result()])

    def _append_batch(self, store: MessageStore, rows: list[Row]) -> None:
        offsets = store.append_batch([(TOPIC, queue, data) for queue, _, data in rows])
        self._told(rows, [int(offset) for offset in offsets])

    def _append_async(self, store: MessageStore, rows: list[Row]) -> None:
        async def together() -> list[int]:
            return await asyncio.gather(*(store.append_async(TOPIC, queue, data) for queue, _, data in rows))

        self._told(rows, asyncio.run(together()))

    def _flush(self, store: MessageStore, _rows: list[Row]) -> None:
        store.flush()

    # -- reading --------------------------------------------------------------------------------------

    def _read(self, store: MessageStore, chance: random.Random) -> None:
        """Messages from a random place on, by a random call: unharmed, and of the queue that was asked for."""
        queue, count = chance.randrange(QUEUE_COUNT), chance.randrange(1, 200)
        found: list[tuple[int, bytes]]
        try:
            first, end = store.queue_bounds(TOPIC, queue)
            at = chance.randint(first, end)
            way = chance.randrange(20)
            if way < 7:
                found = [(queue, one.data) for one in store.read(TOPIC, queue, at, max_messages=count)]
            elif way < 13:
                found = [
                    (queue, bytes(data)) for data in store.read_batch(TOPIC, queue, at, max_messages=count).payloads()
                ]
            elif way < 19:
                found = [(queue, data) for data in store.get_range(TOPIC, queue, at, count).values()]
            else:
                found = [
                    (batch.queue_id(index), bytes(batch.payload(index)))
                    for batch in store.scan()
                    for index in range(len(batch))
                ]
        except OffsetOutOfRange:
            return  # retention was quicker
        except StoreError as error:
            self.complain("read", error)
            time.sleep(PAUSE_S)  # the refusal lasts: another try at once would be in vain
            return
        for owner, data in found:
            assert seed_of(owner, data) is not None, f"a read of queue {owner} gave something else"
        self._reads += len(found)

    # -- consuming ------------------------------------------------------------------------------------

    def _consume(self, store: MessageStore, chance: random.Random) -> None:
        """A few things that a consumer does; an error ends it, and another one begins."""
        consumer = Consumer(TOPIC, QUEUE_COUNT, self.say)
        try:
            while not self._over.is_set():
                consumer.step(store, chance)
        except StoreError as error:
            self.complain("consume", error)
            time.sleep(PAUSE_S)  # the refusal lasts: another try at once would be in vain


def _make_clock_jump(chance: random.Random) -> None:
    """The system's clock jumps by up to three years, at every look."""
    real = time.time_ns

    def jumping() -> int:
        return real() + chance.randint(-CLOCK_JUMP_S, CLOCK_JUMP_S) * 1_000_000_000

    time.time_ns = jumping


def main() -> None:
    """The child."""
    plan = Plan(**json.loads(sys.argv[1]))
    try:
        life = Life(plan)
        with told_removals(lambda rows: life.say("going", *rows)):
            life.run()
    except BrokenPipeError:
        sys.exit(0)  # whoever started this has gone


if __name__ == "__main__":
    main()
