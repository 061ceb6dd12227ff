"""The subscription that a user holds: it checks arguments, waits, and asks `dispatcher` and `state`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import StoreClosed, SubscriptionClosed
from ..filters.given import Filter
from ..log.ticket import Ticket
from .backoff import Backoff
from .changing import change_settings
from .delivery import Delivery, DeliveryBatch
from .inspecting import Inspecting
from .iterating import Iterating
from .queue_receiving import QueueLooking
from .receiving import Looking, ReceiveCall
from .settings import (
    LONGEST_MS,
    ReceiveArguments,
    Settings,
    Start,
    check_number,
    check_reason,
    check_start,
    is_few,
    offsets_of,
    receipt_of,
    receipts_of,
    wanted_of,
)

if TYPE_CHECKING:
    from .shared import Shared

MAX_BYTES = 16 << 20
VISIBILITY_MS = 30_000
TURNS = 20  # of a coroutine that waits while a thread receives
T = TypeVar("T")


class Subscription(Inspecting, Iterating):
    """A durable cursor over all queues of a topic; made by `MessageStore.subscribe`.

    Each message is given out until it is acknowledged: at least once. All objects of one name share one state, so
    their consumers compete. Any number of threads and event loops may use one object. After `close`, or when the
    subscription was deleted, all calls but `close` raise `SubscriptionClosed`.
    """

    def __init__(self, shared: Shared, owner: int) -> None:
        """Use `MessageStore.subscribe`. `owner` is its number among all objects of the name."""
        self._shared = shared
        self._state = shared.state
        self._acks = shared.acks
        self._dispatcher = shared.dispatcher
        self._looks = Looking(shared.state, shared.dispatcher)
        self._life = shared.state.cursor.life
        self._owner = owner
        self._closed = False

    @property
    def topic(self) -> str:
        """The topic."""
        return self._state.topic

    @property
    def name(self) -> str:
        """The subscription's name, which is unique within its topic."""
        return self._state.name

    @property
    def closed(self) -> bool:
        """True after `close`, and when the subscription was deleted."""
        return self._closed or self._life != self._state.cursor.life

    def _settings(self) -> Settings:
        """The settings. Raises SubscriptionClosed, StoreClosed."""
        state = self._state
        state.parts.check_open()
        if state.unfinished.change is not None or self._acks.cut_short:  # no call: each acknowledgement comes here
            self._acks.finish()
        settings = state.cursor.settings
        if self._closed or self._life != state.cursor.life or settings is None:
            why = "closed" if self._closed else "deleted"
            raise SubscriptionClosed(f"the subscription {self.name!r} of {self.topic!r} was {why}; subscribe again")
        return settings

    # -- receiving ------------------------------------------------------------------------------------

    def receive(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Take messages. Each is this consumer's until its visibility time-out, and comes again if it is not
        acknowledged by then.

        Messages that were given back or timed out come first, then due ones, then new ones: of each queue in order, the
        queues by turns.

        Args:
            max_messages: at most so many, and at least one if there is one.
            wait_ms: how long to wait for the first one; 0 does not wait. It first looks through all messages, however
                long that takes: a filter may leave many out.
            visibility_timeout_ms: how long no other consumer gets them.
            queue_id: only messages of this queue, also if it has none yet; None is all queues.

        A call that meets an error returns messages of other places, and the next call raises the error.

        Raises:
            StoreCorrupt: the next message is damaged. Messages of other queues come at the next call; `seek` passes it.
                A damaged message that was given back, or timed out, is tried again after a second.
            StoreUnreadable: the system refused a read; receive again.
            TopicFull: the dead letters' topic takes none for now; receive again.
            PublishBufferFull, StoreFull, StorePoisoned: a dead letter, or with `max_attempts` the number of attempts,
                could not be stored; receive again.
            SubscriptionClosed, StoreClosed, InvalidMessage, InvalidTopic: nothing was taken.
        """
        if is_few(max_messages, wait_ms, visibility_timeout_ms) and queue_id is None:
            few = self._dispatcher.receive_few(max_messages, visibility_timeout_ms, self._owner, self._settings)
            if few is not None:
                return few
        return self.receive_batch(max_messages, wait_ms, visibility_timeout_ms, queue_id=queue_id).deliveries()

    def receive_batch(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """Take messages as columns, with their receipts: `sub.ack_batch(batch.receipts)`.

        A batch ends before the message with which the payloads would be more than `max_bytes`, but has at least one; it
        is empty if there is none. Args and errors: as for `receive`.
        """
        batch = self._call(max_messages, wait_ms, visibility_timeout_ms, max_bytes, queue_id).run()
        return DeliveryBatch.empty() if batch is None else batch

    async def receive_async(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """`receive` for coroutines: neither the loop nor a thread waits meanwhile."""
        if is_few(max_messages, wait_ms, visibility_timeout_ms) and queue_id is None:
            for _ in range(TURNS):
                self._settings()
                few = self._dispatcher.take_at_hand(max_messages, visibility_timeout_ms, self._owner, self._settings)
                if few is not None:
                    return few
                if not self._dispatcher.receiving.locked():
                    break
                await asyncio.sleep(0)  # not a wait for an event: a thread is receiving, and will be done soon
        batch = await self.receive_batch_async(max_messages, wait_ms, visibility_timeout_ms, queue_id=queue_id)
        return batch.deliveries()

    async def receive_batch_async(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """`receive_batch` for coroutines."""
        call = self._call(max_messages, wait_ms, visibility_timeout_ms, max_bytes, queue_id)
        batch = await call.run_async(self._aside)
        return DeliveryBatch.empty() if batch is None else batch

    def _call(self, *arguments: object) -> ReceiveCall:
        wanted = wanted_of(*arguments)
        self._settings()
        looks, only = self._looks, wanted.queue_id
        if only is None:
            return ReceiveCall(self._state, looks, wanted.wait_ms, partial(self._take, looks, wanted), self._is_closed)
        one = QueueLooking(self._state, self._dispatcher, only)
        return ReceiveCall(one, one, wanted.wait_ms, partial(self._take, one, wanted), self._is_closed, one)

    def _is_closed(self) -> bool:
        return self.closed

    def _take(self, looks: Looking, wanted: ReceiveArguments, call: ReceiveCall) -> DeliveryBatch | None:
        self._settings()
        if call.sleeper is not None:
            looks.calling.begins()
        seen = looks.version()
        with self._dispatcher.receiving:
            self._settings()
            batch = looks.look(call, seen, partial(self._dispatcher.take, *wanted[:3], self._owner, wanted.queue_id))
            noted = self._dispatcher.attempt_records
        if batch is not None and noted:
            self._dispatcher.tries.wait_for(noted, batch.receipts)
        return batch

    async def _aside(self, work: Callable[[], T]) -> T:
        """Make a call in a thread, which finishes it also if the coroutine is cancelled."""
        parts = self._state.parts
        return await parts.async_reads.aside(work, parts.check_open)

    # -- acknowledging --------------------------------------------------------------------------------

    def ack(self, delivery: Delivery | int) -> None:
        """Acknowledge a message, by its delivery or its receipt. It never comes again once this has returned.

        It returns when the acknowledgement is durable, as an append does; those of many threads share a force.

        Raises:
            StaleReceipt: the message was acknowledged or given back, or timed out and was given to another, or was
                removed. One that is removed before it times out may be acknowledged, which does nothing.
            PublishBufferFull, StoreFull: it is not acknowledged; acknowledge it again.
            StorePoisoned: a write or force failed; the next opening knows whether it is acknowledged.
            SubscriptionClosed, StoreClosed, InvalidMessage: it is not acknowledged.
        """
        receipt = receipt_of(delivery)
        self._settings()
        self._acks.ack_one(receipt)

    async def ack_async(self, delivery: Delivery | int) -> None:
        """`ack` for coroutines; those of many share a record and its force.

        If its task is cancelled, the acknowledgement becomes durable all the same, unless the log refuses it.
        """
        receipt = receipt_of(delivery)
        self._settings()
        await self._acks.ack_one_async(receipt)

    def submit_ack(self, delivery: Delivery | int) -> Ticket:
        """Acknowledge a message, and return a ticket at once: the acknowledgement is durable when it is done.

        `ticket.result()` waits for that, and so does `await ticket` in a coroutine; the number that it returns has no
        meaning. So one thread can have many acknowledgements on their way.

        Raises: as for `ack`; `ticket.result()` raises later errors. Then the message may be acknowledged again.
        """
        receipt = receipt_of(delivery)
        self._settings()
        return self._acks.submit(receipt)

    def ack_batch(self, receipts: npt.ArrayLike | Sequence[Delivery]) -> None:
        """Acknowledge messages, by their receipts (n,) or deliveries: one record in the log for all of them.

        Raises: as for `ack`; with StaleReceipt, none of them is acknowledged.
        """
        found = receipts_of(receipts)
        self._settings()
        if len(found):
            self._acks.ack(found)

    def ack_up_to(self, delivery: Delivery | int) -> int:
        """Acknowledge a message, and all messages of its queue before it that this object has; return their number.

        One record and one force for all of them. Messages that others have, or nobody yet, stay as they are: those of
        other consumers, returned ones, delayed ones.

        Raises: as for `ack`; then none of them is acknowledged.
        """
        receipt = receipt_of(delivery)
        self._settings()
        return self._acks.ack_chosen(partial(self._state.receipts_up_to, receipt, self._owner))

    async def ack_up_to_async(self, delivery: Delivery | int) -> int:
        """`ack_up_to` for coroutines. Result and errors: as for `ack_up_to`."""
        return await self._aside(partial(self.ack_up_to, delivery))

    def nack(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """Give a message back: it comes again after `delay_ms`, to the consumer that receives then.

        With 0 and a back-off, see `MessageStore.subscribe`, it comes again after the delay of its attempt.

        Args:
            reason: why, up to 1,024 bytes of UTF-8: if the message becomes a dead letter, it has the reason of its
                newest nack. It is kept in memory until then: a restart of the program forgets it.

        Raises: StaleReceipt, SubscriptionClosed, StoreClosed, InvalidMessage.
        """
        self.nack_batch([receipt_of(delivery)], delay_ms, reason=reason)

    async def nack_async(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """`nack` for coroutines. Args and errors: as for `nack`."""
        await self._aside(partial(self.nack, delivery, delay_ms, reason=reason))

    def nack_batch(
        self, receipts: npt.ArrayLike | Sequence[Delivery], delay_ms: int = 0, *, reason: str | None = None
    ) -> None:
        """Give messages back, by their receipts (n,) or deliveries. With StaleReceipt, none of them is given back.

        Args: as for `nack`.
        """
        found, delay = receipts_of(receipts), check_number("delay_ms", delay_ms, 0, LONGEST_MS)
        why = check_reason(reason)
        self._settings()
        if len(found):
            self._state.nack(found, delay, why)

    def extend(self, delivery: Delivery | int, ms: int) -> None:
        """Keep a message for so many milliseconds from now on.

        Raises: StaleReceipt, SubscriptionClosed, StoreClosed, InvalidMessage.
        """
        receipts = np.array([receipt_of(delivery)], np.int64)
        until = check_number("ms", ms, 1, LONGEST_MS)
        self._settings()
        self._state.extend(receipts, until)

    async def extend_async(self, delivery: Delivery | int, ms: int) -> None:
        """`extend` for coroutines. Errors: as for `extend`."""
        await self._aside(partial(self.extend, delivery, ms))

    # -- moving ---------------------------------------------------------------------------------------

    def seek(self, position: Start) -> None:
        """Move the cursor: all messages before it are acknowledged; all others come, also acknowledged ones.

        Durable when it returns. Receipts of the queues that it moves are stale then.

        Args:
            position: "earliest"; "latest", after the newest durable message; a time in ms since the epoch; or a dict of
                offsets by queue id, which leaves the other queues where they are.

        Raises:
            OffsetOutOfRange: an offset is beyond its queue's next one. Nothing was moved.
            PublishBufferFull, StoreFull: nothing was moved.
            StorePoisoned: a write or force failed; the next opening knows whether it was moved.
            SubscriptionClosed, StoreClosed, StoreUnreadable, InvalidMessage: nothing was moved.
        """
        start, state = check_start(position), self._state
        self._settings()
        with state.changing, self._dispatcher.receiving:
            self._settings()
            offsets = offsets_of(state.parts, self.topic, start)
            if offsets:
                self._dispatcher.move(offsets)

    async def seek_async(self, position: Start) -> None:
        """`seek` for coroutines. Args and errors: as for `seek`."""
        await self._aside(partial(self.seek, position))

    def skip_all(self) -> None:
        """Acknowledge all messages: `seek("latest")`."""
        self.seek("latest")

    def change(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """Change settings of the subscription, for all of its consumers; durable when it returns.

        Args: as for `MessageStore.subscribe`; a setting that is left out stays as it is. With `filter` None all
        messages are wanted. What the old filter has left out by now stays acknowledged; what consumers have stays
        theirs, and comes again if they do not acknowledge it; all else goes by the new filter. `backoff_ms` [] ends
        a back-off; a new one is for failures from now on.

        Raises:
            InvalidTopic, InvalidMessage: a value is not valid; nothing was changed.
            PublishBufferFull, StoreFull: nothing was changed.
            StorePoisoned: a write or force failed; the next opening knows whether it was changed.
            SubscriptionClosed, StoreClosed: nothing was changed.
        """
        changes = filter, max_attempts, dead_letter_topic, precision_ms, backoff_ms
        change_settings(self._shared, self._settings, *changes)

    async def change_async(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """`change` for coroutines. Args and errors: as for `change`."""
        changes = filter, max_attempts, dead_letter_topic, precision_ms, backoff_ms
        await self._aside(partial(change_settings, self._shared, self._settings, *changes))

    def close(self) -> None:
        """Close this object. Messages that it was given and has not acknowledged come again at once. One that it has
        given back, or that has timed out, rests on by the back-off, unless this was the subscription's last object.

        The subscription itself stays, durably, until `MessageStore.delete_subscription`. A second call does nothing, or
        finishes a first one that was interrupted.
        """
        self._closed = True  # first: calls from here on are refused
        with suppress(StoreClosed):  # a closed store has ended it; in a forked child, a lost thread may hold locks
            self._state.parts.check_open()
            self._shared.closed_one(self._life, self._owner)
            self._state.notify()  # calls that wait in it find out

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a copy, when closed, would end this object as well, so there is no copy and no pickle."""
        raise TypeError(
            f"{self!r} cannot be copied or pickled; subscribe again: all objects of the name share a cursor"
        )

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Subscription {self.name!r} of {self.topic!r}, {'closed' if self.closed else 'open'}>"
