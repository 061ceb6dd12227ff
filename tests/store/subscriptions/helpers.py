"""What the tests of subscriptions share."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.store import Delivery, MessageStore

TOPIC = "orders"


def fill(store: MessageStore, *counts: int, topic: str = TOPIC) -> None:
    """Append so many messages to the queues 0, 1, 2 ..; each has its queue and offset as its data."""
    for queue_id, count in enumerate(counts):
        begin = store.queue_bounds(topic, queue_id)[1]
        store.append_batch([(topic, queue_id, b"%d/%d" % (queue_id, at)) for at in range(begin, begin + count)])


def places(deliveries: Iterable[Delivery]) -> list[tuple[int, int]]:
    """(queue id, offset) of each message."""
    return [(one.message.queue_id, one.message.offset) for one in deliveries]
