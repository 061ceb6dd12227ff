"""The consumers of the whole-store model: subscriptions of one topic, against sets.

What a subscription may give out is known exactly: what is there and due, and neither acknowledged nor with a consumer.
Where retention is at work it takes what it likes of the messages that are not delayed.
"""

from __future__ import annotations

import time
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from stratalog.store import Delivery, MessageStore, StoreConfig, Subscription

from .helpers import Queue, until

NAMES = ("billing", "audit")
FAR_MS = 10**9
NOTHING = 0  # a delivery time that has passed

names = st.sampled_from(NAMES)


class ConsumerRules:
    """Rules for a machine that has `model` and `first` of the queues; `topic` is the one that is subscribed to.

    Attributes:
        acked: by subscription, the (queue id, offset) of what is acknowledged; a name is missing if it does not exist.
        given: by subscription, what consumers have, by receipt.
        changed: the new delivery times of messages; None for one that is cancelled.
    """

    store: MessageStore
    config: StoreConfig
    model: dict[Queue, list[tuple[Any, ...]]]
    first: dict[Queue, int]
    trimmed: dict[Queue, int]  # by users
    topic: str

    def __init__(self) -> None:
        super().__init__()
        self.acked: dict[str, set[tuple[int, int]]] = {}
        self.given: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in NAMES}
        self.changed: dict[tuple[int, int], int | None] = {}
        self.subscribed: dict[str, Subscription] = {}

    def settle(self) -> None:
        """What was submitted is durable, and in the model."""
        raise NotImplementedError

    def forget_consumers(self) -> None:
        """The store was opened anew."""
        self.subscribed.clear()
        for given in self.given.values():
            given.clear()

    @property
    def retains(self) -> bool:
        """May retention take messages?"""
        return self.config.retention_bytes is not None

    def subscription(self, name: str) -> Subscription:
        """It is made if there is none, and gives out what is due by now."""
        self.settle()
        if name not in self.subscribed:
            self.subscribed[name] = self.store.subscribe(self.topic, name)
            self.acked.setdefault(name, set())
        until(lambda: not self.store.stats()["delayed"].get(self.topic, {"is_behind": False})["is_behind"])
        return self.subscribed[name]

    def queue_ids(self) -> list[int]:
        return [queue_id for topic, queue_id in self.model if topic == self.topic]

    def due_of(self, place: tuple[int, int]) -> int | None:
        """When a message is due; None for never, as it is cancelled."""
        return self.changed.get(place, self.model[self.topic, place[0]][place[1]][3] or NOTHING)

    def available(self, name: str) -> set[tuple[int, int]]:
        """What the subscription may give out now."""
        now_ms = time.time_ns() // 1_000_000
        found = set()
        for queue_id in self.queue_ids():
            queue = self.topic, queue_id
            places = {(queue_id, at) for at in range(self.low(queue), len(self.model[queue]))}
            found |= {place for place in places if (due := self.due_of(place)) is not None and due <= now_ms}
        return found - self.acked[name] - set(self.given[name].values())

    def low(self, queue: Queue) -> int:
        """The first offset that may come: retention may have copied what is before the queue's first one."""
        return self.trimmed.get(queue, 0) if self.retains else self.first[queue]

    @rule(name=names, count=st.integers(1, 60), batch=st.booleans())
    def receive(self, name: str, count: int, batch: bool) -> None:
        subscription = self.subscription(name)
        available = self.available(name)
        got: list[Delivery]
        if batch:
            got = subscription.receive_batch(count, max_bytes=1 << 30).deliveries()
        else:
            got = subscription.receive(count)
        places = [(one.message.queue_id, one.message.offset) for one in got]
        assert len(set(places)) == len(places)
        assert set(places) <= available
        if not self.retains and (batch or len(got) < 16):
            assert len(got) == min(count, len(available))
        for one, place in zip(got, places, strict=True):
            row = self.model[self.topic, place[0]][place[1]]
            message = one.message
            assert (message.data, message.key, message.properties, message.deliver_at_ms) == row
            self.given[name][one.receipt] = place

    @rule(name=names, data=st.data(), batch=st.booleans())
    def acknowledge(self, name: str, data: st.DataObject, batch: bool) -> None:
        subscription, given = self.subscription(name), self.given[name]
        receipts = data.draw(st.lists(st.sampled_from(sorted(given)), unique=True)) if given else []
        if batch:
            subscription.ack_batch(receipts)
        for receipt in receipts:
            if not batch:
                subscription.ack(receipt)
            self.acked[name].add(given.pop(receipt))

    @rule(name=names)
    def give_back(self, name: str) -> None:
        subscription, given = self.subscription(name), self.given[name]
        if given:
            subscription.nack_batch(sorted(given))
            given.clear()

    @rule(name=names, where=st.floats(0, 1))
    def move(self, name: str, where: float) -> None:
        subscription = self.subscription(name)
        bounds = {queue_id: self.store.queue_bounds(self.topic, queue_id) for queue_id in self.queue_ids()}
        moved = {queue_id: first + int(where * (end - first)) for queue_id, (first, end) in bounds.items()}
        subscription.seek(moved)
        self.acked[name] = {(queue_id, at) for queue_id, low in moved.items() for at in range(low)}
        self.given[name].clear()

    @rule(name=names)
    def delete_subscription(self, name: str) -> None:
        self.settle()
        assert self.store.delete_subscription(self.topic, name) == (name in self.acked)
        self.acked.pop(name, None)
        self.subscribed.pop(name, None)
        self.given[name].clear()

    @rule(data=st.data(), cancels=st.booleans(), delay_ms=st.sampled_from([-FAR_MS, FAR_MS]))
    def change_a_delay(self, data: st.DataObject, cancels: bool, delay_ms: int) -> None:
        self.settle()
        now_ms = time.time_ns() // 1_000_000
        queue = data.draw(st.sampled_from([queue for queue in self.model if queue[0] == self.topic]))
        if not self.model[queue]:
            return
        place = queue[1], data.draw(st.integers(0, len(self.model[queue]) - 1))
        due = self.due_of(place)
        was_pending = due is not None and due > now_ms and place[1] >= self.low(queue)
        if cancels:
            done = self.store.cancel_delayed(self.topic, *place)
        else:
            done = self.store.reschedule_delayed(self.topic, *place, now_ms + delay_ms)
        assert done == was_pending or (was_pending and self.retains)
        if done:
            self.changed[place] = None if cancels else now_ms + delay_ms

    def check_subscriptions(self) -> None:
        """They are listed, and no other ones."""
        assert {one.name for one in self.store.subscriptions(self.topic)} == self.acked.keys()
