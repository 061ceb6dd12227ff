"""A message of the protocol as the store keeps it, and back.

The body is the message's data. The message group, or else the keys, are its key; so the store's `order_by="key"` orders
a message group. The tag is the property "tag", and users' properties are properties: so filters of the store find them,
and programs that use the store itself can read and write them. What else a client says stands in properties that begin
with "rocketmq.". A user's property of such a name, or named "tag", is kept as "rocketmq.user.<name>".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import xxhash

from ..wire import CLASSES
from ..wire.codes import DigestType, Encoding, MessageType
from .times import ms_of, set_ms

if TYPE_CHECKING:
    from stratalog import Message

TAG: Final = "tag"
OWN: Final = "rocketmq."
ESCAPED: Final = "rocketmq.user."
STORY: Final = "dead_letter."
ID: Final = "rocketmq.id"
KEYS: Final = "rocketmq.keys"
TYPE: Final = "rocketmq.type"
BORN_MS: Final = "rocketmq.born_ms"
BORN_HOST: Final = "rocketmq.born_host"
ENCODING: Final = "rocketmq.encoding"
TRACE: Final = "rocketmq.trace"
GROUP: Final = "rocketmq.group"
HALF_OF: Final = "rocketmq.half_of"
RECOVERY_MS: Final = "rocketmq.recovery_ms"

_ANSWER: Final = CLASSES["ReceiveMessageResponse"]
_MESSAGE: Final = CLASSES["Message"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store is given of a message, beside its topic, queue and data."""

    message_id: str
    key: bytes | None
    properties: dict[str, str]
    deliver_at_ms: int | None


def stored_of(message: Any) -> Stored:
    """What the store keeps of a message that was sent. It has been checked."""
    system = message.system_properties
    properties = {ID: system.message_id, BORN_MS: str(ms_of(system.born_timestamp))}
    key = deliver_at_ms = None
    if system.HasField("tag"):
        properties[TAG] = system.tag
    if system.keys:
        properties[KEYS] = keys = " ".join(system.keys)
        key = keys.encode()
    if system.born_host:
        properties[BORN_HOST] = system.born_host
    if system.body_encoding > Encoding.IDENTITY:
        properties[ENCODING] = str(system.body_encoding)
    if system.HasField("trace_context"):
        properties[TRACE] = system.trace_context
    kind = MessageType.NORMAL
    if system.HasField("message_group"):
        properties[GROUP] = system.message_group
        key, kind = system.message_group.encode(), MessageType.FIFO
    if system.HasField("delivery_timestamp"):
        deliver_at_ms, kind = ms_of(system.delivery_timestamp), MessageType.DELAY
    if kind > MessageType.NORMAL:
        properties[TYPE] = str(int(kind))
    for name, value in message.user_properties.items():
        properties[ESCAPED + name if name == TAG or name.startswith((OWN, STORY)) else name] = value
    return Stored(system.message_id, key, properties, deliver_at_ms)


def id_of(message: Message) -> str:
    """The id that its client gave it; for one that a program has put into the store, one of its place."""
    given = (message.properties or {}).get(ID)
    if given:
        return given
    place = f"{message.topic}/{message.queue_id}/{message.offset}"
    return f"01{xxhash.xxh3_128_hexdigest(place.encode()).upper()}"


def message_of(message: Message) -> Any:
    """A message of the store for a client."""
    answer = _MESSAGE()
    _fill(answer, message)
    return answer


def received(message: Message, handle: str, attempt: int, invisible_ms: int) -> Any:
    """An answer of ReceiveMessage with a message of the store.

    Args:
        handle: the receipt handle by which the client acknowledges it.
        attempt: how often it was given out, with this time.
        invisible_ms: how long no other consumer gets it.
    """
    answer = _ANSWER()
    _fill(answer.message, message)
    system = answer.message.system_properties
    system.receipt_handle = handle
    system.delivery_attempt = attempt
    set_ms(system.invisible_duration, invisible_ms)
    return answer


def _fill(answer: Any, message: Message) -> None:
    answer.topic.name = message.topic
    answer.body = data = message.data
    system = answer.system_properties
    system.message_id = id_of(message)
    system.queue_id, system.queue_offset = message.queue_id, message.offset
    set_ms(system.store_timestamp, message.timestamp_ms)
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(data, usedforsecurity=False).hexdigest().upper()
    system.body_encoding, system.message_type = Encoding.IDENTITY, MessageType.NORMAL
    if message.deliver_at_ms is not None:
        set_ms(system.delivery_timestamp, message.deliver_at_ms)
        system.message_type = MessageType.DELAY
    properties = message.properties or {}
    if ID not in properties and message.key is not None:  # of a program that uses the store itself
        system.keys.append(message.key.decode(errors="replace"))
    set_ms(system.born_timestamp, message.timestamp_ms)
    users = answer.user_properties
    for name, value in properties.items():
        setter = _SETTERS.get(name)
        if setter is not None:
            setter(system, users, value)
        elif name.startswith(ESCAPED):
            users[name[len(ESCAPED) :]] = value
        elif not name.startswith(OWN):
            users[name] = value
    if f"{STORY}topic" in properties:
        _tell_origin(system, users, properties)


def _tell_origin(system: Any, users: Any, properties: Mapping[str, str]) -> None:
    """A dead letter says where it comes from, as RocketMQ's do."""
    system.dead_letter_queue.topic = users["DLQ_ORIGIN_TOPIC"] = properties[f"{STORY}topic"]
    system.dead_letter_queue.message_id = users["DLQ_ORIGIN_MESSAGE_ID"] = system.message_id


def _set_tag(system: Any, users: Any, value: str) -> None:
    system.tag = value


def _set_keys(system: Any, users: Any, value: str) -> None:
    system.keys.extend(value.split(" "))


def _set_group(system: Any, users: Any, value: str) -> None:
    system.message_group = users["__SHARDINGKEY"] = value


def _set_type(system: Any, users: Any, value: str) -> None:
    system.message_type = int(value)
    if system.message_type == MessageType.TRANSACTION:
        users["__transactionId__"] = system.message_id


def _set_born(system: Any, users: Any, value: str) -> None:
    set_ms(system.born_timestamp, int(value))


def _set_host(system: Any, users: Any, value: str) -> None:
    system.born_host = value


def _set_encoding(system: Any, users: Any, value: str) -> None:
    system.body_encoding = int(value)


def _set_trace(system: Any, users: Any, value: str) -> None:
    system.trace_context = value


def _set_recovery(system: Any, users: Any, value: str) -> None:
    set_ms(system.orphaned_transaction_recovery_duration, int(value))


_SETTERS: Final = {
    TAG: _set_tag,
    KEYS: _set_keys,
    GROUP: _set_group,
    TYPE: _set_type,
    BORN_MS: _set_born,
    BORN_HOST: _set_host,
    ENCODING: _set_encoding,
    TRACE: _set_trace,
    RECOVERY_MS: _set_recovery,
}
