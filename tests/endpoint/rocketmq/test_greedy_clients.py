"""A client that asks for too much is refused: it holds up no other one, and takes no memory."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq import clients, transactions
from stratalog.endpoint.rocketmq.checking import MOST_AT_ONCE
from stratalog.endpoint.rocketmq.clients import Clients
from stratalog.endpoint.rocketmq.options import RocketMQOptions
from stratalog.endpoint.rocketmq.telemetry import MOST_SETTINGS_BYTES, MOST_WAITING, Telemetry
from stratalog.endpoint.wire import CLASSES, Code
from stratalog.endpoint.wire.codes import MessageType

from ...store.helpers import until
from ..server.echoes import until as seen_until
from .raw_client import RawClient, raw_client


@pytest.fixture
def endpoint(store: MessageStore) -> Iterator[RocketMQEndpoint]:
    with RocketMQEndpoint(store, queues=1) as made:
        yield made


@pytest.fixture
def client(endpoint: RocketMQEndpoint) -> Iterator[RawClient]:
    with raw_client(endpoint.address) as made:
        yield made


def test_lists_that_are_too_long_are_refused_whole(client: RawClient, store: MessageStore) -> None:
    answer = client.call("SendMessage", b"\x0a\x00" * (MOST_AT_ONCE + 1))
    assert (answer.status.code, len(answer.entries)) == (Code.BAD_REQUEST, 0)
    client.receive("orders", "work")
    answer = client.ack("orders", "work", *["x"] * (MOST_AT_ONCE + 1))
    assert (answer.status.code, len(answer.entries)) == (Code.BAD_REQUEST, 0)
    assert len(client.ack("orders", "work", *["x"] * MOST_AT_ONCE).entries) == MOST_AT_ONCE
    assert client.send("orders", *(b"%d" % number for number in range(MOST_AT_ONCE))).status.code == Code.OK
    assert store.queue_bounds("orders", 0) == (0, MOST_AT_ONCE)


def settings_of(group: str) -> Any:
    command = CLASSES["TelemetryCommand"]()
    command.settings.client_type = 3
    command.settings.subscription.group.name = group
    return command


def test_a_telemetry_stream_whose_answers_nobody_reads_is_not_read_on() -> None:
    async def run() -> None:
        asked = 0

        async def requests() -> AsyncIterator[Any]:
            nonlocal asked
            while True:
                asked += 1
                yield settings_of("work")

        async def write(_: Any) -> None:
            await asyncio.Event().wait()

        known = Clients()
        context: Any = SimpleNamespace(invocation_metadata=lambda: (("x-mq-client-id", "a"),), write=write)
        stream = asyncio.create_task(Telemetry(known, RocketMQOptions(), lambda _: None).telemetry(requests(), context))
        await seen_until(lambda: asked > MOST_WAITING)
        for _ in range(10):  # it would be read on in these
            await asyncio.sleep(0)
        assert asked <= MOST_WAITING + 2
        (one,) = known.all()
        assert not one.tell(CLASSES["TelemetryCommand"]())
        known.close()
        stream.cancel()
        await asyncio.wait([stream])
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_settings_have_a_largest_size(client: RawClient) -> None:
    commands: queue.Queue[Any] = queue.Queue()
    stream = client.telemetry(iter(commands.get, None))
    commands.put(settings_of("g" * (MOST_SETTINGS_BYTES + 1)))
    assert next(stream).status.code == Code.BAD_REQUEST
    commands.put(settings_of("work"))
    assert next(stream).status.code == Code.OK
    stream.cancel()


def test_what_is_no_command_ends_its_stream_with_a_code(endpoint: RocketMQEndpoint) -> None:
    with grpc.insecure_channel(endpoint.address) as channel:
        made: Any = channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")
        answers = list(made(iter([b"\xff\xff\xff"]), metadata=(("x-mq-client-id", "a"),), timeout=20))
    assert [CLASSES["TelemetryCommand"].FromString(one).status.code for one in answers] == [Code.BAD_REQUEST]


def test_clients_are_known_by_their_heartbeats_and_not_too_many(
    endpoint: RocketMQEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_CLIENTS", 2)
    found = []
    with raw_client(endpoint.address) as client:
        client.receive("orders", "work")
        for number in range(5):
            client.headers = (("x-mq-client-id", f"acks {number}"),)
            assert client.ack("orders", "work", "x").status.code == Code.INVALID_RECEIPT_HANDLE
        for number in range(3):
            client.headers = (("x-mq-client-id", f"beats {number}"),)
            found.append(client.call("Heartbeat", CLASSES["HeartbeatRequest"]()).status.code)
    assert found == [Code.OK, Code.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS]


def test_transactions_without_an_end_take_so_much_memory(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_HALF_BYTES", 1000)
    for body in (b"a" * 800, b"b" * 800):
        (entry,) = client.send("pay", body, message_type=MessageType.TRANSACTION).entries
        assert entry.status.code == Code.OK
        assert_ends(client, entry.transaction_id)
    kept = client.send("pay", b"c" * 1001, message_type=MessageType.TRANSACTION).entries[0].transaction_id
    codes: list[int] = []

    def are_too_many() -> bool:
        body = b"%d" % len(codes)
        codes.append(client.send("pay", body, message_type=MessageType.TRANSACTION).status.code)
        return codes[-1] == Code.TOO_MANY_REQUESTS

    until(are_too_many)  # as soon as the endpoint has received it
    assert_ends(client, kept)
    assert client.send("pay", b"d", message_type=MessageType.TRANSACTION).status.code == Code.OK


def assert_ends(client: RawClient, transaction: str) -> None:
    request = CLASSES["EndTransactionRequest"](message_id=transaction, transaction_id=transaction, resolution=1)
    request.topic.name = "pay"
    assert client.call("EndTransaction", request).status.code == Code.OK


def test_of_what_a_push_consumer_has_the_bodies_are_not_kept(endpoint: RocketMQEndpoint, client: RawClient) -> None:
    client.send("orders", b"x" * 1000)
    _, (message,) = client.receive("orders", "work", auto_renew=True)
    [one] = endpoint._service.clients.all()  # type: ignore[union-attr]
    assert list(one.held.values()) == [0]
    request = CLASSES["ForwardMessageToDeadLetterQueueRequest"](delivery_attempt=1)
    request.topic.name, request.group.name = "orders", "work"
    request.receipt_handle = message.system_properties.receipt_handle
    assert client.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    assert not one.held
    _, (dead,) = client.receive("%DLQ%work", "others", wait_s=5)
    assert dead.body == message.body
