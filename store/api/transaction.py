"""A transaction: messages and acknowledgements that are durable and visible all at once, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..device.clock import Clock
from ..errors import InvalidMessage, StoreError, shown
from ..format.message_ids import ID_BYTES, digest_of
from ..log.atomic_group import AtomicGroup
from ..subscriptions.acknowledging import Acknowledging
from ..subscriptions.committing import Committing, PendingMessages
from ..subscriptions.delivery import Delivery
from ..subscriptions.joint_ids import JointIds
from ..subscriptions.registry import Subscriptions
from ..subscriptions.settings import receipt_of
from ..subscriptions.subscription import Subscription
from ..subscriptions.topics_subscription import TopicsSubscription
from ..topics.id_windows import IdWindows
from .appender import NO_QUEUES, Appender
from .batches import BatchPart
from .checks import Payload, check_id
from .fetcher import Fetcher
from .id_batch import answer_of, digests_of
from .partitioner import Queues


class TransactionParts(NamedTuple):
    """The parts of a store that its transactions use."""

    appender: Appender
    subscriptions: Subscriptions
    fetcher: Fetcher
    windows: IdWindows
    clock: Clock


class Transaction:
    """Messages to append and to acknowledge, over topics, queues and subscriptions: see `MessageStore.transaction`.

    Its calls check their arguments at once and only remember them. The end of its `with` block, or `commit`, makes all
    of them durable, and readers see all of them from one moment on; or nothing is stored. An exception in the block,
    or `rollback`, drops them all. In coroutines use `async with`.

        with store.transaction() as tx:
            tx.append("bills", 0, b"..")
            tx.ack(delivery)  # of a subscription: the bill is stored exactly once

    One thread or coroutine uses it at a time. After its end each call but `offsets` raises InvalidMessage.

    All of it is in memory until its commit has returned: it can have 1,048,576 messages, and 1 GiB, of which each id
    takes 28 bytes. With more than 4,096 messages, or more bytes than a frame and the largest message (6 MiB by
    default), it is *large*. The lanes of a large one stand still while it is written. Each lane needs room for its part
    in one segment, else nothing is stored.
    """

    _outcome = "is not committed yet"
    _offsets: npt.NDArray[np.int64] | None = None

    def __init__(self, parts: TransactionParts) -> None:
        """Use `MessageStore.transaction`."""
        self._parts = parts
        self._messages: PendingMessages | None = PendingMessages()  # None once a call has ended it
        self._receipts: dict[Acknowledging, dict[int, None]] = {}

    # -- what it is to do -------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        queue_id: int | None = None,
        data: Payload | None = None,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        queues: Queues | None = None,
        message_id: str | None = None,
    ) -> None:
        """Append a message at the commit. Args: as for `MessageStore.append`; the queue is chosen now.

        A message whose `message_id` its topic has seen at the commit is left out, and `offsets` has that of the first
        one with it. All else of the transaction is stored.

        Raises: MessageTooLarge, InvalidTopic, InvalidMessage, StoreClosed: the transaction is as before.
        """
        messages, appender = self._messages, self._parts.appender
        if messages is None:  # as `_check_open` does it: a call saved shows
            self._raise_ended()
        appender.check_open()
        if (  # the usual message, as `check` finds it: a call saved shows
            type(data) is bytes and type(queue_id) is int and type(topic) is str
            and queue_id in appender.known.get(topic, NO_QUEUES) and len(data) <= appender.max_message_bytes
            and deliver_at_ms is None and key is None and properties is None and queues is None and message_id is None
        ):  # fmt: skip
            messages.add(topic, queue_id, data, None)
            return
        digest = None if message_id is None else digest_of(check_id(message_id))
        messages.add(*appender.check(topic, queue_id, data, deliver_at_ms, key, properties, queues), digest)

    def append_batch(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> None:
        """Append many messages at the commit. Args: as for `MessageStore.append_batch`.

        Raises: MessageTooLarge, InvalidTopic, InvalidMessage, StoreClosed: the transaction is as before.
        """
        pending = self._check_open()
        rows = self._parts.appender.check_batch(messages)
        digests = [None] * len(rows) if message_ids is None else digests_of(message_ids, len(rows))
        id_bytes = ID_BYTES * (len(digests) - digests.count(None))
        pending.check_room(len(rows), id_bytes + sum([len(data) for _, _, data in rows]))
        for row, digest in zip(rows, digests, strict=True):
            pending.add(*row, None, digest)

    def ack(self, delivery: Delivery | int, subscription: Subscription | TopicsSubscription | None = None) -> None:
        """Acknowledge a message at the commit.

        Args:
            delivery: the delivery; or its receipt, then with `subscription`, the object that has received it.

        Raises:
            SubscriptionClosed, InvalidMessage, StoreClosed: the transaction is as before.
            StaleReceipt: likewise, for a receipt of a subscription of several topics.
        """
        if self._messages is None:  # as `_check_open` does it, as above
            self._raise_ended()
        self._parts.appender.check_open()
        receipt = receipt_of(delivery)
        if subscription is not None:
            if not isinstance(subscription, Subscription | TopicsSubscription):
                raise InvalidMessage(f"subscription is a Subscription, not {shown(subscription)}")
            topic = subscription.topic if isinstance(subscription, Subscription) else subscription.topic_of(delivery)
            name = subscription.name
        elif isinstance(delivery, Delivery):
            topic, name = str(getattr(delivery.message, "topic", "")), delivery.subscription
        else:
            raise InvalidMessage("a receipt alone does not say whose it is: give its subscription, or the delivery")
        acks = self._parts.subscriptions.acknowledging(topic, name)
        receipts = self._receipts.get(acks)
        if receipts is None:
            receipts = self._receipts[acks] = {}
        receipts[receipt] = None

    # -- its end ----------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Store all of it; durable and visible when it returns. A transaction without anything writes nothing.

        Raises:
            StaleReceipt: a message to acknowledge is not the caller's any more, see `Subscription.ack`.
            MessageTooLarge: it has more than a transaction can have.
            InvalidTopic, TopicFull: a topic does not have a queue any more, or its subscriptions keep too much; nothing
                is stored.
            PublishBufferFull, StoreFull, SubscriptionClosed, StoreClosed: nothing is stored.
            StorePoisoned: a write or force failed; all of it is durable, or nothing. The next opening knows.
            InvalidMessage: it has ended already; nothing is stored by this call.

        With the first two nothing is stored either. After an interrupt all of it is stored, or nothing: it is not
        known which.
        """
        committing = self._end()
        if committing.joints:
            committing.let_pass()
        try:
            while committing.ids is not None and (busy := committing.admit_ids()):
                for one in busy:
                    one.exception()  # whatever its outcome is: the ids are looked at again
            request = committing.hand_over(AtomicGroup.put_and_sleep)
        except BaseException as error:
            try:
                committing.take_back_ids(error)
            finally:
                committing.take_back_ids(error)
            raise
        self._offsets, self._outcome = committing.offsets_of(request), "was committed"
        if committing.joints and committing.wants_compaction:
            committing.compact_in_time()

    async def _commit_async(self) -> None:
        """`commit` for coroutines. If its task is cancelled, all of it becomes durable all the same, or nothing."""
        committing, answered = self._end(), list[asyncio.Future[npt.NDArray[np.int64]]]()
        put_async = self._parts.appender.put_async
        try:
            while busy := committing.admit_ids():
                for one in busy:
                    if not one.done():
                        await answer_of(one)
            request = committing.hand_over(lambda request: answered.append(put_async([BatchPart(None, [request])])))
        except BaseException as error:
            try:
                committing.take_back_ids(error)
            finally:
                committing.take_back_ids(error)
            raise
        for future in answered:
            await future
        self._offsets, self._outcome = committing.offsets_of(request), "was committed"
        if committing.wants_compaction:
            with suppress(StoreError):  # it is durable, even if the store was closed since
                appender, async_reads = self._parts.appender, self._parts.fetcher.async_reads
                await async_reads.aside(committing.compact_in_time, appender.check_open)

    def rollback(self) -> None:
        """Drop all of it. The messages that were to be acknowledged stay the caller's. Raises InvalidMessage."""
        self._end()
        self._outcome = "was rolled back"

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """int64 (n), the offset of each message, in the order of the appends. InvalidMessage before the commit."""
        if self._offsets is None:
            raise InvalidMessage(f"the transaction {self._outcome}, so its messages have no offsets")
        if self._offsets.base is not None:  # a view of its whole frame's offsets, which nobody should keep
            self._offsets = self._offsets.copy()
        return self._offsets

    def _end(self) -> Committing:
        """Take what it is to do. Raises InvalidMessage, StoreClosed."""
        messages, self._messages = self._messages, None  # one step: no call is in between
        if messages is None:
            self._raise_ended()
        self._outcome = "failed, or was interrupted"
        receipts, parts, ids = self._receipts, self._parts, None
        if receipts:
            self._receipts = {}
        if messages.digests:
            ids = JointIds(parts.windows, parts.clock, messages.all_of(messages.digests))
        return Committing(parts.appender, messages, receipts, ids=ids)

    def _check_open(self) -> PendingMessages:
        if self._messages is None:
            self._raise_ended()
        self._parts.appender.check_open()
        return self._messages

    def _raise_ended(self) -> NoReturn:
        raise InvalidMessage(f"the transaction {self._outcome}; begin another one")

    def __enter__(self) -> Transaction:
        if self._messages is None:  # as `_check_open` does it, as above
            self._raise_ended()
        self._parts.appender.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._messages is None:
            return  # the block has ended it by itself
        if kind is None:
            self.commit()
        else:
            self.rollback()

    async def __aenter__(self) -> Transaction:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._messages is None:
            return
        if kind is None:
            await self._commit_async()
        else:
            self.rollback()

    def __repr__(self) -> str:
        messages, acks = self._messages, sum(map(len, list(self._receipts.values())))
        count = 0 if messages is None else len(messages.datas)
        return f"<Transaction of {count} messages and {acks} acknowledgements, {self._outcome}>"
