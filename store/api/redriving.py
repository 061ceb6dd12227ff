"""Sending dead letters back to the topics and queues that they came from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ..errors import InvalidTopic, MessageTooLarge, TopicFull
from ..log.streams import check_name
from ..subscriptions.delivery import DeliveryBatch
from ..subscriptions.origin import place_of, without_origin
from ..subscriptions.registry import Subscriptions
from ..subscriptions.settings import LONGEST_MS, check_number
from ..subscriptions.subscription import Subscription
from .transaction import Transaction

REDRIVE: Final = "stratalog.redrive"  # the subscription whose cursor says what was sent back
SENT_TOGETHER = 1024  # messages of a transaction
SENT_BYTES = 1 << 20
_log = logging.getLogger("stratalog")


class Redriving:
    """One call of `redrive`. Another one beside it waits for its turn.

    Invariants:
        * a message is sent back and acknowledged by one transaction: both are durable, or neither;
        * what came to the topic after the call began is not sent by it: so what fails at once again does not go round;
        * the call ends also if messages come all the time: the queues have turns, so as many looks as there are queues
          have met all that was there.
    """

    def __init__(
        self, subscriptions: Subscriptions, begin: Callable[[], Transaction], queue_count: Callable[[], int],
        topic: object, queue_id: object, max_messages: object,
    ) -> None:  # fmt: skip
        """`begin` gives a transaction, `queue_count` the topic's number of queues. Args of a user; raises InvalidTopic,
        InvalidMessage.
        """
        self._queue_count = queue_count
        self._topic = check_name(topic, 0)[0]
        self._queue_id = None if queue_id is None else check_name(topic, queue_id)[1]
        self._most = LONGEST_MS if max_messages is None else check_number("max_messages", max_messages, 1)
        self._subscriptions = subscriptions
        self._begin = begin
        self._sent = self._left = 0

    def run(self, ends: dict[int, int]) -> int:
        """Send messages back, those before `ends` by queue id. Returns how many. Raises as a commit does."""
        if self._queue_id is not None:
            ends = {queue_id: end for queue_id, end in ends.items() if queue_id == self._queue_id}
        if not any(ends.values()):
            return 0
        arguments = self._topic, REDRIVE, "earliest", "shared", "queue", None, None, None, None, None
        with self._subscriptions.redriving, self._subscriptions.subscribe(*arguments) as sub:
            self._run(sub, ends)
        if self._left:
            _log.warning(
                "redrive of %r: %d message(s) were left there: they do not say where they come from, or their topic "
                "does not take them any more", self._topic, self._left,
            )  # fmt: skip
        return self._sent

    def _run(self, sub: Subscription, ends: dict[int, int]) -> None:
        in_vain = 0  # looks in a row that have met only what came later
        while self._sent < self._most:
            batch = sub.receive_batch(min(SENT_TOGETHER, self._most - self._sent), 0, LONGEST_MS, max_bytes=SENT_BYTES)
            if not len(batch):
                break
            queues = [queue_id for _, queue_id in batch.stream_names]
            places = zip(batch.stream_index.tolist(), batch.offsets.tolist(), strict=True)
            wanted = [at for at, (name, offset) in enumerate(places) if offset < ends.get(queues[name], 0)]
            self._send(sub, batch, wanted)
            in_vain = 0 if wanted else in_vain + 1
            if in_vain > self._queue_count():
                break

    def _send(self, sub: Subscription, batch: DeliveryBatch, rows: Sequence[int]) -> None:
        """Send some messages back by one transaction; by halves where they are too large for one, or one is refused."""
        if not rows:
            return
        tx, taken = self._begin(), 0
        for at in rows:
            taken += _add(tx, sub, batch, at)
        try:
            tx.commit()
        except (MessageTooLarge, InvalidTopic, TopicFull):
            if len(rows) == 1:
                self._left += 1
                return
            half = len(rows) // 2
            self._send(sub, batch, rows[:half])
            self._send(sub, batch, rows[half:])
            return
        self._sent += taken
        self._left += len(rows) - taken


def _add(tx: Transaction, sub: Subscription, batch: DeliveryBatch, at: int) -> bool:
    """Add a message to a transaction; False if it cannot go back."""
    extras = None if batch.extras is None else batch.extras[at]
    place = None if extras is None else place_of(extras.properties)
    if extras is None or place is None:
        return False
    try:
        tx.append(
            *place, bytes(batch.payload(at)), key=extras.key, properties=without_origin(extras.properties) or None
        )
    except (InvalidTopic, MessageTooLarge):
        return False
    tx.ack(int(batch.receipts[at]), sub)
    return True
