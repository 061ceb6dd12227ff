"""The appending half of the public face."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..config import StoreConfig
from ..device.clock import Clock
from ..errors import InvalidMessage, StoreError
from ..format.extras import Extras
from ..log.queue import RequestQueue
from ..log.request import NOBODY, AsyncRequest, Barrier, BlockingRequest
from ..log.streams import Stream, check_name, lane_of
from ..log.ticket import SubmitRequest, Ticket
from .batches import AsyncBatch, Part, cut_by_lane, offsets_of
from .checks import Payload, as_bytes, check_extras, check_rows, too_large
from .columns import ColumnAppends
from .partitioner import Partitioner, Queues

_DATA = itemgetter(2)  # of a row


class Appender(ColumnAppends):
    """The calls that append.

    Invariant: the appends of one thread to one queue get their offsets in the order of the calls, in any mix of
    `append`, `submit`, `append_batch`, the calls with columns and the async calls. All coroutines of an event loop
    count as one thread. Appends that fail are left out. `RequestQueue` keeps this.
    """

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        super().__init__(path, config, clock)
        self._local = threading.local()
        self._max_message_bytes = config.max_message_bytes
        self._partitioner = Partitioner(self._streams)

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
    ) -> int:
        """Append one message; return its offset when the message is durable. Offsets of a queue are 0, 1, 2 ..

        Args:
            topic: 1 to 255 bytes of UTF-8 without control characters.
            queue_id: 0 to 2**31 - 1. If it is None, the store chooses the queue: by the key, or one queue after the
                other if there is no key. The queue of a key is queues[xxh3_64(key) % len(queues)].
            data: bytes, bytearray or memoryview; with key and properties at most `max_message_bytes`.
            deliver_at_ms: the delivery time, ms since the epoch. It is stored and returned by reads. Delayed delivery
                does not exist yet: the message can be read as soon as it is durable.
            key: bytes, as an order's number. The store does not search by key.
            properties: a mapping of str to str.
            queues: the set to choose from, if queue_id is None: a number n (queues 0 to n - 1), or a sequence of
                queue ids. None: the queues that the topic has, ascending, or queue 0 if it has none. Pass it if keys
                must keep their queues: else the first message of a new queue changes the queues of keys.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: the message was not accepted.
            StoreFull: there is no space; the message was not stored.
            StorePoisoned: a write or force failed; the message may or may not be durable.
            StoreClosed: the message was not accepted.
        """
        # As `_accept` does it: this way is the one that 40 threads wait for, and a call saved on it shows.
        if type(queue_id) is not int or type(topic) is not str or queues is not None:
            topic, queue_id = self._named(topic, queue_id, key, queues)
        stream: Stream | None
        try:
            stream = self._topics[topic][queue_id]
        except KeyError:
            stream = None  # to be made, once nothing can be wrong with the message
        if type(data) is not bytes:
            data = as_bytes(data, self._max_message_bytes)
        size_bytes = len(data)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = check_extras(deliver_at_ms, key, properties)
        if size_bytes > self._max_message_bytes or extras is not None:
            self._check_size(size_bytes, extras)
        if stream is None:
            stream = self._stream(topic, queue_id)
        request: BlockingRequest
        try:
            request = self._local.request  # a thread waits for one message at a time, so one is enough
        except AttributeError:
            request = self._local.request = BlockingRequest()
        if request.stream is not NOBODY:
            request = BlockingRequest()  # an append within one of this thread: of a finalizer that the interpreter ran
        request.stream, request.data, request.size_bytes, request.extras = stream, data, size_bytes, extras
        try:
            stream.queue.put(request)
            return request.wait()
        except StoreError:
            request.stream = NOBODY
            raise
        except BaseException:
            if self._local.request is request:
                del self._local.request  # a wake-up may still come: the next append must not hear it
            request.leave()
            raise

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
    ) -> Ticket:
        """Hand one message over and return a ticket at once; `ticket.result()` waits for the message's offset.

        The call waits only while the publish buffer is full. If the program ends, or drops its last reference to the
        store, the store writes the submitted messages and closes (with a ResourceWarning). A kill or `os._exit` (as in
        a child of multiprocessing) can lose messages whose tickets are not done.

        Args: as for `append`.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: the message was not accepted.
            StorePoisoned, StoreClosed: the message was not accepted. `Ticket.result` raises later errors.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        ticket = SubmitRequest(stream, data, len(data), extras)
        stream.queue.put(ticket)
        return ticket

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
            MessageTooLarge, InvalidTopic, InvalidMessage: the message was not accepted.
            StorePoisoned, StoreClosed: the message was not accepted. The Future raises later errors, among them
                `PublishBufferFull`.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        loop = asyncio.get_running_loop()
        request = AsyncRequest(stream, data, len(data), extras, loop)
        if not stream.queue.put(request, wait=False):
            timeout_s = self.config.append_timeout_ms / 1000
            timer = loop.call_later(timeout_s, _give_up, stream.queue, request)
            request.future.add_done_callback(lambda future: _leave_line(stream.queue, request, timer))
        return request.future

    def append_batch(self, messages: Iterable[tuple[str, int, Payload]]) -> npt.NDArray[np.int64]:
        """Append many messages; return their offsets when all are durable.

        Messages of one queue keep their order. A batch is not a transaction: if the device fails, some of its messages
        may be stored. A row must name its queue. It has no key, properties or delivery time; `submit` takes these.

        Args:
            messages: a (topic, queue id, data) tuple per message; see `append`.

        Returns: int64 (n), the offset of each message, in the order of the rows.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: a row is wrong, and no row is stored. The error's text and
                its `row` have the number of the row, counted from 0.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some messages may be stored.
        """
        parts = self._cut(messages)
        for part in parts:
            for group in part.groups:
                group.stream.queue.put(group)
        return offsets_of(parts)

    def append_batch_async(
        self, messages: Iterable[tuple[str, int, Payload]]
    ) -> asyncio.Future[npt.NDArray[np.int64]]:
        """`append_batch` for coroutines: hand many messages over and return a Future of their offsets.

        The Future is done when each message of the batch is durable or has failed. While the publish buffer is full,
        parts of the batch wait in order. A cancelled batch may be stored in part. `append_async` says how a TaskGroup
        takes a Future.

        Args: as for `append_batch`.

        Raises:
            RuntimeError: no event loop is running in this thread; nothing was handed over.
            MessageTooLarge, InvalidTopic, InvalidMessage: as for `append_batch`; no row is stored.
            StorePoisoned, StoreClosed: some messages may be stored. The Future raises later errors, among them
                `PublishBufferFull`; then, too, some messages may be stored.
        """
        loop = asyncio.get_running_loop()
        batch = AsyncBatch(loop, self._cut(messages))
        batch.put(self.config.append_timeout_ms / 1000)
        return batch.future

    def _cut(self, messages: Iterable[tuple[str, int, Payload]]) -> list[Part]:
        """A batch, checked, in groups; nothing is handed over yet."""
        try:
            if isinstance(messages, str | bytes | bytearray | memoryview):
                raise TypeError
            each = iter(messages)
        except TypeError:
            raise InvalidMessage(
                f"append_batch takes (topic, queue id, data) tuples, not {type(messages).__name__}"
            ) from None
        rows = list(each)  # a copy: another thread may change the caller's list
        if not rows:
            self._check_open()
            return []
        return cut_by_lane(self._lanes, *self._accept_batch(rows), self.config.max_frame_bytes)

    def _accept(
        self,
        topic: str,
        queue_id: int | None,
        data: Payload | None,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
        queues: Queues | None,
    ) -> tuple[Stream, bytes, Extras | None]:
        """Check one message: (stream, data, extras)."""
        if type(queue_id) is not int or type(topic) is not str or queues is not None:
            topic, queue_id = self._named(topic, queue_id, key, queues)
        stream: Stream | None
        try:
            stream = self._topics[topic][queue_id]
        except KeyError:
            stream = None  # to be made, once nothing can be wrong with the message
        if type(data) is not bytes:
            data = as_bytes(data, self._max_message_bytes)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = check_extras(deliver_at_ms, key, properties)
        if len(data) > self._max_message_bytes or extras is not None:
            self._check_size(len(data), extras)
        return stream or self._stream(topic, queue_id), data, extras

    def _named(self, topic: object, queue_id: object, key: object, queues: Queues | None) -> tuple[str, int]:
        """The name of a stream, plain and checked: True and 1.0 would be found as 1, and hashes may raise."""
        if queue_id is None:
            queue_id = self._partitioner.choose(topic, key, queues)
        elif queues is not None:
            raise InvalidMessage("queues are to choose from where queue_id is left out: give one of the two")
        return check_name(topic, queue_id)

    def _check_size(self, size_bytes: int, extras: Extras | None) -> None:
        total = size_bytes + (extras.size_bytes if extras is not None else 0)
        if total > self._max_message_bytes:
            raise too_large(total, self._max_message_bytes)

    def _accept_batch(
        self, rows: list[tuple[str, int, Payload]]
    ) -> tuple[list[Stream], list[bytes], list[int]]:
        """Check a batch: (streams, datas, sizes)."""
        try:
            found = self._find_all(rows)
        except Exception:  # a row may be of any type, which raises what it likes
            found = None
        return found or self._name_all(rows)

    def _find_all(
        self, rows: list[tuple[str, int, Payload]]
    ) -> tuple[list[Stream], list[bytes], list[int]] | None:
        """A batch, a column at a time; None, or any error, if a stream is new or something may be wrong with a row."""
        topics, limit = self._topics, self._max_message_bytes
        streams = [
            topics[topic][queue_id] for topic, queue_id, _ in rows if type(queue_id) is int and type(topic) is str
        ]
        given = list(map(_DATA, rows))
        if list(map(type, given)).count(bytes) == len(given):  # quicker than a set of the types
            datas: list[bytes] = given
        else:
            datas = [data if type(data) is bytes else as_bytes(data, limit) for data in given]
        sizes = list(map(len, datas))
        if sum(sizes) > limit and max(sizes) > limit:  # a sum takes half the time of a maximum
            return None
        return (streams, datas, sizes) if len(streams) == len(rows) else None

    def _name_all(self, rows: list[tuple[str, int, Payload]]) -> tuple[list[Stream], list[bytes], list[int]]:
        """A batch, a row at a time, with the error of the first row that cannot be."""
        checked = check_rows(rows, self._max_message_bytes)  # all of them, before the first stream is made
        names = [(topic, queue_id) for topic, queue_id, _ in checked]
        streams = [self._streams.get(*name) or self._stream(*name) for name in names]
        datas = [data for _, _, data in checked]
        return streams, datas, list(map(len, datas))

    def _stream(self, topic: object, queue_id: object) -> Stream:
        """The stream of a name, made at first use."""
        name = check_name(topic, queue_id)
        with self._naming:
            self._check_open()
            stream = self._streams.get(*name)
            if stream is None:
                index = lane_of(*name, len(self._lanes))
                stream = Stream(*name, self._lanes[index], self._queues[index])
                self._streams.add(stream)
        return stream

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
        self._check_open()
        barriers = []
        for queue in self._queues:
            barrier = Barrier()
            queue.put(barrier)
            barriers.append(barrier)
        for barrier in barriers:
            barrier.result()


def _give_up(queue: RequestQueue, request: AsyncRequest) -> None:
    """The time to wait for space in the publish buffer is over."""
    error = queue.withdraw(request)
    if error is not None and not request.future.done():
        request.future.set_exception(error)


def _leave_line(queue: RequestQueue, request: AsyncRequest, timer: asyncio.TimerHandle) -> None:
    """The append has its outcome; if that is a cancellation, nobody waits for space for it any more."""
    timer.cancel()
    if request.future.cancelled():
        queue.withdraw(request)

