"""A subscription over a connection, with the calls of `Subscription`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy.typing as npt

from stratalog import Backlog, Delivery, DeliveryBatch, StoreClosed, StoreError, SubscriptionClosed
from stratalog.store import InFlightMessage, Position

from ...errors import ConnectionLost
from ..columns import deliveries_in, receipts_out
from ..frames import Buffer
from ..values import to_json
from .connection import NOBODY, Asked, Connection, Convert, nothing_of
from .link import Link, value_of
from .promises import Answer
from .reading import positions_of
from .tickets import RemoteTicket
from .waiting import wait_for, wait_in_loop

if TYPE_CHECKING:
    from stratalog.store.filters.given import Filter
    from stratalog.store.subscriptions.backoff import Backoff

MAX_BYTES = 16 << 20
VISIBILITY_MS = 30_000
ROUND_MS = 60_000  # of a wait for the next message


class RemoteSubscription:
    """A durable cursor over all queues of a topic; made by `RemoteStore.subscribe`.

    Its calls have the arguments, results and errors of `stratalog.Subscription`. It belongs to its connection: when
    that ends, because of a `close`, or because this process or the network dies, its messages come again at once, also
    to other consumers. If the connection was lost, the next call opens it again, and raises SubscriptionClosed if it
    was deleted meanwhile; receipts of before are stale then.
    Any number of threads and event loops may use it.
    """

    def __init__(self, link: Link, arguments: Mapping[str, object], store: object) -> None:
        """Use `RemoteStore.subscribe`. The store's object stays open as long as this one is used."""
        self._store = store
        self._link = link
        self._arguments = to_json(dict(arguments))
        self.held = next(link.numbers)
        self._lock = threading.Lock()
        self._opened_on: Connection | None = None
        self._closed = False
        self._opened: Answer[Any] = Answer(link.answers_lock)
        self._names: dict[str, Any] = {"name": arguments.get("name")}
        self._finalizer = weakref.finalize(self, link.let_go, self.held)
        self._finalizer.atexit = False
        self.send(self._asked("opened"), only_open=True)
        self._opened.wait()
        self._names = self._opened.get()

    def send(self, asked: Asked, *, only_open: bool = False) -> tuple[Connection, int]:
        """Send a call to the subscription, on a connection that has it open. Raises StoreClosed, SubscriptionClosed."""
        while True:
            connection = self._link.connection()
            self._check()
            with self._lock:
                if self._opened_on is not connection:
                    header = {"call": "subscribe", "held": self.held, "arguments": self._arguments}
                    if self._opened.done():
                        header["again"] = True  # if it was deleted meanwhile, it is not made anew
                    if connection.ask(Asked(header, (), self._opened, value_of)) is None:
                        continue
                    self._opened_on = connection
            if only_open:
                return connection, 0
            number = connection.ask(asked)
            if number is not None:
                return connection, number

    def _check(self) -> None:
        if self._closed:
            raise SubscriptionClosed(f"the subscription {self.name!r} was closed or deleted; subscribe again")

    def _asked(self, call: str, convert: Convert = value_of, buffers: Sequence[Buffer] = (), **header: Any) -> Asked:
        return Asked({"call": call, "held": self.held, **header}, buffers, NOBODY, convert)

    def _wait(self, asked: Asked) -> Any:
        self._link.check()
        self._check()
        try:
            return wait_for(self.send, self._link.answers_lock, asked)
        except SubscriptionClosed:
            self._closed = True  # it was deleted
            raise

    async def _wait_in_loop(self, asked: Asked) -> Any:
        self._link.check()
        self._check()
        try:
            return await wait_in_loop(self.send, asked)
        except SubscriptionClosed:
            self._closed = True
            raise

    def _plain(self, name: str, **arguments: object) -> Asked:
        return self._asked("on_subscription", name=name, arguments=to_json(arguments))

    @property
    def topic(self) -> str:
        """The topic."""
        return str(self._names.get("topic"))

    @property
    def name(self) -> str:
        """The subscription's name, which is unique within its topic."""
        return str(self._names["name"])

    @property
    def closed(self) -> bool:
        """True after `close`, and when a call has found that the subscription was deleted."""
        return self._closed

    # -- receiving ------------------------------------------------------------------------------------

    def receive(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Take messages. Args and errors: as for `Subscription.receive`."""
        return self._few(max_messages, wait_ms, visibility_timeout_ms, queue_id=queue_id)

    def receive_batch(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """Take messages as columns. Args and errors: as for `Subscription.receive_batch`."""
        return self._batch(max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, queue_id=queue_id)

    async def receive_async(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """`receive` for coroutines; if it is cancelled, its messages go to other consumers."""
        return await self._few_async(max_messages, wait_ms, visibility_timeout_ms, queue_id=queue_id)

    async def receive_batch_async(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """`receive_batch` for coroutines."""
        return await self._batch_async(
            max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, queue_id=queue_id
        )

    def _few(self, *given: object, **more: object) -> list[Delivery]:
        found: DeliveryBatch = self._wait(self._receiving("receive_few", *given, **more))
        return found.deliveries()

    async def _few_async(self, *given: object, **more: object) -> list[Delivery]:
        found: DeliveryBatch = await self._wait_in_loop(self._receiving("receive_few", *given, **more))
        return found.deliveries()

    def _batch(self, *given: object, **more: object) -> DeliveryBatch:
        found: DeliveryBatch = self._wait(self._receiving("receive", *given, **more))
        return found

    async def _batch_async(self, *given: object, **more: object) -> DeliveryBatch:
        found: DeliveryBatch = await self._wait_in_loop(self._receiving("receive", *given, **more))
        return found

    def _receiving(
        self, call: str, max_messages: object, wait_ms: object, visibility_timeout_ms: object, **more: object
    ) -> Asked:
        arguments = {
            "max_messages": max_messages, "wait_ms": wait_ms, "visibility_timeout_ms": visibility_timeout_ms, **more,
        }  # fmt: skip
        asked = self._asked(call, deliveries_in, arguments=to_json(arguments))
        return asked._replace(unwanted=self._give_back)

    def _give_back(self, batch: DeliveryBatch) -> None:
        """A receive was cancelled when its messages were on their way: they go to other consumers."""
        if len(batch):
            asked = self._asked(
                "on_subscription", buffers=[batch.receipts], name="nack_batch", arguments=to_json({"delay_ms": 0})
            )
            with suppress(StoreError):  # the end of the connection gives them back, too
                self.send(asked)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield each message as it comes, without an end; wait for the next one. Acknowledge each.

        It ends when the subscription or the store object is closed. Errors: as for `receive`.
        """
        self._link.check()
        self._check()
        while True:
            try:
                found = self.receive(1, ROUND_MS)
            except (SubscriptionClosed, StoreClosed):
                return
            yield from found

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """The iterator for coroutines: `async for delivery in sub`."""
        self._link.check()
        self._check()
        while True:
            try:
                found = await self.receive_async(1, ROUND_MS)
            except (SubscriptionClosed, StoreClosed):
                return
            for delivery in found:
                yield delivery

    __contains__ = None  # a search with `in` would take messages, and wait for more

    # -- acknowledging --------------------------------------------------------------------------------

    def ack(self, delivery: Delivery | int) -> None:
        """Acknowledge a message. It never comes again once this has returned. Errors: as for `Subscription.ack`."""
        self._wait(self._plain("ack", delivery=delivery))

    async def ack_async(self, delivery: Delivery | int) -> None:
        """`ack` for coroutines."""
        await self._wait_in_loop(self._plain("ack", delivery=delivery))

    def submit_ack(self, delivery: Delivery | int) -> RemoteTicket:
        """Acknowledge a message, and return a ticket at once. What the store refuses, `ticket.result` raises."""
        ticket = RemoteTicket(self._link.answers_lock, self._link.callbacks)
        self._link.check()
        self._check()
        self.send(self._plain("ack", delivery=delivery)._replace(settled=ticket, convert=_no_offset, appends=True))
        return ticket

    def ack_batch(self, receipts: npt.ArrayLike | Sequence[Delivery]) -> None:
        """Acknowledge messages, by their receipts (n,) or deliveries. Errors: as for `Subscription.ack_batch`."""
        self._wait(self._many("ack_batch", receipts))

    def _many(self, name: str, receipts: Any, **arguments: object) -> Asked:
        """A call with many receipts: as a column, if they are plain numbers."""
        numbers = receipts_out(receipts)
        if hasattr(numbers, "dtype") and numbers.ndim == 1 and numbers.dtype.kind == "i" and len(numbers):
            return self._asked("on_subscription", buffers=[numbers], name=name, arguments=to_json(arguments))
        return self._plain(name, receipts=numbers, **arguments)

    def ack_up_to(self, delivery: Delivery | int) -> int:
        """Acknowledge a message, and all messages of its queue before it that this object has; return their number.

        Errors: as for `Subscription.ack_up_to`.
        """
        return int(self._wait(self._plain("ack_up_to", delivery=delivery)))

    async def ack_up_to_async(self, delivery: Delivery | int) -> int:
        """`ack_up_to` for coroutines."""
        return int(await self._wait_in_loop(self._plain("ack_up_to", delivery=delivery)))

    def nack(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """Give a message back: it comes again after `delay_ms`. Args and errors: as for `Subscription.nack`."""
        self._wait(self._plain("nack", delivery=delivery, delay_ms=delay_ms, reason=reason))

    async def nack_async(self, delivery: Delivery | int, delay_ms: int = 0, *, reason: str | None = None) -> None:
        """`nack` for coroutines."""
        await self._wait_in_loop(self._plain("nack", delivery=delivery, delay_ms=delay_ms, reason=reason))

    def nack_batch(
        self, receipts: npt.ArrayLike | Sequence[Delivery], delay_ms: int = 0, *, reason: str | None = None
    ) -> None:
        """Give messages back, by their receipts (n,) or deliveries. Errors: as for `Subscription.nack_batch`."""
        self._wait(self._many("nack_batch", receipts, delay_ms=delay_ms, reason=reason))

    def extend(self, delivery: Delivery | int, ms: int) -> None:
        """Keep a message for so many milliseconds from now on. Errors: as for `Subscription.extend`."""
        self._wait(self._plain("extend", delivery=delivery, ms=ms))

    async def extend_async(self, delivery: Delivery | int, ms: int) -> None:
        """`extend` for coroutines."""
        await self._wait_in_loop(self._plain("extend", delivery=delivery, ms=ms))

    # -- looking and moving ---------------------------------------------------------------------------

    def backlog(self) -> Backlog:
        """How many messages are not acknowledged: ready, in flight, delayed."""
        return Backlog(*self._wait(self._plain("backlog")))

    def positions(self) -> dict[Any, Position]:
        """How far it is in each queue of its topic, by queue id; of several topics, by (topic, queue id)."""
        return positions_of(self._wait(self._plain("positions")))

    def in_flight(self) -> list[InFlightMessage]:
        """The messages that consumers have, those of all objects of the subscription, as they were given out."""
        return [InFlightMessage(*one) for one in self._wait(self._plain("in_flight"))]

    def message_of(self, delivery: Delivery | int) -> InFlightMessage:
        """Which message a delivery or a receipt is of. Errors: as for `Subscription.message_of`."""
        return InFlightMessage(*self._wait(self._plain("message_of", delivery=delivery)))

    def seek(self, position: Any) -> None:
        """Move the cursor. Args and errors: as for `Subscription.seek`."""
        self._wait(self._plain("seek", position=position))

    async def seek_async(self, position: Any) -> None:
        """`seek` for coroutines."""
        await self._wait_in_loop(self._plain("seek", position=position))

    def skip_all(self) -> None:
        """Acknowledge all messages: `seek("latest")`."""
        self.seek("latest")

    def change(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """Change settings of the subscription. Args and errors: as for `Subscription.change`."""
        self._wait(
            self._plain(
                "change", filter=filter, max_attempts=max_attempts, dead_letter_topic=dead_letter_topic,
                precision_ms=precision_ms, backoff_ms=backoff_ms,
            )
        )  # fmt: skip

    async def change_async(
        self, *, filter: Filter | EllipsisType | None = ..., max_attempts: int | None = None,
        dead_letter_topic: str | None = None, precision_ms: int | None = None, backoff_ms: Backoff | None = None,
    ) -> None:  # fmt: skip
        """`change` for coroutines."""
        await self._wait_in_loop(
            self._plain(
                "change", filter=filter, max_attempts=max_attempts, dead_letter_topic=dead_letter_topic,
                precision_ms=precision_ms, backoff_ms=backoff_ms,
            )
        )  # fmt: skip

    def close(self) -> None:
        """Close this object. Messages that it was given and has not acknowledged come again at once.

        The subscription itself stays, durably. A second call does nothing.
        """
        self._finalizer.detach()
        if self._closed:
            return
        self._closed = True
        with suppress(StoreClosed, ConnectionLost, SubscriptionClosed):  # the server has closed it already
            self._link.check()
            connection = self._opened_on
            if connection is None:
                return
            answer: Answer[None] = Answer(self._link.answers_lock)
            if connection.ask(self._asked("close", nothing_of)._replace(settled=answer)) is not None:
                answer.wait()
                answer.get()

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: there is no copy and no pickle."""
        raise TypeError(
            f"{self!r} cannot be copied or pickled; subscribe again: all objects of the name share a cursor"
        )

    def __enter__(self) -> RemoteSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {'closed' if self.closed else 'open'}>"


def _no_offset(header: dict[str, Any], buffers: list[memoryview]) -> tuple[int, bool]:
    return 0, False
