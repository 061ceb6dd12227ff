"""The one place that every call passes, of every service: what is asked, and what may stand between it and its answer.

An interceptor is a function `async def around(call, proceed)`. It looks at the call, may change its request, awaits
`proceed()` for the answer, and returns the answer or another one. For a call that answers with a stream, the answer is
an async iterator of messages, or None if the handler writes by `call.context.write`. An interceptor that refuses raises
`Refusal`; to wait, it awaits. The first interceptor of a list is the outermost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

Proceed = Callable[[], Awaitable[Any]]
CLIENT_ID = "x-mq-client-id"


class Refusal(Exception):
    """A call is refused: the client gets this code and text.

    `code` is gRPC's. `status` is the service's own code, for services whose answers have one: see `Service`.
    """

    def __init__(self, code: grpc.StatusCode, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.status = status


@dataclass(slots=True, eq=False)
class Call:
    """One call of a client.

    `request` is the message, None if the client sends a stream: then `requests` is that. An interceptor may set both.
    `stopping` is set once the endpoint stops: a handler of a long stream may wait for it, and end well.
    """

    service: str
    method: str
    context: grpc.aio.ServicerContext[Any, Any]
    stopping: asyncio.Event
    request: Any = None
    requests: AsyncIterator[Any] | None = None
    size_bytes: int = 0
    _metadata: dict[str, str] | None = field(default=None, repr=False)

    @property
    def metadata(self) -> dict[str, str]:
        """The headers of the call: lower-case name -> value; of a name that comes twice the first. Binary ones are
        left out."""
        if self._metadata is None:
            found: dict[str, str] = {}
            for name, value in self.context.invocation_metadata() or ():
                if isinstance(value, str):
                    found.setdefault(name, value)
            self._metadata = found
        return self._metadata

    @property
    def client_id(self) -> str:
        """The header by which a client names itself, "" without one."""
        return client_id_of(self.context)


def client_id_of(context: Any) -> str:
    """The header of a call's context by which a client names itself, "" without one."""
    named = (value for key, value in context.invocation_metadata() or () if key == CLIENT_ID and value)
    return str(next(named, ""))


Around = Callable[[Call, Proceed], Awaitable[Any]]


def chained(interceptors: Sequence[Around]) -> Around | None:
    """All interceptors as one, the first one outermost; None for none."""
    chain: Around | None = None
    for one in reversed(interceptors):
        chain = one if chain is None else _two(one, chain)
    return chain


def _two(outer: Around, inner: Around) -> Around:
    def around(call: Call, proceed: Proceed) -> Awaitable[Any]:
        return outer(call, lambda: inner(call, proceed))

    return around
