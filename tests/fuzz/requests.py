"""Requests of RocketMQ's protocol by chance: fields that nobody sends, and bytes that are no message."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from stratalog.endpoint.wire import CLASSES

TOPICS = ("t0", "t1", "t2", "fifo", "", "a" * 300, "x\0y", "%DLQ%g0", "%HALF%t0", "../t0", "ü", " ", "a\nb", "TBW102")
GROUPS = ("g0", "g1", "fifo", "", "a" * 300, "%", "a b", "\0")
TEXTS = ("", "a", "TAGS", "KEYS", "__SHARDINGKEY", "x" * 2000, "\0", "é\u2028", "1:2:3", "-1:0:0", "9" * 40 + ":0:0",
         "a || b", "*", "price > 1", "price >", "NOT (", "' OR 1=1", "TAGS IN ('a',", "a = 1 AND " * 50, "2147483648",
         base64.urlsafe_b64encode(b"t0\n0\n0\nid").decode(),
         base64.urlsafe_b64encode(b"t0\n-1\n99999999999999\nx").decode(),
         "0" * 34, "01" + "A" * 32, "127.0.0.1")  # fmt: skip
SMALL = (0, 1, -1, 2, 3, 4, 5, 6, 7, 16, 32, 1024, 20000)
INT32 = (2**31 - 1, -(2**31))
INT64 = (2**63 - 1, -(2**63), 2**53, 1_790_000_000, 253_402_300_800, -62_135_596_801)
MOST_REPEATED = 4
DEEPEST = 6
MUTATIONS = 4
F = FieldDescriptor


def text(chance: random.Random, name: str, seen: list[str]) -> str:
    """A text for a field; `seen` are handles that the endpoint has given out."""
    if seen and chance.random() < 0.3:
        return chance.choice(seen)
    if name == "name":
        return chance.choice(TOPICS + GROUPS)
    return chance.choice(TEXTS)


def number(chance: random.Random, wide: tuple[int, ...]) -> int:
    """Mostly a small one."""
    return chance.choice(SMALL if chance.random() < 0.7 else wide)


def fill(message: Any, chance: random.Random, seen: list[str], depth: int = 0, share: float = 0.7) -> Any:
    """Set a share of the fields by chance."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() > share or depth > DEEPEST:
            continue
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(chance.randrange(MOST_REPEATED)):
                target[text(chance, "", seen)] = text(chance, "", seen)
        elif field.is_repeated:
            for _ in range(chance.randrange(MOST_REPEATED)):
                if field.message_type is not None:
                    fill(target.add(), chance, seen, depth + 1)
                else:
                    target.append(_value(field, chance, seen))
        elif field.message_type is not None:
            target.SetInParent()
            fill(target, chance, seen, depth + 1)
        else:
            setattr(message, field.name, _value(field, chance, seen))
    return message


def _value(field: Any, chance: random.Random, seen: list[str]) -> Any:
    kinds: dict[int, Callable[[], Any]] = {
        F.TYPE_STRING: lambda: text(chance, field.name, seen),
        F.TYPE_BYTES: lambda: chance.randbytes(chance.choice((0, 1, 10, 1000))),
        F.TYPE_BOOL: lambda: chance.random() < 0.5,
        F.TYPE_FLOAT: lambda: chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))),
        F.TYPE_INT64: lambda: number(chance, INT64),
    }
    return kinds.get(field.type, lambda: number(chance, INT32))()


def request(name: str, chance: random.Random, seen: list[str]) -> bytes:
    """A request by the name of its message: right but for some fields, or by chance; sometimes its bytes change."""
    message = CLASSES[name]()
    kind = chance.random()
    if kind < 0.5 and name in RIGHT:
        RIGHT[name](message, chance, seen)
        if kind < 0.25:
            fill(message, chance, seen, share=0.03)
    else:
        fill(message, chance, seen)
    data: bytes = message.SerializeToString()
    return mutated(data, chance) if chance.random() < 0.2 else data


def _send(message: Any, chance: random.Random, seen: list[str]) -> None:
    topic = chance.choice(TOPICS[:4])
    for _ in range(chance.choice((1, 1, 1, 3))):
        one = message.messages.add(body=chance.randbytes(chance.choice((0, 10, 1000, 100_000))))
        one.topic.name = topic
        system = one.system_properties
        system.message_id, system.message_type = f"01{chance.getrandbits(64):032X}", chance.choice((1, 1, 2, 3, 4))
        if system.message_type == 2:
            system.message_group = chance.choice("abc")
        if system.message_type == 3:
            system.delivery_timestamp.seconds = int(time.time()) + chance.choice((-1, 0, 1, 1000))
        if chance.random() < 0.3:
            system.tag = chance.choice(("a", "b"))
        one.user_properties["price"] = str(chance.randrange(3))


def _ack(message: Any, chance: random.Random, seen: list[str]) -> None:
    message.group.name, message.topic.name = chance.choice(GROUPS[:3]), chance.choice(TOPICS[:4])
    for _ in range(chance.choice((1, 1, 5))):
        message.entries.add(receipt_handle=text(chance, "", seen), message_id="x")


def _change(message: Any, chance: random.Random, seen: list[str]) -> None:
    message.group.name, message.topic.name = chance.choice(GROUPS[:3]), chance.choice(TOPICS[:4])
    message.receipt_handle = text(chance, "", seen)
    message.invisible_duration.nanos = chance.choice((0, 1_000_000, 50_000_000))


def _end(message: Any, chance: random.Random, seen: list[str]) -> None:
    message.topic.name, message.resolution = chance.choice(TOPICS[:4]), chance.choice((0, 1, 2))
    message.message_id = message.transaction_id = text(chance, "", seen)


def _recall(message: Any, chance: random.Random, seen: list[str]) -> None:
    message.topic.name, message.recall_handle = chance.choice(TOPICS[:4]), text(chance, "", seen)


def _settings(message: Any, chance: random.Random, seen: list[str]) -> None:
    settings = message.settings
    settings.client_type = chance.choice((1, 2, 3))
    if settings.client_type == 1:
        settings.publishing.topics.add(name=chance.choice(TOPICS[:4]))
    else:
        settings.subscription.group.name = chance.choice(GROUPS[:3])
        settings.subscription.subscriptions.add().topic.name = chance.choice(TOPICS[:4])


def _route(message: Any, chance: random.Random, seen: list[str]) -> None:
    message.topic.name = chance.choice(TOPICS[:4])
    message.endpoints.addresses.add(host="127.0.0.1", port=1)


RIGHT: dict[str, Callable[[Any, random.Random, list[str]], None]] = {
    "SendMessageRequest": _send,
    "AckMessageRequest": _ack,
    "ChangeInvisibleDurationRequest": _change,
    "EndTransactionRequest": _end,
    "RecallMessageRequest": _recall,
    "TelemetryCommand": _settings,
    "QueryRouteRequest": _route,
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes flipped, cut out, put in, or none of the message's at all."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.choice((1, 10, 100, 5000)))
    changed = bytearray(data)
    for _ in range(chance.randrange(1, MUTATIONS)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 20)]
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 20))
        else:
            del changed[at:]
    return bytes(changed)
