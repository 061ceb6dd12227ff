"""The service `stratalog.v1.Store` over one store, as a handler for a gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from stratalog import MessageStore

from ..columns import Columns
from ..frames import BrokenFrame, Frame
from .session import Guard, Session

T = TypeVar("T")
SERVICE = "stratalog.v1.Store"
METHOD = "Connect"
THREADS = 16  # for calls that the store has only as blocking ones


async def _unguarded(name: str, frame: Frame, proceed: Callable[[], Awaitable[Columns]]) -> Columns:
    return await proceed()


class StoreService:
    """Serves a store to the clients of `stratalog.connect`. It runs in the loop of its server."""

    def __init__(self, store: MessageStore, *, guard: Guard = _unguarded) -> None:
        """`guard` is called around each call of a client, with its name and its frame."""
        self._store = store
        self._guard = guard
        self._threads = ThreadPoolExecutor(THREADS, "stratalog-remote")
        self._sessions: set[asyncio.Task[None]] = set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """The handler to give to a `grpc.aio` server."""
        connect = grpc.stream_stream_rpc_method_handler(self._connect)  # bytes in, bytes out
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: connect})

    async def _connect(self, requests: object, context: Any) -> None:
        session = Session(self._store, self._aside, self._threads.submit, self._guard)
        running = asyncio.create_task(session.run(context))
        self._sessions.add(running)
        try:
            await running
        except BrokenFrame as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if not running.cancelled():
                running.cancel()
                raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        finally:
            self._sessions.discard(running)

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        """End all connections. What they had of subscriptions comes again at once. Call it before the server stops."""
        sessions = list(self._sessions)
        for one in sessions:
            one.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
