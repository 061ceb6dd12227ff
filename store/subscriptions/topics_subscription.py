"""The subscription of several topics that a user holds: one object over one subscription of each topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import EllipsisType, TracebackType
from typing import NoReturn, TypeVar

import numpy.typing as npt

from ..errors import InvalidMessage, StoreClosed, SubscriptionClosed, shown
from ..filters.given import Filter
from ..log.ticket import Ticket
from .backlog import Backlog
from .backoff import Backoff
from .delivery import Delivery, DeliveryBatch
from .iterating import Iterating
from .members import Member, Members
from .positions import InFlightMessage, Position
from .receiving import ReceiveCall
from .settings import LONGEST_MS, Settings, check_number, check_reason, is_few, wanted_of
from .subscription import MAX_BYTES, VISIBILITY_MS
from .topics_acks import ack_all, nack_all, split
from .topics_receiving import TopicsLook, take_few
from .topics_start import TopicsStart, check_topics_start, move_all

T = TypeVar("T")


class TopicsSubscription(Iterating):
    """A durable cursor over all queues of several topics; made by `MessageStore.subscribe` with a list or a pattern.

    It is one object over the subscriptions of its name in each topic: these have the cursors, are listed by
    `MessageStore.subscriptions`, and may be used by other objects as well, whose consumers compete. Queues are named
    by (topic, queue id). All else is as in `Subscription`, which has the promises and the errors of each call.
    """

    def __init__(self, members: Members, pattern: str | None) -> None:
        """Use `MessageStore.subscribe`."""
        self._members = members
        self._pattern = pattern
        self._closed = False

    @property
    def name(self) -> str:
        """The name that its subscriptions have in all topics."""
        return self._members.name

    @property
    def pattern(self) -> str | None:
        """The pattern of the topics; None if they were given one by one."""
        return self._pattern

    @property
    def topics(self) -> list[str]:
        """The topics, sorted, without those whose subscription was deleted. A new topic joins at the next receive."""
        return [member.topic for member in self._members.open_ones()]

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def _check(self) -> Members:
        """The members. Raises SubscriptionClosed, StoreClosed."""
        members = self._members
        members.parts.check_open()
        if self._closed:
            raise SubscriptionClosed(f"the subscription {self.name!r} of several topics was closed; subscribe again")
        return members

    def _settings(self) -> Settings:
        members = self._check()
        members.check_left()
        return members.settings_now()

    def _of(self, delivery: Delivery | int) -> Member:
        return self._check().of(delivery)

    def _all(self) -> list[Member]:
        """The members, after those that are to join have done so. Raises the errors of that."""
        members = self._check()
        members.join_new()
        members.raise_failed()
        members.check_left()
        return members.open_ones()

    # -- receiving ------------------------------------------------------------------------------------

    def receive(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, topic: str | None = None, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Take messages of the topics that have some, the topics by turns; `delivery.message.topic` says which.

        A busy topic holds up no other: after each look it is the last in turn. Of one topic the messages come as in
        `Subscription.receive`, which has the arguments and the errors. An error of one topic comes with the next call
        if there are messages of others.

        Args:
            topic: only messages of this topic, one of the subscription's.
            queue_id: only messages of this queue of `topic`, also if it has none yet.

        Raises:
            SubscriptionClosed: it was closed, or the subscriptions of all topics were deleted. One that was deleted
                leaves the others.
            InvalidMessage: a topic that matches the pattern has a subscription of the name with other settings, or its
                dead letters would come back to it. It is left out: the next call goes on with the others.
        """
        members = self._check()
        if is_few(max_messages, wait_ms, visibility_timeout_ms) and topic is None and queue_id is None:
            few = take_few(members, max_messages, visibility_timeout_ms)
            if few is not None:
                return few
        batch = self.receive_batch(max_messages, wait_ms, visibility_timeout_ms, topic=topic, queue_id=queue_id)
        return batch.deliveries()

    def receive_batch(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, topic: str | None = None, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """Take messages as columns; `stream_names[stream_index[n]]` is the (topic, queue id) of message n.

        Messages of several topics are copied into one buffer. Args and errors: as for `receive`, and for
        `Subscription.receive_batch`.
        """
        if topic is not None or queue_id is not None:
            member = self._named(topic)
            batch = member.receive_batch(
                max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, queue_id=queue_id
            )
            return self._noted(member, batch)
        found = self._call(max_messages, wait_ms, visibility_timeout_ms, max_bytes).run()
        return DeliveryBatch.empty() if found is None else found

    def _named(self, topic: object) -> Member:
        """The member of a topic. Raises InvalidMessage."""
        members = self._check()
        members.join_new()
        member = members.by_topic.get(topic) if isinstance(topic, str) else None
        if member is None:
            raise InvalidMessage(
                "a queue id alone does not say of which topic: give `topic`" if topic is None
                else f"{shown(topic)} is not a topic of the subscription {self.name!r}"
            )  # fmt: skip
        return member

    def _noted(self, member: Member, batch: DeliveryBatch) -> DeliveryBatch:
        if len(batch):
            self._members.receipts.note(int(batch.receipts[0]), len(batch), member.topic)
        return batch

    async def receive_async(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, topic: str | None = None, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """`receive` for coroutines: neither the loop nor a thread waits meanwhile."""
        members = self._check()
        if is_few(max_messages, wait_ms, visibility_timeout_ms) and topic is None and queue_id is None:
            few = take_few(members, max_messages, visibility_timeout_ms, in_loop=True)
            if few is not None:
                return few
        batch = await self.receive_batch_async(
            max_messages, wait_ms, visibility_timeout_ms, topic=topic, queue_id=queue_id
        )
        return batch.deliveries()

    async def receive_batch_async(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, topic: str | None = None, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """`receive_batch` for coroutines."""
        if topic is not None or queue_id is not None:
            member = await self._aside(partial(self._named, topic))
            batch = await member.receive_batch_async(
                max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, queue_id=queue_id
            )
            return self._noted(member, batch)
        found = await self._call(max_messages, wait_ms, visibility_timeout_ms, max_bytes).run_async(self._aside)
        return DeliveryBatch.empty() if found is None else found

    def _call(self, *arguments: object) -> ReceiveCall:
        wanted = wanted_of(*arguments)
        members = self._check()
        looks = TopicsLook(members)

        def take(call: ReceiveCall) -> DeliveryBatch | None:
            self._check()
            return looks.take(wanted, call)

        return ReceiveCall(members, looks, wanted.wait_ms, take, lambda: self._closed)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Make a call in a thread, which finishes it also if the coroutine is cancelled."""
        parts = self._members.parts
        return await parts.async_reads.aside(work, parts.check_open)

    # -- acknowledging --------------------------------------------------------------------------------

    def ack(self, delivery: Delivery | int) -> None:
        """Acknowledge a message, by its delivery; or by its receipt, if this object has received it.

        Durable when it returns. Errors: as for `Subscription.ack`.
        """
        self._of(delivery).ack(delivery)

    async def ack_async(self, delivery: Delivery | int) -> None:
        """`ack` for coroutines, see `Subscription.ack_async`."""
        await self._of(delivery).ack_async(delivery)

    def submit_ack(self, delivery: Delivery | int) -> Ticket:
        """Acknowledge a message, and return a ticket at once, see `Subscription.submit_ack`."""
        return self._of(delivery).submit_ack(delivery)

    def ack_batch(self, receipts: npt.ArrayLike | Sequence[Delivery]) -> None:
        """Acknowledge messages of any of the topics, by their receipts (n,) or deliveries.

        Those of several topics are one transaction, and so all are acknowledged, or none. If it would be a large one
        (see `Transaction`), the topics are acknowledged one after another instead. A message counts as 40 bytes in it:
        so with the default settings some 150,000 messages go together.

        Raises: as for `Subscription.ack`; with StaleReceipt none of them is acknowledged, unless a message of a later
        topic became stale just then.
        """
        members = self._check()
        ack_all(members.parts, split(members, receipts))

    def ack_up_to(self, delivery: Delivery | int) -> int:
        """Acknowledge a message, and all messages of its queue before it that this object has; return their number.

        Errors: as for `Subscription.ack_up_to`.
        """
        return self._of(delivery).ack_up_to(delivery)

    async def ack_up_to_async(self, delivery: Delivery | int) -> int:
        """`ack_up_to` for coroutines."""
        return await self._aside(partial(self.ack_up_to, delivery))

    def nack(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """Give a message back: it comes again after `delay_ms`. Args and errors: as for `Subscription.nack`."""
        self._of(delivery).nack(delivery, delay_ms, reason=reason)

    async def nack_async(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """`nack` for coroutines."""
        await self._aside(partial(self.nack, delivery, delay_ms, reason=reason))

    def nack_batch(
        self, receipts: npt.ArrayLike | Sequence[Delivery], delay_ms: int = 0, *, reason: str | None = None
    ) -> None:
        """Give messages of any of the topics back. With StaleReceipt none is, unless one became stale just then."""
        delay, why = check_number("delay_ms", delay_ms, 0, LONGEST_MS), check_reason(reason)
        nack_all(split(self._check(), receipts), delay, why)

    def extend(self, delivery: Delivery | int, ms: int) -> None:
        """Keep a message for so many milliseconds from now on. Errors: as for `Subscription.extend`."""
        self._of(delivery).extend(delivery, ms)

    async def extend_async(self, delivery: Delivery | int, ms: int) -> None:
        """`extend` for coroutines."""
        await self._aside(partial(self.extend, delivery, ms))

    # -- looking --------------------------------------------------------------------------------------

    def backlog(self) -> Backlog:
        """How many messages of all topics are not acknowledged: ready, in flight, delayed."""
        found = [member.backlog() for member in self._all()]
        return Backlog(*map(sum, zip(*found, strict=True))) if found else Backlog(0, 0, 0)

    def positions(self) -> dict[tuple[str, int], Position]:
        """How far it is in each queue of its topics, by (topic, queue id). Only durable acknowledgements count."""
        found = [(member.topic, member.positions()) for member in self._all()]
        return {(topic, queue_id): at for topic, positions in found for queue_id, at in positions.items()}

    def in_flight(self) -> list[InFlightMessage]:
        """The messages that consumers have, those of all objects of the name, topic by topic."""
        return [one for member in self._all() for one in member.in_flight()]

    def message_of(self, delivery: Delivery | int) -> InFlightMessage:
        """Which message a delivery or a receipt is of. Raises StaleReceipt, SubscriptionClosed, StoreClosed."""
        return self._of(delivery).message_of(delivery)

    def topic_of(self, delivery: Delivery | int) -> str:
        """The topic of a delivery, or of a receipt of this object. Raises StaleReceipt, as `ack` does."""
        return self._of(delivery).topic

    # -- moving ---------------------------------------------------------------------------------------

    def seek(self, position: TopicsStart) -> None:
        """Move the cursor in all topics, or in some queues: one topic after another, each durable before the next.

        Args:
            position: "earliest", "latest", a time in ms since the epoch, or a dict of offsets by (topic, queue id).

        Raises: as for `Subscription.seek`. With OffsetOutOfRange and InvalidMessage nothing was moved; with the others
        some topics may have been: seek again.
        """
        members = {member.topic: member for member in self._all()}
        move_all(self._members.parts, members, check_topics_start(position, members))

    async def seek_async(self, position: TopicsStart) -> None:
        """`seek` for coroutines."""
        await self._aside(partial(self.seek, position))

    def skip_all(self) -> None:
        """Acknowledge all messages of all topics: `seek("latest")`."""
        self.seek("latest")

    def change(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """Change settings in all topics, one after another, and for those that join later.

        Args and errors: as for `Subscription.change`. If a value is not valid, nothing was changed; with other errors
        some topics may have been: change it again.
        """
        members = self._all()
        changes = filter, max_attempts, dead_letter_topic, precision_ms, backoff_ms
        settings = self._settings().changed(*changes)  # raises before the first is changed
        if settings.dead_letter_topic in {member.topic for member in members}:
            raise InvalidMessage(
                f"dead_letter_topic is {shown(dead_letter_topic)}, one of the subscription's own topics; name another"
            )
        for member in members:
            with suppress(SubscriptionClosed):  # deleted meanwhile
                member.change(
                    filter=filter, max_attempts=max_attempts, dead_letter_topic=dead_letter_topic,
                    precision_ms=precision_ms, backoff_ms=backoff_ms,
                )  # fmt: skip
        self._members.settings = settings

    async def change_async(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """`change` for coroutines."""
        call = partial(
            self.change, filter=filter, max_attempts=max_attempts, dead_letter_topic=dead_letter_topic,
            precision_ms=precision_ms, backoff_ms=backoff_ms,
        )  # fmt: skip
        await self._aside(call)

    def close(self) -> None:
        """Close this object: what it was given and has not acknowledged comes again at once.

        The subscriptions stay, durably, until `MessageStore.delete_subscription`. A second call does nothing, or
        finishes a first one that was interrupted.
        """
        self._closed = True  # first: calls from here on are refused
        with suppress(StoreClosed):
            self._members.parts.check_open()
            self._members.close()

    def __reduce__(self) -> NoReturn:
        """Raise TypeError, see `Subscription.__reduce__`."""
        raise TypeError(f"{self!r} cannot be copied or pickled; subscribe again: all objects of the name share cursors")

    def __enter__(self) -> TopicsSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        what = f"{len(self._members.by_topic)} topics" if self._pattern is None else f"topics {self._pattern!r}"
        return f"<TopicsSubscription {self.name!r} of {what}, {'closed' if self.closed else 'open'}>"
