"""Transactions: messages and acknowledgements, all of them or none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stratalog import InvalidMessage, InvalidTopic, StaleReceipt, StoreError


def test_all_of_it_or_nothing(store: Any) -> None:
    with store.transaction() as tx:
        tx.append("a", 0, b"one", key=b"k", properties={"p": "q"})
        tx.append_batch([("b", 1, b"two"), ("a", 0, b"three")])
        assert store.topics() == []
    assert tx.offsets.tolist() == [0, 0, 1]
    first, second = store.read("a", 0)
    assert (first.key, first.properties, second.data) == (b"k", {"p": "q"}, b"three")
    with pytest.raises(KeyError), store.transaction() as tx:
        tx.append("a", 0, b"x")
        raise KeyError
    assert store.queue_bounds("a", 0) == (0, 2)


def test_it_acknowledges(store: Any) -> None:
    store.append_batch([("t", 0, b"%d" % number) for number in range(3)])
    sub = store.subscribe("t", "s")
    found = sub.receive()
    with store.transaction() as tx:
        tx.append("bills", 0, b"bill")
        tx.ack(found[0])
        tx.ack(found[1].receipt, sub)
    assert sub.backlog().total == 1
    with pytest.raises(StaleReceipt), store.transaction() as tx:
        tx.append("bills", 0, b"twice")
        tx.ack(found[0])
    assert store.queue_bounds("bills", 0) == (0, 1)
    with pytest.raises(InvalidMessage), store.transaction() as tx:
        tx.ack(found[2].receipt)
    with store.transaction() as tx:
        tx.ack(found[2], sub)
    assert sub.backlog().total == 0


def test_it_has_one_end(store: Any) -> None:
    tx = store.transaction()
    with pytest.raises(InvalidMessage, match="not committed"):
        _ = tx.offsets
    tx.append("a", 0, b"x")
    tx.commit()
    for call in (tx.commit, tx.rollback, lambda: tx.append("a", 0, b"y")):
        with pytest.raises(InvalidMessage, match="was committed"):
            call()
    other = store.transaction()
    other.append("a", 0, b"x")
    other.rollback()
    with pytest.raises(InvalidMessage, match="rolled back"):
        other.commit()
    with store.transaction():
        pass
    assert store.queue_bounds("a", 0) == (0, 1)


def test_what_is_wrong_in_it_stores_nothing(store: Any) -> None:
    wrong: list[dict[str, Any]] = [{"topic": ""}, {"queue_id": -1}, {"data": "x"}, {"data": bytes(2 << 20)}]
    for given in wrong:
        with pytest.raises(StoreError), store.transaction() as tx:
            tx.append("a", 0, b"good")
            tx.append(**{"topic": "a", "queue_id": 0, "data": b"x", **given})
    with pytest.raises(InvalidTopic), store.transaction() as tx:
        tx.append_batch([("a", 0, b"x"), ("", 0, b"x")])
    assert store.topics() == []


def test_ids_in_it_are_stored_once(store: Any) -> None:
    store.append("a", 0, b"first", message_id="1")
    with store.transaction() as tx:
        tx.append("a", 0, b"again", message_id="1")
        tx.append("a", 0, b"new", message_id="2")
        tx.append_batch([("a", 0, b"x"), ("a", 0, b"y")], message_ids=["2", None])
    assert tx.offsets.tolist() == [0, 1, 1, 2]


def test_for_coroutines(store: Any) -> None:
    async def program() -> None:
        async with store.transaction() as tx:
            tx.append("a", 0, b"x")
        assert tx.offsets.tolist() == [0]
        with pytest.raises(KeyError):
            async with store.transaction() as tx:
                tx.append("a", 0, b"x")
                raise KeyError

    asyncio.run(program())
    assert store.queue_bounds("a", 0) == (0, 1)
