"""What a message is: an immutable record by name, however it was read."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import Message, MessageStore

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
