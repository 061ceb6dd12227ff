"""Delayed messages through subscriptions: when they come, in which order, once, and after an opening."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreClosed, Subscription
from stratalog.store.delayed.messages import figures_of
from tests.seeds import draw_seed

from ..helpers import crash_copy, tiny, until
from .consumer import START_MS, Hand, quiet, topic_of

HOUR_MS = 3_600_000


def received(sub: Subscription, most: int = 1000, *, ack: bool = True) -> list[tuple[int, int]]:
    """(queue id, offset) of what can be taken now."""
    found: list[tuple[int, int]] = []
    while len(batch := sub.receive_batch(most)):
        found += [(batch.queue_id(at), int(batch.offsets[at])) for at in range(len(batch))]
        if ack:
            sub.ack_batch(batch.receipts)
    return found


def test_receive_waits_for_what_becomes_due(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe("t", "a")
        at_ms = time.time_ns() // 1_000_000 + 60
        store.append("t", 0, b"x", deliver_at_ms=at_ms)
        (delivery,) = sub.receive(wait_ms=60_000)
        assert time.time_ns() // 1_000_000 >= at_ms
        assert delivery.message.data == b"x"
        sub.ack(delivery)
        store.append("t", 0, b"y", deliver_at_ms=time.time_ns() // 1_000_000 + 60)
        (delivery,) = asyncio.run(sub.receive_async(wait_ms=60_000))
        assert delivery.message.data == b"y"


@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_ordered_subscription_waits_for_acknowledgements_of_due_messages_too(
    store: MessageStore, hand: Hand, order_by: str
) -> None:
    sub = store.subscribe("t", "a", mode="ordered", order_by=order_by)  # type: ignore[call-overload]  # one of the two
    for _ in range(3):
        store.append("t", 0, b"x", key=b"k", deliver_at_ms=START_MS + 5)
    assert received(sub) == []
    hand.now_ms += 5
    for offset in range(3):
        (delivery,) = sub.receive(1)
        assert (delivery.message.offset, sub.receive()) == (offset, [])
        sub.ack(delivery)
    assert sub.receive() == []


def test_seek_and_skip_go_over_delayed_messages(store: MessageStore, hand: Hand) -> None:
    sub, other = store.subscribe("t", "a"), store.subscribe("t", "b")
    for _ in range(4):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 5)
    received(sub), received(other)
    sub.skip_all()
    other.seek({0: 2})
    hand.now_ms += 5
    assert (received(sub), received(other)) == ([], [(0, 2), (0, 3)])
    other.seek("earliest")
    assert received(other) == [(0, offset) for offset in range(4)]


@pytest.mark.parametrize("crashes", [False, True])
def test_no_time_without_the_store_loses_a_message(tmp_path: Path, hand: Hand, crashes: bool) -> None:
    """Downtime of 7 days lost messages elsewhere."""
    with hand.open(tmp_path / "s", tiny(lanes=2)) as store:
        sub = store.subscribe("t", "a")
        for number in range(40):
            store.append("t", number % 4, b"x", deliver_at_ms=START_MS + 1 + number)
        received(sub)
        hand.now_ms += 10
        assert len(received(sub)) == 10
        hand.now_ms += 5
        assert len(received(sub, ack=False)) == 5
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    hand.now_ms += 30 * 86_400_000
    with hand.open(tmp_path / ("crashed" if crashes else "s")) as store:
        got = received(store.subscribe("t", "a"))
        assert sorted(got) == sorted((n % 4, n // 4) for n in range(10, 40))


def test_subscription_that_was_closed_finds_what_became_due_meanwhile(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a")
    for number in range(10):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
    received(sub)
    sub.close()
    hand.now_ms += 5
    assert figures_of(topic_of(store))["pointers"] == 0
    with store.subscribe("t", "a") as sub:
        assert received(sub) == [(0, offset) for offset in range(5)]
        hand.now_ms += 5
        assert received(sub) == [(0, offset) for offset in range(5, 10)]


def test_store_without_delayed_messages_has_no_index(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        sub = store.subscribe("t", "a")
        store.append("t", 0, b"x")
        received(sub)
        assert store.stats()["delayed"] == {}
    assert not (tmp_path / "s" / "delayed").exists()


def test_each_message_comes_once_to_each_subscription_whatever_happens_beside(tmp_path: Path, hand: Hand) -> None:
    seed = draw_seed()
    chance = random.Random(seed)
    due: dict[tuple[int, int], int] = {}
    got: dict[str, list[tuple[int, int]]] = {"a": [], "b": [], "c": []}
    cancelled: set[tuple[int, int]] = set()
    path = tmp_path / "s"
    store = hand.open(path, tiny(lanes=2))
    subs = {name: store.subscribe("t", name) for name in got}
    for _ in range(250):
        hand.now_ms += chance.choice([0, 1, 9])
        queue_id, delay_ms = chance.randrange(3), chance.choice([None, 0, 5, 50, 400])
        at_ms = None if delay_ms is None else hand.now_ms + delay_ms
        offset = store.append("t", queue_id, bytes(chance.choice([10, 3000])), deliver_at_ms=at_ms)
        due[queue_id, offset] = hand.now_ms if at_ms is None else at_ms
        name = chance.choice(list(got))
        if chance.random() < 0.5:
            found = received(subs[name], chance.choice([1, 7, 1000]))
            assert all(due[one] <= hand.now_ms and one not in cancelled for one in found), f"seed {seed}"
            got[name] += found
        if chance.random() < 0.2:
            one = chance.choice(list(due))
            was_pending = due[one] > hand.now_ms and one not in cancelled
            if chance.random() < 0.5:
                assert store.cancel_delayed("t", *one) == was_pending, f"seed {seed}"
                cancelled |= {one} if was_pending else set()
            else:
                to_ms = hand.now_ms + chance.choice([0, 30, 300])
                assert store.reschedule_delayed("t", *one, to_ms) == was_pending, f"seed {seed}"
                due[one] = to_ms if was_pending else due[one]
        if chance.random() < 0.02:
            subs[name].close()
            subs[name] = store.subscribe("t", name)
        if chance.random() < 0.02:
            store.close()
            store = hand.open(path)
            subs = {name: store.subscribe("t", name) for name in got}
    until(lambda: not topic_of(store).is_lagging)
    hand.now_ms += 1_000
    for name, sub in subs.items():
        got[name] += received(sub)
        assert sorted(got[name]) == sorted({*due} - cancelled), f"seed {seed}"
        assert sub.backlog().total == 0
    store.close()


def test_competing_consumers_share_what_becomes_due(tmp_path: Path) -> None:
    count = 600
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=1 << 20)) as store:
        now_ms, chance = time.time_ns() // 1_000_000, np.random.default_rng(draw_seed())
        times = now_ms + chance.integers(0, 400, count)
        store.append_columns([("t", 0)], np.zeros(count, int), np.ones(count, int), bytes(count), deliver_at_ms=times)
        got: list[list[int]] = [[], [], []]
        early: list[int] = []

        def consume(mine: list[int]) -> None:
            with store.subscribe("t", "a") as sub:
                while sum(map(len, got)) < count:
                    for delivery in sub.receive(8, wait_ms=100):
                        if time.time_ns() // 1_000_000 < times[delivery.message.offset]:
                            early.append(delivery.message.offset)
                        sub.ack(delivery)
                        mine.append(delivery.message.offset)

        threads = [threading.Thread(target=consume, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert early == []
        assert sorted(offset for mine in got for offset in mine) == list(range(count))


class Waiting:
    """A consumer in a thread of its own; nobody else looks at clocks."""

    def __init__(self, store: MessageStore, sub: Subscription) -> None:
        quiet(store)
        self.got: list[int] = []
        self._sub = sub
        threading.Thread(target=self._run, daemon=True).start()
        until(lambda: len(store._running.waiting) > 0)

    def _run(self) -> None:
        with suppress(StoreClosed):
            self.got += [one.message.offset for one in self._sub.receive(1, HOUR_MS)]


def test_waiting_consumer_wakes_by_itself_when_a_message_is_due(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store, store.subscribe("t", "a") as sub:
        topic_of(store)
        waiting = Waiting(store, sub)
        offset = store.append("t", 0, b"x", deliver_at_ms=store._shared.clock.wall_ms() + 200)
        until(lambda: waiting.got == [offset])


def test_waiting_consumer_is_told_of_a_message_that_comes_earlier(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store, store.subscribe("t", "a") as sub:
        topic_of(store)
        offset = store.append("t", 0, b"x", deliver_at_ms=store._shared.clock.wall_ms() + 2 * HOUR_MS)
        waiting = Waiting(store, sub)
        assert store.reschedule_delayed("t", 0, offset, store._shared.clock.wall_ms() + 1)
        until(lambda: waiting.got == [offset])
