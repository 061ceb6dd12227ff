"""The calls that read, as a user sees them: their names, arguments and promises. `Fetcher` does the work."""

from __future__ import annotations

from collections.abc import Iterator

from ..filters.given import Filter
from ..read.message import Message, MessageBatch
from ..read.wanted import ALL, ScanFilter
from ..topics.settings import TopicSettings
from .fetcher import Fetcher


class ReadCalls:
    """Passes each call on to the store's reading part. It has no state of its own.

    All reads by offset behave alike at the ends of a queue. At the queue's next offset they return nothing. Beyond it,
    or before the queue's first offset, they raise `OffsetOutOfRange`. The next offset of a queue that was never used
    is 0.

    The call, and the iterator of a scan, hold the store. So a store that its program lets go of meanwhile is not closed
    under them.
    """

    _fetcher: Fetcher

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        min_messages: int = 1,
        min_bytes: int = 0,
    ) -> list[Message]:
        """Return durable messages from `offset` on, in offset order. The checksum of each is verified.

        Args:
            offset: the offset of the first message wanted; the queue's next offset gives an empty list.
            max_messages: the largest number of messages.
            max_bytes: the largest sum of data bytes; a first message that is larger is returned alone.
            wait_ms: how long to wait until there are enough messages, also in a queue that was never used. Those that
                there are when the time is over are returned.
            min_messages, min_bytes: how many messages, and how many data bytes in all, are enough; both must have come.
                A read that is full by `max_messages` or `max_bytes` is enough, too. Without `wait_ms` they have no
                effect.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        return self._fetcher.read(topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes)

    async def read_async(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        min_messages: int = 1,
        min_bytes: int = 0,
    ) -> list[Message]:
        """`read` for coroutines. It does not block the event loop, and a coroutine that waits needs no thread.

        Recent messages are read at once from the ring in memory, up to 1 MiB. Threads of the store do all other reads.

        Args, result and errors: as for `read`.
        """
        return await self._fetcher.read_async(
            topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages, min_bytes
        )

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """Return {0: data, 1: data, ..} of up to `fetch_num` messages from `offset` on.

        A key i stands for the offset `offset` + i. Messages that a repair gave up have no key. The queue's next offset
        gives an empty dict.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        return self._fetcher.get_range(topic, queue_id, offset, fetch_num)

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 4096, max_bytes: int = 64 << 20,
        wait_ms: int = 0,
    ) -> MessageBatch:  # fmt: skip
        """Return the messages of `read` as columns over one buffer, for reads in bulk.

        Args:
            offset: the offset of the first message wanted; the queue's next offset gives an empty batch.
            max_messages: the largest number of messages.
            max_bytes: the largest sum of data bytes; a first message that is larger is returned alone.
            wait_ms: how long to wait for the first message, also in a queue that was never used.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: the message at `offset` is damaged on the device. If a later one is damaged, the result ends
                before it.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or a number is not valid.
        """
        return self._fetcher.read_batch(topic, queue_id, offset, max_messages, max_bytes, wait_ms)

    def scan(self, wanted: ScanFilter = ALL, *, filter: Filter | None = None) -> Iterator[MessageBatch]:
        """Iterate over all messages that are durable at the call: lane by lane, in log order, one batch per frame.

        The result is a prefix of each lane's log, without what was trimmed or is not wanted. Appends, sealing and
        retention during the scan do not change it. In the process that writes, the files of segments that retention
        removes stay until the scan has read them, or is dropped. In a reader's process only those stay that it has
        open: a scan that retention overtakes there raises StoreUnreadable; begin it again.

        Args:
            wanted: which messages, a `stratalog.plans.ScanFilter`. Segments without any of them are not read, as their
                footers tell.
            filter: which of these, by properties and key, as `MessageStore.subscribe` takes it. All frames are read.

        Raises:
            InvalidMessage: `wanted` is no ScanFilter, or `filter` is not valid.

        Raises, when the scan gets there:
            StoreCorrupt: a frame or a message is damaged on the device.
            StoreUnreadable: the system refused a read, or, in a reader's process, retention has overtaken the scan.
        """
        return self._held(self._fetcher.scan(wanted, filter))

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return (first, next): the queue holds the offsets first .. next - 1. (0, 0) if it was never used.

        `first` is at least where the queue was trimmed to.

        Damage raises no error here: `first` is the first offset that can still be found. If the oldest segment has a
        damaged footer, and its frames or the footers around it are damaged as well, `first` lies after its messages.

        Raises:
            InvalidTopic: the topic or the queue id is not valid.
            StoreUnreadable: the system refused a read.
        """
        return self._fetcher.queue_bounds(topic, queue_id)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the queue's first message with this time or a later one.

        If there is none, it is the queue's next offset; 0 for a queue that was never used. The time of a message is its
        `timestamp_ms`: when it was put into the log, or for a bulk commit, when its task wrote it. Where times go back,
        by such a commit or as the clock was set back, "first" means the lowest offset.

        Args:
            timestamp_ms: ms since the epoch.

        Raises:
            StoreCorrupt: a part of the log that may hold the message is damaged.
            StoreUnreadable: the system refused a read.
            InvalidTopic, InvalidMessage: the topic, the queue id or the time is not valid.
        """
        return self._fetcher.offset_at(topic, queue_id, timestamp_ms)

    def topics(self) -> list[str]:
        """Return the topics that ever had a durable message, and those that are configured, sorted.

        Retention does not remove a topic from the list; `delete_topic` does, until the topic has a new durable message
        or is configured again.

        Raises:
            StoreUnreadable: the system refused a read.
        """
        return self._fetcher.topics()

    def queues(self, topic: str) -> list[int]:
        """Return the queue ids of a topic that ever had a durable message, and those of its setting `queues`, sorted.

        After `delete_topic`, a queue is left out until it has a new durable message.

        Raises:
            InvalidTopic: the topic is not valid.
            StoreUnreadable: the system refused a read.
        """
        return self._fetcher.queues(topic)

    def topic_settings(self, topic: str) -> TopicSettings:
        """Return the settings of a topic: of one that is not configured, the defaults. See `configure_topic`.

        Raises:
            InvalidTopic: the topic is not valid.
            StoreCorrupt, StoreUnreadable: the settings are damaged; the system refused a read.
            StoreUnusable: a later version of the package wrote them.
        """
        return self._fetcher.topic_settings(topic)

    def _held(self, batches: Iterator[MessageBatch]) -> Iterator[MessageBatch]:
        """Give the batches, and keep the store alive meanwhile."""
        yield from batches
