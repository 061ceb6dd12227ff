"""Raw calls of RocketMQ clients, with the headers of the official ones, and the check of what they have sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...store import MessageStore
from .checker import WrongResult
from .timed import HEAD

TOPIC, GROUP = "rates", "group"
OK = 20000
INVISIBLE_S = 600
HEADERS = (
    ("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2"), ("x-mq-client-version", "5.1.2"),
    ("x-mq-date-time", "20261127T152000Z"), ("x-mq-request-id", "0b0b0b0b-0000-0000-0000-000000000000"),
    ("x-mq-client-id", "perf@1@1@perf"), ("x-mq-namespace", ""),
    ("authorization", f"MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature={'01' * 20}"),
)  # fmt: skip
QUEUES = 4


def path_of(method: str) -> str:
    """The path of a call of the endpoint."""
    from ...endpoint.wire import SERVICE  # noqa: PLC0415  # an extra

    return f"/{SERVICE}/{method}"


def body_of(number: int, size_bytes: int) -> bytes:
    """The body of message `number`."""
    return HEAD.pack(number).ljust(size_bytes, b"\0")


def fill(folder: Path, messages: int, size_bytes: int) -> None:
    """Append messages that the endpoint of this folder gives out later."""
    with MessageStore.open(folder) as store:
        store.configure_topic(TOPIC, queues=QUEUES)
        store.append_batch((TOPIC, number % QUEUES, body_of(number, size_bytes)) for number in range(messages))


def check_sent(folder: Path, messages: int, size_bytes: int) -> int:
    """The number of messages. Raises WrongResult unless each that was answered is there, once and whole."""
    with MessageStore.open(folder) as store:
        there = [
            body
            for queue in store.queues(TOPIC)
            for body in store.get_range(TOPIC, queue, 0, max(1, store.queue_bounds(TOPIC, queue)[1])).values()
        ]
    if sorted(there) != sorted(body_of(number, size_bytes) for number in range(messages)):
        raise WrongResult(f"{messages:,} sends were answered; the {len(there):,} messages of the store are not these")
    return messages


def check_received(bodies: list[bytes], messages: int, size_bytes: int) -> int:
    """The number of messages. Raises WrongResult unless each came, once and whole."""
    if sorted(bodies) != sorted(body_of(number, size_bytes) for number in range(messages)):
        raise WrongResult(f"the {len(bodies):,} messages that were received are not the {messages:,} of the store")
    return messages


def check_acknowledged(folder: Path, messages: int) -> int:
    """The number of messages. Raises WrongResult if one that was acknowledged is there again."""
    with MessageStore.open(folder) as store:
        (info,) = store.subscriptions(TOPIC)
    if info.backlog.total:
        raise WrongResult(f"{info.backlog.total:,} of {messages:,} messages were acknowledged, and are there again")
    return messages


class Client:
    """The calls of a client over one connection, of `grpc.aio`.

    Attributes:
        made: so many calls were answered.
    """

    def __init__(self, channel: Any, size_bytes: int, send_path: str = "") -> None:
        """`send_path`: of another handler than the endpoint's, which takes sends too."""
        from ...endpoint.wire import CLASSES  # noqa: PLC0415  # an extra

        self.made = 0
        self._size_bytes = size_bytes
        self._classes = CLASSES
        self._send = channel.unary_unary(send_path or path_of("SendMessage"))
        self._receive = channel.unary_stream(path_of("ReceiveMessage"))
        self._ack = channel.unary_unary(path_of("AckMessage"))

    def request(self, number: int) -> bytes:
        """The send of message `number`."""
        request = self._classes["SendMessageRequest"]()
        message = request.messages.add(body=body_of(number, self._size_bytes))
        message.topic.name = TOPIC
        message.user_properties["colour"] = "red"
        system = message.system_properties
        system.tag, system.message_id = "new", f"01{number:032X}"
        system.keys.append("k-17")
        system.born_host, system.body_encoding, system.message_type = "host", 1, 1
        packed: bytes = request.SerializeToString()
        return packed

    async def send(self, number: int) -> None:
        """Send message `number`. Raises WrongResult if the answer is no OK."""
        answer = await self._send(self.request(number), metadata=HEADERS)
        self._need(self._classes["SendMessageResponse"].FromString(answer).status)

    async def receive(self, most: int) -> list[Any]:
        """Up to so many messages; none waits for them."""
        request = self._classes["ReceiveMessageRequest"](batch_size=most)
        request.message_queue.topic.name, request.group.name = TOPIC, GROUP
        request.invisible_duration.seconds = INVISIBLE_S
        request.long_polling_timeout.seconds = 0
        parse = self._classes["ReceiveMessageResponse"].FromString
        found = [parse(one) async for one in self._receive(request.SerializeToString(), metadata=HEADERS)]
        self.made += 1
        return [one.message for one in found if one.HasField("message")]

    async def acknowledge(self, message: Any) -> None:
        """Acknowledge a received message. Raises WrongResult if the answer is no OK."""
        request = self._classes["AckMessageRequest"]()
        request.topic.name, request.group.name = TOPIC, GROUP
        system = message.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        answer = await self._ack(request.SerializeToString(), metadata=HEADERS)
        self._need(self._classes["AckMessageResponse"].FromString(answer).status)

    def _need(self, status: Any) -> None:
        self.made += 1
        if status.code != OK:
            raise WrongResult(f"a call was answered {status.code}: {status.message}")
