"""Growth of consumers: by queues, by consumers that wait, by subscriptions, and by how sparse delays are.

Each gives the rows of a store of one size.
"""

from __future__ import annotations

import threading
import time
from itertools import count
from pathlib import Path

import numpy as np

from ...store import MessageStore
from ...testing import TunedConfig
from ..machine.usage import cpu_seconds, give_back_free_memory, resident_bytes
from ..workload.checker import WrongResult
from ..workload.in_turn import Rows, known, timed

TOPIC, NAME = "growing", "consumer"
IN_FLIGHT = 100_000
MESSAGES = 100
AN_HOUR_MS = 3_600_000


def by_queues(folder: Path, queues: int) -> Rows:
    """A message received and acknowledged in a topic of so many queues, and the counts of its subscription."""
    with MessageStore.open(folder) as store:
        _one_each(store, queues, max(1, IN_FLIGHT // queues))
        sub = store.subscribe(TOPIC, NAME, start="latest")
        at = count()

        def around() -> None:
            store.append(TOPIC, next(at) % queues, b"x")
            for delivery in sub.receive(max_messages=1, wait_ms=1_000):
                sub.ack(delivery)

        yield timed("append, receive(1), ack", around)
        flying = store.subscribe(TOPIC, "flying", start="earliest")
        while len(flying.receive_batch(max_messages=IN_FLIGHT, visibility_timeout_ms=AN_HOUR_MS).receipts):
            pass  # a call looks at some of the queues
        yield timed("backlog, 100,000 in flight", flying.backlog)
        yield timed("subscriptions, 100,000 in flight", lambda: store.subscriptions(TOPIC))


def _one_each(store: MessageStore, queues: int, messages: int) -> None:
    index = np.tile(np.arange(queues), messages)
    store.append_columns(
        [(TOPIC, queue) for queue in range(queues)], index, np.full(len(index), 8), bytes(8 * len(index))
    )


def by_waiting(folder: Path, consumers: int) -> Rows:
    """Processor time of a message, from its append to its acknowledgement, while so many consumers wait for it."""
    with MessageStore.open(folder) as store:
        sub, seen, ends = store.subscribe(TOPIC, NAME), threading.Semaphore(0), threading.Event()

        def consume() -> None:
            while not ends.is_set():
                for delivery in sub.receive(max_messages=1, wait_ms=500):
                    sub.ack(delivery)
                    seen.release()

        threads = [threading.Thread(target=consume) for _ in range(consumers)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)  # all of them wait
        try:
            cpu_s = cpu_seconds()
            for _ in range(MESSAGES):
                store.append(TOPIC, 0, b"x")
                assert seen.acquire(timeout=10)
            figure = (cpu_seconds() - cpu_s) / MESSAGES * 1e6
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        yield known("processor us a message", figure)


def by_subscriptions(folder: Path, subscriptions: int) -> Rows:
    """One more subscription of a topic with so many, and the cost of the others for its appends."""
    with MessageStore.open(folder) as store:
        store.append(TOPIC, 0, b"x")
        others = [store.subscribe(TOPIC, f"other-{at}") for at in range(subscriptions)]
        names = (f"new-{at}" for at in count())

        def one_more() -> None:
            name = next(names)
            store.subscribe(TOPIC, name).close()
            store.delete_subscription(TOPIC, name)

        yield timed("append", lambda: store.append(TOPIC, 0, b"x"))
        yield timed("subscribe, close, delete", one_more)
        yield timed(
            "subscriptions, a subscription", lambda: store.subscriptions(TOPIC), divided_by=subscriptions
        )  # fmt: skip
        del others
    yield timed("open, close", lambda: MessageStore.open(folder).close())


def by_density(delayed: int, folder: Path, one_in: int) -> Rows:
    """Memory and rates of an index in which one message of so many is delayed."""
    config = TunedConfig(recent_bytes=0)
    total, step = min(delayed * one_in, 100 * delayed), 50_000
    now = int(time.time() * 1000)
    with MessageStore.open(folder, config) as store:
        sub = store.subscribe(TOPIC, NAME)
        store.append(TOPIC, 0, b"now", deliver_at_ms=now)
        assert len(sub.receive(max_messages=1, wait_ms=10_000)) == 1  # from here on the topic has its index
        give_back_free_memory()
        before, began, held = resident_bytes(), time.perf_counter(), 0
        rng = np.random.default_rng(1)
        for begin in range(0, total, step):
            size = min(step, total - begin)
            is_delayed = np.arange(begin, begin + size) % one_in == 0
            dues = np.where(is_delayed, now + AN_HOUR_MS + rng.integers(0, AN_HOUR_MS, size), -1)
            held += int(is_delayed.sum())
            index, lengths = np.zeros(size, np.int64), np.full(size, 8)
            store.append_columns([(TOPIC, 0)], index, lengths, bytes(8 * size), deliver_at_ms=dues)
            if (counted := sub.backlog().delayed) != held:
                raise WrongResult(f"the index has {counted} delayed messages of {held}")
        took = time.perf_counter() - began
        give_back_free_memory()
        resident = max(0, resident_bytes() - before)  # before the other sizes go on
        yield known("delayed", held)
        yield known("resident bytes an entry", resident / held)
        yield known("indexed an s", held / took)
        yield timed("backlog", sub.backlog)
