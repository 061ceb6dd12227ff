"""A service of bytes for tests of the server, and what a test needs to run against it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from stratalog.endpoint.server.calls import Around
from stratalog.endpoint.server.limits import Limits
from stratalog.endpoint.server.server import GrpcServer, Tls
from stratalog.endpoint.server.service import ErrorAnswer, Service

PATIENCE_S = 60.0
Context = grpc.aio.ServicerContext[Any, Any]


class Echoes:
    """Methods that answer what they got; errors that a test puts in; calls that do not end."""

    def __init__(self, error_answer: ErrorAnswer | None = None) -> None:
        self.error: Exception = KeyError("x")
        self.cancelled: list[str] = []
        self.error_answer = error_answer

    async def echo(self, request: bytes, context: Context) -> bytes:
        return request

    async def count(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def written(self, request: bytes, context: Context) -> None:
        for number in range(int(request)):
            await context.write(b"%d" % number)

    async def joined(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        return b" ".join([one async for one in requests])

    async def chat(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for one in requests:
            yield one

    async def fail(self, request: bytes, context: Context) -> bytes:
        raise self.error

    async def fail_late(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        yield b"first"
        raise self.error

    async def hang(self, request: bytes, context: Context) -> bytes:
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            self.cancelled.append("hang")
            raise
        return b""

    async def flood(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            self.cancelled.append("flood")

    def service(self) -> Service:
        one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Echo": one(self.echo),
            "Count": many(self.count),
            "Written": many(self.written),
            "Joined": grpc.stream_unary_rpc_method_handler(self.joined),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
            "Fail": one(self.fail),
            "FailLate": many(self.fail_late),
            "Hang": one(self.hang),
            "Flood": many(self.flood),
            "Wait": one(self.hang),
            "Number": one(self.echo, request_deserializer=lambda data: b"%d" % int(data)),
        }
        return Service("test.Echoes", methods, error_answer=self.error_answer, waits=("Wait", "Chat"))


@asynccontextmanager
async def served(
    echoes: Echoes | None = None,
    *,
    interceptors: Sequence[Around] = (),
    limits: Limits | None = None,
    tls: Tls = "self-signed",
) -> AsyncIterator[GrpcServer]:
    server = GrpcServer([(echoes or Echoes()).service()], interceptors=interceptors, limits=limits, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def client_of(server: GrpcServer) -> AsyncIterator[Any]:
    """A channel with a connection of its own."""
    async with grpc.aio.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


async def ask(channel: Any, method: str, request: bytes = b"", **named: Any) -> bytes:
    answer: bytes = await channel.unary_unary(f"/test.Echoes/{method}")(request, timeout=PATIENCE_S, **named)
    return answer


async def refused(awaited: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """The code and text with which a call fails."""
    try:
        await awaited
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the call did not fail")


def raw(server: GrpcServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=PATIENCE_S)


async def until(condition: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, with a limit."""

    async def limited() -> None:
        await asyncio.wait_for(test(), PATIENCE_S)

    asyncio.run(limited())
