"""Calls of a subscription for iterators and coroutines, and the handover of messages from a thread to a coroutine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

from ..errors import StoreClosed, SubscriptionClosed
from .delivery import Delivery, DeliveryBatch
from .settings import Start
from .state import State

T = TypeVar("T")

ROUND_MS = 60_000  # of a wait for the next message


class ForCoroutines:
    """Runs each call in a thread. If its coroutine is cancelled, the thread still finishes the call."""

    _state: State
    nack: Callable[..., None]  # this one, and those that follow, are methods of the subscription
    extend: Callable[..., None]
    seek: Callable[..., None]
    receive: Callable[..., list[Delivery]]
    _settings: Callable[[], object]
    receive_async: Callable[..., Awaitable[list[Delivery]]]

    async def nack_async(self, delivery: Delivery | int, delay_ms: int = 0) -> None:
        """`nack` for coroutines. Errors: as for `nack`."""
        await self._aside(partial(self.nack, delivery, delay_ms))

    async def extend_async(self, delivery: Delivery | int, ms: int) -> None:
        """`extend` for coroutines. Errors: as for `extend`."""
        await self._aside(partial(self.extend, delivery, ms))

    async def seek_async(self, position: Start) -> None:
        """`seek` for coroutines. Args and errors: as for `seek`."""
        await self._aside(partial(self.seek, position))

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

    async def _aside(self, work: Callable[[], T]) -> T:
        parts = self._state.parts
        return await parts.async_reads.aside(work, parts.check_open)


class ThreadReceive:
    """The messages that a thread takes for a coroutine. If the coroutine ends before it has them, they come again."""

    def __init__(self, state: State) -> None:
        self.batch: DeliveryBatch | None = None
        self._state = state
        self._is_over = False

    def take(self, take: Callable[[], DeliveryBatch | None]) -> None:
        """Take messages; called in the thread."""
        if not self._is_over:
            self.batch = take()
            if self._is_over:
                self.give_up()

    def give_up(self) -> None:
        """The coroutine ends. Each side sets its mark before it reads the other's, so at least one gives back."""
        self._is_over = True
        if self.batch is not None:
            self._state.take_back(self.batch.receipts)
