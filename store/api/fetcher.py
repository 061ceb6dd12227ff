"""The reading half of the public face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..config import StoreConfig
from ..device.clock import Clock
from ..errors import OffsetOutOfRange, StoreUnreadable
from ..log.streams import Stream, check_name
from ..read.async_reads import AsyncReads, Wanted
from ..read.message import Message, MessageBatch
from ..read.reader import Reader
from ..read.scan import LaneSnapshot
from ..read.times import offset_at
from ..read.waiting import WaitingReaders
from .base import OpenStore
from .checks import LONGEST_WAIT_MS, check_counts


class Fetcher(OpenStore):
    """The calls that read.

    Invariant: all reads by offset behave alike at the ends of a queue. At the queue's next offset they return nothing.
    Beyond it, or before the queue's first offset, they raise `OffsetOutOfRange`. A queue that was never used has the
    next offset 0.
    """

    def __init__(self, path: Path, config: StoreConfig, clock: Clock) -> None:
        super().__init__(path, config, clock)
        self._reader = Reader()
        self._waiting = self._new_waiting()
        self._async_reads = AsyncReads(self._waiting)

    def _new_waiting(self) -> WaitingReaders:
        return WaitingReaders(self._streams, self._clock)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:
        """Return durable messages from `offset` on, in offset order. The checksum of each is verified.

        Args:
            offset: the offset of the first message wanted; the queue's next offset gives an empty list.
            max_messages: the largest number of messages.
            max_bytes: the largest sum of data bytes; a first message that is larger is returned alone.
            wait_ms: how long to wait if there is no message at `offset` yet, also in a queue that was never used.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        stream = self._readable(topic, queue_id)
        plain = type(offset) is type(max_messages) is type(max_bytes) is type(wait_ms) is int
        if not plain or min(offset, max_messages, max_bytes, wait_ms) < 0:
            offset, max_messages, max_bytes, wait_ms = check_counts(
                offset=offset, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms
            )
        deadline = self._clock.monotonic_s() + min(wait_ms, LONGEST_WAIT_MS) / 1000
        try:
            while True:
                seen = offset
                if stream is not None:
                    if wait_ms:  # a look at the footers that only a sleeper needs, and in front of the read
                        seen = max(offset, self._reader.bounds(stream)[1])
                    found = self._reader.read(stream, offset, max_messages, max_bytes)
                    if found:
                        return found
                self._check_not_past(topic, queue_id, stream, offset)
                if not wait_ms or not max_messages or not self._wait_for_message(topic, queue_id, seen, deadline):
                    return []
                stream = self._readable(topic, queue_id)
        except OSError as error:
            raise self._unreadable(error) from error

    async def read_async(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:
        """`read` for coroutines. It does not block the event loop, and a coroutine that waits needs no thread.

        Recent messages are read at once from the ring in memory, up to 1 MiB. Threads of the store do all other reads.

        Args, result and errors: as for `read`.
        """
        self._check_open()
        name = check_name(topic, queue_id)
        offset, max_messages, max_bytes, wait_ms = check_counts(
            offset=offset, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms
        )
        wanted = Wanted(*name, offset, max_messages, max_bytes)
        return await self._async_reads.read(self, wanted, min(wait_ms, LONGEST_WAIT_MS) / 1000)

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """Return {0: data, 1: data, ..} of up to `fetch_num` messages from `offset` on (R1, the contest's call).

        A key i stands for the offset `offset` + i. Messages that a repair gave up have no key. The queue's next offset
        gives an empty dict.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        stream = None
        if type(offset) is type(fetch_num) is type(queue_id) is int and type(topic) is str and not self._closed:
            stream = self._streams.get(topic, queue_id)
        if stream is None or offset < 0 or fetch_num < 0:
            stream = self._readable(topic, queue_id)
            offset, fetch_num = check_counts(offset=offset, fetch_num=fetch_num)
        try:
            found = self._reader.get_range(stream, offset, fetch_num) if stream is not None else {}
            if not found:
                self._check_not_past(topic, queue_id, stream, offset)
            return found
        except OSError as error:
            raise self._unreadable(error) from error

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 4096, max_bytes: int = 64 << 20
    ) -> MessageBatch:
        """Return the messages of `read` as columns over one buffer, for reads in bulk. It does not wait.

        Args:
            offset: the offset of the first message wanted; the queue's next offset gives an empty batch.
            max_messages: the largest number of messages.
            max_bytes: the largest sum of data bytes; a first message that is larger is returned alone.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        stream = self._readable(topic, queue_id)
        plain = type(offset) is type(max_messages) is type(max_bytes) is int
        if not plain or min(offset, max_messages, max_bytes) < 0:
            offset, max_messages, max_bytes = check_counts(
                offset=offset, max_messages=max_messages, max_bytes=max_bytes
            )
        try:
            if stream is not None:
                batch = self._reader.read_batch(stream, offset, max_messages, max_bytes)
            else:
                batch = _empty_batch(*check_name(topic, queue_id))
            if not len(batch):
                self._check_not_past(topic, queue_id, stream, offset)
            return batch
        except OSError as error:
            raise self._unreadable(error) from error

    def scan(self) -> Iterator[MessageBatch]:
        """Iterate over all messages that are durable at the call: lane by lane, in log order, one batch per frame.

        The result is a prefix of each lane's log, without gaps. Appends, sealing and retention during the scan do not
        change it. The files of segments that retention removes stay until the scan has read them, or is dropped.

        Raises, when the scan gets there:
            StoreCorrupt: a frame or a message is damaged on the device.
            StoreUnreadable: the system refused a read.
        """
        self._check_open()
        return self._scan([LaneSnapshot(lane) for lane in self._lanes])

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
        """Return (first, next): the queue holds the offsets first .. next - 1. (0, 0) if it was never used.

        Damage raises no error here: `first` is the first offset that can still be found. If the oldest segment has a
        damaged footer, and its frames or the footers around it are damaged as well, `first` lies after its messages.

        Raises:
            InvalidTopic: the topic or the queue id is not valid.
            StoreUnreadable: the system refused a read.
        """
        stream = self._readable(topic, queue_id)
        try:
            return self._reader.bounds(stream) if stream is not None else (0, 0)
        except OSError as error:
            raise self._unreadable(error) from error

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the queue's first message with this time or a later one.

        If there is none, it is the queue's next offset; 0 for a queue that was never used. The time of a message is its
        `timestamp_ms`: when it was put into the log. If the clock was set back, "first" means the lowest offset.

        Args:
            timestamp_ms: ms since the epoch.

        Raises:
            StoreCorrupt: a part of the log that may hold the message is damaged.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or the time is not valid.
        """
        stream = self._readable(topic, queue_id)
        (time_ms,) = check_counts(timestamp_ms=timestamp_ms)
        try:
            return offset_at(stream, time_ms) if stream is not None else 0
        except OSError as error:
            raise self._unreadable(error) from error

    def topics(self) -> list[str]:
        """Return the topics that ever had a durable message, sorted. Retention does not remove a topic from the list.

        Raises:
            StoreUnreadable: the system refused a read.
        """
        self._check_open()
        topics = [(topic, list(queues.values())) for topic, queues in list(self._topics.items())]
        return sorted(topic for topic, streams in topics if any(map(self._was_used, streams)))

    def queues(self, topic: str) -> list[int]:
        """Return the queue ids of a topic that ever had a durable message, sorted; empty if the topic was never used.

        Raises:
            InvalidTopic: the topic is not valid.
            StoreUnreadable: the system refused a read.
        """
        self._check_open()
        name, _ = check_name(topic, 0)
        streams = list(self._topics.get(name, {}).values())
        return sorted(stream.queue_id for stream in streams if self._was_used(stream))

    def _was_used(self, stream: Stream) -> bool:
        """False for a queue of which nothing was durable yet: its first message is on its way, or failed."""
        try:
            return self._reader.bounds(stream)[1] > 0
        except OSError as error:
            raise self._unreadable(error) from error

    def _readable(self, topic: str, queue_id: int) -> Stream | None:
        self._check_open()
        stream = self._found(topic, queue_id)
        return stream if stream is not None else self._streams.get(*check_name(topic, queue_id))

    def _unreadable(self, error: OSError) -> StoreUnreadable:
        # Here and no deeper: recovery and sealing want to know what the system said.
        return StoreUnreadable(f"{self.path}: a read was refused: {error}. Nothing is lost by that; read again.")

    def _check_not_past(self, topic: str, queue_id: int, stream: Stream | None, offset: int) -> None:
        first, next_offset = self._reader.bounds(stream) if stream is not None else (0, 0)
        if offset > next_offset:
            raise OffsetOutOfRange(topic, queue_id, offset, first, next_offset)

    def _wait_for_message(self, topic: str, queue_id: int, offset: int, deadline: float) -> bool:
        """Sleep until the queue has a message at `offset`; False when the time is up."""

        def has_come() -> bool:
            stream = self._readable(topic, queue_id)
            return stream is not None and self._reader.bounds(stream)[1] > offset

        return self._waiting.wait(check_name(topic, queue_id), deadline, has_come)


def _empty_batch(topic: str, queue_id: int) -> MessageBatch:
    nothing = np.empty(0, np.int64)
    return MessageBatch(
        memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [(topic, queue_id)]
    )

