"""SendMessage: a message is durable when it is answered."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stratalog import InvalidTopic

from ..wire import CLASSES, Code
from ..wire.codes import MessageType
from .checking import check_accepted, check_count, check_message
from .statuses import OK, Refused, status_of, status_of_all
from .together import Together
from .translating import Stored, stored_of

if TYPE_CHECKING:
    from stratalog import MessageStore

    from .options import RocketMQOptions
    from .topics import Topics
    from .transactions import Transactions

_ANSWER: Final = CLASSES["SendMessageResponse"]
_ENTRY: Final = CLASSES["SendResultEntry"]


class Recallable(NamedTuple):
    """Where a delayed message lies, and its id: what a recall handle says."""

    topic: str
    queue_id: int
    offset: int
    message_id: str

    def pack(self) -> str:
        """The handle that the client gets."""
        return base64.urlsafe_b64encode("\n".join(map(str, self)).encode()).decode()

    @classmethod
    def unpack(cls, handle: str) -> Recallable:
        """Raises Refused for what is no handle."""
        try:
            topic, queue_id, offset, message_id = base64.urlsafe_b64decode(handle.encode()).decode().split("\n")
            return cls(topic, int(queue_id), int(offset), message_id)
        except (ValueError, binascii.Error):
            raise Refused(Code.BAD_REQUEST, "recall handle is invalid") from None


class Sending:
    """Appends what producers send."""

    def __init__(
        self, store: MessageStore, options: RocketMQOptions, topics: Topics, transactions: Transactions
    ) -> None:  # fmt: skip
        self._store = store
        self._options = options
        self._topics = topics
        self._transactions = transactions
        self._together = Together()

    async def send_message(self, request: Any, context: Any) -> Any:
        """Store the messages of one topic; one entry for each."""
        messages = request.messages
        if len(messages) == 1:
            entry = await self._sent(messages[0])
            return _ANSWER(status=entry.status, entries=(entry,))
        if not messages:
            raise Refused(Code.MESSAGE_CORRUPTED, "no message to send")
        check_count(messages, "messages")
        if len({message.topic.name for message in messages}) > 1:
            raise Refused(Code.MESSAGE_CORRUPTED, "all messages of a call are of one topic")
        await self._topics.queues_of(messages[0].topic.name)
        entries = await asyncio.gather(*map(self._sent, messages))
        return _ANSWER(status=status_of_all([entry.status for entry in entries]), entries=entries)

    async def _sent(self, message: Any) -> Any:
        try:
            return await self._send(message)
        except Exception as error:
            if isinstance(error, InvalidTopic):  # the program has made the topic anew, with other queues
                self._topics.forget(message.topic.name)
            return _ENTRY(status=status_of(error), message_id=message.system_properties.message_id)

    async def _send(self, message: Any) -> Any:
        topic, system = message.topic.name, message.system_properties
        queues = await self._topics.queues_of(topic)
        check_message(message, self._options.max_body_bytes)
        check_accepted(message, self._topics.types_of(topic))
        stored = stored_of(message)
        entry = _ENTRY(status=OK, message_id=stored.message_id, transaction_id=stored.message_id)
        if system.message_type == MessageType.TRANSACTION:
            entry.offset = await self._transactions.begin(message, stored)
            return entry
        line = system.message_group or (stored.message_id if stored.deliver_at_ms is not None else "")
        queue_id = self._topics.queue_for(queues, line)  # a delayed one's second sending finds the same queue
        entry.offset = await self._append(topic, queue_id, message.body, stored)
        if stored.deliver_at_ms is not None:
            entry.recall_handle = Recallable(topic, queue_id, entry.offset, stored.message_id).pack()
        return entry

    async def _append(self, topic: str, queue_id: int, body: bytes, stored: Stored) -> int:
        return await self._together.call(
            lambda: self._store.append_async(
                topic, queue_id, body, key=stored.key, properties=stored.properties,
                deliver_at_ms=stored.deliver_at_ms,
                message_id=stored.message_id if self._options.deduplicate else None,
            )
        )  # fmt: skip
