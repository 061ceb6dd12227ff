"""What a connection holds at the server: its subscriptions and its scans, by numbers that the client chose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from stratalog import MessageBatch, MessageStore, StoreError, Subscription, SubscriptionClosed

from ...subscribed import subscription_of
from ..columns import Columns, batch_out, deliveries_out, numbers_in
from ..frames import BrokenFrame, Frame
from ..values import from_json, to_json
from .appends import Aside
from .gate import READ_BYTES, WAITING_BYTES, Gate, capped, waits

T = TypeVar("T")
MOST_HELD = 4096  # subscriptions and scans of a connection
MOST_FAILED = 256  # subscriptions whose opening has failed: so many of the newest ones are remembered
SUBSCRIPTION_COROUTINES = {
    "ack": "ack_async", "ack_up_to": "ack_up_to_async", "nack": "nack_async", "extend": "extend_async",
    "seek": "seek_async", "change": "change_async",
}  # fmt: skip
SUBSCRIPTION_CALLS = {"ack_batch", "nack_batch", "backlog", "positions", "in_flight", "message_of", "topic_of"}


Closing = Callable[[Callable[[], object]], object]  # makes a call in a thread soon, whether anybody waits or not


class Holdings:
    """The subscriptions and scans of one connection.

    Invariants: each subscription that was opened is closed when the connection ends, also one whose opening ends later.
    So its messages come again at once. A number names one subscription or scan at a time.
    """

    def __init__(self, store: MessageStore, aside: Aside, closing: Closing, gate: Gate) -> None:
        self._gate = gate
        self._store = store
        self._aside = aside
        self._closing = closing
        self._subscriptions: dict[int, asyncio.Future[Any]] = {}
        self._failed: dict[int, BaseException] = {}  # calls that came after such a subscribe have its error
        self._scans: dict[int, Iterator[MessageBatch]] = {}

    async def subscribe(self, frame: Frame) -> Columns:
        """Open a subscription; later calls name it by its number. With `again` it was open on an earlier connection."""
        number, arguments = self._new_number(frame), from_json(frame.header["arguments"])
        is_again = bool(frame.header.get("again"))
        opening = self._aside(lambda: self._subscribe(arguments, is_again=is_again))
        self._failed.pop(number, None)
        self._subscriptions[number] = opening
        opening.add_done_callback(partial(self._note_failed, number))
        opened = await asyncio.shield(opening)
        topics = {"topic": opened.topic} if isinstance(opened, Subscription) else {"topics": opened.topics}
        return Columns({"value": to_json({"name": opened.name, **topics})}, [])

    def _subscribe(self, arguments: dict[str, Any], *, is_again: bool) -> Any:
        return self._store.subscribe(**(_left(self._store, arguments) if is_again else arguments))

    def _note_failed(self, number: int, opening: asyncio.Future[Any]) -> None:
        """It takes no place of others any more, if its opening has failed."""
        error = None if opening.cancelled() else opening.exception()
        if error is not None and self._subscriptions.get(number) is opening:
            del self._subscriptions[number]
            self._failed[number] = error
            if len(self._failed) > MOST_FAILED:
                del self._failed[next(iter(self._failed))]

    def _new_number(self, frame: Frame) -> int:
        """The number of what is to be held. Raises StoreError for too many; BrokenFrame for one that is in use."""
        number = int(frame.header["held"])
        if number in self._subscriptions or number in self._scans:
            raise BrokenFrame("two subscriptions or scans of a connection have one number")
        if len(self._subscriptions) + len(self._scans) >= MOST_HELD:
            raise StoreError(f"a connection has at most {MOST_HELD} subscriptions and scans open; close some")
        return number

    def names_of(self, number: object) -> tuple[list[str], str] | None:
        """The topics and the name of an open subscription, for those who watch calls; None if the number has none."""
        opening = self._subscriptions.get(number) if isinstance(number, int) else None
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        opened = opening.result()
        return ([opened.topic] if isinstance(opened, Subscription) else list(opened.topics)), opened.name

    async def opened(self, number: int) -> Any:
        """The subscription of a number. Raises BrokenFrame, and the error of its opening if that failed."""
        found = self._subscriptions.get(number)
        if found is None:
            if number in self._failed:
                raise self._failed[number]
            raise BrokenFrame("a call names no subscription of its connection")
        return found.result() if found.done() else await asyncio.shield(found)

    async def receive(self, frame: Frame) -> Columns:
        """Take messages. If the call is cancelled, they go to other consumers."""
        sub = await self.opened(int(frame.header["held"]))
        arguments = from_json(frame.header["arguments"])
        if waits(arguments):
            batch = await sub.receive_batch_async(**capped(arguments, WAITING_BYTES))
        else:
            batch = await self._gate.read(lambda: sub.receive_batch_async(**capped(arguments, READ_BYTES)))
        return batch_out(batch) if len(batch) else Columns({}, [])

    async def receive_few(self, frame: Frame) -> Columns:
        """Take messages as `receive` does: of a few the store has a short way to give them one by one."""
        sub = await self.opened(int(frame.header["held"]))
        found = await sub.receive_async(**from_json(frame.header["arguments"]))
        return deliveries_out(found) if found else Columns({}, [])

    async def call(self, frame: Frame) -> Columns:
        """One of the other calls of a subscription."""
        sub, name = await self.opened(int(frame.header["held"])), frame.header["name"]
        arguments = from_json(frame.header["arguments"])
        if frame.buffers:
            arguments["receipts"] = numbers_in(frame.buffers[0])
        if name in SUBSCRIPTION_COROUTINES:
            found = await getattr(sub, SUBSCRIPTION_COROUTINES[name])(**arguments)
        elif name in SUBSCRIPTION_CALLS:
            found = await self._aside(lambda: getattr(sub, name)(**arguments))
        elif name == "topics":
            found = sub.topics
        else:
            raise BrokenFrame(f"a subscription has no call {name!r}")
        return Columns({"value": to_json(found)}, [])

    async def close(self, frame: Frame) -> Columns:
        """Close a subscription, or drop a scan."""
        number = int(frame.header["held"])
        self._scans.pop(number, None)
        self._failed.pop(number, None)
        opening = self._subscriptions.pop(number, None)
        if opening is not None:
            try:
                opened = await asyncio.shield(opening)
                await self._aside(opened.close)
            except asyncio.CancelledError:  # the connection has ended, and perhaps the close has not begun
                opening.add_done_callback(self._close_one)
                raise
        return Columns({}, [])

    async def scan(self, frame: Frame) -> Columns:
        """Begin a scan: a snapshot of this moment."""
        number, arguments = self._new_number(frame), from_json(frame.header["arguments"])
        self._scans[number] = iter(())  # its place
        try:
            found = await self._aside(lambda: self._store.scan(**arguments))
        except BaseException:
            self._scans.pop(number, None)
            raise
        if number in self._scans:
            self._scans[number] = found
        return Columns({}, [])

    async def scan_next(self, frame: Frame) -> Columns:
        """The next batch of a scan; none at its end."""
        scan = self._scans.get(int(frame.header["held"]))
        if scan is None:
            raise BrokenFrame("a call names no scan of its connection")
        batch = await self._gate.read(lambda: self._aside(lambda: next(scan, None)))
        return Columns({}, []) if batch is None else batch_out(batch)

    def end(self) -> None:
        """The connection has ended: close all of it, without a wait."""
        for opening in self._subscriptions.values():  # `MOST_HELD` of them at most
            opening.add_done_callback(self._close_one)
        self._subscriptions.clear()
        self._scans.clear()

    def _close_one(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._closing(opening.result().close)


def _left(store: MessageStore, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without topics in which the subscription was deleted: it must not be made anew there.

    Of a pattern each topic stays: which ones it had is not known. Raises SubscriptionClosed if none is left.
    """
    topic, name = arguments["topic"], arguments["name"]
    if arguments.get("pattern") is not None:
        return arguments
    topics = [topic] if isinstance(topic, str) else topic  # those that the client has named one by one
    left = [one for one in topics if subscription_of(store, one, name) is not None]
    if not left:
        raise SubscriptionClosed(f"the subscription {name!r} was deleted; subscribe again")
    if isinstance(topic, str):
        return arguments
    start = arguments["start"]
    if isinstance(start, Mapping):
        start = {place: offset for place, offset in start.items() if place[0] in left}
    return {**arguments, "topic": left, "start": start}
