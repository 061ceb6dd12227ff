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
from ..format.layout import MAX_FRAME_MESSAGES
from ..log.queue import RequestQueue
from ..log.request import NOBODY, AsyncRequest, Barrier, BlockingRequest, Group, Ticket
from ..log.streams import Stream, check_name, lane_of
from .base import OpenStore
from .checks import Payload, as_bytes, check_extras, check_rows, too_large

_DATA = itemgetter(2)  # of a row


class Appender(OpenStore):
    """Takes messages in.

    Invariant: the appends of one thread (of an event loop: of all its coroutines) to one queue of a topic get their
    offsets in the order of the calls, whatever mix of `append`, `submit`, `append_batch` and `append_async` they are;
    those that fail are left out. `RequestQueue` keeps it.
    """

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        super().__init__(path, config, clock)
        self._local = threading.local()
        self._max_message_bytes = config.max_message_bytes

    def append(
        self,
        topic: str,
        queue_id: int,
        data: Payload,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Append one message; its offset, once it is durable. Offsets of a queue are 0, 1, 2 ..

        Args:
            topic: 1 to 255 bytes of UTF-8 without control characters.
            queue_id: 0 to 2**31 - 1.
            data: bytes, bytearray or memoryview.
            deliver_at_ms: when the message should be delivered, ms since the epoch.
            key: bytes to find or replace the message by.
            properties: str to str.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: not accepted.
            StoreFull: no space for it; not stored.
            StorePoisoned: it may or may not be durable.
            StoreClosed: not accepted.
        """
        # As `_accept` does it: this way is the one that 40 threads wait for, and a call saved on it shows.
        if type(queue_id) is not int or type(topic) is not str:
            topic, queue_id = check_name(topic, queue_id)  # True and 1.0 would be found as 1, and hashes may raise
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
        queue_id: int,
        data: Payload,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Ticket:
        """Hand one message over and return at once; `ticket.result()` waits for its offset.

        It waits only while the publish buffer is full. What was only handed over is written when the interpreter
        ends, or when nobody holds the store any more, as if it were closed (with a ResourceWarning). It is lost when
        the process is killed, and where it ends by `os._exit`, as a child of multiprocessing does.

        Args: as for `append`.

        Raises:
            PublishBufferFull, MessageTooLarge, InvalidTopic, InvalidMessage: not accepted.
            StorePoisoned, StoreClosed: not accepted. What fails later, the ticket's result raises.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties)
        ticket = Ticket(stream, data, len(data), extras)
        stream.queue.put(ticket)
        return ticket

    def append_async(
        self,
        topic: str,
        queue_id: int,
        data: Payload,
        *,
        deliver_at_ms: int | None = None,
        key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> asyncio.Future[int]:
        """`append` for coroutines: await the result for the offset. While the buffer is full, messages wait in order.

        The call itself hands the message over, and what it returns is a Future, no coroutine: `asyncio.gather` and
        `asyncio.ensure_future` take it, `create_task` does not (put a coroutine that awaits it around it there).

        Args: as for `append`.

        Raises:
            RuntimeError: no event loop is running in this thread; the message was not handed over.
            MessageTooLarge, InvalidTopic, InvalidMessage: not accepted.
            StorePoisoned, StoreClosed: not accepted. What fails later, `PublishBufferFull` among it, awaiting raises.
        """
        stream, data, extras = self._accept(topic, queue_id, data, deliver_at_ms, key, properties)
        loop = asyncio.get_running_loop()
        request = AsyncRequest(stream, data, len(data), extras, loop)
        if not stream.queue.put(request, wait=False):
            timeout_s = self.config.append_timeout_ms / 1000
            timer = loop.call_later(timeout_s, _give_up, stream.queue, request)
            request.future.add_done_callback(lambda future: _leave_line(stream.queue, request, timer))
        return request.future

    def append_batch(self, messages: Iterable[tuple[str, int, Payload]]) -> npt.NDArray[np.int64]:
        """Append many messages; their offsets (int64, one each, in order) once all are durable.

        Messages of one queue keep their order. A batch is no transaction: if it fails, some of its messages
        may be stored. A row has no key, properties or delivery time: messages with these are for `submit`.

        Args:
            messages: (topic, queue id, data) of each; see `append`.

        Raises:
            MessageTooLarge, InvalidTopic, InvalidMessage: of the row that the error names, counted from 0; none is
                stored.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some may be stored.
        """
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
            return np.empty(0, np.int64)
        streams, datas, sizes = self._accept_batch(rows)
        if len(self._lanes) == 1:
            return self._append_rows(streams, datas, sizes)
        offsets = np.empty(len(rows), np.int64)
        groups: list[tuple[list[int], list[Group]]] = []
        for lane in self._lanes:
            picked = [index for index, stream in enumerate(streams) if stream.lane is lane]
            if picked:
                part = [streams[i] for i in picked], [datas[i] for i in picked], [sizes[i] for i in picked]
                groups.append((picked, self._put_groups(*part)))
        for picked, parts in groups:
            offsets[picked] = _collect(parts)
        return offsets

    def _append_rows(self, streams: list[Stream], datas: list[bytes], sizes: list[int]) -> npt.NDArray[np.int64]:
        return _collect(self._put_groups(streams, datas, sizes))

    def _put_groups(self, streams: list[Stream], datas: list[bytes], sizes: list[int]) -> list[Group]:
        """Hand messages of one lane over in groups that fit into a frame."""
        queue = streams[0].queue
        limit = self.config.max_frame_bytes
        groups: list[Group] = []
        total = sum(sizes)
        if total <= limit and len(streams) <= MAX_FRAME_MESSAGES:
            group = Group(streams, datas, sizes, total)
            queue.put(group)
            return [group]
        begin = size = 0
        for index, length in enumerate([*sizes, limit + 1]):
            if index > begin and (size + length > limit or index - begin >= MAX_FRAME_MESSAGES):
                group = Group(streams[begin:index], datas[begin:index], sizes[begin:index], size)
                queue.put(group)
                groups.append(group)
                begin, size = index, 0
            size += length
        return groups

    def _accept(
        self,
        topic: str,
        queue_id: int,
        data: Payload,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
    ) -> tuple[Stream, bytes, Extras | None]:
        """Check one message: (stream, data, extras)."""
        if type(queue_id) is not int or type(topic) is not str:
            topic, queue_id = check_name(topic, queue_id)  # True and 1.0 would be found as 1, and hashes may raise
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
        """Return when every message handed over before the call is durable and forced (also with "os"), or has failed.

        It is a barrier: each message that any thread has handed over before is by then in one of two states, durable
        or answered with an error of its own (which `append` has raised, or the ticket's `result` raises). It does not
        fail with another's message: not with `StoreFull`, nor with `PublishBufferFull`. At a full publish buffer it
        stands in line behind what it waits for, as long as that takes.

        Raises:
            StorePoisoned: a write or force failed; what was not answered may or may not be durable.
            StoreClosed: the store was closed before, or while the flush stood in line at a full publish buffer; `close`
                makes durable what was accepted.
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


def _collect(groups: list[Group]) -> npt.NDArray[np.int64]:
    """The offsets of groups, once all are answered; raises the first error."""
    for group in groups:
        group.result()
    return groups[0].offsets if len(groups) == 1 else np.concatenate([group.offsets for group in groups])
