"""A topic that keeps what is not acknowledged, under load: producers, consumers and retention, each in its thread."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from stratalog.store import MessageStore, StaleReceipt, Subscription
from tests.seeds import draw_seed

from ..helpers import small, start, until

LOAD_S = 1.5  # and until something was removed
KINDS: Final[dict[str, dict[str, Any]]] = {
    "shared": {},
    "ordered": {"mode": "ordered"},
    "dying": {"max_attempts": 3, "dead_letter_topic": "dead"},
}
CONSUMERS: Final = ("shared", "shared", "ordered", "dying", "dying")


class Load:
    """Producers and consumers until `stop` is set. What was sent, and what each subscription has acknowledged."""

    def __init__(self, store: MessageStore, seed: int, sent: set[bytes], acked: dict[str, Counter[bytes]]) -> None:
        self.store, self.seed, self.sent, self.acked = store, seed, sent, acked
        self.stop = threading.Event()

    def produce(self, number: int) -> None:
        rng = random.Random(f"{self.seed} produces {number}")
        while not self.stop.is_set():
            names = [b"%d %d %d" % (self.seed, number, rng.getrandbits(60)) for _ in range(rng.randrange(1, 30))]
            rows = [("t", rng.randrange(4), name + b"|" + bytes(rng.choice((10, 500, 4000)))) for name in names]
            if rng.random() < 0.2:
                for row in rows:
                    self.store.append(*row, deliver_at_ms=int(time.time() * 1000) + rng.randrange(1000))
            else:
                self.store.append_batch(rows)
            self.sent.update(names)
            time.sleep(0.01)

    def consume(self, number: int) -> None:
        rng, name = random.Random(f"{self.seed} consumes {number}"), CONSUMERS[number]
        sub = self.store.subscribe("t", name, **KINDS[name])
        while not self.stop.is_set():
            got = sub.receive(rng.randrange(1, 60), wait_ms=100, visibility_timeout_ms=rng.choice((200, 1000)))
            taken = [one for one in got if rng.random() < 0.97] if rng.random() < 0.75 else []
            for one in taken:
                with suppress(StaleReceipt):  # it was too late
                    sub.ack(one)
                    self.acked[name][one.message.data.partition(b"|")[0]] += 1
            if rng.random() < 0.3:
                with suppress(StaleReceipt):
                    sub.nack_batch([one for one in got if one not in taken])


def rest_of(sub: Subscription) -> list[bytes]:
    found = list[bytes]()
    while sub.backlog().total and (got := sub.receive(500, wait_ms=5000)):
        found += [one.message.data.partition(b"|")[0] for one in got]
        sub.ack_batch(got)
    return found


@pytest.mark.parametrize("lanes", [1, 2])
def test_under_load_nothing_is_lost_and_nothing_comes_again(tmp_path: Path, lanes: int) -> None:
    sent, acked = set[bytes](), {name: Counter[bytes]() for name in KINDS}
    config = small(retention_bytes=1 << 20, lanes=lanes)
    for life in range(2):
        with MessageStore.open(tmp_path, config) as store:
            for topic in ("t", "dead"):
                store.configure_topic(topic, keep="unacknowledged")
            for name, settings in KINDS.items():
                store.subscribe("t", name, **settings)
            store.subscribe("dead", "all")
            load = Load(store, draw_seed() + life, sent, acked)
            workers = [start(load.produce, number) for number in range(3)]
            workers += [start(load.consume, number) for number in range(len(CONSUMERS))]
            time.sleep(LOAD_S)
            try:
                until(lambda: store.stats()["log"]["removed_segments"] > 0)
            finally:
                load.stop.set()
            for worker in workers:
                worker.join()
    with MessageStore.open(tmp_path, config) as store:
        for name, settings in KINDS.items():
            acked[name].update(rest_of(store.subscribe("t", name, **settings)))
        dead = Counter(rest_of(store.subscribe("dead", "all")))
        for name, found in acked.items():
            assert {one for one, count in found.items() if count > 1} == set(), name
            assert found.keys() | (dead.keys() if name == "dying" else set()) == sent, name
        assert not store.stats()["subscriptions"]["removed_unacknowledged"]
