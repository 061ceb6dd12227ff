"""A receive finds what lies behind messages that have expired, were acknowledged late, or are due elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed.due_list import DueMessages
from stratalog.store.subscriptions.delays import SubscriptionDelays
from stratalog.store.subscriptions.dispatcher import Dispatcher
from stratalog.store.testing import VirtualClock

from ..helpers import tiny
from .helpers import TOPIC

KINDS: list[dict[str, Any]] = [{}, {"mode": "ordered"}, {"mode": "ordered", "order_by": "key"}]
LONG_MS = 10_000_000
TTL_MS = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("wait_ms", [0, 1000])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_in_order_what_has_expired_is_looked_through_to_the_end(
    store: MessageStore, clock: VirtualClock, kind: dict[str, Any], wait_ms: int
) -> None:
    store.configure_topic(TOPIC, ttl_ms=TTL_MS)
    sub = store.subscribe(TOPIC, "s", **kind)
    store.append_batch([(TOPIC, 0, b"old")] * 200)
    old = sub.receive_batch(visibility_timeout_ms=LONG_MS)
    clock.advance(ms=TTL_MS + 1000)
    sub.nack_batch(old.receipts)
    store.append(TOPIC, 0, b"young")
    assert [one.message.data for one in sub.receive(1, wait_ms, queue_id=0)] == [b"young"]
    assert sub.receive(1, queue_id=0) == []


def test_what_has_expired_behind_the_first_of_a_line_is_looked_through_to_the_end(
    store: MessageStore, clock: VirtualClock
) -> None:
    store.configure_topic(TOPIC, ttl_ms=TTL_MS)
    sub = store.subscribe(TOPIC, "s", mode="ordered", order_by="key")
    store.append(TOPIC, 0, b"first", key=b"k")
    (first,) = sub.receive(1, visibility_timeout_ms=LONG_MS)
    for _ in range(200):
        store.append(TOPIC, 0, b"old", key=b"k")
    store.append(TOPIC, 0, b"other", key=b"l")
    assert [one.message.data for one in sub.receive(1, visibility_timeout_ms=LONG_MS)] == [b"other"]
    clock.advance(ms=TTL_MS + 1000)
    store.append(TOPIC, 0, b"young", key=b"k")
    assert sub.receive(1) == []
    sub.ack(first)
    assert [one.message.data for one in sub.receive(1, queue_id=0)] == [b"young"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_acknowledged_late_ends_no_look(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
) -> None:
    sub, real = store.subscribe(TOPIC, "s", **kind), Dispatcher._given
    for at in range(2):
        store.append(TOPIC, 0, b"%d" % at, key=b"k%d" % at)
    late = [sub.receive(5, visibility_timeout_ms=1000)[0]]
    clock.advance(ms=1000)

    def given(dispatcher: Dispatcher, *found: Any) -> Any:
        if late:
            sub.submit_ack(late.pop()).result()  # in order, what follows waits for it
        return real(dispatcher, *found)

    monkeypatch.setattr(Dispatcher, "_given", given)
    assert [one.message.data for one in sub.receive(1, queue_id=0)] == [b"1"]
    assert sub.receive(1, queue_id=0) == []


def test_due_messages_of_queues_that_nobody_read_are_passed_over_many_at_once(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub, real, asked = store.subscribe(TOPIC, "s"), SubscriptionDelays.take, list[int]()
    due_ms = clock.wall_ms() + 1000
    for _ in range(3000):
        store.submit(TOPIC, 0, b"x", deliver_at_ms=due_ms)
    store.append(TOPIC, 1, b"y", deliver_at_ms=due_ms)
    assert sub.receive(queue_id=1) == []
    clock.advance(ms=2000)

    def take(delays: SubscriptionDelays, most: int) -> DueMessages:
        asked.append(most)
        return real(delays, most)

    monkeypatch.setattr(SubscriptionDelays, "take", take)
    assert [one.message.data for one in sub.receive(1)] == [b"y"]
    assert len(asked) < 10
    assert asked[0] == 1, "only a listing in vain makes the next one long"
    assert len(sub.receive_batch()) == 3000
