"""The calls for coroutines that a store's threads do. Each is the call of its name, and the loop goes on meanwhile.

If the coroutine is cancelled while a thread is at it, the thread finishes what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from ..read.message import MessageBatch
from ..topics.settings import Keep, MessageType, TopicSettings
from .append_calls import AppendCalls
from .checks import check_counts
from .delayed_calls import DelayedCalls
from .fetcher import Fetcher
from .shared import Shared
from .topic_calls import TopicCalls
from .trim_calls import TrimCalls

T = TypeVar("T")


class ReadingForCoroutines:
    """Passes each call on to a thread of the store. It has no state of its own."""

    _shared: Shared
    _fetcher: Fetcher

    async def read_batch_async(
        self, topic: str, queue_id: int, offset: int = 0, *, max_messages: int = 4096, max_bytes: int = 64 << 20,
        wait_ms: int = 0,
    ) -> MessageBatch:  # fmt: skip
        """`read_batch` for coroutines. One that waits has no thread meanwhile.

        Args, result and errors: as for `read_batch`.
        """
        (wait_ms,) = check_counts(wait_ms=wait_ms)
        fetcher = self._fetcher
        read = partial(fetcher.batch, topic, queue_id, offset, max_messages, max_bytes)
        batch = await self._aside(read)
        if wait_ms and max_messages and not len(batch):
            await fetcher.read_async(topic, queue_id, offset, 1, 1, wait_ms)  # it waits; all is then read in columns
            batch = await self._aside(read)
        return batch

    async def _aside(self, work: Callable[[], T]) -> T:
        return await self._fetcher.async_reads.aside(work, self._shared.check_open)


class WritingForCoroutines(AppendCalls, DelayedCalls, TopicCalls, TrimCalls, ReadingForCoroutines):
    """Passes each call on to a thread of the store. It has no state of its own."""

    async def flush_async(self) -> None:
        """`flush` for coroutines. Errors: as for `flush`."""
        await self._aside(self.flush)

    async def trim_async(self, topic: str, queue_id: int, before_offset: int) -> int:
        """`trim` for coroutines. Args, result and errors: as for `trim`."""
        return await self._aside(partial(self.trim, topic, queue_id, before_offset))

    async def delete_topic_async(self, topic: str) -> bool:
        """`delete_topic` for coroutines. Result and errors: as for `delete_topic`."""
        return await self._aside(partial(self.delete_topic, topic))

    async def configure_topic_async(
        self, topic: str, *, queues: int | None = None, retention_ms: int | None = None,
        retention_bytes: int | None = None, keep: Keep = "retention", ttl_ms: int | None = None,
        id_window_ms: int = 600_000, id_window_count: int = 100_000, types: Collection[MessageType] | None = None,
    ) -> TopicSettings:  # fmt: skip
        """`configure_topic` for coroutines. Args, result and errors: as for `configure_topic`."""
        call = partial(
            self.configure_topic, topic, queues=queues, retention_ms=retention_ms, retention_bytes=retention_bytes,
            keep=keep, ttl_ms=ttl_ms, id_window_ms=id_window_ms, id_window_count=id_window_count, types=types,
        )  # fmt: skip
        return await self._aside(call)

    async def cancel_delayed_async(self, topic: str, queue_id: int, offset: int) -> bool:
        """`cancel_delayed` for coroutines. Result and errors: as for `cancel_delayed`."""
        return await self._aside(partial(self.cancel_delayed, topic, queue_id, offset))

    async def reschedule_delayed_async(self, topic: str, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """`reschedule_delayed` for coroutines. Args, result and errors: as for `reschedule_delayed`."""
        return await self._aside(partial(self.reschedule_delayed, topic, queue_id, offset, deliver_at_ms))
