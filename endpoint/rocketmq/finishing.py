"""Calls that change something: each is finished, also when the client that made it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Finishing:
    """Runs each call in a task of its own: a client that goes cancels the waiting for it, not the call."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make the call, and wait for its result. Raises what the call raises."""
        task = asyncio.get_running_loop().create_task(call)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for those that are under way."""
        if self._running:
            await asyncio.wait(self._running)
