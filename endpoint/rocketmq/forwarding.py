"""ForwardMessageToDeadLetterQueue: a message that a consumer of a FIFO group gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog import InvalidMessage, InvalidTopic, OffsetOutOfRange, StaleReceipt, SubscriptionClosed

from ..wire import CLASSES, Code
from .finishing import Finishing
from .groups import Receipt
from .naming import dead_letters_of
from .statuses import OK, Refused
from .translating import STORY

if TYPE_CHECKING:
    from stratalog import Message, MessageStore

    from .clients import Client, Clients
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
        self._finishing = Finishing()

    async def forward(self, request: Any, context: Any) -> Any:
        """Move a message that the client has. With the story that the store gives to its own dead letters.

        The official clients ask again each second until it is OK, and give nothing else of the line meanwhile. So it is
        also OK if the client has the message no more: it was moved and the answer was lost, or it comes again.
        """
        client = self._clients.of(context, makes=False)
        receipt = Receipt.unpack(request.receipt_handle)
        group = self._groups.open_group(request.topic.name, request.group.name)
        if group is not None:
            await self._finishing.run(self._move(client, group, receipt, request.delivery_attempt))
        return _ANSWER(status=OK)

    async def _move(self, client: Client, group: Group, receipt: Receipt, attempts: int) -> None:
        topic = dead_letters_of(group.name)
        try:
            group.sub.message_of(receipt.number)
            message = await self._read(group, receipt)
            if message is None:
                return
            properties = dict(message.properties or {}) | _story(message, group, attempts)
            queue_id = message.queue_id % await self._topics.queues_of(topic)
            async with self._store.transaction() as tx:
                tx.append(topic, queue_id, message.data, key=message.key, properties=properties)
                tx.ack(receipt.number, group.sub)
        except (StaleReceipt, SubscriptionClosed):
            pass
        except InvalidTopic:  # the program has made the topic anew, with other queues
            self._topics.forget(topic)
            raise
        except InvalidMessage as error:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
        client.held.pop((group, receipt.number), None)

    async def close(self) -> None:
        """Wait for moves that are under way."""
        await self._finishing.close()

    async def _read(self, group: Group, receipt: Receipt) -> Message | None:
        """The message of a receipt; None if retention has removed it."""
        try:
            found = await self._store.read_async(group.topic, receipt.queue_id, receipt.offset, max_messages=1)
        except OffsetOutOfRange:
            return None
        return found[0] if found and found[0].offset == receipt.offset else None


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
