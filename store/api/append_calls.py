"""The calls that append, as a user sees them: their names, arguments and promises. `appender` does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ..log.ticket import Ticket
from .appender import Appender
from .checks import Payload
from .identified import IdentifiedAppender
from .partitioner import Queues


class AppendCalls:
    """Passes each call on to the store's appending part. It has no state of its own.

    The call holds the store until it returns. So a store that its program lets go of meanwhile is not closed under it.
    """

    _appender: Appender
    _identified: IdentifiedAppender

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
    ) -> int:
        """Append one message; return its offset when the message is durable. Offsets of a queue are 0, 1, 2 ..

        Args:
            topic: 1 to 255 bytes of UTF-8 without control characters.
            queue_id: 0 to 2**31 - 1. If it is None, the store chooses the queue: by the key, or one queue after the
                other if there is no key. The queue of a key is queues[xxh3_64(key) % len(queues)].
            data: bytes, bytearray or memoryview; with key and properties at most `max_message_bytes`.
            deliver_at_ms: the delivery time, ms since the epoch. Subscriptions get the message then. Reads find it as
                soon as it is durable.
            key: bytes, as an order's number. The store does not search by key.
            properties: a mapping of str to str.
            queues: the set to choose from, if queue_id is None: a number n (queues 0 to n - 1), or a sequence of
                queue ids. None: the queues that the topic has, ascending, or queue 0 if it has none. Pass it if keys
                must keep their queues: else the first message of a new queue changes the queues of keys.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: the message was not accepted.
            TopicFull: nor was it; the subscriptions of the topic keep too much, see `configure_topic`.
            StoreFull: there is no space; the message was not stored.
            StorePoisoned: a write or force failed; the message may or may not be durable.
            StoreClosed: the message was not accepted.
        """
        if message_id is None:
            return self._appender.append(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        return self._identified.append(topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)

    def submit(
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
    ) -> Ticket:
        """Hand one message over and return a ticket at once; `ticket.result()` waits for the message's offset.

        The call waits only while the publish buffer is full. If the program ends, or drops its last reference to the
        store, the store writes the submitted messages and closes (with a ResourceWarning). A kill or `os._exit` (as in
        a child of multiprocessing) can lose messages whose tickets are not done.

        Args: as for `append`.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: the message was not accepted.
            TopicFull: nor was it; the subscriptions of the topic keep too much, see `configure_topic`.
            StorePoisoned, StoreClosed: the message was not accepted. `Ticket.result` raises later errors.
        """
        if message_id is None:
            return self._appender.submit(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        return self._identified.submit(topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)

    def append_async(
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
    ) -> asyncio.Future[int]:
        """`append` for coroutines: hand one message over and return a Future of its offset.

        While the publish buffer is full, messages wait in the order of the calls. `await`, `asyncio.gather` and
        `asyncio.wait_for` take a Future. `create_task` and `TaskGroup.create_task` take only a coroutine, so give them
        one that awaits the Future:

            async def append(data: bytes) -> int:
                return await store.append_async("orders", 3, data)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(append(data)) for data in datas]

        Args: as for `append`.

        Raises:
            RuntimeError: no event loop is running in this thread; the message was not handed over.
            MessageTooLarge, InvalidTopic, InvalidMessage, TopicFull: the message was not accepted.
            StorePoisoned, StoreClosed: the message was not accepted. The Future raises later errors, among them
                `PublishBufferFull`.
        """
        if message_id is None:
            return self._appender.append_async(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        return self._identified.append_async(topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)

    def append_batch(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> npt.NDArray[np.int64]:
        """Append many messages; return their offsets when all are durable.

        Messages of one queue keep their order. A batch is not a transaction: if the device fails, some of its messages
        may be stored. A row must name its queue. It has no key, properties or delivery time; `submit` takes these.

        Args:
            messages: a (topic, queue id, data) tuple per message; see `append`.
            message_ids: an id, or None, per message; see `append`. Of an id that is there twice, the first row is
                stored, and both get its offset.

        Returns: int64 (n), the offset of each message, in the order of the rows.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: a row is wrong, and no row is stored. The error's text and
                its `row` have the number of the row, counted from 0.
            TopicFull: the subscriptions of one of the topics keep too much, see `configure_topic`; no row is stored.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some messages may be stored.
        """
        if message_ids is None:
            return self._appender.append_batch(messages)
        return self._identified.append_batch(messages, message_ids)

    def append_batch_async(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> asyncio.Future[npt.NDArray[np.int64]]:
        """`append_batch` for coroutines: hand many messages over and return a Future of their offsets.

        The Future is done when each message of the batch is durable or has failed. While the publish buffer is full,
        parts of the batch wait in order. A cancelled batch may be stored in part. `append_async` says how a TaskGroup
        takes a Future.

        Args: as for `append_batch`.

        Raises:
            RuntimeError: no event loop is running in this thread; nothing was handed over.
            MessageTooLarge, InvalidTopic, InvalidMessage, TopicFull: as for `append_batch`; no row is stored.
            StorePoisoned, StoreClosed: some messages may be stored. The Future raises later errors, among them
                `PublishBufferFull`; then, too, some messages may be stored.
        """
        if message_ids is None:
            return self._appender.append_batch_async(messages)
        return self._identified.append_batch_async(messages, message_ids)

    def flush(self) -> None:
        """Return when every message handed over before the call is forced (also with "os"), or has failed.

        It waits for the messages of all threads. A message that fails has an error of its own: `append` raises it, or
        the ticket's `result`. `flush` does not raise such an error: neither `StoreFull` nor `PublishBufferFull`. At a
        full publish buffer it waits in line after the messages before it, without a time limit.

        Raises:
            StorePoisoned: a write or force failed; messages without an answer may or may not be durable.
            StoreClosed: the store was closed before the call, or while the flush waited at a full publish buffer.
                `close` makes the accepted messages durable.
        """
        self._appender.flush()
