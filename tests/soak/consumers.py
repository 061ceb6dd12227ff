"""A consumer of the soak's child: receives and acknowledges, cancels and moves what is delayed, and tells of it.

The subscription KEPT is neither moved nor deleted: what was acknowledged in it never comes again. It says ["came",
now_ms, [queue, offset], ..], ["asked", [queue, offset], ..] before it acknowledges messages, and ["acked", ..]
afterwards. The other one is moved and deleted as well; of it nothing is told. A change says ["cancelling", [queue,
offset]] and then ["cancelled", ..] or ["not cancelled", ..], ["moving", to_ms, [queue, offset]] and then ["moved", ..]
or ["not moved", ..].
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from stratalog.store import MessageStore, StaleReceipt, Subscription, SubscriptionClosed

KEPT, MOVED = "kept", "moved"
NEWEST = 60  # messages of a queue that are cancelled or moved
LONG_MS = 1 << 39
DELAY_MS = 2_000

Say = Callable[..., None]


class Consumer:
    """One thread's."""

    def __init__(self, topic: str, queues: int, say: Say) -> None:
        self._topic = topic
        self._queues = queues
        self._say = say
        self._open: dict[str, Subscription] = {}

    def step(self, store: MessageStore, chance: random.Random) -> None:
        """One thing that a consumer does. Raises StoreError."""
        draw = chance.random()
        if draw < 0.6:
            self._consume(self._subscription(store, KEPT), chance)
        elif draw < 0.8:
            self._change(store, chance)
        else:
            try:
                self._move(store, chance)
            except (StaleReceipt, SubscriptionClosed):  # another thread has moved or deleted it meanwhile
                self._open.pop(MOVED, None)

    def _subscription(self, store: MessageStore, name: str) -> Subscription:
        if name not in self._open:
            self._open[name] = store.subscribe(self._topic, name)
        return self._open[name]

    def _consume(self, subscription: Subscription, chance: random.Random) -> None:
        """Take some messages, give some of them back, and acknowledge the others."""
        if chance.random() < 0.5:
            given = subscription.receive(chance.randrange(1, 30), 1, LONG_MS)
        else:
            given = subscription.receive_batch(chance.randrange(1, 200), 1, LONG_MS).deliveries()
        places = [(one.message.queue_id, one.message.offset) for one in given]
        is_told = subscription.name == KEPT
        if given and is_told:
            self._say("came", now_ms(), *places)
        if given and chance.random() < 0.2:
            subscription.nack(given.pop(), chance.choice((0, 5)))
            places.pop()
        if not given:
            return
        if is_told:
            self._say("asked", *places)
        way = chance.randrange(3)
        if way == 0:
            subscription.ack_batch(given)
        elif way == 1:
            for ticket in [subscription.submit_ack(one) for one in given]:
                ticket.result()
        else:
            for one in given:
                subscription.ack(one)
        if is_told:
            self._say("acked", *places)

    def _change(self, store: MessageStore, chance: random.Random) -> None:
        """Cancel or move a message that may be delayed."""
        queue_id = chance.randrange(self._queues)
        first, end = store.queue_bounds(self._topic, queue_id)
        if first == end:
            return
        place = queue_id, chance.randrange(max(first, end - NEWEST), end)
        if chance.random() < 0.5:
            to_ms = later_ms(chance)
            self._say("moving", to_ms, place)
            is_done = store.reschedule_delayed(self._topic, *place, to_ms)
            self._say("moved" if is_done else "not moved", to_ms, place)
            return
        self._say("cancelling", place)
        self._say("cancelled" if store.cancel_delayed(self._topic, *place) else "not cancelled", place)

    def _move(self, store: MessageStore, chance: random.Random) -> None:
        subscription = self._subscription(store, MOVED)
        ways: list[tuple[int, Callable[[], Any]]] = [
            (10, lambda: self._consume(subscription, chance)), (2, lambda: subscription.seek("earliest")),
            (2, subscription.skip_all), (1, lambda: store.delete_subscription(self._topic, MOVED)),
        ]  # fmt: skip
        weights, each = zip(*ways, strict=True)
        chance.choices(each, weights)[0]()


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def later_ms(chance: random.Random) -> int:
    """A time of day soon."""
    return now_ms() + chance.randrange(1, DELAY_MS)
