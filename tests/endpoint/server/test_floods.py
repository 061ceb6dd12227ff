"""A client that breaks HTTP/2's rules, or floods the port within them: others go on, and nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from .echoes import ask, client_of, run, served, until
from .frames import BEGIN, FLOODS


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("reads", [True, False])
def test_others_go_on(kind: str, reads: bool) -> None:
    async def test() -> None:
        async with served() as server, client_of(server) as channel:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            reading = asyncio.ensure_future(_read(reader)) if reads else None
            with contextlib.suppress(ConnectionError):
                writer.write(BEGIN + FLOODS[kind])
                await asyncio.wait([asyncio.ensure_future(writer.drain())], timeout=0.2)
            assert await ask(channel, "Echo", b"on") == b"on"
            writer.transport.abort()
            if reading is not None:
                await reading
            await until(lambda: server.connections == 1 and not server.calls._waiting)
            assert await ask(channel, "Echo", b"on") == b"on"
            assert server.calls.request_bytes == 0

    run(test)


async def _read(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
