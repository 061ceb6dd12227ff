"""The `Admin` service: backlogs, resets, messages by id and key, what there is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq.admin.message_index import MessageIndex
from stratalog.endpoint.rocketmq.admin.service import ADMIN_SERVICE
from stratalog.endpoint.rocketmq.translating import id_of
from stratalog.endpoint.wire import CLASSES, Code

from ...store.helpers import until
from ..patience import next_ms
from .raw_client import RawClient, raw_client

Admin = Callable[..., Any]


@pytest.fixture
def endpoint(store: MessageStore) -> Iterator[RocketMQEndpoint]:
    with RocketMQEndpoint(store, queues=2) as made:
        yield made


@pytest.fixture
def client(endpoint: RocketMQEndpoint) -> Iterator[RawClient]:
    with raw_client(endpoint.address) as made:
        yield made


@pytest.fixture
def admin(endpoint: RocketMQEndpoint) -> Iterator[Admin]:
    """A call of the service: its method, topic, group and other fields."""
    with grpc.insecure_channel(endpoint.address) as channel:

        def ask(method: str, topic: str = "", group: str = "", **fields: Any) -> Any:
            name = "ListMessage" if method == "QueryMessage" else method
            request = CLASSES[f"{name}Request"](**fields)
            if topic:
                request.topic.name = topic
            if group:
                request.group.name = group
            call: Any = channel.unary_unary(
                f"/{ADMIN_SERVICE}/{method}",
                request_serializer=CLASSES[f"{name}Request"].SerializeToString,
                response_deserializer=CLASSES[f"{name}Response"].FromString,
            )
            return call(request, timeout=60)

        yield ask


def bodies(answer: Any) -> list[bytes]:
    assert answer.status.code == Code.OK
    return sorted(message.body for message in answer.messages)


def test_the_backlog_of_a_group_by_topic_and_in_all(client: RawClient, admin: Admin) -> None:
    for topic, count in (("a", 5), ("b", 2)):
        client.receive(topic, "g")
        assert client.send(topic, *(b"%s %d" % (topic.encode(), at) for at in range(count))).status.code == Code.OK
    _, got = client.receive("a", "g", batch_size=2, invisible_s=3600)
    client.ack("a", "g", got[0].system_properties.receipt_handle)
    answer = admin("DescribeGroupAccumulation", group="g")
    of_topic = {one.key: one.value for one in answer.topic_accumulation}
    assert (of_topic["a"].inflight_messages, of_topic["a"].ready_messages, of_topic["a"].accumulation) == (1, 3, 4)
    assert (of_topic["b"].accumulation, answer.accumulation.accumulation) == (2, 6)
    only = admin("DescribeGroupAccumulation", group="g", topics=[CLASSES["Resource"](name="b")])
    assert only.accumulation.accumulation == 2
    for wrong in ("other", ""):
        assert admin("DescribeGroupAccumulation", group=wrong).status.code == Code.CONSUMER_GROUP_NOT_FOUND


@pytest.mark.parametrize(("types", "only"), [(["fifo"], 2), (["fifo", "delay"], 1), (None, 1)])
def test_the_status_of_a_topic_has_its_types(store: MessageStore, admin: Admin, types: Any, only: int) -> None:
    store.configure_topic("orders", queues=2, types=types)
    answer = admin("DescribeTopicStatus", "orders")
    names = "NORMAL, FIFO, DELAY, TRANSACTION" if types is None else ", ".join(types).upper()
    assert (answer.topic_message_type, answer.tags["types"]) == (only, names)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_group_is_reset_to_a_time(store: MessageStore, admin: Admin, client: RawClient, is_open: bool) -> None:
    if is_open:
        client.receive("orders", "g")
    else:
        store.configure_topic("orders", queues=2)
        store.subscribe("orders", "g", filter={"tag": ["a"]}).close()
    client.send("orders", b"old", tag="a")
    between_ms = next_ms()
    client.send("orders", b"new", tag="a")
    stamp = CLASSES["ResetGroupOffsetRequest"]().reset_timestamp
    stamp.FromMilliseconds(between_ms)
    assert admin("ResetGroupOffset", "orders", "g", reset_timestamp=stamp).status.code == Code.OK
    assert [one.body for one in client.receive("orders", "g", wait_s=1)[1]] == [b"new"]
    stamp.FromMilliseconds(0)
    assert admin("ResetGroupOffset", "orders", "g", reset_timestamp=stamp).status.code == Code.OK
    found: list[bytes] = []

    def are_two() -> bool:
        found.extend(one.body for one in client.receive("orders", "g", wait_s=1)[1])
        return len(found) >= 2

    until(are_two)
    assert sorted(found) == [b"new", b"old"]
    assert admin("ResetGroupOffset", "orders", "none").status.code == Code.CONSUMER_GROUP_NOT_FOUND
    stamp.seconds = -5
    assert admin("ResetGroupOffset", "orders", "g", reset_timestamp=stamp).status.code == Code.BAD_REQUEST


def test_messages_are_found_by_id_and_by_key_also_those_of_programs(
    client: RawClient, admin: Admin, store: MessageStore
) -> None:
    client.send("orders", b"one", message_id="id-1", tag="t")
    client.send("orders", b"two", message_id="id-2")
    store.append("orders", 0, b"own", key=b"k-17")
    assert bodies(admin("QueryMessage", "orders", message_id="id-1")) == [b"one"]
    assert bodies(admin("QueryMessage", "orders", message_id="id-9")) == []
    assert bodies(admin("QueryMessage", "orders", message_key="k-17")) == [b"own"]
    store.append("orders", 1, b"later", key=b"k-17")
    assert bodies(admin("QueryMessage", "orders", message_key="k-17")) == [b"later", b"own"]
    assert bodies(admin("QueryMessage", "orders", message_key="k-17", queue_id=1)) == [b"later"]
    assert bodies(admin("QueryMessage", "orders", message_key="k-17", max_message_nums=1)) == [b"later"]
    own = next(one for one in store.read("orders", 0) if one.data == b"own")
    assert bodies(admin("QueryMessage", "orders", message_id=id_of(own))) == [b"own"]
    store.trim("orders", 0, own.offset + 1)
    assert bodies(admin("QueryMessage", "orders", message_key="k-17")) == [b"later"]
    assert admin("QueryMessage", "none", message_key="k").status.code == Code.TOPIC_NOT_FOUND
    assert admin("QueryMessage", "orders", subscription="g").status.code == Code.UNSUPPORTED


def test_messages_of_some_times_are_listed(client: RawClient, admin: Admin) -> None:
    client.send("orders", b"one")
    begin = CLASSES["ListMessageRequest"]().begin_timestamp
    begin.FromMilliseconds(next_ms())
    next_ms()
    client.send("orders", b"two", b"three")
    end = CLASSES["ListMessageRequest"]().end_timestamp
    end.FromNanoseconds(time.time_ns())
    assert bodies(admin("QueryMessage", "orders", begin_timestamp=begin)) == [b"three", b"two"]
    assert bodies(admin("QueryMessage", "orders", begin_timestamp=begin, end_timestamp=end)) == [b"three", b"two"]
    assert bodies(admin("QueryMessage", "orders", end_timestamp=begin)) == [b"one"]
    assert bodies(admin("QueryMessage", "orders")) == [b"one", b"three", b"two"]


def test_the_index_knows_a_window_and_is_made_again_at_an_opening(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreConfig(durability="os")) as store:
        store.append_columns([("t", 0)], [0] * 50, [1] * 50, bytes(50))
        for number in range(30):
            store.append("t", 0, b"%d" % number, key=b"k%d" % number, properties={"rocketmq.id": f"i{number}"})
        index = MessageIndex(store, "t", window=20)
        assert [one.data for one in index.by_id("i10")] == [b"10"]
        assert list(index.by_id("i9")) == list(index.by_key("k9")) == []
        store.append("t", 0, b"new", key=b"k29")
        assert [one.data for one in index.by_key("k29")] == [b"new", b"29"]
        assert len(index._order) <= 40 and len(index._places) <= 40
    with MessageStore.open(tmp_path) as store:
        again = MessageIndex(store, "t", window=20)
        assert [one.data for one in again.by_key("k29")] == [b"new", b"29"]
        assert store.delete_topic("t")
        assert list(again.by_key("k29")) == []


def test_the_newest_of_a_key_is_first_and_only_what_is_wanted_is_read(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = MessageIndex(store, "t", window=1000)
    for number in range(10):
        store.append("t", 1 - number % 2, b"%d" % number, key=b"k")
        next_ms()
    assert [one.data for one in index.by_key("k")] == [b"%d" % number for number in range(9, -1, -1)]
    reads: list[int] = []
    read = store.read

    def noted(topic: str, queue_id: int, offset: int, **more: Any) -> Any:
        reads.append(offset)
        return read(topic, queue_id, offset, **more)

    monkeypatch.setattr(store, "read", noted)
    assert next(index.by_key("k")).data == b"9"
    assert len(reads) == 1


def test_topics_groups_and_clients_are_listed(client: RawClient, admin: Admin, store: MessageStore) -> None:
    client.receive("orders", "g", expression="a || b")
    client.receive("orders", "h", sql="price > 5")
    store.subscribe("bills", "g").close()
    found = {
        (one.topic.name, one.group.name): (one.expression.type, one.expression.expression, one.online)
        for one in admin("ListSubscription").subscription_info
    }
    assert found == {
        ("orders", "g"): (1, "a || b", False), ("orders", "h"): (2, "price > 5", False), ("bills", "g"): (1, "*", False)
    }  # fmt: skip
    assert len(admin("ListSubscription", "orders").subscription_info) == 2
    assert len(admin("ListSubscription", group="g").subscription_info) == 2
    assert admin("DescribeTopicStatus", "orders").tags["queues"] == "2"
    assert admin("DescribeTopicStatus", "none").status.code == Code.TOPIC_NOT_FOUND
    assert admin("DeleteSubscription", "orders", "h").status.code == Code.OK
    assert admin("DeleteSubscription", "orders", "h").status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert [one.name for one in store.subscriptions("orders")] == ["g"]


def test_connected_consumers_are_described(client: RawClient, admin: Admin) -> None:
    client.receive("orders", "g")
    command = CLASSES["TelemetryCommand"]()
    command.settings.client_type = 3
    command.settings.user_agent.language = 6
    command.settings.subscription.group.name = "g"
    entry = command.settings.subscription.subscriptions.add()
    entry.topic.name, entry.expression.expression = "orders", "a"
    ended = threading.Event()

    def commands() -> Iterator[Any]:
        yield command
        ended.wait(60)

    stream = client.telemetry(commands())
    assert next(stream).status.code == Code.OK
    [told] = admin("DescribeSubscription", "orders", "g").client_subscription_info
    assert (told.client_info.client_id, told.client_info.language) == ("a client", "PYTHON")
    assert told.subscription_info.expression.expression == "a"
    assert [one.client_id for one in admin("ListConsumerConnection", group="g").client_info] == ["a client"]
    assert [one.online for one in admin("ListSubscription", "orders", "g").subscription_info] == [True]
    stats = admin("GetProxyRuntimeStats")
    assert (stats.connections, stats.producers, stats.consumers) == (2, 0, 1)
    ended.set()
    stream.cancel()


def test_the_times_of_a_group(client: RawClient, admin: Admin) -> None:
    client.receive("orders", "g")
    for number in range(4):
        client.send("orders", b"%d" % number)
    spans = admin("QueryTimeSpan", group="g").queue_time_span_list
    assert sorted(one.message_queue.id for one in spans) == [0, 1]
    now_ms = time.time_ns() // 1_000_000
    for one in spans:
        assert 0 < one.min_timestamp == one.consume_timestamp <= one.max_timestamp <= now_ms


def test_what_is_not_there_is_unimplemented(endpoint: RocketMQEndpoint) -> None:
    with grpc.insecure_channel(endpoint.address) as channel, pytest.raises(grpc.RpcError) as error:
        call: Any = channel.unary_unary(f"/{ADMIN_SERVICE}/VerifyMessage")
        call(b"", timeout=60)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_calls_are_recorded_with_their_codes(
    endpoint: RocketMQEndpoint, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stratalog"):
        admin("ListSubscription")
        admin("DescribeGroupAccumulation", group="none")
    assert [(one.method, one.code) for one in endpoint.calls] == [
        ("ListSubscription", Code.OK), ("DescribeGroupAccumulation", Code.CONSUMER_GROUP_NOT_FOUND)
    ]  # fmt: skip
    assert caplog.text == ""


def test_half_messages_are_the_endpoints_own(admin: Admin, client: RawClient, store: MessageStore) -> None:
    client.send("orders", b"half", message_type=4)
    half, checker = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_CHECKER"
    assert [info.name for info in store.subscriptions(half)] == [checker]
    assert admin("DeleteSubscription", half, checker).status.code == Code.ILLEGAL_TOPIC
    assert admin("ResetGroupOffset", half, checker).status.code == Code.ILLEGAL_TOPIC
    assert admin("QueryMessage", half).status.code == Code.ILLEGAL_TOPIC
    assert [info.name for info in store.subscriptions(half)] == [checker]
