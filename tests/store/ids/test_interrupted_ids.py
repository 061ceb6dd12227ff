"""Appends with ids that are interrupted at any place: the id is free or its message is stored, and nobody hangs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, PublishBufferFull, Ticket
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request
from stratalog.testing import VirtualClock

from ..helpers import PATIENCE_S, start, tiny
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


def test_an_interrupt_while_ids_leave_the_window_forgets_each_of_them_or_none(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(durability="os"), clock=clock) as store:
        for place in places():
            topic = f"t{place}"
            store.configure_topic(topic, id_window_ms=1000)
            store.append_batch([(topic, 0, b"")] * 2, message_ids=["old", "old too"])
            clock.advance(ms=900)
            assert store.append(topic, 0, b"", message_id="young") == 2
            clock.advance(ms=200)
            raised, _ = interrupt_at(
                place,
                ("topics/id_window.py",),
                lambda: store.append_batch([(topic, 0, b"")], message_ids=["new"]),  # noqa: B023
            )
            assert store.append(topic, 0, b"", message_id="young") == 2
            for ms in (0, 5000):
                clock.advance(ms=ms)
                for message_id in ("old", "old too", "young")[: 2 + bool(ms)]:
                    end = store.queue_bounds(topic, 0)[1]
                    assert store.append(topic, 0, b"", message_id=message_id) == end
            if not raised:
                break
        assert place > 3


@pytest.mark.parametrize("call", ["submit", "append_batch"])
def test_an_interrupt_after_an_append_was_refused_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    waiting: list[Ticket] = []
    with MessageStore.open(tmp_path, tiny(durability="os")) as store:
        store.append("t", 0, b"", message_id="known")
        is_open, put = True, RequestQueue.put

        def refuse_one(queue: RequestQueue[Request], request: Request, *, wait: bool = True) -> bool:
            """While a message waits for the outcome of its id."""
            nonlocal is_open
            if is_open or not request.count:
                return put(queue, request, wait=wait)
            is_open = True
            tracer = sys.gettrace()
            sys.settrace(None)
            start(lambda: waiting.append(store.submit("t", 0, b"", message_id=message_id))).join()
            sys.settrace(tracer)
            raise PublishBufferFull("no room")

        monkeypatch.setattr(RequestQueue, "put", refuse_one)
        for place in places():
            waiting.clear()
            message_id, is_open = f"{place}", False
            raised, result = interrupt_at(
                place, ("topics/id_window.py", "log/message_ids.py", "api/identified.py", "api/id_batch.py"),
                lambda: CALLS[call](store, message_id),  # noqa: B023
            )  # fmt: skip
            is_open = True
            for ticket in waiting:
                assert ticket.result(PATIENCE_S) == store.queue_bounds("t", 0)[1] - 1, raised
            assert store.submit("t", 0, b"", message_id=message_id).result(PATIENCE_S) >= 1, "not kept for ever"
            if not raised:
                assert isinstance(result, PublishBufferFull) and waiting
                break
        assert place > 3
