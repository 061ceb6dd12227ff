"""What a push consumer has is its own while it is there, and goes to others when it has gone."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.wire import CLASSES, Code
from stratalog.testing import VirtualClock

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
        settings_stream(first, queue.Queue())
        first.send("orders", b"one")
        (message,) = pushed(first)
        clock.advance(ms=HOUR_MS)
        assert second.receive("orders", "work")[1] == []
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
