"""A client that wants too much: it has an error or waits itself, and the server's memory stays as it is."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest

from stratalog import InvalidMessage, MessageStore, StoreError, connect
from stratalog.endpoint.remote.frames import MOST_VALUES, BrokenFrame, Incoming, Outgoing, pack, unpack
from stratalog.endpoint.remote.messages import MOST_ROWS, given_in
from stratalog.endpoint.remote.server.appends import Appends
from stratalog.endpoint.remote.server.gate import MOST_READS, MOST_THREADS, FewThreads
from stratalog.endpoint.remote.server.session import HELD_BYTES, Session
from stratalog.endpoint.remote.values import to_json
from stratalog.endpoint.server.request_bytes import RequestBytes
from tests.contract.served import Served

from ..server.echoes import until
from .test_misuse import _and_wait, message, streamed


def frame_of(header: dict[str, Any], *buffers: Any) -> Any:
    return unpack(1, memoryview(b"".join(pack(header, buffers))))


def test_a_frame_takes_memory_for_what_has_arrived() -> None:
    outgoing = Outgoing(in_turn=False)
    outgoing.add(1, pack({}, [bytes(100 << 20)]))
    first = outgoing.take()[: 16 + 1000]
    head = bytearray(first)
    head[4:8] = (1000).to_bytes(4, "little")
    incoming = Incoming(256 << 20)
    tracemalloc.start()
    try:
        assert list(incoming.feed(bytes(head))) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("lengths", [[1, 2**63 - 2, 2**63 - 1, 3], [2**62] * 4, [-1, 6], [6], [3, 3]])
def test_lengths_that_are_no_lengths_are_refused(lengths: list[int]) -> None:
    frame = frame_of({"streams": [["t", 0, None]]}, np.zeros(len(lengths), np.int64), np.array(lengths), b"12345")
    with pytest.raises(BrokenFrame):
        given_in(frame.header, frame.buffers)


def test_a_frame_of_single_messages_has_so_many(served: Served, store: MessageStore) -> None:
    columns = np.zeros(MOST_ROWS + 1, np.int64).tobytes()
    with grpc.insecure_channel(served.address) as channel:
        asked = message(5, {"call": "submit", "streams": [["t", 0, None]]}, columns, columns, b"")
        stream = streamed(channel, _and_wait(asked))
        (frame,) = Incoming(1 << 30).feed(next(stream))
        assert "at most" in frame.header["error"]["text"]
        stream.cancel()
    assert store.topics() == []


def test_a_header_of_too_many_values_is_refused_by_both_sides(served: Served) -> None:
    many = {"call": "call", "x": [0] * (MOST_VALUES + 1)}
    with pytest.raises(BrokenFrame, match="values"):
        unpack(1, memoryview(b"".join(pack(many))), MOST_VALUES)
    with connect(served.address) as remote, pytest.raises(InvalidMessage, match="values"):
        remote.append_batch([("t", 0, b"")], message_ids=["x"] * (MOST_VALUES + 1))


def test_only_short_tables_of_names_are_remembered(store: MessageStore) -> None:
    appends = Appends(store, None)  # type: ignore[arg-type]
    short, long = [["t", 0]], [["t" * 100_000, 0]]
    assert appends._interned(short, [("t", 0)]) is appends._interned(short, [("t", 0)])
    appends._interned(long, [("t" * 100_000, 0)])
    assert len(appends._streams) == 1


def test_reads_whose_answers_nobody_takes_wait(store: MessageStore) -> None:
    size = 1 << 20
    for _ in range(16):
        store.append("t", 0, bytes(size - 100))
    ask = to_json({"topic": "t", "queue_id": 0, "offset": 0})
    outgoing = Outgoing(in_turn=False)
    for number in range(1, 61):
        outgoing.add(number, pack({"call": "read_batch", "arguments": ask}))

    async def run() -> int:
        async def messages() -> Any:
            yield outgoing.take()
            await asyncio.Event().wait()

        async def write(_: bytes) -> None:
            await asyncio.Event().wait()

        async def guard(name: str, frame: Any, proceed: Any) -> Any:
            return await proceed()

        with ThreadPoolExecutor(1) as threads:
            aside = partial(asyncio.get_running_loop().run_in_executor, threads)
            session = Session(store, FewThreads(aside), aside, guard, RequestBytes(1 << 30))
            task = asyncio.create_task(session.run(messages(), write))
            await until(lambda: session._outgoing.size_bytes > HELD_BYTES)
            await asyncio.sleep(0.1)
            held = session._outgoing.size_bytes
            task.cancel()
            await asyncio.wait([task])
            return held

    assert asyncio.run(run()) <= HELD_BYTES + (MOST_READS + 1) * 16 * size


def test_a_connection_has_few_of_the_threads_also_when_it_cancels() -> None:
    async def run() -> None:
        end = threading.Event()
        with ThreadPoolExecutor(2 * MOST_THREADS) as threads:
            aside = partial(asyncio.get_running_loop().run_in_executor, threads)
            one, other = FewThreads(aside), FewThreads(aside)
            calls = [one(end.wait) for _ in range(4 * MOST_THREADS)]
            assert await other(lambda: 7) == 7
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            late = one(lambda: 8)
            assert await other(lambda: 9) == 9 and not late.done()
            end.set()
            assert await late == 8

    asyncio.run(run())


def test_a_waiting_read_has_what_comes(served: Served, store: MessageStore) -> None:
    with connect(served.address) as remote:
        timer = threading.Timer(0.1, lambda: store.append("t", 0, b"x"))
        timer.start()
        assert len(remote.read_batch("t", 0, wait_ms=20_000)) == 1
        assert [one.data for one in remote.read("t", 0, wait_ms=20_000)] == [b"x"]
        assert len(remote.read_batch("t", 0, 1, max_messages=0, wait_ms=20_000)) == 0
        with pytest.raises(StoreError):
            remote.read("t", 0, wait_ms="x")  # type: ignore[arg-type]
