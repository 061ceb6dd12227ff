"""The part of a store that appends: from the arguments of a call to a request in a lane's queue, and its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, InvalidTopic, StoreError, copy_of
from ..format.extras import Extras
from ..log.atomic_group import AtomicGroup
from ..log.joint_group import Blocks, atomic_group
from ..log.message_ids import PendingIds
from ..log.request import NO_STREAM, AsyncRequest, Barrier, BlockingRequest, pass_on
from ..log.streams import Stream, check_name, lane_of
from ..log.ticket import SubmitRequest, Ticket
from ..topics.full import Acknowledged
from ..topics.table import TopicTable
from .batches import BatchPart, cut_by_lane, offsets_of
from .checks import Payload, as_bytes, check_extras, check_rows, too_large
from .leaving import give_up, leave_line
from .partitioner import Partitioner, Queues
from .shared import Shared

_DATA = itemgetter(2)  # of a row
NO_QUEUES: dict[int, Stream] = {}


class Appender:
    """Checks a call, finds its stream, and hands a request to the queue of the stream's lane.

    Invariant: the appends of one thread to one queue get their offsets in the order of the calls, in any mix of
    `append`, `submit`, `append_batch`, the calls with columns and the async calls. All coroutines of an event loop
    count as one thread. Appends that fail are left out. `RequestQueue` keeps this.

    Attributes:
        known: the streams, by topic and queue, that take messages without a closer look.
        frame_bytes: the payloads of a frame of several messages, at the most.
        max_message_bytes: of a message's data, key and properties.
        most_atomic_bytes: the payloads that one frame can have, with keys and properties: the ring has room for four
            such frames.
    """

    def __init__(self, shared: Shared, configured: TopicTable) -> None:
        self.config = shared.config
        self.frame_bytes = shared.frame_bytes
        self._shared = shared
        self._lanes = shared.lanes
        self._queues = shared.queues
        self._streams = shared.streams
        self.known = shared.streams.topics
        self.check_open = shared.check_open
        self._local = threading.local()
        self.max_message_bytes = shared.config.max_message_bytes
        self.most_atomic_bytes = shared.frame_bytes + shared.config.max_message_bytes
        self._configured = configured
        self._partitioner = Partitioner(self._streams, configured)

    def append(  # noqa: PLR0912  # in one function: a call saved shows
        self,
        topic: str,
        queue_id: int | None,
        data: Payload | None,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
        queues: Queues | None,
    ) -> int:
        """Append one message; return its offset when it is durable. The thread sleeps on its request until then."""
        # As `check` does it: this way is the one that 40 threads wait for, and a call saved on it shows.
        if type(queue_id) is not int or type(topic) is not str or queues is not None:
            topic, queue_id = self._named(topic, queue_id, key, queues)
        stream: Stream | None
        try:
            stream = self.known[topic][queue_id]
        except KeyError:
            stream = None  # to be made, once nothing can be wrong with the message
        if type(data) is not bytes:
            data = as_bytes(data, self.max_message_bytes)
        size_bytes = len(data)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = check_extras(deliver_at_ms, key, properties)
        if size_bytes > self.max_message_bytes or extras is not None:
            self._check_size(size_bytes, extras)
        if stream is None:
            stream = self._stream(topic, queue_id)
        request: BlockingRequest
        try:
            request = self._local.request  # a thread waits for one message at a time, so one is enough
        except AttributeError:
            request = self._local.request = BlockingRequest()
        if request.stream is not NO_STREAM:
            request = BlockingRequest()  # an append inside another one, of a finalizer that the interpreter ran
        request.stream, request.data, request.size_bytes, request.extras = stream, data, size_bytes, extras
        try:
            stream.lane.queue.put(request)
            request.lock.acquire()  # until the answer
            if request.chain:
                pass_on(request.chain)  # wake the next producer of the batch
            request.data, request.extras, request.stream = b"", None, NO_STREAM  # the ring has it now
            if request.failure is not None:
                failure, request.failure = request.failure, None
                raise copy_of(failure)
            return request.offset
        except StoreError:
            request.stream = NO_STREAM
            raise
        except BaseException:  # an interrupt
            if self._local.request is request:
                del self._local.request  # a wake-up may still come: the next append must not hear it
            request.leave()
            raise

    def submit(
        self,
        topic: str,
        queue_id: int | None,
        data: Payload | None,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
        queues: Queues | None,
    ) -> Ticket:
        """Hand one message over; return its ticket."""
        # The usual message is accepted here: a call saved on it shows.
        stream = extras = None
        if type(queue_id) is int and type(topic) is str and queues is None:
            stream = self.known.get(topic, NO_QUEUES).get(queue_id)
        if stream is None or type(data) is not bytes:
            topic, queue_id, data, extras = self.check(topic, queue_id, data, deliver_at_ms, key, properties, queues)
            stream = self.stream_of(topic, queue_id)
        else:
            if deliver_at_ms is not None or key is not None or properties is not None:
                extras = check_extras(deliver_at_ms, key, properties)
            if len(data) > self.max_message_bytes or extras is not None:
                self._check_size(len(data), extras)
        ticket = SubmitRequest(stream, data, len(data), extras)
        stream.lane.queue.put(ticket)
        return ticket

    def append_async(
        self,
        topic: str,
        queue_id: int | None,
        data: Payload | None,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
        queues: Queues | None,
    ) -> asyncio.Future[int]:
        """Hand one message over; return a Future of its offset."""
        topic, queue_id, data, extras = self.check(topic, queue_id, data, deliver_at_ms, key, properties, queues)
        return self.put_one_async(self.stream_of(topic, queue_id), data, extras)

    def put_one_async(self, stream: Stream, data: bytes, extras: Extras | None) -> asyncio.Future[int]:
        """Hand one checked message over for a coroutine; return a Future of its offset."""
        loop = asyncio.get_running_loop()
        request = AsyncRequest(stream, data, len(data), extras, loop)
        if not stream.lane.queue.put(request, wait=False):
            ends = partial(give_up, stream.lane.queue, request)
            timer = self._shared.sleepers.call_later(loop, self.config.append_timeout_ms, ends)
            request.future.add_done_callback(lambda future: leave_line(stream.lane.queue, request, timer))
        return request.future

    def append_batch(self, messages: Iterable[tuple[str, int, Payload]]) -> npt.NDArray[np.int64]:
        """Append many messages; return their offsets when all are durable."""
        parts = self._cut(messages)
        for part in parts:
            for group in part.groups:
                group.stream.lane.queue.put(group)
        return offsets_of(parts)

    def append_batch_async(self, messages: Iterable[tuple[str, int, Payload]]) -> asyncio.Future[npt.NDArray[np.int64]]:
        """Hand many messages over; return a Future of their offsets."""
        asyncio.get_running_loop()  # it raises before anything is handed over
        return self.put_async(self._cut(messages))

    def put_async(self, parts: list[BatchPart]) -> asyncio.Future[npt.NDArray[np.int64]]:
        """Hand groups over for a coroutine; return a Future of their offsets."""
        return self._shared.batches.put(parts)

    def _cut(self, messages: Iterable[tuple[str, int, Payload]]) -> list[BatchPart]:
        """Check a batch and cut it into groups; nothing is handed over yet."""
        columns = self.accept_batch(messages)
        return cut_by_lane(self._lanes, *columns, self.frame_bytes) if columns[0] else []

    def accept_batch(
        self, messages: Iterable[tuple[str, int, Payload]]
    ) -> tuple[list[Stream], list[bytes], list[int]]:  # fmt: skip
        """Check a batch: (streams, datas, sizes), a row each."""
        rows = self._rows(messages)
        if not rows:
            self.check_open()
            return [], [], []
        return self._accept_batch(rows)

    def _rows(self, messages: Iterable[tuple[str, int, Payload]]) -> list[tuple[str, int, Payload]]:
        """The rows of a batch, as they were given. Raises InvalidMessage."""
        try:
            if isinstance(messages, str | bytes | bytearray | memoryview):
                raise TypeError
            each = iter(messages)
        except TypeError:
            raise InvalidMessage(
                f"append_batch takes (topic, queue id, data) tuples, not {type(messages).__name__}"
            ) from None
        return list(each)  # a copy: another thread may change the caller's list

    def stream_of(self, topic: str, queue_id: int) -> Stream:
        """The stream of a name that was checked, made at first use. Raises TopicFull, InvalidTopic, StoreClosed."""
        return self.known.get(topic, NO_QUEUES).get(queue_id) or self._stream(topic, queue_id)

    def check(
        self,
        topic: str,
        queue_id: int | None,
        data: Payload | None,
        deliver_at_ms: int | None,
        key: bytes | None,
        properties: Mapping[str, str] | None,
        queues: Queues | None,
    ) -> tuple[str, int, bytes, Extras | None]:
        """Check one message: (topic, queue id, data, extras). No stream is made."""
        if type(queue_id) is not int or type(topic) is not str or queues is not None:
            topic, queue_id = self._named(topic, queue_id, key, queues)
        elif queue_id not in self._streams.topics.get(topic, NO_QUEUES):
            check_name(topic, queue_id)
            self._configured.check_queue(topic, queue_id)
        if type(data) is not bytes:
            data = as_bytes(data, self.max_message_bytes)
        extras = None
        if deliver_at_ms is not None or key is not None or properties is not None:
            extras = check_extras(deliver_at_ms, key, properties)
        if len(data) > self.max_message_bytes or extras is not None:
            self._check_size(len(data), extras)
        return topic, queue_id, data, extras

    def check_batch(self, messages: Iterable[tuple[str, int, Payload]]) -> list[tuple[str, int, bytes]]:
        """Check a batch: (topic, queue id, data) of each row. No stream is made."""
        checked = check_rows(self._rows(messages), self.max_message_bytes)
        for row, (topic, queue_id, _) in enumerate(checked):
            if queue_id not in self._streams.topics.get(topic, NO_QUEUES):
                try:
                    self._configured.check_queue(topic, queue_id)
                except InvalidTopic as error:
                    raise error.in_row(row) from None
        return checked

    def atomic_group(
        self, streams: list[Stream], datas: list[bytes], extras: Sequence[Extras | None],
        settle: Callable[[StoreError | None], None] | None, ids: Sequence[PendingIds] = (), blocks: Blocks = (),
    ) -> AtomicGroup:  # fmt: skip
        """The request of a transaction, see `log.joint_group`. Raises StoreClosed, StoreUnreadable."""
        rounds = self._shared.rounds_for_large() if blocks else self._shared.rounds
        if rounds is None and not ids:  # as `atomic_group` does it: a call saved shows
            return AtomicGroup(streams, datas, extras, settle)
        return atomic_group(rounds, streams, datas, extras, settle, ids, blocks)

    def _named(self, topic: object, queue_id: object, key: object, queues: Queues | None) -> tuple[str, int]:
        """The name of a stream, of plain types and checked: a dict takes True and 1.0 for 1, and a hash may raise."""
        if queue_id is None:
            queue_id = self._partitioner.choose(topic, key, queues)
        elif queues is not None:
            raise InvalidMessage("queues are to choose from where queue_id is left out: give one of the two")
        return check_name(topic, queue_id)

    def _check_size(self, size_bytes: int, extras: Extras | None) -> None:
        total = size_bytes + (extras.size_bytes if extras is not None else 0)
        if total > self.max_message_bytes:
            raise too_large(total, self.max_message_bytes)

    def _accept_batch(self, rows: list[tuple[str, int, Payload]]) -> tuple[list[Stream], list[bytes], list[int]]:
        """Check a batch: (streams, datas, sizes)."""
        try:
            found = self._find_all(rows)
        except Exception:  # a row may be of any type, which raises what it likes
            found = None
        return found or self._name_all(rows)

    def _find_all(self, rows: list[tuple[str, int, Payload]]) -> tuple[list[Stream], list[bytes], list[int]] | None:
        """A batch, a column at a time; None, or any error, if a stream is new or something may be wrong with a row."""
        topics, limit = self.known, self.max_message_bytes
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
        checked = check_rows(rows, self.max_message_bytes)  # all of them, before the first stream is made
        names = [(topic, queue_id) for topic, queue_id, _ in checked]
        try:
            streams = self.find_or_make(names)
        except InvalidTopic as error:
            raise error.in_row(error.row or 0) from None
        datas = [data for _, _, data in checked]
        return streams, datas, list(map(len, datas))

    def find_or_make(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        """The streams of names that were checked, made at first use. `acknowledged`: see `FullTopics.check`.

        Raises TopicFull; InvalidTopic if a topic does not have a queue: its `row` is the place of the name.
        """
        topics = self.known
        try:
            return [topics[topic][queue_id] for topic, queue_id in names]
        except KeyError:  # one is new, or a topic is full
            self._configured.full.check([topic for topic, _ in names], acknowledged)
        known = [self._streams.get(*name) for name in names]
        found = [stream for stream in known if stream is not None]
        if len(found) == len(names):
            return found
        return self._make_checked(names, {place: names[place] for place, one in enumerate(known) if one is None})

    def find_again(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        """As `find_or_make`, for messages that the store had already: also of queues that their topics do not have."""
        self._configured.full.check([topic for topic, _ in names], acknowledged)
        return self.make(names)

    def make(self, names: Sequence[tuple[str, int]]) -> list[Stream]:
        """The streams of names, also of queues that their topics do not have; for what is committed."""
        with self._shared.naming:
            self.check_open()
            return [self._streams.get(*name) or self._make(*name) for name in names]

    def _make_checked(
        self, names: Sequence[tuple[str, int]], new: Mapping[int | None, tuple[str, int]]
    ) -> list[Stream]:
        """The streams of names, if their topics have the `new` ones, by place; None for no batch. A setting that
        changes meanwhile is looked at again: else its caller and this one would not know of each other.
        """
        while True:
            turn = self._configured.turn
            for place, name in new.items():
                try:
                    self._configured.check_queue(*name)
                except InvalidTopic as error:
                    error.row = place
                    raise
            with self._shared.naming:
                self.check_open()
                if self._configured.turn == turn:
                    return [self._streams.get(*name) or self._make(*name) for name in names]

    def _stream(self, topic: object, queue_id: object) -> Stream:
        """The stream of a name, made at first use."""
        name = check_name(topic, queue_id)
        self._configured.full.check([name[0]])
        return self._make_checked([name], {} if self._streams.get(*name) is not None else {None: name})[0]

    def look_closely(self, on: bool) -> None:
        """Whether appends have to check if their topic is full: then none finds its stream by the shortest way."""
        self.known = {} if on else self._streams.topics

    def _make(self, topic: str, queue_id: int) -> Stream:
        """A new stream. The lock of names is held."""
        index = lane_of(topic, queue_id, len(self._lanes))
        stream = Stream(topic, queue_id, self._lanes[index])
        self._streams.add(stream)
        return stream

    def flush(self) -> None:
        """Wait for all that was handed over before the call."""
        self.check_open()
        barriers = []
        for queue in self._shared.all_queues:
            barrier = Barrier()
            queue.put(barrier)
            barriers.append(barrier)
        for barrier in barriers:
            barrier.result()
