"""A gRPC server whose one handler answers nothing: what each call to an endpoint costs at least."""

from __future__ import annotations

import asyncio
from typing import Any

METHOD = "/trivial.Service/Call"


async def serve() -> None:
    """Serve until the process is ended; print the address."""
    import grpc  # noqa: PLC0415  # an extra

    async def call(request: bytes, context: Any) -> bytes:
        return b""

    methods = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    handler = grpc.method_handlers_generic_handler("trivial.Service", methods)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


async def call_at_once(address: str, calls: int, at_once: int) -> None:
    """Make calls, so many at a time."""
    import grpc  # noqa: PLC0415

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)

        async def some(count: int) -> None:
            for _ in range(count):
                await call(b"")

        await asyncio.gather(*(some(calls // at_once) for _ in range(at_once)))


if __name__ == "__main__":
    asyncio.run(serve())
