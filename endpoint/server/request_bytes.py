"""The bytes of the requests that are being answered: one count for all services of a server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from .calls import Refusal

CROWDED = "too many bytes of requests are under way: call later"


class RequestBytes:
    """How many bytes of requests there are, and how many there may be. Used on one event loop.

    A call beyond the limit is refused. A stream of many calls can do better: above half of the limit its handler reads
    on later. So streams that are in a hurry hold back each other, and leave room for the calls of others.

    Attributes:
        count: of all requests that are being answered.
    """

    def __init__(self, most: int) -> None:
        """`most` is the limit."""
        self.count = 0
        self._most = most
        self._calm = most // 2
        self._calmed: asyncio.Event | None = None  # while somebody waits

    def add(self, size_bytes: int) -> None:
        """So many bytes have come."""
        self.count += size_bytes

    def remove(self, size_bytes: int) -> None:
        """So many are answered, or gone."""
        self.count -= size_bytes
        if self._calmed is not None and self.count <= self._calm:
            self._calmed.set()
            self._calmed = None

    def has_room(self, own_bytes: int, more_bytes: int = 0) -> bool:
        """Whether the requests of others leave room for one of this size, of which `more_bytes` do not count yet."""
        count = self.count + more_bytes
        return count <= self._most or own_bytes >= count

    def check(self, own_bytes: int) -> None:
        """Raises Refusal if they leave none."""
        if not self.has_room(own_bytes):
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, CROWDED)

    async def calm(self, own_bytes: int, timeout_s: float) -> None:
        """Wait, at most so long, while others have more than half of the limit."""
        if self.count - own_bytes <= self._calm:
            return
        with suppress(TimeoutError):  # then it goes on all the same: the limit itself refuses
            async with asyncio.timeout(timeout_s):
                while self.count - own_bytes > self._calm:  # another one that has waited may have come before it
                    if self._calmed is None:
                        self._calmed = asyncio.Event()
                    await self._calmed.wait()
