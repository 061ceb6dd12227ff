"""Appends with ids that are interrupted at any place: the id is free or its message is stored, and nobody hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore

from ..helpers import PATIENCE_S, tiny
from ..interrupts import interrupt_at, places

FILES = (
    "api/identified.py", "api/id_batch.py", "api/repeats.py", "topics/id_window.py", "topics/id_windows.py",
    "log/message_ids.py",
    "subscriptions/joint_ids.py", "subscriptions/committing.py", "log/queue.py", "api/transaction.py",
)  # fmt: skip


def transacted(store: MessageStore, message_id: str) -> Any:
    with store.transaction() as tx:
        tx.append("t", 0, b"x", message_id=message_id)
    return tx.offsets[0]


CALLS: dict[str, Callable[[MessageStore, str], Any]] = {
    "append": lambda store, one: store.append("t", 0, b"x", message_id=one),
    "submit": lambda store, one: store.submit("t", 0, b"x", message_id=one).result(PATIENCE_S),
    "append_batch": lambda store, one: store.append_batch([("t", 0, b"x")] * 2, message_ids=[one, "known"])[0],
    "transaction": transacted,
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupted_append_leaves_its_id_free_or_stored(tmp_path: Path, call: str) -> None:
    with MessageStore.open(tmp_path, tiny(durability="os")) as store:
        store.append("t", 0, b"", message_id="known")
        expected: dict[str, int] = {}
        for place in places():
            before, message_id = store.queue_bounds("t", 0)[1], f"{place}"
            raised, result = interrupt_at(place, FILES, lambda one=message_id: CALLS[call](store, one))  # type: ignore[misc]
            if not raised:
                assert result == before
                break
            ticket = store.submit("t", 0, b"y", message_id=message_id)
            expected[message_id] = ticket.result(PATIENCE_S)
            assert expected[message_id] == before, "stored once, by the one or by the other"
            assert store.queue_bounds("t", 0)[1] == before + 1
        assert len(expected) > 10
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.append_batch([("t", 0, b"")] * len(expected), message_ids=list(expected)).tolist() == [
            *expected.values()
        ]
