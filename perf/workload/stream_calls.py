"""The calls that compare two checkouts: each is a call of a user, with its data made before.

The result of a call becomes a list outside the timed part, so that the results of two codes can be compared.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

QUEUES = 8
BODY = bytes(200)
LARGE = random.Random(1).randbytes(1 << 20)
SCANNED = 50_000  # messages, or all where there are fewer
FAR_MS = 10**9  # delayed messages: after the run
TOPIC = "filled"


class Side:
    """A store of some checkout's code, and a subscription of its messages. `with` closes both."""

    def __init__(self, code: Any, folder: Path) -> None:
        self.store = code.MessageStore.open(folder)
        self.end = 0
        self.subscription: Any = None

    def fill(self, messages: int) -> None:
        """Append so many messages to 8 queues, in batches of 2,000, and make a subscription at their beginning."""
        batch = [(TOPIC, number % QUEUES, BODY) for number in range(2_000)]
        for _ in range(messages // len(batch)):
            self.store.append_batch(batch)
        self.end = self.store.queue_bounds(TOPIC, 0)[1]
        self.subscription = self.store.subscribe(TOPIC, "workers")

    def have_ready(self, least: int) -> None:
        """Append until the subscription has so many messages to give."""
        batch = [(TOPIC, number % QUEUES, BODY) for number in range(2_000)]
        while self.subscription.backlog().ready < least:
            self.store.append_batch(batch)

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()


Call = Callable[[], Any]


class Kind(NamedTuple):
    """A call: its preparation, the turns that give a steady median within some seconds, its result as a list,
    and how many messages of the subscription it takes."""

    make: Callable[[Side, random.Random], Call]
    turns: int
    listed: Callable[[Any], list[Any]] = list
    takes: int = 0


def _appends(at: Side, dice: random.Random) -> Call:
    return lambda: [at.store.append("one", dice.randrange(QUEUES), BODY)]


def _batches(at: Side, dice: random.Random) -> Call:
    batch = [("batches", number % QUEUES, BODY) for number in range(2_000)]
    return lambda: at.store.append_batch(batch)


def _submits(at: Side, dice: random.Random) -> Call:
    def call() -> list[int]:
        tickets = [at.store.submit("tickets", number % QUEUES, BODY) for number in range(1_000)]
        return [ticket.result() for ticket in tickets]

    return call


def _columns(at: Side, dice: random.Random) -> Call:
    streams = [("columns", queue) for queue in range(QUEUES)]
    index, lengths, payload = np.arange(4_000) % QUEUES, np.full(4_000, len(BODY)), BODY * 4_000
    return lambda: at.store.append_columns(streams, index, lengths, payload)


def _large(at: Side, dice: random.Random) -> Call:
    return lambda: [at.store.append("large", 0, LARGE)]


def _delayed(at: Side, dice: random.Random) -> Call:
    due_ms = int(time.time() * 1000) + FAR_MS

    def call() -> list[int]:
        tickets = [at.store.submit("later", n % 4, BODY, deliver_at_ms=due_ms + n) for n in range(500)]
        return [ticket.result() for ticket in tickets]

    return call


def _reads(count: int) -> Callable[[Side, random.Random], Call]:
    def make(at: Side, dice: random.Random) -> Call:
        return lambda: at.store.read(TOPIC, 1, dice.randrange(at.end - count), max_messages=count)

    return make


def _messages(found: Any) -> list[Any]:
    return [(message.offset, message.data) for message in found]


def _ranges(at: Side, dice: random.Random) -> Call:
    return lambda: at.store.get_range(TOPIC, 0, dice.randrange(at.end - 32), 32)


def _read_batches(at: Side, dice: random.Random) -> Call:
    return lambda: at.store.read_batch(TOPIC, 2, dice.randrange(at.end // 2), max_messages=4_096, max_bytes=1 << 20)


def _scans(at: Side, dice: random.Random) -> Call:
    def call() -> int:
        found = 0
        for batch in at.store.scan():
            found += len(batch)
            if found > SCANNED:
                break
        return found

    return call


def _receive_batches(at: Side, dice: random.Random) -> Call:
    def call() -> Any:
        batch = at.subscription.receive_batch(1_000)
        at.subscription.ack_batch(batch.receipts)
        return batch

    return call


def _receives(at: Side, dice: random.Random) -> Call:
    def call() -> Any:
        found = at.subscription.receive(1)
        at.subscription.ack(found[0])
        return found

    return call


def _submitted_acks(at: Side, dice: random.Random) -> Call:
    def call() -> Any:
        found = at.subscription.receive(32)
        for ticket in [at.subscription.submit_ack(delivery) for delivery in found]:
            ticket.result()
        return found

    return call


def _count(found: Any) -> list[Any]:
    """A list of the length of a subscription's result: the order of its queues may differ."""
    return [None] * len(found)


CALLS: dict[str, Kind] = {
    "append": Kind(_appends, 4_000),
    "append_batch of 2,000": Kind(_batches, 400),
    "submit of 1,000": Kind(_submits, 250),
    "append_columns of 4,000": Kind(_columns, 600),
    "append of 1 MiB": Kind(_large, 600),
    "submit of 500 delayed": Kind(_delayed, 250),
    "get_range of 32": Kind(_ranges, 8_000, lambda found: list(found.items())),
    "read of 1": Kind(_reads(1), 8_000, _messages),
    "read of 4": Kind(_reads(4), 8_000, _messages),
    "read of 32": Kind(_reads(32), 4_000, _messages),
    "read_batch of 4,096": Kind(_read_batches, 300, lambda batch: list(batch.offsets)),
    "scan of 50,000": Kind(_scans, 80, lambda found: [found]),
    "receive_batch of 1,000 and ack_batch": Kind(_receive_batches, 200, _count, 1_000),
    "receive(1) and ack": Kind(_receives, 2_000, _count, 1),
    "receive(32) and submit_ack": Kind(_submitted_acks, 400, _count, 32),
}
