"""Callers that do odd things which Python allows: they harm neither the log nor each other."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    MessageTooLarge,
    StoreClosed,
    StoreError,
)
from stratalog.store.api import appender
from stratalog.store.log.ticket import SubmitRequest

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
def test_topic_of_a_subclass_of_str_is_the_plain_name(opened: MessageStore, tmp_path: Path, kind: type[str]) -> None:
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
    data_of = appender._DATA

    def growing(row: tuple[str, int, bytes]) -> bytes:
        rows.append(("t", 0, b"late"))
        return bytes(data_of(row))

    monkeypatch.setattr(appender, "_DATA", growing)
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


def test_timed_out_waits_leave_nothing_behind(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path / "store", tiny(), disk=disk) as opened:
        opened.append("t", 0, b"first")
        disk.gate.clear()
        ticket = opened.submit("t", 0, b"x", key=b"k")
        for _ in range(20):
            with pytest.raises(TimeoutError):
                ticket.result(0)
        assert isinstance(ticket, SubmitRequest) and not ticket._waiters
        disk.gate.set()
        assert ticket.result() == 1
        assert ticket.extras is None  # nothing of the message is held for who keeps the ticket


def released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


class Raising:
    """Everything that is asked of it raises an error of its own."""

    def __hash__(self) -> int:
        raise NotImplementedError("hash")

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError("eq")

    def __repr__(self) -> str:
        raise NotImplementedError("repr")

    def __len__(self) -> int:
        raise NotImplementedError("len")

    def __getitem__(self, index: object) -> object:
        raise NotImplementedError("item")


NO_ROWS: list[Any] = [
    5, (), ("t", 0), ("t", 0, b"", 1), {"t", 0, b""}, {"t": 1, 0: 2, b"": 3}, b"abc", "abc", None, np.zeros(3),
    np.zeros((2, 2)), memoryview(b"abc"), memoryview(bytes(6)).cast("B", [2, 3]), released(), Raising(),
    (part for part in ("t", 0, b"")), [["t"], 0, b""],
]  # fmt: skip


@pytest.mark.parametrize("row", NO_ROWS, ids=lambda row: type(row).__name__)
@pytest.mark.parametrize("known", [True, False])
def test_row_that_is_none_is_refused_by_its_number(opened: MessageStore, row: Any, known: bool) -> None:
    if known:
        opened.append("t", 0, b"first")
    with pytest.raises((InvalidMessage, InvalidTopic), match="row 2: ") as refused:
        opened.append_batch([("t", 0, b"good"), ("t", 0, b"good"), row, ("t", 0, b"good")])
    assert refused.value.row == 2
    assert opened.queue_bounds("t", 0) == (0, int(known))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (("t", 0, "text"), InvalidMessage), (("t", 0, released()), InvalidMessage), (("t", 0, None), InvalidMessage),
        (("t", 0, bytes(1 << 20)), MessageTooLarge), (("t", 0, bytearray(1 << 20)), MessageTooLarge),
        (("t", -1, b""), InvalidTopic), (("t", True, b""), InvalidTopic), (("t", 10**5000, b""), InvalidTopic),
        (("", 0, b""), InvalidTopic), ((["t"], 0, b""), InvalidTopic), ((released(), 0, b""), InvalidTopic),
        ((Raising(), 0, b""), InvalidTopic), (("t", Raising(), b""), InvalidTopic),
        (("t", 0, Raising()), InvalidMessage),
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_wrong_part_of_a_row_is_refused_by_the_rows_number(
    opened: MessageStore, row: Any, error: type[StoreError]
) -> None:
    opened.append("t", 0, b"first")
    with pytest.raises(error, match=r"^row 1: ") as refused:
        opened.append_batch([("new", 0, b"good"), row])
    assert refused.value.row == 1  # type: ignore[attr-defined]
    assert opened.stats()["streams"] == 1
    assert opened.queue_bounds("t", 0) == (0, 1)
    for way in (opened.append, opened.submit):
        with pytest.raises(error) as alone:
            way(*row)
        assert alone.value.row is None  # type: ignore[attr-defined]
    assert opened.stats()["streams"] == 1


@pytest.mark.parametrize(
    "topic",
    [memoryview(bytearray(b"w")), bytearray(b"w"), b"w", ["w"], {}, None, released(), Raising(), np.zeros(2), 5],
    ids=lambda topic: type(topic).__name__,
)
def test_topic_that_is_no_str_is_an_invalid_topic(opened: MessageStore, topic: Any) -> None:
    async def later() -> None:
        await opened.append_async(topic, 0, b"d")

    ways: list[Any] = [
        lambda: opened.append(topic, 0, b"d"), lambda: opened.submit(topic, 0, b"d"),
        lambda: opened.append_batch([(topic, 0, b"d")]), lambda: asyncio.run(later()),
        lambda: opened.read(topic, 0), lambda: opened.get_range(topic, 0, 0, 1),
        lambda: opened.read_batch(topic, 0), lambda: opened.queue_bounds(topic, 0),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(InvalidTopic, match="a topic is a str"):
            way()
    assert opened.stats()["streams"] == 0


@pytest.mark.parametrize(
    "given",
    [
        5, None, b"", b"abc", "", "abc", bytearray(b""), memoryview(bytes(6)).cast("B", [2, 3]), memoryview(b""),
        released(),
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_batch_that_is_no_rows_is_refused(opened: MessageStore, given: Any) -> None:
    with pytest.raises(InvalidMessage, match="append_batch takes"):
        opened.append_batch(given)


def test_rows_of_every_shape_that_has_three_parts_are_taken(opened: MessageStore) -> None:
    rows = np.empty((2, 3), object)
    rows[:] = [("t", 0, b"of an array"), ("t", 0, b"of an array")]
    columns = np.array([("t", 0, b"structured")], [("topic", "U8"), ("queue_id", "i4"), ("data", "S16")])
    assert opened.append_batch(rows).tolist() == [0, 1]
    assert opened.append_batch(columns).tolist() == [2]
    assert opened.append_batch([["t", np.int64(0), bytearray(b"of a list")]]).tolist() == [3]  # type: ignore[list-item]
    assert opened.append_batch(("t", 0, b"%d" % index) for index in range(3)).tolist() == [4, 5, 6]
    datas = [message.data for message in opened.read("t", 0)]
    assert datas == [b"of an array", b"of an array", b"structured", b"of a list", b"0", b"1", b"2"]


class Folded(str):
    """Is equal to, and has the hash of, its small letters."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(str(self).lower())

    def __eq__(self, other: object) -> bool:
        return str(self).lower() == str(other)


def test_subclass_that_equals_another_name_is_not_taken_for_it(opened: MessageStore) -> None:
    opened.append("orders", 0, b"small letters")
    assert opened.append(Folded("ORDERS"), 0, b"x") == 0
    assert opened.submit(Folded("ORDERS"), 0, b"x").result() == 1
    assert opened.append_batch([(Folded("ORDERS"), 0, b"x")]).tolist() == [2]
    assert opened.queue_bounds("orders", 0) == (0, 1)


def test_numbers_too_long_to_be_written_are_refused_like_others(opened: MessageStore) -> None:
    huge = 10**5000
    opened.append("t", 0, b"x")
    for work in (
        lambda: opened.append("t", huge, b""), lambda: opened.append("t", 0, b"", deliver_at_ms=huge),
        lambda: opened.read("t", 0, huge), lambda: opened.read("t", 0, -huge), lambda: opened.read_batch("t", 0, huge),
    ):  # fmt: skip
        with pytest.raises(StoreError):
            work()


def test_empty_batch_is_nothing_and_a_closed_store_takes_none(opened: MessageStore) -> None:
    assert opened.append_batch([]).tolist() == []
    opened.close()
    with pytest.raises(StoreClosed):
        opened.append_batch([])


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_has_no_copies_and_no_pickles(opened: MessageStore, read_only: bool) -> None:
    """A shallow copy would end the store when it is dropped."""
    opened.append("t", 0, b"x")
    store = MessageStore.open(opened.path, read_only=True) if read_only else opened
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(store)
    gc.collect()
    assert [message.data for message in store.read("t", 0)] == [b"x"]
    store.close()
