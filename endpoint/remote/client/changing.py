"""The calls that change topics, delays and subscriptions, with the names and arguments of `MessageStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog import TopicSettings

from .link import Link

if TYPE_CHECKING:
    from collections.abc import Collection

    from stratalog.store.subscriptions.topics_start import Topics
    from stratalog.store.topics.settings import Keep, MessageType


class Changing:
    """Passes each call on. Args, results and errors are those of the store's calls; and ConnectionLost: then the change
    was made, or not.
    """

    _link: Link

    def flush(self) -> None:
        """Return when all that this object has handed over is forced, or has failed. As `MessageStore.flush`."""
        self._link.call("flush")

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        await self._link.call_in_loop("flush")

    def configure_topic(
        self, topic: str, *, queues: int | None = None, retention_ms: int | None = None,
        retention_bytes: int | None = None, keep: Keep = "retention", ttl_ms: int | None = None,
        id_window_ms: int = 600_000, id_window_count: int = 100_000, types: Collection[MessageType] | None = None,
    ) -> TopicSettings:  # fmt: skip
        """Give a topic its settings. As `MessageStore.configure_topic`."""
        found = self._link.call(
            "configure_topic", topic=topic, queues=queues, retention_ms=retention_ms, retention_bytes=retention_bytes,
            keep=keep, ttl_ms=ttl_ms, id_window_ms=id_window_ms, id_window_count=id_window_count, types=types,
        )  # fmt: skip
        return TopicSettings(**found)

    async def configure_topic_async(
        self, topic: str, *, queues: int | None = None, retention_ms: int | None = None,
        retention_bytes: int | None = None, keep: Keep = "retention", ttl_ms: int | None = None,
        id_window_ms: int = 600_000, id_window_count: int = 100_000, types: Collection[MessageType] | None = None,
    ) -> TopicSettings:  # fmt: skip
        """`configure_topic` for coroutines."""
        found = await self._link.call_in_loop(
            "configure_topic", topic=topic, queues=queues, retention_ms=retention_ms, retention_bytes=retention_bytes,
            keep=keep, ttl_ms=ttl_ms, id_window_ms=id_window_ms, id_window_count=id_window_count, types=types,
        )  # fmt: skip
        return TopicSettings(**found)

    def trim(self, topic: str, queue_id: int, before_offset: int) -> int:
        """Remove the messages of a queue before an offset. As `MessageStore.trim`."""
        return int(self._link.call("trim", topic=topic, queue_id=queue_id, before_offset=before_offset))

    async def trim_async(self, topic: str, queue_id: int, before_offset: int) -> int:
        """`trim` for coroutines."""
        found = await self._link.call_in_loop("trim", topic=topic, queue_id=queue_id, before_offset=before_offset)
        return int(found)

    def delete_topic(self, topic: str) -> bool:
        """Remove a topic. As `MessageStore.delete_topic`."""
        return bool(self._link.call("delete_topic", topic=topic))

    async def delete_topic_async(self, topic: str) -> bool:
        """`delete_topic` for coroutines."""
        return bool(await self._link.call_in_loop("delete_topic", topic=topic))

    def cancel_delayed(self, topic: str, queue_id: int, offset: int) -> bool:
        """Cancel a message's delivery; True if it was pending. As `MessageStore.cancel_delayed`."""
        return bool(self._link.call("cancel_delayed", topic=topic, queue_id=queue_id, offset=offset))

    async def cancel_delayed_async(self, topic: str, queue_id: int, offset: int) -> bool:
        """`cancel_delayed` for coroutines."""
        return bool(await self._link.call_in_loop("cancel_delayed", topic=topic, queue_id=queue_id, offset=offset))

    def reschedule_delayed(self, topic: str, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """Give a message another delivery time; True if it was pending. As `MessageStore.reschedule_delayed`."""
        found = self._link.call(
            "reschedule_delayed", topic=topic, queue_id=queue_id, offset=offset, deliver_at_ms=deliver_at_ms
        )
        return bool(found)

    async def reschedule_delayed_async(self, topic: str, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """`reschedule_delayed` for coroutines."""
        found = await self._link.call_in_loop(
            "reschedule_delayed", topic=topic, queue_id=queue_id, offset=offset, deliver_at_ms=deliver_at_ms
        )
        return bool(found)

    def redrive(self, dead_letter_topic: str, *, queue_id: int | None = None, max_messages: int | None = None) -> int:
        """Send dead letters back to where they came from. As `MessageStore.redrive`."""
        found = self._link.call(
            "redrive", dead_letter_topic=dead_letter_topic, queue_id=queue_id, max_messages=max_messages
        )
        return int(found)

    async def redrive_async(
        self, dead_letter_topic: str, *, queue_id: int | None = None, max_messages: int | None = None
    ) -> int:
        """`redrive` for coroutines."""
        found = await self._link.call_in_loop(
            "redrive", dead_letter_topic=dead_letter_topic, queue_id=queue_id, max_messages=max_messages
        )
        return int(found)

    def delete_subscription(self, topic: str | Topics, name: str) -> bool:
        """Remove a subscription. As `MessageStore.delete_subscription`."""
        return bool(self._link.call("delete_subscription", topic=topic, name=name))

    def attach_pending(self) -> int:
        """Attach the bulk commits that wait in the store's folder. As `MessageStore.attach_pending`."""
        return int(self._link.call("attach_pending"))
