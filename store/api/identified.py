"""The part of a store that appends messages with ids: what a topic has seen within its window is not stored again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from ..errors import PublishBufferFull
from ..format.arrays import Int64s
from ..format.extras import Extras
from ..format.message_ids import MAX_ID_BYTES, digest_of
from ..log.message_ids import IdRequest, OnTheWay, PendingId
from ..log.request import call_in_loop
from ..log.streams import Stream
from ..log.ticket import Ticket
from ..topics.id_window import IdWindow
from ..topics.id_windows import IdWindows
from .appender import NO_QUEUES, Appender
from .checks import Payload, check_id
from .id_batch import IdBatch
from .partitioner import Queues
from .repeats import RepeatTicket
from .shared import Shared


class IdentifiedAppender:
    """Appends with a `message_id`: `AppendCalls` passes these on. Checks and streams are those of `Appender`.

    Invariants:
        * an id of a topic is with one append at a time: the first that `IdWindow.admit` lets in. All others get the
          outcome of that one;
        * whatever is raised, ids that no queue has are taken back.
    """

    def __init__(self, shared: Shared, appender: Appender, windows: IdWindows) -> None:
        self.windows = windows
        self._appender = appender
        self._shared = shared
        self._loaded = windows.loaded
        self._clock = shared.clock
        self._max_message_bytes = shared.config.max_message_bytes

    def submit(
        self, topic: str, queue_id: int | None, data: Payload | None, deliver_at_ms: int | None, key: bytes | None,
        properties: Mapping[str, str] | None, queues: Queues | None, message_id: str,
    ) -> Ticket:  # fmt: skip
        """Hand one message over; return its ticket, or one that follows the first append of the id."""
        # The usual message is accepted here: a call saved on it shows.
        appender, stream, extras = self._appender, None, None
        has_more = deliver_at_ms is not None or key is not None or properties is not None or queues is not None
        if not has_more and type(queue_id) is int and type(topic) is str:
            stream = appender.known.get(topic, NO_QUEUES).get(queue_id)
        if stream is None or type(data) is not bytes or len(data) > self._max_message_bytes:
            topic, queue_id, data, extras = appender.check(
                topic, queue_id, data, deliver_at_ms, key, properties, queues
            )
        assert queue_id is not None
        try:
            text = str.encode(message_id)
        except (TypeError, UnicodeEncodeError):
            text = b""
        digest = digest_of(text if 0 < len(text) <= MAX_ID_BYTES else check_id(message_id))
        window = self._loaded.get(topic) or self.windows.of(topic)
        if stream is None:
            window.expire(self._clock.wall_ms())
            if (found := window.find(digest)) is not None:
                return self._repeat(window, topic, queue_id, digest, data, extras, found)
            stream = appender.stream_of(topic, queue_id)
        target = window.targets.get(stream.lane) or self.windows.target(topic, window, stream.lane)
        ticket = IdRequest(stream, data, extras, target, digest)
        try:
            on_way = window.note(digest, ticket)
            if on_way is ticket:
                stream.lane.queue.put(ticket)
        except BaseException as error:
            try:
                ticket.take_back(error)
            finally:
                ticket.take_back(error)
            if isinstance(error, PublishBufferFull):  # a repeat needs no room
                window.expire(self._clock.wall_ms())
                if isinstance(found := window.find(digest), int):
                    return self._repeat(window, topic, queue_id, digest, data, extras, found)
            raise
        if on_way is not ticket:
            return self._repeat(window, topic, queue_id, digest, data, extras, on_way)
        if window.has_old_records:
            self.windows.trim_old(window)
        return ticket

    def append(
        self, topic: str, queue_id: int | None, data: Payload | None, deliver_at_ms: int | None, key: bytes | None,
        properties: Mapping[str, str] | None, queues: Queues | None, message_id: str,
    ) -> int:  # fmt: skip
        """Append one message; return its offset, or that of the message which had the id first, when it is durable."""
        return self.submit(topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id).result()

    def append_async(
        self, topic: str, queue_id: int | None, data: Payload | None, deliver_at_ms: int | None, key: bytes | None,
        properties: Mapping[str, str] | None, queues: Queues | None, message_id: str,
    ) -> asyncio.Future[int]:  # fmt: skip
        """Hand one message over; return a Future of its offset, or of that of the first with the id."""
        loop = asyncio.get_running_loop()
        appender = self._appender
        digest = digest_of(check_id(message_id))
        topic, queue_id, data, extras = appender.check(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        window = self.windows.of(topic)
        window.expire(self._clock.wall_ms())
        found = window.find(digest)
        if found is None:
            stream, ids = self._prepare(window, topic, queue_id, digest)
            try:
                found = window.admit(digest, ids)
                if found is None:
                    future = appender.put_one_async(stream, data, ids.beside(extras))
            except BaseException as error:
                try:
                    ids.take_back(error)
                finally:
                    ids.take_back(error)
                raise
            if found is None:
                self.windows.trim_old(window)
                return future
        return _future_of(self._repeat(window, topic, queue_id, digest, data, extras, found), loop)

    def append_batch(self, messages: Iterable[tuple[str, int, Payload]], message_ids: Iterable[str | None]) -> Int64s:
        """Append many messages; return the offsets when all are durable."""
        return self._batch(messages, message_ids).append()

    def append_batch_async(
        self, messages: Iterable[tuple[str, int, Payload]], message_ids: Iterable[str | None]
    ) -> asyncio.Future[Int64s]:
        """Hand many messages over; return a Future of the offsets."""
        asyncio.get_running_loop()  # it raises before anything is handed over
        return self._batch(messages, message_ids).append_async()

    def _batch(self, messages: Iterable[tuple[str, int, Payload]], message_ids: Iterable[str | None]) -> IdBatch:
        return IdBatch(self._shared, self._appender, self.windows, messages, message_ids)

    def _prepare(self, window: IdWindow, topic: str, queue_id: int, digest: bytes) -> tuple[Stream, PendingId]:
        """The stream of a message, and its id, which is on its way once it is admitted."""
        stream = self._appender.stream_of(topic, queue_id)
        return stream, PendingId(self.windows.target(topic, window, stream.lane), digest, queue_id)

    def _repeat(
        self, window: IdWindow, topic: str, queue_id: int, digest: bytes, data: bytes, extras: Extras | None,
        found: OnTheWay | int,
    ) -> RepeatTicket:  # fmt: skip
        self._appender.check_open()
        prepare = partial(self._prepare, window, topic, queue_id, digest)
        listeners = self._shared.queues[0].listeners
        ticket = RepeatTicket(window, digest, data, extras, prepare, listeners)
        ticket.follow(found)
        return ticket


def _future_of(ticket: RepeatTicket, loop: asyncio.AbstractEventLoop) -> asyncio.Future[int]:
    future: asyncio.Future[int] = loop.create_future()

    def resolve() -> None:
        if not future.done():  # else its task was cancelled
            error = ticket.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(ticket.result())

    if ticket.done():
        resolve()
    else:
        ticket.then(lambda: call_in_loop(loop, resolve))
    return future
