"""A client that asks for too much is refused: it holds up no other one, and takes no memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq.checking import MOST_AT_ONCE
from stratalog.endpoint.wire import Code

from .raw_client import RawClient, raw_client


@pytest.fixture
def endpoint(store: MessageStore) -> Iterator[RocketMQEndpoint]:
    with RocketMQEndpoint(store, queues=1) as made:
        yield made


@pytest.fixture
def client(endpoint: RocketMQEndpoint) -> Iterator[RawClient]:
    with raw_client(endpoint.address) as made:
        yield made


def test_lists_that_are_too_long_are_refused_whole(client: RawClient, store: MessageStore) -> None:
    answer = client.call("SendMessage", b"\x0a\x00" * (MOST_AT_ONCE + 1))
    assert (answer.status.code, len(answer.entries)) == (Code.BAD_REQUEST, 0)
    client.receive("orders", "work")
    answer = client.ack("orders", "work", *["x"] * (MOST_AT_ONCE + 1))
    assert (answer.status.code, len(answer.entries)) == (Code.BAD_REQUEST, 0)
    assert len(client.ack("orders", "work", *["x"] * MOST_AT_ONCE).entries) == MOST_AT_ONCE
    assert client.send("orders", *(b"%d" % number for number in range(MOST_AT_ONCE))).status.code == Code.OK
    assert store.queue_bounds("orders", 0) == (0, MOST_AT_ONCE)
