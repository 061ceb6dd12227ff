"""What a message is: an immutable record by name, however it was read."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import Message, MessageBatch, MessageStore

from .helpers import tiny

WAYS: dict[str, Callable[[MessageStore], list[Message]]] = {
    "read": lambda store: store.read("t", 1),
    "read_async": lambda store: asyncio.run(store.read_async("t", 1)),
    "read_batch": lambda store: store.read_batch("t", 1).messages(),
    "scan": lambda store: [message for batch in store.scan() for message in batch.messages()],
}
FIELDS = ["topic", "queue_id", "offset", "data", "timestamp_ms", "deliver_at_ms", "key", "properties"]


@pytest.fixture(params=WAYS)
def messages(request: pytest.FixtureRequest, tmp_path: Path) -> list[Message]:
    """A plain message, and one with all that there is."""
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 1, b"plain")
        store.append("t", 1, b"full", deliver_at_ms=7, key=b"k", properties={"p": "q"})
        return WAYS[request.param](store)


def test_message_is_what_its_constructor_makes(messages: list[Message]) -> None:
    plain, full = messages
    assert plain == Message("t", 1, 0, b"plain", plain.timestamp_ms, None, None, None)
    assert full == Message("t", 1, 1, b"full", full.timestamp_ms, 7, b"k", {"p": "q"})
    assert repr(plain) == f"Message({', '.join(f'{name}={getattr(plain, name)!r}' for name in FIELDS)})"
    for message in messages:
        assert type(message) is Message
        assert [field.name for field in dataclasses.fields(message)] == FIELDS
        assert [name for name in dir(message) if not name.startswith("_")] == sorted(FIELDS)


def test_message_cannot_be_changed(messages: list[Message]) -> None:
    for message in messages:
        for name in FIELDS:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(message, name, None)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(message, name)
        with pytest.raises((AttributeError, TypeError)):
            message.note = "no such field"  # type: ignore[attr-defined]
        assert not hasattr(message, "__dict__")


def test_message_is_no_tuple(messages: list[Message]) -> None:
    """So a field that is added later breaks nobody's unpacking."""
    for message in messages:
        assert not isinstance(message, tuple)
        with pytest.raises(TypeError):
            iter(message)  # type: ignore[call-overload]


def test_message_can_be_copied_pickled_replaced_and_hashed(messages: list[Message]) -> None:
    plain, full = messages
    for message in messages:
        assert copy.copy(message) == copy.deepcopy(message) == pickle.loads(pickle.dumps(message)) == message
        assert dataclasses.replace(message, data=b"other").data == b"other"
        assert dataclasses.asdict(message)["offset"] == message.offset
    assert {plain: 1}[copy.copy(plain)] == 1
    match full:
        case Message(topic="t", data=data, key=key):
            assert (data, key) == (b"full", b"k")
        case _:
            pytest.fail("it does not match")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_batches_can_be_copied_and_pickled(tmp_path: Path, again: Callable[[MessageBatch], MessageBatch]) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for number in range(5):
            store.append("t", 1, bytes(number), deliver_at_ms=number, key=b"k%d" % number, properties={"p": "q"})
            store.append("u", 1, b"plain")
        given = store.subscribe("t", "a").receive_batch(3)
        batches = [store.read_batch("t", 1, 2), store.read_batch("u", 1), given, *store.scan()]
        for batch in [*batches, store.read_batch("t", 1, 5)]:
            found = again(batch)
            assert type(found) is type(batch)
            assert found.messages() == batch.messages()
            assert found.buffer is not batch.buffer
        assert [one.receipt for one in again(given).deliveries()] == given.receipts.tolist()  # type: ignore[attr-defined]  # a DeliveryBatch


def test_a_subscription_is_not_copied(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        sub = store.subscribe("t", "a")
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="subscribe again"):
                way(sub)
