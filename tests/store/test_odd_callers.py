"""Callers that do odd things which Python allows: they harm neither the log nor each other."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import store.appender
from store import InvalidMessage, InvalidTopic, MessageStore, MessageTooLarge, StoreConfig, StoreError

from .disks import GatedDisk
from .helpers import contents, crash_copy, tiny


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny()) as opened:
        yield opened


def reopened(opened: MessageStore, tmp_path: Path) -> MessageStore:
    """A copy of the store as a crash would leave it."""
    return MessageStore.open(crash_copy(tmp_path / "store", tmp_path / "crashed"), tiny())


def test_append_within_an_append_of_the_same_thread_gets_an_answer_of_its_own(
    opened: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a finalizer's, which the collector may run wherever something is made."""
    queue = opened._queues[0]
    put, inner, depth = queue.put, list[int](), 0

    def put_later(*given: Any) -> bool:
        nonlocal depth
        depth += 1
        if depth <= 3:
            inner.append(opened.append("audit", 0, b"inner"))
        return put(*given)

    opened.append("t", 0, b"first")
    monkeypatch.setattr(queue, "put", put_later)
    assert opened.append("t", 0, b"outer") == 1
    assert inner == [0, 1, 2]
    assert [message.data for message in opened.read("t", 0)] == [b"first", b"outer"]
    assert opened.append("t", 0, b"next") == 2


def test_finalizers_that_append_mix_nothing_up(opened: MessageStore, tmp_path: Path) -> None:
    thread, inner = threading.get_ident(), list[int]()

    class Resource:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            # Within the queue's own lock it would wait for itself: the README warns of that.
            if threading.get_ident() == thread and not opened._queues[0]._lock.locked():
                inner.append(opened.append("audit", 0, b"closed"))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        answers = []
        for turn in range(300):
            for _ in range(turn % 5):
                Resource()
            answers.append(opened.append("t", 0, b"%d" % turn * 20))
    finally:
        gc.set_threshold(*threshold)
    assert answers == list(range(300))
    with reopened(opened, tmp_path) as again:
        assert list(contents(again, [("t", 0)])["t", 0].values()) == [b"%d" % turn * 20 for turn in range(300)]
        assert again.queue_bounds("audit", 0)[1] >= len(inner) > 0


class AnyCase(str):
    """A name that compares without regard to case."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self.lower())

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()


class Unhashable(str):
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # that is the point


class Encoding(str):
    __slots__ = ()

    def encode(self, *_given: Any) -> bytes:
        raise ValueError("not today")


@pytest.mark.parametrize("kind", [AnyCase, Unhashable, Encoding])
def test_topic_of_a_subclass_of_str_is_the_plain_name(
    opened: MessageStore, tmp_path: Path, kind: type[str]
) -> None:
    assert opened.append("Orders", 0, b"plain") == 0
    assert opened.append(kind("Orders"), 0, b"of the subclass") == 1
    assert opened.append_batch([(kind("Orders"), 0, b"in a batch"), (kind("New"), 0, b"x")]).tolist() == [2, 0]
    assert opened.stats()["streams"] == 2
    with reopened(opened, tmp_path) as again:
        assert again.append("Orders", 0, b"next") == 3


class ShortBytes(bytes):
    """Bytes that tell less of themselves than they are."""

    def __len__(self) -> int:
        return 3

    def __bytes__(self) -> bytes:
        return b"else"


def test_data_and_key_of_a_subclass_of_bytes_are_the_plain_bytes(opened: MessageStore, tmp_path: Path) -> None:
    tickets = [
        opened.submit("t", 0, ShortBytes(b"all of it"), key=ShortBytes(b"a long key")),
        opened.submit("other", 0, b"x", key=b"k", properties={"a": "b"}),
    ]
    assert [ticket.result() for ticket in tickets] == [0, 0]
    with reopened(opened, tmp_path) as again:
        (message,) = again.read("t", 0)
        assert (message.data, message.key) == (b"all of it", b"a long key")
        (message,) = again.read("other", 0)
        assert (message.key, message.properties) == (b"k", {"a": "b"})


def test_batch_that_its_caller_changes_meanwhile_is_what_it_was(
    opened: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("t", 0, b"one"), ("t", 0, b"two")]
    data_of = store.appender._DATA

    def growing(row: tuple[str, int, bytes]) -> bytes:
        rows.append(("t", 0, b"late"))
        return bytes(data_of(row))

    monkeypatch.setattr(store.appender, "_DATA", growing)
    assert opened.append_batch(rows).tolist() == [0, 1]
    with reopened(opened, tmp_path) as again:
        assert [message.data for message in again.read("t", 0)] == [b"one", b"two"]


def test_error_of_the_callers_own_generator_is_not_taken_for_ours(opened: MessageStore) -> None:
    def rows() -> Iterator[tuple[str, int, bytes]]:
        yield ("t", 0, b"x")
        raise TypeError("of the caller's")

    with pytest.raises(TypeError, match="of the caller's"):
        opened.append_batch(rows())
    assert opened.queue_bounds("t", 0) == (0, 0)


@pytest.mark.parametrize("way", ["append", "submit", "append_batch"])
def test_released_view_is_an_invalid_message(opened: MessageStore, way: str) -> None:
    view = memoryview(b"gone")
    view.release()
    with pytest.raises(InvalidMessage, match="released"):
        opened.append_batch([("t", 0, view)]) if way == "append_batch" else getattr(opened, way)("t", 0, view)


def test_refused_message_makes_no_queue(opened: MessageStore) -> None:
    refused: list[tuple[Any, Any, Any]] = [("a", 0, "text"), ("b", 0, bytes(1 << 20)), ("c", -1, b""), ("d\n", 0, b"")]
    for row in refused:
        for way in (opened.append, opened.submit, lambda *given: opened.append_batch([("good", 0, b""), given])):
            with pytest.raises((InvalidMessage, MessageTooLarge, InvalidTopic)):
                way(*row)
    assert opened.stats()["streams"] == 0


def test_cancelled_append_leaves_the_line_at_the_cap(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = StoreConfig(publish_buffer_bytes=64 << 10, append_timeout_ms=60_000)
    with MessageStore.open(tmp_path / "store", config, disk=disk) as opened:
        opened.append("t", 0, b"first")
        disk.gate.clear()

        async def give_up() -> None:
            futures = [opened.append_async("t", 0, bytes(30_000)) for _ in range(10)]
            for future in futures:
                future.cancel()
            await asyncio.gather(*futures, return_exceptions=True)
            assert not opened._queues[0]._line

        asyncio.run(give_up())
        disk.gate.set()
        opened.flush()
        assert opened.queue_bounds("t", 0)[1] <= 3  # those that had been accepted


def test_timed_out_waits_leave_nothing_behind(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path / "store", tiny(), disk=disk) as opened:
        opened.append("t", 0, b"first")
        disk.gate.clear()
        ticket = opened.submit("t", 0, b"x", key=b"k")
        for _ in range(20):
            with pytest.raises(TimeoutError):
                ticket.result(0)
        assert not ticket._waiters
        disk.gate.set()
        assert ticket.result() == 1
        assert ticket.extras is None  # nothing of the message is held for who keeps the ticket


def test_every_refusal_is_an_error_of_ours(opened: MessageStore) -> None:
    rows: list[Any] = [5, [5], [()], [("t", 0)], [("t", 0, b"", 1)], [{"t", 0, b""}], [b"abc"], ["abc"], [None]]
    for given in rows:
        with pytest.raises(StoreError):
            opened.append_batch(given)
    assert opened.append_batch([]).tolist() == []
