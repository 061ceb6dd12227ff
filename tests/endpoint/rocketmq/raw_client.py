"""A client that says exactly what a test wants: calls of the protocol, without an official client's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from stratalog.endpoint.wire import CLASSES, SERVICE

TIMEOUT_S = 20


class RawClient:
    """Blocking calls of one client id."""

    def __init__(self, channel: grpc.Channel, client_id: str) -> None:
        self._channel = channel
        self.headers: tuple[tuple[str, str], ...] = (("x-mq-client-id", client_id),) if client_id else ()

    def call(self, method: str, request: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """One answer."""
        made = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda one: one if isinstance(one, bytes) else one.SerializeToString(),
            response_deserializer=CLASSES[f"{method}Response"].FromString,
        )
        return made(request, metadata=self.headers, timeout=timeout_s)

    def receive(self, topic: str, group: str, *, wait_s: int = 0, timeout_s: float = TIMEOUT_S, **given: Any) -> Any:
        """The status, and the messages. `given`: fields of the request; `invisible_s`, `expression`, `sql`."""
        request = CLASSES["ReceiveMessageRequest"](batch_size=given.pop("batch_size", 32))
        request.message_queue.topic.name, request.group.name = topic, group
        request.long_polling_timeout.seconds = wait_s
        request.invisible_duration.seconds = given.pop("invisible_s", 30)
        request.filter_expression.type = 2 if "sql" in given else 1
        request.filter_expression.expression = given.pop("sql", given.pop("expression", "*"))
        for name, value in given.items():
            setattr(request, name, value)
        made = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=CLASSES["ReceiveMessageRequest"].SerializeToString,
            response_deserializer=CLASSES["ReceiveMessageResponse"].FromString,
        )
        answers = list(made(request, metadata=self.headers, timeout=timeout_s))
        assert answers[0].HasField("status")
        return answers[0].status, [one.message for one in answers[1:] if one.HasField("message")]

    def telemetry(self, commands: Iterator[Any]) -> Any:
        """The commands of the server, as an iterator and a call that can be cancelled."""
        made = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=CLASSES["TelemetryCommand"].SerializeToString,
            response_deserializer=CLASSES["TelemetryCommand"].FromString,
        )
        return made(commands, metadata=self.headers)

    def send(self, topic: str, *bodies: bytes, **system: Any) -> Any:
        """The answer of a send. `system`: fields of the system properties; ids are made from the bodies."""
        request = CLASSES["SendMessageRequest"]()
        for body in bodies:
            message = request.messages.add(body=body)
            message.topic.name = topic
            message.system_properties.message_id = f"id-{body[:20]!r}"
            for name, value in system.items():
                setattr(message.system_properties, name, value)
        return self.call("SendMessage", request)

    def ack(self, topic: str, group: str, *handles: str) -> Any:
        """The answer of an acknowledgement."""
        request = CLASSES["AckMessageRequest"]()
        request.topic.name, request.group.name = topic, group
        for handle in handles:
            request.entries.add(receipt_handle=handle)
        return self.call("AckMessage", request)


@contextmanager
def raw_client(address: str, client_id: str = "a client") -> Iterator[RawClient]:
    """A client with a connection of its own."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield RawClient(channel, client_id)
