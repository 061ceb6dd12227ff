"""What a push consumer has is its own while it is there, and goes to others when it has gone."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.wire import CLASSES, Code
from stratalog.testing import VirtualClock

from ...store.helpers import until
from .raw_client import RawClient, raw_client

HOUR_MS = 3_600_000


def settings_stream(client: RawClient, commands: queue.Queue[Any]) -> Any:
    """A telemetry stream that stays open, with the settings of a push consumer answered."""
    command = CLASSES["TelemetryCommand"]()
    command.settings.client_type = 2
    command.settings.subscription.group.name = "work"
    commands.put(command)
    stream = client.telemetry(iter(commands.get, None))
    assert next(stream).status.code == Code.OK
    return stream


def pushed(client: RawClient) -> list[Any]:
    _, messages = client.receive("orders", "work", auto_renew=True, wait_s=10)
    return list(messages)


def test_what_a_consumer_has_goes_to_others_when_its_stream_is_gone(store: MessageStore) -> None:
    with (
        RocketMQEndpoint(store) as endpoint,
        raw_client(endpoint.address, "first") as first,
        raw_client(endpoint.address, "second") as second,
    ):
        stream = settings_stream(first, queue.Queue())
        first.send("orders", b"one")
        (message,) = pushed(first)
        assert second.receive("orders", "work")[1] == []
        stream.cancel()
        _, (again,) = second.receive("orders", "work", wait_s=10)
        assert again.system_properties.message_id == message.system_properties.message_id
        assert again.system_properties.delivery_attempt == 2


def test_what_a_consumer_has_goes_to_others_when_it_says_that_it_ends(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        client.send("orders", b"one", b"two")
        one, _ = pushed(client)
        client.ack("orders", "work", one.system_properties.receipt_handle)
        client.call("NotifyClientTermination", CLASSES["NotifyClientTerminationRequest"]())
        (again,) = pushed(client)
        assert again.body == b"two"


def test_what_a_push_consumer_has_stays_its_own_however_long_it_takes(tmp_path: Path) -> None:
    clock = VirtualClock()
    with (
        MessageStore.open(tmp_path / "store", StoreConfig(durability="os"), clock=clock) as store,
        RocketMQEndpoint(store) as endpoint,
        raw_client(endpoint.address, "first") as first,
        raw_client(endpoint.address, "second") as second,
    ):
        stream = settings_stream(first, queue.Queue())
        first.send("orders", b"one")
        (message,) = pushed(first)
        clock.advance(ms=HOUR_MS)
        assert second.receive("orders", "work")[1] == [] and stream.is_active()
        handle = message.system_properties.receipt_handle
        assert first.ack("orders", "work", handle).status.code == Code.OK


def test_what_a_client_has_is_given_back_when_the_endpoint_ends(store: MessageStore) -> None:
    def receive(endpoint: RocketMQEndpoint) -> Iterator[bytes]:
        with raw_client(endpoint.address) as client:
            for message in client.receive("orders", "work", invisible_s=3600, wait_s=5)[1]:
                yield message.body

    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        client.send("orders", b"one")
        assert list(receive(endpoint)) == [b"one"]
    with RocketMQEndpoint(store) as endpoint:
        assert list(receive(endpoint)) == [b"one"]


def test_a_consumer_whose_call_is_cut_leaves_its_messages_to_others(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        for _ in range(20):
            assert client.receive("orders", "work", wait_s=0)[0].code == Code.MESSAGE_NOT_FOUND
        with raw_client(endpoint.address, "cut") as cut:
            request = CLASSES["ReceiveMessageRequest"](batch_size=1)
            request.message_queue.topic.name, request.group.name = "orders", "work"
            request.long_polling_timeout.seconds = request.invisible_duration.seconds = 30
            waiting: Any = cut._channel.unary_stream(
                "/apache.rocketmq.v2.MessagingService/ReceiveMessage",
                request_serializer=CLASSES["ReceiveMessageRequest"].SerializeToString,
            )
            call = waiting(request, metadata=cut.headers, timeout=30)
            call.cancel()
        client.send("orders", b"one")
        _, (message,) = client.receive("orders", "work", wait_s=10)
        assert message.system_properties.delivery_attempt == 1


def open_receive(client: RawClient) -> Any:
    """A call of a push consumer that waits; it can be cancelled."""
    request = CLASSES["ReceiveMessageRequest"](batch_size=1, auto_renew=True)
    request.message_queue.topic.name, request.group.name = "orders", "work"
    request.long_polling_timeout.seconds = 30
    waiting: Any = client._channel.unary_stream(
        "/apache.rocketmq.v2.MessagingService/ReceiveMessage",
        request_serializer=CLASSES["ReceiveMessageRequest"].SerializeToString,
    )
    return waiting(request, metadata=client.headers, timeout=30)


def names(endpoint: RocketMQEndpoint) -> list[str]:
    assert endpoint._service is not None
    return [client.name for client in endpoint._service.clients.all()]


def is_waiting(endpoint: RocketMQEndpoint, name: str) -> bool:
    assert endpoint._service is not None
    return any(client.name == name and client.waits for client in endpoint._service.clients.all())


def test_a_consumer_that_was_killed_while_it_waited_is_gone_soon(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address, "first") as first:
        stream = settings_stream(first, queue.Queue())
        call = open_receive(first)
        until(lambda: is_waiting(endpoint, "first"))
        stream.cancel()
        time.sleep(0.01)  # so that in most runs the server hears of the stream first, as with a client that is killed
        call.cancel()
        until(lambda: "first" not in names(endpoint), limit_s=5)


def test_a_consumer_that_says_that_it_ends_gets_nothing_more(store: MessageStore) -> None:
    with (
        RocketMQEndpoint(store) as endpoint,
        raw_client(endpoint.address, "first") as first,
        raw_client(endpoint.address, "second") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(pushed, first)
        until(lambda: is_waiting(endpoint, "first"))
        first.call("NotifyClientTermination", CLASSES["NotifyClientTerminationRequest"]())
        assert waiting.result(timeout=5) == []
        second.send("orders", b"one")
        _, (message,) = second.receive("orders", "work", wait_s=5)
        assert message.system_properties.delivery_attempt == 1


@pytest.mark.parametrize("has_stream", [True, False])
def test_what_a_consumer_never_got_comes_again_also_if_it_is_back_at_once(
    store: MessageStore, has_stream: bool
) -> None:
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address, "first") as first:
        first.send("orders", b"one")
        stream = settings_stream(first, queue.Queue()) if has_stream else None
        assert len(pushed(first)) == 1  # nobody knows whether the client has heard it
        with raw_client(endpoint.address, "first") as back:
            if stream is not None:
                newer = settings_stream(back, queue.Queue())
                first.send("orders", b"two")
                (kept,) = pushed(back)
                stream.cancel()
            else:
                call = open_receive(first)
                until(lambda: is_waiting(endpoint, "first"))
                call.cancel()
            (again,) = pushed(back)
            assert (again.body, again.system_properties.delivery_attempt) == (b"one", 2)
            if has_stream:
                assert newer.is_active()
                assert back.ack("orders", "work", kept.system_properties.receipt_handle).status.code == Code.OK


def test_what_a_call_could_not_give_to_a_consumer_comes_again_while_it_stays(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        stream = settings_stream(client, queue.Queue())
        client.send("orders", b"one")
        endpoint.faults.tear(method="ReceiveMessage")
        with pytest.raises(grpc.RpcError):
            pushed(client)
        (again,) = pushed(client)
        assert again.system_properties.delivery_attempt == 2 and stream.is_active()
