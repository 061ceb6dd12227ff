"""The answers of a call that answers with a stream, seen and held back one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

BROKEN = "Socket closed"  # what gRPC's clients say of a connection that has ended

Gate = Callable[[Any], Awaitable[None] | None]  # None: there is nothing to wait for


class WatchedContext:
    """A call's context whose `write` goes through gates: each has the message before it is sent, and is waited for.

    A gate that raises ends the call: the message is not sent. Everything else is the context's own.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self.gates: list[Gate] = []
        self.is_lost = False  # what is written reaches nobody

    async def write(self, message: Any) -> None:
        """Send a message, unless it gets lost."""
        for gate in self.gates:
            waiting = gate(message)
            if waiting is not None:
                await waiting
        if not self.is_lost:
            await self._context.write(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def watched(call: Any) -> WatchedContext:
    """The context of a call, with gates; the call has it from now on."""
    if not isinstance(call.context, WatchedContext):
        call.context = WatchedContext(call.context)
    found: WatchedContext = call.context
    return found


async def break_off(call: Any) -> None:
    """End a call as a connection that breaks does: the client hears UNAVAILABLE, and no answer. Raises AbortError."""
    await call.context.abort(grpc.StatusCode.UNAVAILABLE, BROKEN)
