"""Bytes of calls of `stratalog.v1` count with those of all other calls, in one limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest

from stratalog import MessageStore, PublishBufferFull, connect
from stratalog.endpoint import Limits, RocketMQEndpoint
from stratalog.endpoint.remote.frames import BrokenFrame, Incoming, Outgoing, pack
from stratalog.endpoint.remote.server import session
from stratalog.endpoint.remote.values import to_json
from stratalog.endpoint.server.calls import Call, Proceed, Refusal
from stratalog.endpoint.server.request_bytes import RequestBytes
from stratalog.endpoint.wire import CLASSES, SERVICE, Code

from ...store.helpers import until
from ..server.echoes import run
from ..server.echoes import until as until_in_loop
from .test_misuse import message, streamed

MOST = 1 << 20
PATIENCE_S = 20.0


class Held:
    """An interceptor that lets calls with much to say wait until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.waiting = 0

    async def around(self, call: Call, proceed: Proceed) -> Any:
        if call.method in ("submit", "append_columns") and call.size_bytes > 10_000:
            self.waiting += 1
            await asyncio.wait_for(asyncio.to_thread(self.open.wait, PATIENCE_S), PATIENCE_S)
        return await proceed()


@contextmanager
def limited(store: MessageStore, held: Held | None = None, most: int = MOST) -> Iterator[RocketMQEndpoint]:
    """An endpoint that takes so many bytes of requests; at the end none is left."""
    around = [] if held is None else [held.around]
    with RocketMQEndpoint(store, limits=Limits(request_bytes=most), interceptors=around, grace_s=0.1) as endpoint:
        yield endpoint
        until(lambda: endpoint.server.calls.request_bytes == 0, PATIENCE_S)


def send(address: str, body: bytes) -> Any:
    """The code of a message that a client of RocketMQ sends."""
    one = CLASSES["Message"](topic=CLASSES["Resource"](name="t"), body=body)
    one.system_properties.message_id = "m"
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(
            f"/{SERVICE}/SendMessage",
            request_serializer=CLASSES["SendMessageRequest"].SerializeToString,
            response_deserializer=CLASSES["SendMessageResponse"].FromString,
        )
        asked = CLASSES["SendMessageRequest"](messages=[one])
        return call(asked, metadata=[("x-mq-client-id", "c")], timeout=PATIENCE_S).status.code


def test_tickets_take_room_from_all_calls_and_give_it_back(store: MessageStore) -> None:
    held = Held()
    with limited(store, held) as endpoint, connect(endpoint.address) as remote:
        ticket = remote.submit("t", 0, bytes(MOST - 20_000))
        until(lambda: held.waiting == 1, PATIENCE_S)
        assert MOST - 20_000 <= endpoint.server.calls.request_bytes <= MOST
        assert send(endpoint.address, bytes(40_000)) == Code.TOO_MANY_REQUESTS
        held.open.set()
        assert ticket.result(PATIENCE_S) == 0
        until(lambda: endpoint.server.calls.request_bytes == 0, PATIENCE_S)
        assert send(endpoint.address, bytes(40_000)) == Code.OK


def test_a_call_without_room_is_refused_alone_and_small_ones_go_on(store: MessageStore) -> None:
    held = Held()
    most = MOST - 100_000
    with (
        limited(store, held, most) as endpoint,
        connect(endpoint.address) as one,
        connect(endpoint.address) as other,
    ):
        other.append("t", 7, b"before")
        sub = other.subscribe("t", "s", start="earliest")
        ticket = one.submit("t", 0, bytes(most + 20_000))
        until(lambda: held.waiting == 1, PATIENCE_S)
        with pytest.raises(PublishBufferFull, match="under way"):
            other.append("t", 0, bytes(40_000))
        with pytest.raises(PublishBufferFull, match="under way"):
            other.append_columns([("t", 0)], [0] * 2, [20_000] * 2, bytes(40_000))
        (delivery,) = sub.receive(wait_ms=0)
        sub.ack(delivery)
        sub.close()
        held.open.set()
        assert ticket.result(PATIENCE_S) == 0
        assert other.append("t", 0, bytes(40_000)) == 1


def test_a_call_alone_may_be_larger_than_the_limit(store: MessageStore) -> None:
    with limited(store) as endpoint, connect(endpoint.address) as remote:
        size = 400_000
        offsets = remote.append_columns([("t", 0)], [0] * 8, [size] * 8, bytes(8 * size))
        assert offsets.tolist() == list(range(8))
        assert [one.data for one in store.read("t", 0, max_messages=8, max_bytes=1 << 30)] == [bytes(size)] * 8


def test_calls_of_which_a_part_has_come_count_and_are_refused_without_room(store: MessageStore) -> None:
    """Pieces of a call come one by one; another call takes the room meanwhile. The rest of the pieces goes nowhere."""
    held = Held()
    outgoing = Outgoing(in_turn=False)
    arguments = to_json({"topic": "t", "queue_id": 0, "offset": 0})
    outgoing.add(5, pack({"call": "read", "arguments": arguments}, [bytes(3 * session.HELD_BYTES // 64)]))
    pieces = iter(outgoing.take, b"")
    go_on, over = threading.Semaphore(), threading.Event()

    def messages() -> Iterator[bytes]:
        for piece in pieces:
            go_on.acquire(timeout=PATIENCE_S)
            yield piece
        yield message(6, {"call": "hello"})
        over.wait(PATIENCE_S)  # the stream stays open so long

    with (
        limited(store, held, most=2 << 20) as endpoint,
        connect(endpoint.address) as other,
        grpc.insecure_channel(endpoint.address) as channel,
    ):
        stream = streamed(channel, messages())
        until(lambda: endpoint.server.calls.request_bytes >= 1 << 20, PATIENCE_S)
        ticket = other.submit("t", 0, bytes(2_000_000 - (1 << 20)))
        until(lambda: held.waiting == 1, PATIENCE_S)
        go_on.release()  # the second piece of three
        incoming = Incoming(1 << 30)
        first = next(frame for answer in stream for frame in incoming.feed(answer))
        assert first.number == 5 and first.header["error"]["kind"] == "PublishBufferFull"
        assert endpoint.server.calls.request_bytes < 2 << 20
        for _ in range(3):
            go_on.release()
        second = next(frame for answer in stream for frame in incoming.feed(answer))
        assert second.number == 6 and "value" in second.header
        held.open.set()
        assert ticket.result(PATIENCE_S) == 0
        stream.cancel()
        over.set()


def test_a_connection_that_ends_in_the_middle_of_calls_leaves_no_bytes(store: MessageStore) -> None:
    held = Held()
    outgoing = Outgoing(in_turn=False)
    outgoing.add(5, pack({"call": "read"}, [bytes(4 << 20)]))
    part, over = outgoing.take(), threading.Event()

    def messages() -> Iterator[bytes]:
        yield part
        over.wait(PATIENCE_S)  # the stream stays open so long

    with limited(store, held, most=64 << 20) as endpoint, connect(endpoint.address) as other:
        with grpc.insecure_channel(endpoint.address) as channel:
            stream = streamed(channel, messages())
            other.submit("t", 0, bytes(100_000))
            until(lambda: endpoint.server.calls.request_bytes > (1 << 20) + 100_000, PATIENCE_S)
            stream.cancel()
            over.set()
        until(lambda: endpoint.server.calls.request_bytes < 200_000, PATIENCE_S)
        held.open.set()


def test_streams_in_a_hurry_are_read_on_later_and_lose_nothing(store: MessageStore) -> None:
    """Many connections send far more than the limit: nobody is refused, as they hold back each other."""
    messages, size, senders = 60, 50_000, 6
    with limited(store, most=4 << 20) as endpoint:
        failed: list[Exception] = []

        def run(queue: int) -> None:
            try:
                with connect(endpoint.address) as remote:
                    tickets = [remote.submit("t", queue, bytes(size)) for _ in range(messages)]
                    assert [one.result(PATIENCE_S) for one in tickets] == list(range(messages))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(queue,)) for queue in range(senders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


# -- the count ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def late(seconds: float) -> AsyncIterator[None]:
    began_s = asyncio.get_running_loop().time()
    yield
    assert asyncio.get_running_loop().time() - began_s >= seconds


def test_a_request_has_room_if_the_others_leave_it_or_if_it_is_alone() -> None:
    requests = RequestBytes(100)
    requests.add(300)
    requests.check(300)
    requests.add(10)
    with pytest.raises(Refusal):
        requests.check(10)
    requests.remove(300)
    requests.check(10)


def test_streams_wait_while_others_have_more_than_half() -> None:
    async def test() -> None:
        requests = RequestBytes(100)
        requests.add(80)
        await asyncio.wait_for(requests.calm(30, PATIENCE_S), 0.5)  # without its own 30 it is half
        waiting = [asyncio.create_task(requests.calm(0, PATIENCE_S)) for _ in range(3)]
        await until_in_loop(lambda: requests._calmed is not None)
        requests.remove(20)
        await asyncio.sleep(0)  # a pass of the loop: those who were woken go on in it
        assert not any(one.done() for one in waiting)
        requests.remove(10)
        await asyncio.wait_for(asyncio.gather(*waiting), 5)
        requests.add(40)
        async with late(0.05):
            await requests.calm(0, 0.05)  # it goes on all the same

    run(test)


def test_what_is_dropped_of_a_call_goes_nowhere_and_later_calls_come() -> None:
    outgoing = Outgoing(in_turn=False)
    outgoing.add(1, pack({"call": "a"}, [bytes(3 << 20)]))
    first, *others = iter(outgoing.take, b"")
    incoming = Incoming(8 << 20)
    assert list(incoming.feed(first)) == [] and incoming.arrived_bytes >= len(first) - 16
    assert incoming.drop() == [1] and incoming.arrived_bytes == 0 and incoming.drop() == []
    assert [frame for one in others for frame in incoming.feed(one)] == []
    (again,) = incoming.feed(message(1, {"call": "b"}))
    assert again.header == {"call": "b"}


def test_calls_that_never_end_cannot_be_dropped_for_ever() -> None:
    incoming = Incoming(1 << 40)
    with pytest.raises(BrokenFrame, match="not complete"):
        for number in range(20_000):
            outgoing = Outgoing(in_turn=True)
            outgoing.add(number, pack({"call": "a"}, [bytes(300_000)]))
            list(incoming.feed(outgoing.take()[: 16 + (256 << 10)]))
            incoming.drop()
