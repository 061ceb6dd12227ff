"""The service `stratalog.v1.Store` over one store, as a handler for a gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from stratalog import MessageStore

from ...server.calls import Around, Call, Refusal
from ...server.limits import Limits
from ...server.request_bytes import RequestBytes
from ...server.service import Service
from ..columns import Columns
from ..frames import BrokenFrame, Frame
from .gate import FewThreads
from .session import Session

T = TypeVar("T")
SERVICE = "stratalog.v1.Store"
METHOD = "Connect"
THREADS = 16  # for calls that the store has only as blocking ones
CLOSE_S = 5.0  # how long those that are under way have at the end


class StoreService:
    """Serves a store to the clients of `stratalog.connect`. It runs in the loop of its server."""

    def __init__(
        self, store: MessageStore, *, around: Around | None = None, requests: RequestBytes | None = None
    ) -> None:
        """`around` is called around each call of a client on its connection, as of a call of the service: its method
        is the call's name, its request the frame's header. `requests` is the count of bytes that it shares with its
        server; None: one of its own."""
        self._store = store
        self._requests = requests or RequestBytes(Limits().request_bytes)
        self._around = around
        self._threads = ThreadPoolExecutor(THREADS, "stratalog-remote")
        self._under_way: set[asyncio.Future[Any]] = set()

    def service(self) -> Service:
        """The handler to give to a `GrpcServer`."""
        connect: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._connect)
        return Service(SERVICE, {METHOD: connect}, waits=(METHOD,), counts=(METHOD,))

    async def _connect(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        async def guard(name: str, frame: Frame, proceed: Callable[[], Awaitable[Columns]]) -> Columns:
            if self._around is None:
                return await proceed()
            call = Call(SERVICE, name, context, asyncio.Event(), frame.header, size_bytes=frame.size_bytes)
            found: Columns = await self._around(call, proceed)
            return found

        try:
            session = Session(self._store, FewThreads(self._aside), self._aside, guard, self._requests)
            await session.run(messages, context.write)
        except BrokenFrame as error:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error

    def _aside(self, work: Callable[[], T]) -> asyncio.Future[T]:
        made = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._under_way.add(made)
        made.add_done_callback(self._under_way.discard)
        return made

    async def close(self) -> None:
        """Wait until what its connections had of subscriptions is given back, for a few seconds at most: a call that
        waits for the store then ends with the store. Call it when the server has stopped.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CLOSE_S
        while self._under_way and (left_s := end_s - loop.time()) > 0:
            await asyncio.wait(self._under_way, timeout=left_s)
        self._threads.shutdown(wait=False)
