"""A message comes back from the store as it was sent."""

from __future__ import annotations

from typing import Any

from stratalog import MessageStore
from stratalog.endpoint.rocketmq.translating import received, stored_of
from stratalog.endpoint.wire import CLASSES


def sent_message(**user_properties: str) -> Any:
    message = CLASSES["Message"](body=b"\x1f\x8bpacked", user_properties=user_properties)
    message.topic.name = "orders"
    system = message.system_properties
    system.message_id, system.tag, system.born_host, system.trace_context = "id", "paid", "host", "trace"
    system.keys.extend(["k1", "k2"])
    system.body_encoding = 2
    system.born_timestamp.seconds, system.born_timestamp.nanos = 1_700_000_000, 5_000_000
    return message


def through(store: MessageStore, message: Any) -> Any:
    stored = stored_of(message)
    offset = store.append(
        "orders", 0, message.body, key=stored.key, properties=stored.properties, deliver_at_ms=stored.deliver_at_ms
    )
    return received(store.read("orders", 0, offset)[0], "handle", 2, 1500).message


def test_everything_that_a_client_says_comes_back(store: MessageStore) -> None:
    message = sent_message(price="5")
    message.system_properties.delivery_timestamp.seconds = 1_700_000_001
    back = through(store, message)
    assert (back.topic.name, back.body, dict(back.user_properties)) == ("orders", b"\x1f\x8bpacked", {"price": "5"})
    given, kept = message.system_properties, back.system_properties
    for name in ("message_id", "tag", "keys", "born_host", "trace_context", "body_encoding", "born_timestamp",
                 "delivery_timestamp"):  # fmt: skip
        assert getattr(kept, name) == getattr(given, name)
    assert (kept.message_type, kept.delivery_attempt, kept.receipt_handle) == (3, 2, "handle")
    assert (kept.invisible_duration.seconds, kept.invisible_duration.nanos) == (1, 500_000_000)


def test_users_properties_with_names_of_ours_come_back_as_they_were(store: MessageStore) -> None:
    names = {"tag": "mine", "rocketmq.id": "mine", "rocketmq.user.tag": "mine", "dead_letter.topic": "mine", "KEY": "x"}
    back = through(store, sent_message(**names))
    assert dict(back.user_properties) == names
    assert (back.system_properties.tag, back.system_properties.message_id) == ("paid", "id")
    assert not back.system_properties.HasField("dead_letter_queue")
    (kept,) = store.read("orders", 0)
    assert (kept.properties or {})["tag"] == "paid"


def test_a_message_group_is_the_key_and_is_told_as_rocketmq_does(store: MessageStore) -> None:
    message = sent_message()
    message.system_properties.message_group = "line"
    back = through(store, message)
    assert (back.system_properties.message_type, back.system_properties.message_group) == (2, "line")
    assert dict(back.user_properties) == {"__SHARDINGKEY": "line"}
    assert store.read("orders", 0)[0].key == b"line"
