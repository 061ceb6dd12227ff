"""What a request costs, and when a batch of them is ready to be taken (R2)."""

from __future__ import annotations

from typing import Protocol

from ..format.extras import Extras


class Queued(Protocol):
    """A request, as far as the queue looks at it: how many messages it has, and what they cost."""

    count: int
    size_bytes: int
    extras: Extras | None


def cost_bytes(request: Queued) -> int:
    """The bytes of a request that count at the publish buffer's cap."""
    return request.size_bytes if request.extras is None else request.size_bytes + request.extras.size_bytes


class Sizer:
    """When is a batch ready, and will another follow? (R2)

    With no write in flight there is nothing to wait for: a batch is ready as soon as there is a message, so
    the last slow producers never stall. While a write is in flight, messages gather; they become a second
    write beside the first only when they are worth one. So the size of a batch follows from how many
    producers come back in the time of one write, whatever the number of threads.

    `active` is a slowly falling maximum of the requests under way at once: the producers really active.
    """

    def __init__(self, overlap_bytes: int) -> None:
        self.overlap_bytes = overlap_bytes
        self.active = 1.0

    def observe(self, under_way: int) -> None:
        """Note how many requests are accepted and not answered, at the moment a batch is taken."""
        self.active = max(under_way, self.active * 0.98, 1.0)

    def ready(self, requests: int, size_bytes: int, writes_in_flight: int) -> bool:
        """May the builder take what is queued?"""
        return requests > 0 and (writes_in_flight == 0 or size_bytes >= self.overlap_bytes)
