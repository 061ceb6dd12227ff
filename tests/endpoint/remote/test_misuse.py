"""What a client does that it should not: each has an answer or loses its own connection, and no other notices."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from stratalog import MessageStore, StoreError, connect
from stratalog.endpoint.remote.frames import BrokenFrame, Incoming, Outgoing, pack
from stratalog.endpoint.remote.server import holdings
from stratalog.endpoint.remote.values import from_json, to_json
from stratalog.endpoint.server.calls import Call, Proceed, Refusal
from tests.contract.served import Served
from tests.seeds import draw_seed

PATIENCE_S = 60.0
METHOD = "/stratalog.v1.Store/Connect"


def message(number: int, header: dict[str, Any], *buffers: bytes) -> bytes:
    """A message of one frame."""
    outgoing = Outgoing(in_turn=False)
    outgoing.add(number, pack(header, buffers))
    return outgoing.take()


def streamed(channel: grpc.Channel, messages: Iterator[bytes]) -> Any:
    """The stream of a connection."""
    connect_: Any = channel.stream_stream(METHOD)
    return connect_(messages, timeout=PATIENCE_S)


def asked(address: str, *messages: bytes) -> list[dict[str, Any]]:
    """Send messages; the headers of the answers, until there is one for each or the connection ends."""
    found: list[dict[str, Any]] = []
    incoming = Incoming(1 << 30)
    with grpc.insecure_channel(address) as channel:
        for one in streamed(channel, iter(messages)):
            found += [frame.header for frame in incoming.feed(one)]
    return found


WRONG = [
    b"", b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(16), bytes(64), b"\xff" * 64,
    struct.pack("<IIQ", 1, 8, 1 << 60) + bytes(8), struct.pack("<IIQ", 1, 0, 8),
    struct.pack("<IIQ", 1, 8, 4) + bytes(8),
    message(1, {"call": "no such call"}), message(1, {}), message(1, {"call": 7}), message(1, {"call": ["x"]}),
]  # fmt: skip


@pytest.mark.parametrize("data", WRONG, ids=range(len(WRONG)))
def test_what_is_no_frame_ends_its_connection_alone(served: Served, data: bytes) -> None:
    with connect(served.address) as remote:
        if data:
            with pytest.raises(grpc.RpcError) as caught:
                asked(served.address, data, message(9, {"call": "hello"}))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert remote.append("t", 0, b"x") == 0


@pytest.mark.parametrize(
    "header",
    [
        {"call": "call"}, {"call": "call", "name": "close", "arguments": {"map": []}},
        {"call": "call", "name": "__class__", "arguments": {"map": []}}, {"call": "read", "arguments": 7},
        {"call": "call", "name": "topics", "arguments": {"map": [["x", 1]]}}, {"call": "receive", "held": 9},
        {"call": "on_subscription", "held": "x"}, {"call": "submit", "streams": [["t", 0]]},
        {"call": "append_columns", "streams": 7}, {"call": "scan_next", "held": 1}, {"call": "transaction"},
        {"call": "append_batch", "rows": None, "ids": None, "given": {}}, {"call": "submit_odd", "given": {"map": 1}},
        {"call": "submit_odd", "given": {"map": [["self", 1]]}}, {"call": "subscribe", "held": 1, "arguments": None},
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense_has_an_error(served: Served, header: dict[str, Any]) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stream = streamed(channel, _and_wait(message(5, header)))
        (frame,) = Incoming(1 << 30).feed(next(stream))
        assert frame.number == 5 and frame.header["error"]["text"]
        stream.cancel()


def _and_wait(*messages: bytes) -> Iterator[bytes]:
    """Messages, and then a direction that stays open."""
    yield from messages
    threading.Event().wait(PATIENCE_S)


def test_random_bytes_and_changed_frames_end_no_other_connection(served: Served, store: MessageStore) -> None:
    draw = random.Random(draw_seed())
    good = [
        message(1, {"call": "hello"}), message(2, {"call": "call", "name": "topics", "arguments": {"map": []}}),
        message(3, {"call": "submit", "streams": [["t", 0, None]]}, bytes(8), struct.pack("<q", 1), b"x"),
        message(4, {"call": "subscribe", "held": 1, "arguments": to_json({"topic": "t", "name": "s"})}),
        message(5, {"call": "receive", "held": 1, "arguments": {"map": []}}), message(6, {"call": "cancel", "of": 5}),
    ]  # fmt: skip
    with connect(served.address) as remote:
        for _ in range(150):
            data = bytearray(b"".join(draw.choices(good, k=draw.randrange(1, 6))))
            for _ in range(draw.randrange(4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            cut = bytes(data[: draw.randrange(len(data) + 1)])
            try:
                asked(served.address, cut)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert remote.append("mine", 0, b"x") == 0
    assert store.queue_bounds("mine", 0) == (0, 1)


def test_one_call_at_a_number(served: Served) -> None:
    two = message(1, {"call": "read", "arguments": to_json({"topic": "t", "queue_id": 0, "wait_ms": 60_000})})
    with pytest.raises(grpc.RpcError, match="one number"):
        asked(served.address, two, two)


def test_values_come_back_as_they_went() -> None:
    values: list[Any] = [
        None, True, 1, 1.5, "ü\ud800", b"\x00", ..., (1, "a"), [1, [2]], {"a": {"b", "c"}}, {("t", 0): 5}, {1: 2},
    ]  # fmt: skip
    for one in values:
        assert from_json(to_json(one)) == one
    with pytest.raises(StoreError, match="cannot be sent"):
        to_json(object())
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(BrokenFrame):
        from_json(deep)


def test_a_long_frame_goes_in_pieces_and_holds_up_no_short_one() -> None:
    outgoing, incoming = Outgoing(in_turn=True), Incoming(1 << 30)
    data = random.Random(1).randbytes(5 << 20)
    outgoing.add(1, pack({"a": 1}, [data]))
    outgoing.add(2, pack({"b": 2}, [b"short", b""]))
    found = []
    while outgoing:
        one = outgoing.take()
        assert len(one) < 2 << 20
        found += list(incoming.feed(one))
    assert [frame.number for frame in found] == [2, 1]
    assert [bytes(one) for one in found[0].buffers] == [b"short", b""] and bytes(found[1].buffers[0]) == data


def test_too_large_a_frame_is_refused() -> None:
    outgoing, incoming = Outgoing(in_turn=False), Incoming(1 << 20)
    outgoing.add(1, pack({}, [bytes(3 << 20)]))
    with pytest.raises(BrokenFrame, match="the most that are taken"):
        list(incoming.feed(outgoing.take()))


def test_a_client_that_reads_no_answers_stops_no_other(served: Served, store: MessageStore) -> None:
    store.append("t", 0, bytes(1 << 20))
    ask = [message(n, {"call": "read", "arguments": to_json({"topic": "t", "queue_id": 0})}) for n in range(1, 400)]
    with grpc.insecure_channel(served.address) as channel, connect(served.address) as remote:
        stream = streamed(channel, _and_wait(*ask))
        for number in range(50):
            assert remote.append("u", 0, b"x") == number
        stream.cancel()


def test_calls_pass_the_one_place(store: MessageStore) -> None:
    names: list[str] = []

    async def around(call: Call, proceed: Proceed) -> Any:
        names.append(call.method)
        if call.method == "topics":
            raise Refusal(grpc.StatusCode.UNAVAILABLE, "not now")
        if call.method == "trim":
            await asyncio.Event().wait()
        return await proceed()

    served = Served(store, around=around)
    with connect(served.address) as remote:
        remote.append("t", 0, b"x")
        with pytest.raises(StoreError, match="not now"):
            remote.topics()
        held = remote.subscribe("t", "s")  # one that is dropped says so by a call
        held.receive()
        assert names == ["hello", "hello", "submit", "topics", "subscribe", "receive_few"]

        async def wait() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(remote.trim_async("t", 0, 1), 0.05)

        asyncio.run(wait())
    served.stop()
    assert store.queue_bounds("t", 0) == (0, 1)


def subscribing(number: int, held: int, name: str) -> bytes:
    """A subscribe of the topic t."""
    arguments = to_json({"topic": "t", "name": name})
    return message(number, {"call": "subscribe", "held": held, "arguments": arguments})


def test_one_subscription_or_scan_at_a_number(served: Served, store: MessageStore) -> None:
    store.append("t", 0, b"x")
    receive = message(3, {"call": "receive", "held": 7, "arguments": to_json({"max_messages": 1})})
    scan = message(4, {"call": "scan", "held": 7, "arguments": to_json({})})
    found = asked(served.address, subscribing(1, 7, "s"), subscribing(2, 7, "s"), receive, scan, subscribing(5, 8, "u"))
    assert sum("one number" in one.get("error", {}).get("text", "") for one in found) == 2
    with store.subscribe("t", "s") as sub:
        assert len(sub.receive(wait_ms=60_000)) == 1


def test_subscribes_that_fail_take_no_places(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MOST_HELD", 4)
    monkeypatch.setattr(holdings, "MOST_FAILED", 2)
    with connect(served.address) as remote:
        for _ in range(10):
            with pytest.raises(StoreError, match="name"):
                remote.subscribe("t", "")
        assert remote.subscribe("t", "s").receive() == []
