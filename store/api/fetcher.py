"""The part of a store that reads: from the arguments of a call to the `Reader` and, where a read waits, back again."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, OffsetOutOfRange, StoreError, StoreUnreadable, shown
from ..filters.given import Filter, check_filter
from ..filters.message_filter import MessageFilter
from ..log.streams import Stream, check_name
from ..read.async_reads import AsyncReads, Looked, Wanted
from ..read.finder import open_end
from ..read.lane_places import LanePlaces
from ..read.message import Message, MessageBatch
from ..read.picking import Picks
from ..read.reader import Reader
from ..read.scan import LaneSnapshot
from ..read.times import offset_at
from ..read.waiting import LONGEST_WAIT_MS, WaitingReaders, sealed_of
from ..read.wanted import ScanFilter
from ..subscriptions.delivery import filtered
from ..topics.settings import TopicSettings
from ..topics.table import TopicTable
from .checks import check_counts
from .shared import Shared


class Fetcher:
    """Checks a call, finds its stream and asks the `Reader`; waits; makes an OSError a StoreUnreadable.

    Attributes:
        reader: `cached.cached_reader` takes its place when the store has caches.
        waiting, async_reads: of the readers that wait, and of coroutines.
        configured: the settings of topics.
    """

    def __init__(self, shared: Shared, waiting: WaitingReaders | None = None, *, may_write: bool = True) -> None:
        self.reader = Reader.of_the_log()
        self.waiting = WaitingReaders(shared.streams, shared.clock) if waiting is None else waiting
        self.async_reads = AsyncReads(self.waiting)
        self.configured = TopicTable(shared.hidden, lambda: self.reader, may_write=may_write)
        self._shared = shared
        self._lanes = shared.lanes
        self._streams = shared.streams
        self._topics = shared.streams.topics
        self._check_open = shared.check_open

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wait_ms: int = 0,
        min_messages: int = 1,
        min_bytes: int = 0,
    ) -> list[Message]:
        """The messages from `offset` on; waits up to `wait_ms` until there are enough."""
        if type(wait_ms) is int and not wait_ms:
            if type(min_messages) is not int or type(min_bytes) is not int or min(min_messages, min_bytes) < 0:
                check_counts(min_messages=min_messages, min_bytes=min_bytes)
            return self._there(self._readable(topic, queue_id), topic, queue_id, offset, max_messages, max_bytes)
        wanted, wait_ms = self._wanted(
            topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes
        )
        waiting = self.waiting
        deadline_ms = waiting.deadline_after(wait_ms)
        while True:
            looked = self.look(wanted)
            missing = wanted.missing(looked) if max_messages else None
            if missing is None or waiting.is_over(deadline_ms):
                return looked.found
            del looked  # not kept through the sleep
            waiting.wait(wanted.name, missing, deadline_ms)

    def _wanted(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        min_messages: int,
        min_bytes: int,
    ) -> tuple[Wanted, int]:
        """The arguments, checked, and how many ms to wait."""
        self._check_open()
        name = check_name(topic, queue_id)
        offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes = check_counts(
            offset=offset, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms,
            min_messages=min_messages, min_bytes=min_bytes,
        )  # fmt: skip
        wanted = Wanted(*name, offset, max_messages, max_bytes, min_messages, min_bytes)
        return wanted, min(wait_ms, LONGEST_WAIT_MS)

    def _there(
        self, stream: Stream | None, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int
    ) -> list[Message]:
        """The messages that are there."""
        plain = type(offset) is type(max_messages) is type(max_bytes) is int
        if not plain or offset < 0 or max_messages < 0 or max_bytes < 0:
            offset, max_messages, max_bytes = check_counts(
                offset=offset, max_messages=max_messages, max_bytes=max_bytes
            )
        try:
            found = self.reader.read(stream, offset, max_messages, max_bytes) if stream is not None else []
            if not found:
                self._check_not_past(topic, queue_id, stream, offset)
            return found
        except OSError as error:
            raise self._unreadable(error) from error

    def look(self, wanted: Wanted) -> Looked:
        """The messages that are there; does not wait."""
        topic, queue_id, offset, max_messages, max_bytes, *_ = wanted
        stream = self._readable(topic, queue_id)
        sealed = sealed_of(stream)
        following = self._next_offset(stream) if wanted.is_choosy else offset
        found = self._there(stream, topic, queue_id, offset, max_messages, max_bytes)
        if not found and not wanted.is_choosy:
            following = self._next_offset(stream)
            if following > offset:  # it came meanwhile; or a repair gave up what was there
                found = self._there(stream, topic, queue_id, offset, max_messages, max_bytes)
        is_all = bool(wanted.is_choosy and found) and self._is_nothing_between(stream, wanted, found, following)
        return Looked(found, following, sealed, is_all)

    def _is_nothing_between(self, stream: Stream | None, wanted: Wanted, found: list[Message], following: int) -> bool:
        """True if the queue has no message between the last one of `found` and `following`."""
        end = found[-1].offset + 1
        if end >= following or len(found) >= wanted.max_messages:
            return end >= following
        try:
            return not self._there(stream, *wanted.name, end, 1, wanted.max_bytes)
        except StoreError:  # damage: the next read raises it
            return False

    def _next_offset(self, stream: Stream | None) -> int:
        if stream is None or stream.number < 0:
            return 0
        end = open_end(stream)
        try:
            return self.reader.bounds(stream)[1] if end is None else end
        except OSError as error:
            raise self._unreadable(error) from error

    def read_async(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wait_ms: int,
        min_messages: int = 1,
        min_bytes: int = 0,
    ) -> Coroutine[Any, Any, list[Message]]:
        """`read` for coroutines."""
        wanted, wait_ms = self._wanted(
            topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes
        )
        return self.async_reads.read(self, wanted, wait_ms)

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """{0: data, 1: data, ..} from `offset` on."""
        # `tried`: None, the table of places was not asked; else `found` has its messages, and True means: all of them.
        stream = tried = None
        found: dict[int, bytes] = {}
        plain = type(offset) is type(fetch_num) is type(queue_id) is int and type(topic) is str
        try:
            if plain and self._lanes and not self._shared.closed:
                lane = self._lanes[0]
                table: LanePlaces | None = lane.index_memory.places.get(0)
                if table is not None:
                    tried = table.copied_by_name(lane, topic, queue_id, offset, fetch_num, found)
                    if tried:
                        return found
                queues = self._topics.get(topic)
                stream = None if queues is None else queues.get(queue_id)
            if stream is None or offset < 0 or fetch_num < 0:
                stream = self._readable(topic, queue_id)
                offset, fetch_num = check_counts(offset=offset, fetch_num=fetch_num)
            if stream is not None:
                read = self.reader.get_range if tried is None else partial(self.reader.rest_of, found=found)
                found = read(stream, offset, fetch_num)
            if not found:
                self._check_not_past(topic, queue_id, stream, offset)
            return found
        except OSError as error:
            raise self._unreadable(error) from error

    def read_batch(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int, wait_ms: int = 0
    ) -> MessageBatch:
        """The messages from `offset` on, in columns; waits up to `wait_ms` for the first one."""
        if type(wait_ms) is not int or wait_ms < 0:
            (wait_ms,) = check_counts(wait_ms=wait_ms)
        batch = self.batch(topic, queue_id, offset, max_messages, max_bytes)
        if wait_ms and max_messages and not len(batch):
            self.read(topic, queue_id, offset, 1, 1, wait_ms)  # it waits; all is then read in columns
            batch = self.batch(topic, queue_id, offset, max_messages, max_bytes)
        return batch

    def batch(self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int) -> MessageBatch:
        """As `read_batch`; does not wait."""
        stream = self._readable(topic, queue_id)
        plain = type(offset) is type(max_messages) is type(max_bytes) is int
        if not plain or min(offset, max_messages, max_bytes) < 0:
            offset, max_messages, max_bytes = check_counts(
                offset=offset, max_messages=max_messages, max_bytes=max_bytes
            )
        try:
            if stream is not None:
                batch = self.reader.read_batch(stream, offset, max_messages, max_bytes)
            else:
                batch = _empty_batch(*check_name(topic, queue_id))
            if not len(batch):
                self._check_not_past(topic, queue_id, stream, offset)
            return batch
        except OSError as error:
            raise self._unreadable(error) from error

    def read_at(
        self, topic: str, queue_ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], max_bytes: int,
        *, is_first: bool,
    ) -> Picks:  # fmt: skip
        """The messages of a topic at some places (n,), as far as they are there and fit; see `picks_of`.

        Raises OffsetOutOfRange for a queue that has no messages, StoreCorrupt, StoreUnreadable.
        """
        known, which = np.unique(queue_ids, return_inverse=True)
        streams: list[Stream] = []
        for queue_id in known.tolist():
            stream = self._readable(topic, queue_id)
            if stream is None or stream.number < 0:
                raise OffsetOutOfRange(topic, queue_id, 0, 0, 0)
            streams.append(stream)
        try:
            return self.reader.read_at(streams, which, offsets, max_bytes, is_first=is_first)
        except OSError as error:
            raise self._unreadable(error) from error

    def scan(self, wanted: ScanFilter, filter: Filter | None = None) -> Iterator[MessageBatch]:
        """The messages that are wanted and durable at the call, a batch a frame."""
        plain = check_filter(filter)
        self._check_open()
        if not isinstance(wanted, ScanFilter):
            raise InvalidMessage(f"`wanted` is a ScanFilter, not {shown(wanted)}")
        batches = self._scan(self._shared.at_one_moment(partial(self._snapshots, wanted)))
        return batches if plain is None else filtered(batches, MessageFilter(plain))

    def _snapshots(self, wanted: ScanFilter) -> list[LaneSnapshot]:
        return [LaneSnapshot(lane, wanted) for lane in self._lanes]

    def _scan(self, snapshots: list[LaneSnapshot]) -> Iterator[MessageBatch]:
        for snapshot in snapshots:
            batches = snapshot.batches()
            while True:
                self._check_open()
                try:
                    batch = next(batches, None)
                except OSError as error:
                    raise self._unreadable(error) from error
                if batch is None:
                    break
                yield batch

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(first, next) offset of a queue."""
        stream = self._readable(topic, queue_id)
        try:
            return self.reader.bounds(stream) if stream is not None else (0, 0)
        except OSError as error:
            raise self._unreadable(error) from error

    def let_go(self) -> None:
        """Called after the end: keep none of the folder's files open. Here the lanes had them, and are closed."""

    def bounds_of_topic(self, topic: str) -> dict[int, tuple[int, int]]:
        """(first, next) offset of each queue of a topic that is known by now, by queue id."""
        self._check_open()
        queues = dict(self._topics.get(topic, {}))
        try:
            return dict(zip(queues, self.reader.finder.bounds_of(list(queues.values())), strict=True))
        except OSError as error:
            raise self._unreadable(error) from error

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset of a time or later."""
        stream = self._readable(topic, queue_id)
        (time_ms,) = check_counts(timestamp_ms=timestamp_ms)
        try:
            return offset_at(stream, time_ms) if stream is not None else 0
        except OSError as error:
            raise self._unreadable(error) from error

    def topics(self) -> list[str]:
        """The topics that ever had a durable message, and those that are configured, sorted."""
        self._check_open()
        topics = [(topic, list(queues.values())) for topic, queues in dict(self._topics).items()]
        return sorted({topic for topic, streams in topics if any(map(self._was_used, streams))} | {*self.configured})

    def queues(self, topic: str) -> list[int]:
        """The queue ids of a topic that ever had a durable message, and those that it is configured with, sorted."""
        self._check_open()
        name, _ = check_name(topic, 0)
        return sorted({*range(self.configured.settings(name).queues or 0), *self.used_queues(name)})

    def used_queues(self, topic: str) -> list[int]:
        """The queue ids of a topic that ever had a durable message."""
        streams = list(self._topics.get(topic, {}).values())
        return [stream.queue_id for stream in streams if self._was_used(stream)]

    def topic_settings(self, topic: str) -> TopicSettings:
        """The settings of a topic."""
        self._check_open()
        return self.configured.settings(check_name(topic, 0)[0])

    def _was_used(self, stream: Stream) -> bool:
        """False for a queue without a durable message yet: its first message is on its way, or failed."""
        try:
            return self.reader.bounds(stream)[1] > stream.hidden
        except OSError as error:
            raise self._unreadable(error) from error

    def _readable(self, topic: str, queue_id: int) -> Stream | None:
        if type(topic) is str and type(queue_id) is int and not self._shared.closed:  # True and 1.0 are not taken for 1
            queues = self._topics.get(topic)
            stream = None if queues is None else queues.get(queue_id)
            if stream is not None:
                return stream
        self._check_open()
        return self._streams.get(*check_name(topic, queue_id))

    def _unreadable(self, error: OSError) -> StoreUnreadable:
        # Here and no deeper: recovery and sealing want to know what the system said.
        path = self._shared.path
        return StoreUnreadable(f"{path}: a read was refused: {error}. Nothing is lost by that; read again.")

    def _check_not_past(self, topic: str, queue_id: int, stream: Stream | None, offset: int) -> None:
        first, next_offset = self.reader.bounds(stream) if stream is not None else (0, 0)
        if offset > next_offset:
            raise OffsetOutOfRange(topic, queue_id, offset, first, next_offset)


def _empty_batch(topic: str, queue_id: int) -> MessageBatch:
    nothing = np.empty(0, np.int64)
    return MessageBatch(
        memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [(topic, queue_id)]
    )
