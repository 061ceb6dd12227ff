"""What a client does when a server answers what it should not: no call and no ticket waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest

from stratalog import StoreError, connect
from stratalog.endpoint.remote.frames import Frame, Incoming, Outgoing, pack

PATIENCE_S = 30.0
Answer = Callable[[Frame], bytes]


def message(number: int, header: dict[str, Any], *offsets: int) -> bytes:
    """A message of one frame, with a buffer of offsets."""
    outgoing = Outgoing(in_turn=False)
    outgoing.add(number, pack(header, [np.array(offsets, np.int64)]))
    return outgoing.take()


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of a server that answers all but `hello` so."""

    def serve(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        incoming = Incoming(1 << 28)
        for one in messages:
            for frame in incoming.feed(one):
                is_hello = frame.header["call"] == "hello"
                yield message(frame.number, {"value": {"map": [["version", 1]]}}) if is_hello else answer(frame)

    method: Any = grpc.stream_stream_rpc_method_handler(serve)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("stratalog.v1.Store", {"Connect": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


WRONG_OFFSETS: list[Answer] = [
    lambda frame: message(frame.number, {}),
    lambda frame: message(frame.number, {}, 1, 2, 3),
    lambda frame: message(frame.number, {"errors": 7}, 1),
    lambda frame: message(frame.number, {"errors": [[0, "x"]]}, 1),
    lambda frame: message(frame.number, {"repeats": [[]]}, 1),
    lambda frame: message(frame.number, {"error": [1, 2]}),
    lambda frame: message(frame.number, {"error": {"kind": "StoreError", "attributes": {"args": 5}}}),
]


@pytest.mark.parametrize("answer", WRONG_OFFSETS, ids=range(len(WRONG_OFFSETS)))
def test_a_ticket_whose_answer_cannot_be_read_has_an_error(answer: Answer) -> None:
    with answering(answer) as address, connect(address) as remote:
        for one in (remote.submit("t", 0, b"x"), remote.submit("t", 0, b"y")):
            with pytest.raises(StoreError, match="cannot be read"):
                one.result(PATIENCE_S)


def test_a_call_whose_error_cannot_be_read_has_an_error() -> None:
    async def program(address: str) -> None:
        with connect(address) as remote:
            with pytest.raises(StoreError, match="cannot be read"):
                await remote.flush_async()
            with pytest.raises(StoreError, match="cannot be read"):
                await remote.read_async("t", 0)

    with answering(lambda frame: message(frame.number, {"error": [1, 2]})) as address:
        asyncio.run(asyncio.wait_for(program(address), PATIENCE_S))


def test_a_good_answer_before_rubbish_counts() -> None:
    async def program(address: str) -> None:
        with connect(address) as remote:
            assert await remote.append_async("t", 0, b"x") == 7

    with answering(lambda frame: message(frame.number, {}, 7) + b"xx") as address:
        asyncio.run(asyncio.wait_for(program(address), PATIENCE_S))
