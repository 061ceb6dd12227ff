"""The least that a subscription does with delayed messages, in plain steps: it reads on, and takes what became due."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stratalog.store import MessageStore, StoreConfig
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.topic import DelayedTopic, waiting
from tests.clocks import WallClock

from ..helpers import tiny

START_MS = 1_700_000_000_000


class Hand:
    """A time of day that the test turns."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def open(self, path: Path, config: StoreConfig | None = None, **given: Any) -> MessageStore:
        """A store with this clock."""
        store: MessageStore = MessageStore.open(path, config or tiny(), clock=WallClock(lambda: self.now_ms), **given)
        return store


class Got(NamedTuple):
    """A delivery."""

    queue_id: int
    offset: int


def delays_of(store: MessageStore) -> Delays:
    """The delayed messages of a store that writes."""
    assert store._running.delays is not None
    return store._running.delays


def quiet(store: MessageStore) -> Delays:
    """The delays of a store, whose thread was ended: the test takes its steps."""
    delays_of(store).stop()
    return delays_of(store)


def catch_up(store: MessageStore) -> None:
    """Have the index of the topic "t" read all of the log, by this thread."""
    while topic_of(store).is_lagging:
        delays_of(store).work()


def topic_of(store: MessageStore, name: str = "t") -> DelayedTopic:
    """The index of a topic, as a subscription has it made."""
    return delays_of(store).topic(name)


class Consumer:
    """Delivers and acknowledges in one step. A new one reads all queues from their first message on.

    Attributes:
        done: what was delivered, or is cancelled.
        got: what was delivered, in order.
    """

    def __init__(self, store: MessageStore, topic: str = "t", done: set[Got] | None = None) -> None:
        self.store, self.name = store, topic
        self.topic = topic_of(store, topic)
        self.done = set() if done is None else done
        self.got: list[Got] = []
        self.read_to: dict[int, int] = {}
        self.calls = self.missed = 0
        self.pointer = self.topic.open_pointer(self._note)

    def _note(self) -> None:
        self.calls += 1

    def poll(self, most: int = 1 << 16) -> list[Got]:
        """What there is to deliver now: what became due first, then new messages."""
        begin = len(self.got)
        due = self.pointer.take(most)
        if due.missed:
            self.missed += 1
            self.read_to.clear()
        rows = zip(due.queue_ids.tolist(), due.offsets.tolist(), due.cancelled.tolist(), strict=True)
        for queue_id, offset, cancelled in rows:
            if offset < self.read_to.get(queue_id, 0):
                self._deliver(Got(queue_id, offset), cancelled=cancelled)
        for queue_id in self.store.queues(self.name):
            self._scan(queue_id)
        return self.got[begin:]

    def _scan(self, queue_id: int) -> None:
        first, end = self.store.queue_bounds(self.name, queue_id)
        at = max(first, self.read_to.get(queue_id, 0))
        messages = self.store.read(self.name, queue_id, at, max_messages=1 << 20, max_bytes=1 << 30) if at < end else []
        self.read_to[queue_id] = messages[-1].offset + 1 if messages else at
        delayed = [message for message in messages if message.deliver_at_ms is not None]
        offsets = np.array([message.offset for message in delayed], np.int64)
        times = np.array([message.deliver_at_ms for message in delayed], np.int64)
        later, cancelled = waiting(self.topic, queue_id, offsets, times)
        left_out = dict(zip(offsets.tolist(), (later | cancelled).tolist(), strict=True))
        dropped = dict(zip(offsets.tolist(), cancelled.tolist(), strict=True))
        for message in messages:
            if dropped.get(message.offset) or not left_out.get(message.offset):
                self._deliver(Got(queue_id, message.offset), cancelled=dropped.get(message.offset, False))

    def _deliver(self, got: Got, *, cancelled: bool) -> None:
        if got not in self.done:
            self.done.add(got)
            if not cancelled:
                self.got.append(got)

    def close(self) -> None:
        """Hold nothing up."""
        self.pointer.close()
