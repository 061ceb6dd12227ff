"""A subscription of several topics over a connection, with the calls of `TopicsSubscription`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stratalog import Delivery, DeliveryBatch

from .connection import Asked
from .subscription import MAX_BYTES, VISIBILITY_MS, RemoteSubscription


class RemoteTopicsSubscription(RemoteSubscription):
    """A durable cursor over all queues of several topics; made by `RemoteStore.subscribe` with a list or a pattern.

    Queues are named by (topic, queue id). All else is as in `RemoteSubscription`.
    """

    @property
    def pattern(self) -> str | None:
        """The pattern of the topics; None if they were given one by one."""
        found: str | None = dict(self._arguments["map"])["pattern"]
        return found

    @property
    def topics(self) -> list[str]:
        """The topics that it has now, sorted. It asks the server."""
        found: list[str] = self._wait(self._plain("topics"))
        return found

    def topic_of(self, delivery: Delivery | int) -> str:
        """The topic of a delivery, or of a receipt of this object."""
        return str(self._wait(self._plain("topic_of", delivery=delivery)))

    def receive(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, topic: str | None = None, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Take messages, the topics by turns. Args and errors: as for `TopicsSubscription.receive`."""
        return self._few(max_messages, wait_ms, visibility_timeout_ms, topic=topic, queue_id=queue_id)

    def receive_batch(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, topic: str | None = None, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """Take messages as columns. Args and errors: as for `TopicsSubscription.receive_batch`."""
        return self._batch(
            max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, topic=topic, queue_id=queue_id
        )

    async def receive_async(
        self, max_messages: int = 32, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, topic: str | None = None, queue_id: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """`receive` for coroutines; if it is cancelled, its messages go to other consumers."""
        return await self._few_async(max_messages, wait_ms, visibility_timeout_ms, topic=topic, queue_id=queue_id)

    async def receive_batch_async(
        self, max_messages: int = 4096, wait_ms: int = 0, visibility_timeout_ms: int = VISIBILITY_MS,
        *, max_bytes: int = MAX_BYTES, topic: str | None = None, queue_id: int | None = None,
    ) -> DeliveryBatch:  # fmt: skip
        """`receive_batch` for coroutines."""
        return await self._batch_async(
            max_messages, wait_ms, visibility_timeout_ms, max_bytes=max_bytes, topic=topic, queue_id=queue_id
        )

    def _many(self, name: str, receipts: Any, **arguments: object) -> Asked:
        if isinstance(receipts, Sequence) and any(isinstance(one, Delivery) for one in receipts):
            return self._plain(name, receipts=list(receipts), **arguments)  # each says of which topic it is
        return super()._many(name, receipts, **arguments)
