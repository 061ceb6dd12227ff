"""The consumer groups: each is a subscription of the store for each of its topics, shared by all of its clients."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stratalog import InvalidMessage

from ..subscribed import subscription_of
from ..wire import Code
from .filters import Filter
from .naming import DEAD_LETTERS, check_group, dead_letters_of
from .statuses import Refused

if TYPE_CHECKING:
    from stratalog import Delivery, MessageStore, Subscription

    from .options import RocketMQOptions
    from .topics import Topics


class Receipt(NamedTuple):
    """What a receipt handle says: the store's receipt, and for a reader the message's queue and offset."""

    number: int
    queue_id: int
    offset: int

    def pack(self) -> str:
        """The handle that the client gets."""
        return f"{self.number}:{self.queue_id}:{self.offset}"

    @classmethod
    def unpack(cls, handle: str) -> Receipt:
        """Raises Refused for what is no handle."""
        try:
            number, queue_id, offset = map(int, handle.split(":"))
        except ValueError:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid") from None
        return cls(number, queue_id, offset)

    @classmethod
    def of(cls, delivery: Delivery) -> Receipt:
        """The receipt of a message that was received."""
        return cls(delivery.receipt, delivery.message.queue_id, delivery.message.offset)


class Group:
    """A consumer group of one topic.

    Attributes:
        topic, name: of the topic and of the group.
        sub: its subscription.
        wanted: the filter that it has now.
    """

    def __init__(self, sub: Subscription, wanted: Filter) -> None:
        self.topic = sub.topic
        self.name = sub.name
        self.sub = sub
        self.wanted = wanted
        self._changing = asyncio.Lock()

    async def want(self, wanted: Filter) -> None:
        """Take another filter, durably. The filter comes with each call of a client; the newest one counts for all.

        Raises: Refused, for SQL that is wrong; errors of the store.
        """
        async with self._changing:
            if wanted != self.wanted:
                try:
                    await self.sub.change_async(filter=wanted)
                except InvalidMessage as error:
                    raise _wrong_filter(error) from None
                self.wanted = wanted


class Groups:
    """The groups that clients have used since the start. Used on one event loop."""

    def __init__(self, store: MessageStore, options: RocketMQOptions, topics: Topics) -> None:
        self._store = store
        self._options = options
        self._topics = topics
        self._open: dict[tuple[str, str], Group] = {}
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def group(self, topic: str, name: str, wanted: Filter) -> Group:
        """A group of a topic with this filter; both are made, durably, if there is none.

        Raises: Refused, for names or a filter that are not allowed; errors of the store.
        """
        group = self._open.get((topic, name))
        if group is None or group.sub.closed:
            group = await self._opened(topic, name, wanted)
        if wanted != group.wanted:
            await group.want(wanted)
        return group

    def open_group(self, topic: str, name: str) -> Group | None:
        """A group that is open; None if nobody has received in it since the start, or it was deleted."""
        group = self._open.get((topic, name))
        return None if group is None or group.sub.closed else group

    def known(self, topic: str, name: str) -> Group:
        """A group that is open. Raises Refused: nobody has received in it since the start, so no receipt is good."""
        group = self._open.get((topic, name))
        if group is None:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, f"receipt handle is expired: {name} has received nothing")
        return group

    async def _opened(self, topic: str, name: str, wanted: Filter) -> Group:
        check_group(name)
        await self._topics.queues_of(topic)
        place = topic, name
        async with self._opening.setdefault(place, asyncio.Lock()):
            try:
                group = self._open.get(place)
                if group is None or group.sub.closed:
                    group = self._open[place] = await asyncio.to_thread(self._subscribe, topic, name, wanted)
                return group
            finally:
                self._opening.pop(place, None)

    def _subscribe(self, topic: str, name: str, wanted: Filter) -> Group:
        is_fifo = name in self._options.fifo_groups
        subscribe = partial(
            self._store.subscribe, topic, name, mode="ordered" if is_fifo else "shared",
            order_by="key" if is_fifo else "queue",
        )  # fmt: skip
        info = subscription_of(self._store, topic, name)
        known = None if info is None else info.settings
        if known is not None and known.mode != ("ordered" if is_fifo else "shared"):
            raise Refused(
                Code.ILLEGAL_CONSUMER_GROUP,
                f"the group {name} of {topic} was made with mode={known.mode!r}, and fifo_groups says another: "
                "delete its subscription first",
            )
        try:
            sub = subscribe(filter=wanted if known is None else known.filter)
        except InvalidMessage as error:
            raise _wrong_filter(error) from None
        if not topic.startswith(DEAD_LETTERS):  # dead letters have no dead letters, else they could go round
            most, letters = self._options.max_attempts, dead_letters_of(name)
            now = (None, None) if known is None else (known.max_attempts, known.dead_letter_topic)
            if now != (most, letters) and now[1] in (None, letters):  # another one is the program's own
                sub.change(max_attempts=most, dead_letter_topic=letters)
        return Group(sub, wanted if known is None else known.filter)

    def close(self) -> None:
        """Close all: what their consumers have comes again at once, also at another endpoint of the store."""
        groups, self._open = self._open, {}
        with ExitStack() as closing:  # an error of one leaves no other open
            for group in groups.values():
                closing.callback(group.sub.close)


def _wrong_filter(error: InvalidMessage) -> Refused:
    return Refused(Code.ILLEGAL_FILTER_EXPRESSION, str(error))
