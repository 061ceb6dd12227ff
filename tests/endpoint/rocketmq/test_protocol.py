"""What each call answers: codes and texts, for what is right and for what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq import receiving
from stratalog.endpoint.wire import CLASSES, Code

from .raw_client import RawClient, raw_client


@pytest.fixture
def client(store: MessageStore) -> Iterator[RawClient]:
    with RocketMQEndpoint(store, queues=2) as endpoint, raw_client(endpoint.address) as made:
        yield made


def test_a_route_has_the_address_that_was_dialled_and_takes_all_types(client: RawClient, store: MessageStore) -> None:
    request = CLASSES["QueryRouteRequest"]()
    request.topic.name = "orders"
    request.endpoints.addresses.add(host="mapped.example", port=1234)
    queues = client.call("QueryRoute", request).message_queues
    assert [(queue.id, queue.permission, list(queue.accept_message_types)) for queue in queues] == [
        (number, 4, [1, 2, 3, 4]) for number in range(2)
    ]
    assert all(queue.broker.id == 0 and queue.broker.endpoints == request.endpoints for queue in queues)
    assert store.topic_settings("orders").queues == 2


def test_a_topic_that_is_missing_is_not_found_if_none_may_be_made(store: MessageStore) -> None:
    with RocketMQEndpoint(store, create_topics=False) as endpoint, raw_client(endpoint.address) as client:
        request = CLASSES["QueryRouteRequest"]()
        request.topic.name = "typo"
        status = client.call("QueryRoute", request).status
        assert status.code == Code.TOPIC_NOT_FOUND
        assert status.message == "CODE: 17  DESC: No topic route info in name server for the topic: typo"
        assert client.send("typo", b"x").status.code == Code.TOPIC_NOT_FOUND
        store.append("typo", 3, b"the program makes it")
        assert len(client.call("QueryRoute", request).message_queues) == 4


KINDS: dict[str, dict[str, Any]] = {
    "normal": {},
    "fifo": {"message_group": "g"},
    "delay": {"delivery_timestamp": datetime(2100, 1, 1, tzinfo=UTC)},
    "transaction": {"message_type": 4},
}


@pytest.mark.parametrize("types", [("normal",), ("fifo", "delay"), ("transaction",), tuple(KINDS), None])
def test_a_topic_takes_the_types_of_its_settings_alone(
    client: RawClient, store: MessageStore, types: Sequence[Any] | None
) -> None:
    store.configure_topic("orders", queues=2, types=types)
    request = CLASSES["QueryRouteRequest"]()
    request.topic.name = "orders"
    taken = list(types or KINDS)
    numbers, route = [list(KINDS).index(one) + 1 for one in taken], client.call("QueryRoute", request)
    assert [list(one.accept_message_types) for one in route.message_queues] == [numbers] * 2
    conflict = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    for kind, given in KINDS.items():
        answer = client.send("orders", kind.encode(), **given)
        assert (kind, answer.status.code) == (kind, Code.OK if kind in taken else conflict)
        if kind not in taken:
            text = f"takes messages of the types {', '.join(taken)}, and this one is {kind}"
            assert text.upper() in answer.status.message.upper()
    kept = {message.data.decode() for queue in range(2) for message in store.read("orders", queue)}
    assert kept == set(taken) - {"transaction"}


def test_a_change_of_the_types_counts_for_the_next_send_and_for_no_transaction_that_was_begun(
    client: RawClient, store: MessageStore
) -> None:
    sent = client.send("orders", b"half", message_type=4)
    commit = CLASSES["EndTransactionRequest"](transaction_id=sent.entries[0].transaction_id, resolution=1)
    commit.topic.name = "orders"
    store.configure_topic("orders", queues=2, types=["normal"])
    assert client.send("orders", b"half", message_type=4).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert client.call("EndTransaction", commit).status.code == Code.OK
    store.configure_topic("orders", queues=2)
    assert client.send("orders", b"late", message_group="g").status.code == Code.OK
    assert sorted(one.data for queue in range(2) for one in store.read("orders", queue)) == [b"half", b"late"]


@pytest.mark.parametrize(
    ("topic", "body", "system", "code"),
    [
        ("", b"x", {}, Code.ILLEGAL_TOPIC),
        ("no.dots", b"x", {}, Code.ILLEGAL_TOPIC),
        ("t" * 128, b"x", {}, Code.ILLEGAL_TOPIC),
        ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {}, Code.ILLEGAL_TOPIC),
        ("orders", b"", {}, Code.MESSAGE_BODY_EMPTY),
        ("orders", bytes(5 << 20), {}, Code.MESSAGE_BODY_TOO_LARGE),
        ("orders", b"x", {"message_id": ""}, Code.ILLEGAL_MESSAGE_ID),
        ("orders", b"x", {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ("orders", b"x", {"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
        ("orders", b"x", {"priority": 3}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("orders", b"x", {"lite_topic": "one"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("orders", b"x", {"message_type": 4, "message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
def test_a_message_that_is_not_allowed_is_refused_with_its_code(
    client: RawClient, topic: str, body: bytes, system: dict[str, Any], code: Code
) -> None:
    answer = client.send(topic, body, **system)
    assert (answer.status.code, [entry.status.code for entry in answer.entries]) == (code, [code])


def test_messages_of_one_call_have_an_entry_each(client: RawClient, store: MessageStore) -> None:
    answer = client.send("orders", b"one", b"", b"three")
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [Code.OK, Code.MESSAGE_BODY_EMPTY, Code.OK]
    assert answer.status.code == Code.MULTIPLE_RESULTS
    kept = {message.data for queue in store.queues("orders") for message in store.read("orders", queue)}
    assert kept == {b"one", b"three"}


def test_the_same_message_sent_again_is_there_once(client: RawClient, store: MessageStore) -> None:
    first, again = client.send("orders", b"once"), client.send("orders", b"once")
    assert (again.status.code, again.entries[0].offset) == (Code.OK, first.entries[0].offset)
    assert sum(store.queue_bounds("orders", queue)[1] for queue in store.queues("orders")) == 1


def test_a_call_without_a_client_id_is_refused(client: RawClient) -> None:
    client.headers = ()
    assert client.call("Heartbeat", CLASSES["HeartbeatRequest"]()).status.code == Code.CLIENT_ID_REQUIRED
    status, messages = client.receive("orders", "billing")
    assert (status.code, messages) == (Code.CLIENT_ID_REQUIRED, [])


def test_no_message_is_not_found_and_a_filter_that_is_wrong_is_illegal(client: RawClient) -> None:
    assert client.receive("orders", "billing")[0].code == Code.MESSAGE_NOT_FOUND
    status, _ = client.receive("orders", "billing", sql="price BETWEEN")
    assert status.code == Code.ILLEGAL_FILTER_EXPRESSION and "character 14" in status.message
    assert client.receive("orders", "", expression="*")[0].code == Code.ILLEGAL_CONSUMER_GROUP
    assert client.receive("orders", "g" * 123)[0].code == Code.ILLEGAL_CONSUMER_GROUP  # its dead letters have no topic
    assert client.receive("orders", "g" * 122)[0].code == Code.MESSAGE_NOT_FOUND
    assert client.receive("orders", "billing", invisible_s=0)[0].code == Code.ILLEGAL_INVISIBLE_TIME


def test_a_handle_is_good_once(client: RawClient) -> None:
    assert client.ack("orders", "billing", "1:2:3").status.code == Code.INVALID_RECEIPT_HANDLE
    client.send("orders", b"one", b"two")
    _, messages = client.receive("orders", "billing")
    one, two = (message.system_properties.receipt_handle for message in messages)
    assert client.ack("orders", "billing", one).status.code == Code.OK
    assert client.ack("orders", "billing", one).status.code == Code.INVALID_RECEIPT_HANDLE
    answer = client.ack("orders", "billing", two, "nonsense")
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
    assert client.ack("orders", "billing").status.code == Code.BAD_REQUEST


def test_an_invisible_time_of_0_gives_back_and_the_handle_stays(client: RawClient) -> None:
    client.send("orders", b"one")
    _, (message,) = client.receive("orders", "billing")
    request = CLASSES["ChangeInvisibleDurationRequest"](receipt_handle=message.system_properties.receipt_handle)
    request.topic.name, request.group.name = "orders", "billing"
    request.invisible_duration.seconds = 60
    answer = client.call("ChangeInvisibleDuration", request)
    assert (answer.status.code, answer.receipt_handle) == (Code.OK, request.receipt_handle)
    request.invisible_duration.seconds = 0
    assert client.call("ChangeInvisibleDuration", request).status.code == Code.OK
    _, (again,) = client.receive("orders", "billing")
    assert again.system_properties.delivery_attempt == 2
    assert client.call("ChangeInvisibleDuration", request).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_waiting_consumer_is_answered_before_its_deadline_and_not_before_its_time(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(receiving, "EARLIER_S", 2.0)  # a busy machine takes longer than the 0.2 s that it is
        assert client.receive("orders", "billing", wait_s=30, timeout_s=3)[0].code == Code.MESSAGE_NOT_FOUND
    began_s = time.monotonic()
    assert client.receive("orders", "billing", wait_s=1)[0].code == Code.MESSAGE_NOT_FOUND
    assert time.monotonic() - began_s >= 1


def test_what_a_recall_handle_does_not_say_is_refused(client: RawClient) -> None:
    request = CLASSES["RecallMessageRequest"](recall_handle="nonsense")
    request.topic.name = "orders"
    assert client.call("RecallMessage", request).status.code == Code.BAD_REQUEST
    sent = client.send("orders", b"past")
    assert not sent.entries[0].recall_handle


def test_an_unknown_transaction_and_lite_topics_are_refused(client: RawClient) -> None:
    request = CLASSES["EndTransactionRequest"](transaction_id="unknown", resolution=1)
    request.topic.name = "orders"
    assert client.call("EndTransaction", request).status.code == Code.INVALID_TRANSACTION_ID
    lite = CLASSES["SyncLiteSubscriptionRequest"]()
    assert client.call("SyncLiteSubscription", lite).status.code == Code.UNSUPPORTED


def test_a_request_that_is_no_message_is_a_bad_request(client: RawClient) -> None:
    assert client.call("SendMessage", b"\xff\xff\xff").status.code == Code.BAD_REQUEST


def test_methods_that_no_official_client_uses_are_not_implemented(client: RawClient) -> None:
    call: Any = client._channel.unary_unary("/apache.rocketmq.v2.MessagingService/GetOffset")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", metadata=client.headers, timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_settings_come_back_with_what_the_server_decides(store: MessageStore) -> None:
    with (
        RocketMQEndpoint(store, fifo_groups=["lines"], max_attempts=7, retry_delays_ms=[500, 2000]) as endpoint,
        raw_client(endpoint.address) as client,
    ):
        producer, push, node = (CLASSES["TelemetryCommand"]() for _ in range(3))
        producer.settings.publishing.topics.add(name="orders")
        for command, language in ((push, 6), (node, 8)):
            command.settings.client_type = 2
            command.settings.subscription.group.name = "lines"
            command.settings.user_agent.language = language
        answers = client.telemetry(iter([producer, push, node, CLASSES["TelemetryCommand"](settings={})]))
        sends, consumes, consumes_in_node, wrong = answers
        assert sends.settings.publishing.max_body_size == 4 << 20 and sends.status.code == Code.OK
        assert sends.settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
        assert consumes.settings.subscription.fifo and consumes.settings.subscription.receive_batch_size == 32
        policy = consumes.settings.backoff_policy
        assert policy.max_attempts == 7
        assert [(delay.seconds, delay.nanos) for delay in policy.customized_backoff.next] == [(0, 500_000_000), (2, 0)]
        assert consumes_in_node.settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
        assert wrong.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize("seconds", [-1, 1 << 41, (1 << 63) - 1])
def test_times_that_are_not_possible_are_refused(client: RawClient, seconds: int) -> None:
    request = CLASSES["SendMessageRequest"]()
    message = request.messages.add(body=b"x")
    message.topic.name, message.system_properties.message_id = "orders", "id"
    message.system_properties.delivery_timestamp.seconds = seconds
    assert client.call("SendMessage", request).status.code == Code.ILLEGAL_DELIVERY_TIME
    message.system_properties.ClearField("delivery_timestamp")
    for name in ("born_timestamp", "orphaned_transaction_recovery_duration"):
        getattr(message.system_properties, name).seconds = seconds
        assert client.call("SendMessage", request).status.code == Code.BAD_REQUEST
        message.system_properties.ClearField(name)
    assert client.receive("orders", "billing", invisible_s=seconds)[0].code == Code.ILLEGAL_INVISIBLE_TIME


def test_a_message_that_no_client_can_be_told_holds_up_no_others(client: RawClient, store: MessageStore) -> None:
    store.append("orders", 0, b"before")
    store.append("orders", 0, b"broken", properties={"rocketmq.born_ms": "abc"})
    store.append("orders", 0, b"behind")
    status, messages = client.receive("orders", "billing", wait_s=5)
    assert (status.code, [message.body for message in messages]) == (Code.OK, [b"before", b"behind"])
    assert [message.system_properties.delivery_attempt for message in messages] == [1, 1]
    assert client.receive("orders", "billing")[0].code == Code.MESSAGE_NOT_FOUND


def test_a_topic_of_the_program_keeps_its_queues_and_a_subscription_its_dead_letters(store: MessageStore) -> None:
    store.append("own", 70, b"x", key=b"k", properties={"tag": "a", "colour": "red"})
    store.subscribe("own", "billing", max_attempts=3, dead_letter_topic="own/failed").close()
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        _, (message,) = client.receive("own", "billing", expression="a")
        assert (message.body, message.system_properties.tag) == (b"x", "a")
        assert (list(message.system_properties.keys), dict(message.user_properties)) == (["k"], {"colour": "red"})
        assert len(message.system_properties.message_id) == 34
        assert client.send("own", b"y").status.code == Code.OK
    (info,) = store.subscriptions("own")
    assert (info.settings.max_attempts, info.settings.dead_letter_topic) == (3, "own/failed")


def test_topics_and_groups_that_the_program_deletes_are_made_again(client: RawClient, store: MessageStore) -> None:
    half = {"message_type": 4}
    client.send("orders", b"one")
    client.send("orders", b"half", **half)
    assert len(client.receive("orders", "billing")[1]) == 1
    for info in store.subscriptions():
        store.delete_subscription(info.topic, info.name)
    for topic in store.topics():
        store.delete_topic(topic)
    store.configure_topic("orders", queues=2)
    client.send("orders", b"two")
    sent = client.send("orders", b"another half", **half)
    end = CLASSES["EndTransactionRequest"](transaction_id=sent.entries[0].transaction_id, resolution=1)
    end.topic.name = "orders"
    assert client.call("EndTransaction", end).status.code == Code.OK
    bodies = {message.body for message in client.receive("orders", "billing")[1]}
    assert bodies == {b"two", b"another half"}


def test_a_dead_letter_goes_to_a_queue_that_its_topic_has(store: MessageStore) -> None:
    store.configure_topic("%DLQ%billing", queues=1)
    store.append("orders", 3, b"bad")
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:
        _, (message,) = client.receive("orders", "billing")
        request = CLASSES["ForwardMessageToDeadLetterQueueRequest"](delivery_attempt=1)
        request.topic.name, request.group.name = "orders", "billing"
        request.receipt_handle = message.system_properties.receipt_handle
        assert client.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
        again = client.call("ForwardMessageToDeadLetterQueue", request)  # the answer was lost: it asks until it is OK
        assert again.status.code == Code.OK
        request.receipt_handle = "nonsense"
        assert client.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.INVALID_RECEIPT_HANDLE
    request.receipt_handle = message.system_properties.receipt_handle
    with RocketMQEndpoint(store) as endpoint, raw_client(endpoint.address) as client:  # it knows no group yet
        assert client.call("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    assert [letter.data for letter in store.read("%DLQ%billing", 0)] == [b"bad"]
    assert store.subscriptions("orders")[0].backlog.total == 0
