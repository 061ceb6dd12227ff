"""The official Python client, unmodified: it sends, receives, acknowledges, and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint

from .official_client import consumer, message, producer, receive_all


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreConfig(durability="os")) as opened:
        yield opened


def test_what_is_sent_is_received_once_it_is_acknowledged_never_again(store: MessageStore) -> None:
    with RocketMQEndpoint(store, queues=1) as endpoint, producer(endpoint.address, "orders") as sender:
        given = {"tag": "paid", "keys": "k1", "properties": {"price": "5"}}
        receipt = sender.send(message("orders", b"two shoes", **given))
        with consumer(endpoint.address, "billing", "orders") as receiver:
            (got,) = receive_all(receiver, 1)
        assert (got.body, got.tag, got.keys, got.properties) == (b"two shoes", "paid", {"k1"}, {"price": "5"})
        assert (got.message_id, got.delivery_attempt, got.corrupted) == (receipt.message_id, 1, False)
        assert receipt.transaction_id == receipt.message_id
    assert store.subscriptions("orders")[0].backlog.total == 0
    (kept,) = store.read("orders", 0)
    assert (kept.data, kept.key, (kept.properties or {})["tag"]) == (b"two shoes", b"k1", "paid")
