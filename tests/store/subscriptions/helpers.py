"""What the tests of subscriptions share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stratalog.store import Delivery, Message, MessageStore, Subscription
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request
from stratalog.store.subscriptions.ack_row import AckRow
from stratalog.store.subscriptions.group_commit import AckTicket
from stratalog.store.subscriptions.in_flight import RowState

from ...clocks import SteppedClock

TOPIC = "orders"
START_MS = 1_700_000_000_000


class BothClocks(SteppedClock):
    """Both times are what the test has set."""

    wall = START_MS

    def wall_ms(self) -> int:
        return self.wall

    def go(self, ms: int) -> None:
        """Some time passes."""
        self.wall += ms
        self.now += ms / 1000


def fill(store: MessageStore, *counts: int, topic: str = TOPIC) -> None:
    """Append so many messages to the queues 0, 1, 2 ..; each has its queue and offset as its data."""
    for queue_id, count in enumerate(counts):
        begin = store.queue_bounds(topic, queue_id)[1]
        store.append_batch([(topic, queue_id, b"%d/%d" % (queue_id, at)) for at in range(begin, begin + count)])


def own_properties(letter: Message) -> dict[str, str]:
    """The properties of a dead letter that do not say where it comes from."""
    return {name: value for name, value in (letter.properties or {}).items() if not name.startswith("dead_letter.")}


def story(letter: Message) -> dict[str, str]:
    """Where a dead letter comes from, by the names without their prefix."""
    given = (letter.properties or {}).items()
    return {name.removeprefix("dead_letter."): value for name, value in given if name.startswith("dead_letter.")}


def ticket_of(sub: Subscription, receipt: int) -> AckTicket:
    """An acknowledgement that was begun, and is in no record yet."""
    ticket = AckTicket()
    assert sub._acks._mark_one(receipt, ticket.rows)
    return ticket


def begin_ack(sub: Subscription, receipt: int) -> AckRow:
    """What is acknowledged in memory, and is in no record yet."""
    (row,) = ticket_of(sub, receipt).rows
    return row


def on_way(sub: Subscription) -> int:
    """How many messages are being acknowledged; the others are in the cursor."""
    with sub._state.lock:
        sub._state.take_in()
    table = sub._state.table
    return int(np.count_nonzero(table.states(table.live()) == RowState.ACKED))


def fill_buffer(sub: Subscription) -> RequestQueue[Request]:
    """As if so much as its cap was on its way in the queue of a subscription's records, which is returned.

    `queue.release(queue.cap_bytes, 0)` ends it, and lets in what stands in line: a mark of its lane may, too.
    """
    stream = sub._state.journal.stream
    assert stream is not None, "the subscription is durable"
    queue = stream.lane.queue
    with queue._lock:  # its threads count, too
        queue.used_bytes += queue.cap_bytes
        queue._taken_bytes += queue.cap_bytes
    return queue


def places(deliveries: Iterable[Delivery]) -> list[tuple[int, int]]:
    """(queue id, offset) of each message."""
    return [(one.message.queue_id, one.message.offset) for one in deliveries]
