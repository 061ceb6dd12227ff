"""The calls that read, with the names and arguments of `StoreReader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from stratalog import Backlog, Message, MessageBatch, Stats, SubscriptionInfo, SubscriptionSettings, TopicSettings
from stratalog.plans import ScanFilter
from stratalog.store import Position

from ..columns import batch_in, numbers_in
from ..values import to_json
from .connection import Connection, nothing_of
from .link import Link

if TYPE_CHECKING:
    from stratalog.store.filters.given import Filter

ALL = ScanFilter()


class Reading:
    """Asks for messages, and for what the store has. Batches arrive as columns over one buffer."""

    _link: Link

    def read(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 32, max_bytes: int = 1 << 20,
        wait_ms: int = 0, min_messages: int = 1, min_bytes: int = 0,
    ) -> list[Message]:  # fmt: skip
        """Messages of a queue, in offset order. Args, result and errors: as for `MessageStore.read`."""
        found: list[Message] = self._link.wait(
            "read", _messages_of,
            arguments=_read_arguments(
                topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages=min_messages,
                min_bytes=min_bytes,
            ),
        )  # fmt: skip
        return found

    async def read_async(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 32, max_bytes: int = 1 << 20,
        wait_ms: int = 0, min_messages: int = 1, min_bytes: int = 0,
    ) -> list[Message]:  # fmt: skip
        """`read` for coroutines; a cancelled one ends at the server, too."""
        found: list[Message] = await self._link.wait_in_loop(
            "read", _messages_of,
            arguments=_read_arguments(
                topic, queue_id, offset, max_messages, max_bytes, wait_ms, min_messages=min_messages,
                min_bytes=min_bytes,
            ),
        )  # fmt: skip
        return found

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 4096, max_bytes: int = 64 << 20,
        wait_ms: int = 0,
    ) -> MessageBatch:  # fmt: skip
        """Messages of a queue as columns. Args, result and errors: as for `MessageStore.read_batch`."""
        arguments = _read_arguments(topic, queue_id, offset, max_messages, max_bytes, wait_ms)
        found: MessageBatch = self._link.wait("read_batch", batch_in, arguments=arguments)
        return found

    async def read_batch_async(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 4096, max_bytes: int = 64 << 20,
        wait_ms: int = 0,
    ) -> MessageBatch:  # fmt: skip
        """`read_batch` for coroutines."""
        arguments = _read_arguments(topic, queue_id, offset, max_messages, max_bytes, wait_ms)
        found: MessageBatch = await self._link.wait_in_loop("read_batch", batch_in, arguments=arguments)
        return found

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """Payloads by their place after `offset`. Args, result and errors: as for `MessageStore.get_range`."""
        arguments = to_json({"topic": topic, "queue_id": queue_id, "offset": offset, "fetch_num": fetch_num})
        found: dict[int, bytes] = self._link.wait("get_range", _range_of, arguments=arguments)
        return found

    def scan(self, wanted: ScanFilter = ALL, *, filter: Filter | None = None) -> Iterator[MessageBatch]:
        """The whole store in log order, as it is now. Args, result and errors: as for `MessageStore.scan`.

        The next batch is on its way while one is worked on. A lost connection ends it with ConnectionLost.
        """
        held = next(self._link.numbers)
        arguments = to_json({"wanted": wanted, "filter": filter})
        connection = self._link.wait_on("scan", nothing_of, held=held, arguments=arguments)
        batches = self._batches(held, connection)
        next(batches)
        return batches

    def _batches(self, held: int, connection: Connection) -> Iterator[Any]:
        try:
            yield None  # it has begun: so it ends at the server, too, if nobody asks for a batch
            coming = self._link.ask_on(connection, "scan_next", _batch_or_none, held=held)
            while True:
                self._link.check()  # in a forked child nothing comes
                coming.wait()
                batch: MessageBatch | None = coming.get()
                if batch is None:
                    return
                coming = self._link.ask_on(connection, "scan_next", _batch_or_none, held=held)
                yield batch
        finally:
            self._link.let_go(held)

    # -- what there is --------------------------------------------------------------------------------

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue, and the next one. As `MessageStore.queue_bounds`."""
        first, next_offset = self._link.call("queue_bounds", topic=topic, queue_id=queue_id)
        return first, next_offset

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset of the first message at or after a time. As `MessageStore.offset_at`."""
        return int(self._link.call("offset_at", topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms))

    def topics(self) -> list[str]:
        """The topics, sorted. As `MessageStore.topics`."""
        found: list[str] = self._link.call("topics")
        return found

    def queues(self, topic: str) -> list[int]:
        """The queue ids of a topic, sorted. As `MessageStore.queues`."""
        found: list[int] = self._link.call("queues", topic=topic)
        return found

    def topic_settings(self, topic: str) -> TopicSettings:
        """The settings of a topic. As `MessageStore.topic_settings`."""
        return TopicSettings(**self._link.call("topic_settings", topic=topic))

    def subscriptions(self, topic: str | None = None) -> list[SubscriptionInfo]:
        """The subscriptions, of a topic or of all. As `MessageStore.subscriptions`."""
        return [_info_of(one) for one in self._link.call("subscriptions", topic=topic)]

    def stats(self) -> Stats:
        """The figures of the store in the server's process. As `MessageStore.stats`."""
        return cast(Stats, self._link.call("stats"))

    def metrics(self) -> str:
        """The store's metrics as Prometheus text. As `MessageStore.metrics`."""
        return cast(str, self._link.call("metrics"))


def _read_arguments(
    topic: object, queue_id: object, offset: object, max_messages: object, max_bytes: object, wait_ms: object,
    **more: object,
) -> Any:  # fmt: skip
    return to_json(
        {
            "topic": topic, "queue_id": queue_id, "offset": offset, "max_messages": max_messages,
            "max_bytes": max_bytes, "wait_ms": wait_ms, **more,
        }
    )  # fmt: skip


def _messages_of(header: dict[str, Any], buffers: list[memoryview]) -> list[Message]:
    return batch_in(header, buffers).messages() if buffers else []


def _batch_or_none(header: dict[str, Any], buffers: list[memoryview]) -> MessageBatch | None:
    return batch_in(header, buffers) if buffers else None


def _range_of(header: dict[str, Any], buffers: list[memoryview]) -> dict[int, bytes]:
    lengths = numbers_in(buffers[1])
    ends = lengths.cumsum().tolist()
    payload = bytes(buffers[2])
    rows = zip(numbers_in(buffers[0]).tolist(), [0, *ends], ends, strict=False)
    return {number: payload[begin:end] for number, begin, end in rows}


def _info_of(given: Mapping[str, Any]) -> SubscriptionInfo:
    return SubscriptionInfo(
        **{
            **given,
            "settings": SubscriptionSettings.unpack(given["settings"].encode()),
            "backlog": Backlog(*given["backlog"]),
            "positions": positions_of(given["positions"]),
        }
    )


def positions_of(given: Mapping[Any, Any]) -> dict[Any, Position]:
    """Positions as they came, by queue."""
    return {queue: Position(*position) for queue, position in given.items()}
