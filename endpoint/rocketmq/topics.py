"""Which queues a topic has; makes a topic at its first use, and chooses the queue of a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import xxhash

from ..wire.codes import MessageType
from .naming import DEAD_LETTERS, UNRESOLVED_TOPIC, check_topic
from .statuses import no_topic

if TYPE_CHECKING:
    from stratalog import MessageStore

    from .options import RocketMQOptions

ALL_TYPES: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


class Topics:
    """The topics that clients have asked for. Used on one event loop."""

    def __init__(self, store: MessageStore, options: RocketMQOptions) -> None:
        self._store = store
        self._options = options
        self._queues: dict[str, int] = {}
        self._turn = 0
        self._making: dict[str, asyncio.Lock] = {}

    async def queues_of(self, topic: str) -> int:
        """How many queues a topic has; they are 0 to that number - 1. It is made, durably, if there is none.

        Raises: Refused, for a name that is not allowed, or if there is none and none may be made; errors of the store.
        """
        known = self._queues.get(topic)
        return known if known is not None else await self._found(topic)

    async def _found(self, topic: str) -> int:
        async with self._making.setdefault(topic, asyncio.Lock()):
            try:
                if topic not in self._queues:
                    self._queues[topic] = self._existing(topic) or await self._make(topic)
                return self._queues[topic]
            finally:
                self._making.pop(topic, None)

    def _existing(self, topic: str) -> int:
        """The queues of a topic that there is; 0 if there is none."""
        check_topic(topic)
        used = self._store.queues(topic)
        return max(used) + 1 if used else 0

    async def _make(self, topic: str) -> int:
        own = topic.startswith(DEAD_LETTERS) or topic == UNRESOLVED_TOPIC
        if not (self._options.create_topics or own):
            raise no_topic(topic)
        await self._store.configure_topic_async(topic, queues=self._options.queues)
        return self._options.queues

    def types_of(self, topic: str) -> tuple[MessageType, ...]:
        """The types of messages that a topic takes, as its settings say by now. Raises as `topic_settings`."""
        types = self._store.topic_settings(topic).types
        return ALL_TYPES if types is None else tuple([MessageType[one.upper()] for one in types])

    def queue_for(self, queues: int, line: str) -> int:
        """The queue of a message: by its line, as the store chooses by a key; the next one in turn if that is empty."""
        if line:
            return xxhash.xxh3_64_intdigest(line.encode()) % queues
        self._turn += 1
        return self._turn % queues

    def forget(self, topic: str | None = None) -> None:
        """Ask the store again for a topic, or for each: it may be gone, or have other queues."""
        if topic is None:
            self._queues.clear()
        else:
            self._queues.pop(topic, None)
