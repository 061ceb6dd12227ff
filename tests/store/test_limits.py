"""Full disks, huge messages, wrong types: a clear error each, nothing lost, and the store works on."""

from __future__ import annotations

import mmap
import tracemalloc
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
    OffsetOutOfRange,
    StoreError,
)
from stratalog.store.log.request import NO_STREAM
from stratalog.store.log.ticket import SubmitRequest

from .helpers import calls_that_read, start, tiny, until

GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny()) as opened:
        opened.append("t", 1, b"first")
        yield opened


def works(store: MessageStore) -> None:
    """The store is usable."""
    offset = store.append("works", 0, b"yes")
    assert store.read("works", 0, offset)[0].data == b"yes"


# -- size ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["append", "submit", "append_batch"])
def test_message_of_2_gib_is_refused_without_a_copy(store: MessageStore, way: str) -> None:
    huge = memoryview(mmap.mmap(-1, 2 * GIB))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="max_message_bytes"):
            if way == "append_batch":
                store.append_batch([("t", 1, b"good"), ("t", 1, huge)])
            else:
                getattr(store, way)("t", 1, huge)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    works(store)
    assert store.queue_bounds("t", 1) == (0, 1)


def test_view_with_wide_items_counts_its_bytes(store: MessageStore) -> None:
    """len() of such a view is its number of items, not of bytes."""
    wide = memoryview(bytes(512 << 10)).cast("Q")
    assert len(wide) == 64 << 10
    with pytest.raises(MessageTooLarge):
        store.append("t", 1, wide)
    with pytest.raises(MessageTooLarge):
        store.append_batch([("t", 1, wide)])


def test_limit_is_inclusive_and_counts_key_and_properties(store: MessageStore) -> None:
    limit = store.config.max_message_bytes
    assert store.append("t", 0, bytes(limit)) == 0
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, bytes(limit + 1))
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, bytes(limit), key=b"k")
    with pytest.raises(MessageTooLarge):
        store.append("t", 0, b"", properties={"p": "x" * limit})
    assert store.append("t", 0, b"", key=bytes(limit)) == 1
    assert store.read("t", 0, 1)[0].key == bytes(limit)


def test_message_larger_than_a_segment_is_taken(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(max_message_bytes=1 << 20)) as store:
        datas = [bytes([index]) * (300_000 + index) for index in range(5)]
        for index, data in enumerate(datas):
            assert store.append("t", 0, data) == index
        assert [message.data for message in store.read("t", 0, 0, max_messages=10, max_bytes=1 << 30)] == datas
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [message.data for message in store.read("t", 0, 0, max_messages=10, max_bytes=1 << 30)] == datas


# -- wrong types --------------------------------------------------------------------------------------

BAD_NAMES: list[tuple[Any, Any]] = [
    ("", 0), ("x" * 1000, 0), ("a\nb", 0), ("../\0", 0), ("\ud800", 0), (b"t", 0), (None, 0), (1, 0), (["t"], 0),
    ("t", -1), ("t", -(1 << 40)), ("t", 1 << 31), ("t", 1 << 80), ("t", "1"), ("t", 1.0), ("t", True),
    ("t", np.bool_(True)), ("t", [1]), ("t", 1 + 0j),
]  # fmt: skip


def test_queue_id_is_left_out_by_those_who_append_one_message_alone(store: MessageStore) -> None:
    nothing: Any = None
    for use in (
        lambda: store.append_batch([("t", nothing, b"")]),
        lambda: store.read("t", nothing),
        lambda: store.read_batch("t", nothing),
        lambda: store.get_range("t", nothing, 0, 1),
        lambda: store.queue_bounds("t", nothing),
        lambda: store.offset_at("t", nothing, 0),
    ):
        with pytest.raises(InvalidTopic):
            use()


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_name_is_refused_everywhere(store: MessageStore, name: tuple[Any, Any]) -> None:
    """Also where a queue of the same hash exists: ("t", 1) does."""
    for use in (
        lambda: store.append(*name, b""),
        lambda: store.submit(*name, b""),
        lambda: store.append_batch([(*name, b"")]),
        lambda: store.read(*name),
        lambda: store.read_batch(*name),
        lambda: store.get_range(*name, 0, 1),
        lambda: store.queue_bounds(*name),
    ):
        with pytest.raises(InvalidTopic):
            use()
    works(store)
    assert store.queue_bounds("t", 1) == (0, 1)


@pytest.mark.parametrize(
    "facts",
    [
        {"key": "text"}, {"key": 1}, {"key": bytearray(b"k")}, {"properties": []}, {"properties": "a=b"},
        {"properties": {"a": 1}}, {"properties": {1: "a"}}, {"properties": {"a": None}}, {"deliver_at_ms": -1},
        {"deliver_at_ms": 1.5}, {"deliver_at_ms": "now"}, {"deliver_at_ms": True}, {"deliver_at_ms": 1 << 63},
    ],
    ids=ascii,
)  # fmt: skip
def test_facts_of_a_wrong_type_are_refused(store: MessageStore, facts: dict[str, Any]) -> None:
    for use in (store.append, store.submit):
        with pytest.raises(InvalidMessage, match=next(iter(facts))):
            use("t", 1, b"", **facts)
    works(store)


@pytest.mark.parametrize("number", ["0", None, 1.0, True, -1, [0]], ids=ascii)
def test_numbers_of_a_read_are_checked(store: MessageStore, number: Any) -> None:
    for use in (
        lambda: store.read("t", 1, number),
        lambda: store.read("t", 1, 0, max_messages=number),
        lambda: store.read("t", 1, 0, max_messages=1, max_bytes=number),
        lambda: store.read_batch("t", 1, number),
        lambda: store.read_batch("t", 1, 0, max_messages=number),
        lambda: store.read_batch("t", 1, 0, max_messages=1, max_bytes=number),
        lambda: store.get_range("t", 1, number, 1),
        lambda: store.get_range("t", 1, 0, number),
    ):
        with pytest.raises(StoreError):
            use()
    works(store)


@pytest.mark.parametrize("wait_ms", ["10", [], {}, 1.5, True, -5, np.int64(-5), None], ids=ascii)
def test_wait_of_a_wrong_type_is_refused(store: MessageStore, wait_ms: Any) -> None:
    for offset in (0, 1):  # also where there is a message, and nothing to wait for
        with pytest.raises(InvalidMessage, match="wait_ms"):
            store.read("t", 1, offset, wait_ms=wait_ms)


def test_number_is_refused_by_its_own_name(store: MessageStore) -> None:
    with pytest.raises(InvalidMessage, match="fetch_num"):
        store.get_range("t", 1, 0, -1)
    with pytest.raises(InvalidMessage, match="offset"):
        store.get_range("t", 1, -1, 1)
    with pytest.raises(InvalidMessage, match="max_bytes"):
        store.read_batch("t", 1, 0, max_messages=1, max_bytes=-1)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_integers_of_numpy_are_taken_everywhere(store: MessageStore, kind: Any) -> None:
    """In queues that are known and in new ones; the name is then the same as with an int."""
    one, two = kind(1), kind(2)
    assert store.append("t", one, b"a", deliver_at_ms=one) == 1
    assert store.submit("t", one, b"b", deliver_at_ms=two).result() == 2
    assert store.append_batch([("t", one, b"c"), ("t", two, b"d"), ("t", 2, b"e")]).tolist() == [3, 0, 1]
    assert store.append("new", two, b"f") == 0
    assert store.append("new", 2, b"g") == 1
    messages = store.read("t", one, one, max_messages=two, max_bytes=kind(100), wait_ms=one)
    assert [(message.offset, message.data) for message in messages] == [(1, b"a"), (2, b"b")]
    assert [message.deliver_at_ms for message in messages] == [1, 2]
    assert [type(message.deliver_at_ms) for message in messages] == [int, int]
    assert {type(message.queue_id) for message in store.read("new", 2)} == {int}
    assert store.read_batch("t", one, one, max_messages=two, max_bytes=kind(100)).offsets.tolist() == [1, 2]
    found = store.get_range("t", one, one, two)
    assert found == {0: b"a", 1: b"b"}
    assert {type(index) for index in found} == {int}
    assert store.queue_bounds("new", two) == (0, 2)
    assert store.read("t", two, two, wait_ms=one) == []


@pytest.mark.parametrize("timeout", ["x", "1", float("nan"), [], 1j, b"1"], ids=repr)
def test_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidMessage, match="timeout"):
        waiting_ticket().result(timeout)


@pytest.mark.parametrize("timeout", [0, 0.0, -1, float("-inf"), -(10**400), np.float32(0), np.int64(-3)], ids=repr)
def test_timeout_of_nothing_or_less_only_looks(timeout: Any) -> None:
    ticket = waiting_ticket()
    with pytest.raises(TimeoutError):
        ticket.result(timeout)
    ticket.offset = 7
    ticket.answer()
    assert ticket.result(timeout) == 7


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400, None], ids=ascii)
def test_timeout_may_be_longer_than_a_lock_can_wait(timeout: Any) -> None:
    ticket = waiting_ticket()
    found: list[int] = []
    worker = start(lambda: found.append(ticket.result(timeout)))
    until(lambda: bool(ticket._waiters))
    ticket.offset = 7
    ticket.answer()
    worker.join()
    assert found == [7]


def waiting_ticket() -> SubmitRequest:
    """One that nobody has answered."""
    return SubmitRequest(NO_STREAM, b"", 0)


def test_huge_numbers_are_answered(store: MessageStore) -> None:
    assert len(store.read("t", 1, 0, max_messages=1 << 70, max_bytes=1 << 70)) == 1
    assert len(store.read_batch("t", 1, 0, max_messages=1 << 70, max_bytes=1 << 70)) == 1
    assert store.get_range("t", 1, 0, 1 << 70) == {0: b"first"}
    for read in calls_that_read(store).values():
        with pytest.raises(OffsetOutOfRange):
            read("t", 1, 1 << 70, max_messages=1)
