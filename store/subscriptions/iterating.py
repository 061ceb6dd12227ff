"""Going through the messages of a subscription one by one, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from ..errors import StoreClosed, SubscriptionClosed
from .delivery import Delivery
from .settings import Settings

ROUND_MS = 60_000  # of a wait for the next message


class Iterating:
    """The iterators of a subscription. It has no state of its own."""

    def _settings(self) -> Settings:
        """The settings. Raises SubscriptionClosed, StoreClosed."""
        raise NotImplementedError

    def receive(self, max_messages: int, wait_ms: int) -> list[Delivery]:
        """See `Subscription.receive`."""
        raise NotImplementedError

    async def receive_async(self, max_messages: int, wait_ms: int) -> list[Delivery]:
        """See `Subscription.receive_async`."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Delivery]:
        """Yield each message as it comes, without an end; wait for the next one. Acknowledge each.

        It takes one message at a time, so none waits in this consumer while another is worked on. It ends when the
        subscription or the store is closed. Errors: as for `receive`.
        """
        self._settings()
        while True:
            try:
                found = self.receive(1, ROUND_MS)
            except (SubscriptionClosed, StoreClosed):
                return
            yield from found

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """The iterator for coroutines: `async for delivery in sub`."""
        self._settings()
        while True:
            try:
                found = await self.receive_async(1, ROUND_MS)
            except (SubscriptionClosed, StoreClosed):
                return
            for delivery in found:
                yield delivery

    __contains__ = None  # a search with `in` would take messages, and wait for more
