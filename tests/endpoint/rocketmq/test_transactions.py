"""Ends of transactions when something comes between, and which producer is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq import transactions as module
from stratalog.endpoint.rocketmq.clients import Client, Clients
from stratalog.endpoint.rocketmq.options import RocketMQOptions
from stratalog.endpoint.rocketmq.topics import Topics
from stratalog.endpoint.rocketmq.transactions import Transactions
from stratalog.endpoint.wire import CLASSES, Code
from stratalog.endpoint.wire.codes import ClientType

from ...store.helpers import until
from .raw_client import RawClient, raw_client


@pytest.fixture
def endpoint(store: MessageStore) -> Iterator[RocketMQEndpoint]:
    with RocketMQEndpoint(store) as made:
        yield made


@pytest.fixture
def client(endpoint: RocketMQEndpoint) -> Iterator[RawClient]:
    with raw_client(endpoint.address) as made:
        yield made


def transactions_of(endpoint: RocketMQEndpoint) -> Transactions:
    assert endpoint._service is not None
    return endpoint._service.transactions


def begun(client: RawClient) -> Any:
    """The call that commits a transaction which has begun."""
    sent = client.send("orders", b"paid", message_type=4)
    end = CLASSES["EndTransactionRequest"](transaction_id=sent.entries[0].transaction_id, resolution=1)
    end.topic.name = "orders"
    return end


def stored(store: MessageStore) -> list[bytes]:
    return [message.data for queue in store.queues("orders") for message in store.read("orders", queue)]


def test_an_end_whose_client_goes_in_the_middle_is_finished(
    endpoint: RocketMQEndpoint, client: RawClient, store: MessageStore
) -> None:
    transactions = transactions_of(endpoint)
    move, is_moved, goes_on = transactions._move, threading.Event(), threading.Event()

    async def slow_move(*given: Any) -> None:
        await move(*given)
        is_moved.set()
        await asyncio.to_thread(goes_on.wait, 10)

    transactions._move = slow_move  # type: ignore[method-assign, assignment]
    end = begun(client)
    made: Any = client._channel.unary_unary(
        "/apache.rocketmq.v2.MessagingService/EndTransaction",
        request_serializer=CLASSES["EndTransactionRequest"].SerializeToString,
    )
    call = made.future(end, metadata=client.headers, timeout=20)
    assert is_moved.wait(10)
    call.cancel()
    client.call("Heartbeat", CLASSES["HeartbeatRequest"]())  # the server has heard of it
    goes_on.set()
    assert client.call("EndTransaction", end).status.code == Code.OK
    assert (stored(store), dict(transactions._halves)) == ([b"paid"], {})


def test_a_half_message_that_somebody_else_took_has_no_transaction(
    endpoint: RocketMQEndpoint, client: RawClient, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOUND_WITHIN_S", 0.3)
    end = begun(client)
    transactions = transactions_of(endpoint)
    until(lambda: bool(transactions._halves))
    (half,) = transactions._halves.values()
    assert transactions._sub is not None
    transactions._sub.ack(half.delivery)
    for _ in range(2):
        assert client.call("EndTransaction", end).status.code == Code.INVALID_TRANSACTION_ID
    assert (stored(store), dict(transactions._halves)) == ([], {})


def test_a_commit_learns_that_a_topic_has_other_queues(
    endpoint: RocketMQEndpoint, client: RawClient, store: MessageStore
) -> None:
    end = begun(client)
    store.delete_topic("orders")
    store.configure_topic("orders", queues=1)
    assert endpoint._service is not None
    endpoint._service.topics._turn = 0  # the next message goes to a queue that there is no more
    codes = [client.call("EndTransaction", end).status.code for _ in range(2)]
    assert (codes, stored(store)) == ([Code.ILLEGAL_TOPIC, Code.OK], [b"paid"])


def test_the_end_of_a_subscription_leaves_the_one_that_followed_it(store: MessageStore) -> None:
    async def both() -> None:
        options = RocketMQOptions()
        transactions = Transactions(store, options, Topics(store, options), Clients())
        first = await transactions._open()
        first.close()
        second = await transactions._open()
        await transactions._check(first)
        assert transactions._sub is second and not second.closed
        await transactions.close()

    asyncio.run(both())


def test_producers_are_asked_in_turn_and_those_of_the_topic_alone_if_there_are_some() -> None:
    clients = Clients()
    for name, topic in (("other", "else"), ("one", "orders"), ("two", "orders"), ("no stream", "orders")):
        client = clients._known[name] = Client(name, 0)
        client.settings = CLASSES["Settings"](client_type=ClientType.PRODUCER)
        client.settings.publishing.topics.add(name=topic)
        if name != "no stream":
            client.streams.append(asyncio.Queue())
    asked = [clients.producer("orders", turn) for turn in range(3)]
    assert [one.name for one in asked if one] == ["one", "two", "one"]
    anybody = [clients.producer("unknown", turn) for turn in range(3)]
    assert [one.name for one in anybody if one] == ["other", "one", "two"]
    assert Clients().producer("orders", 0) is None
