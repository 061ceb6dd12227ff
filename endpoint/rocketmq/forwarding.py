"""ForwardMessageToDeadLetterQueue: a message that a consumer of a FIFO group gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog import InvalidMessage, OffsetOutOfRange, StaleReceipt

from ..wire import CLASSES, Code
from .groups import Receipt
from .naming import dead_letters_of
from .statuses import OK, Refused
from .translating import STORY

if TYPE_CHECKING:
    from stratalog import Message, MessageStore

    from .clients import Clients
    from .groups import Group, Groups
    from .topics import Topics

_ANSWER: Final = CLASSES["ForwardMessageToDeadLetterQueueResponse"]


class Forwarding:
    """Moves messages to the dead letters: stored there and acknowledged here by one transaction."""

    def __init__(self, store: MessageStore, topics: Topics, groups: Groups, clients: Clients) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients

    async def forward(self, request: Any, context: Any) -> Any:
        """Move a message that the client has. With the story that the store gives to its own dead letters."""
        client = self._clients.of(context, makes=False)
        group = self._groups.known(request.topic.name, request.group.name)
        receipt = Receipt.unpack(request.receipt_handle)
        held = client.held.get((group, receipt.number))
        try:
            group.sub.message_of(receipt.number)
            message = held.message if held is not None else await self._read(group, receipt)
            properties = dict(message.properties or {}) | _story(message, group, request.delivery_attempt)
            topic = dead_letters_of(group.name)
            queue_id = message.queue_id % await self._topics.queues_of(topic)
            async with self._store.transaction() as tx:
                tx.append(topic, queue_id, message.data, key=message.key, properties=properties)
                tx.ack(receipt.number, group.sub)
        except (StaleReceipt, InvalidMessage) as error:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
        client.held.pop((group, receipt.number), None)
        return _ANSWER(status=OK)

    async def _read(self, group: Group, receipt: Receipt) -> Message:
        try:
            found = await self._store.read_async(group.topic, receipt.queue_id, receipt.offset, max_messages=1)
        except OffsetOutOfRange:
            found = []
        if not found or found[0].offset != receipt.offset:
            raise Refused(Code.MESSAGE_NOT_FOUND, "the message was removed")
        return found[0]


def _story(message: Message, group: Group, attempts: int) -> dict[str, str]:
    """Where a dead letter comes from, as the store says it of its own."""
    return {
        f"{STORY}topic": message.topic,
        f"{STORY}queue_id": str(message.queue_id),
        f"{STORY}offset": str(message.offset),
        f"{STORY}subscription": group.name,
        f"{STORY}attempts": str(attempts),
        f"{STORY}reason": "the consumer has given it up",
    }
