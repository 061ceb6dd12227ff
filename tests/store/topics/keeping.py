"""What the tests of topics that keep their messages share: retention by hand, and messages that say what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import Delivery, MessageStore, Subscription

from ..helpers import payload, tiny
from ..subscriptions.test_removed_counts import ByHand, retention_by_hand

SIZE = 3_800


def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are removed by hand alone, and no look holds for a while."""
    retention_by_hand(monkeypatch, "delayed.keeping", "delayed.work_queues")
    monkeypatch.setattr("stratalog.store.delayed.delays.DROP_S", 0.0)


def opened(path: Path, **more: Any) -> tuple[MessageStore, ByHand]:
    """A store with tiny segments, and its retention."""
    store = MessageStore.open(path, tiny(**more))
    return store, ByHand(store)


def data_of(queue_id: int, offset: int) -> bytes:
    """The data of a message that `fill` appends."""
    return payload(queue_id << 32 | offset, SIZE)


def fill(store: MessageStore, count: int, topic: str = "t", queue_id: int = 0) -> None:
    """Append messages to a queue."""
    begin = store.queue_bounds(topic, queue_id)[1] if queue_id in store.queues(topic) else 0
    tickets = [
        store.submit(topic, queue_id, data_of(queue_id, at), key=b"k%d" % at, properties={"n": str(at)})
        for at in range(begin, begin + count)
    ]
    assert [ticket.result() for ticket in tickets] == list(range(begin, begin + count))


def places(deliveries: list[Delivery]) -> list[tuple[int, int]]:
    """Where messages are, after a look whether they are whole."""
    for one in deliveries:
        message = one.message
        assert message.data == data_of(message.queue_id, message.offset)
        assert (message.key, message.properties) == (b"k%d" % message.offset, {"n": str(message.offset)})
    return [(one.message.queue_id, one.message.offset) for one in deliveries]


def all_of(sub: Subscription, most: int = 1000) -> list[Delivery]:
    """All that a subscription gives out now."""
    found: list[Delivery] = []
    while got := sub.receive(most):
        found += got
    return found


def leave(sub: Subscription, kept: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Acknowledge all but some messages, which are given back: their places."""
    got = all_of(sub)
    sub.ack_batch([one for one in got if not kept(one.message.offset)])
    left = [one for one in got if kept(one.message.offset)]
    sub.nack_batch(left)
    return places(left)
