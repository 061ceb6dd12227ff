"""append_columns and its twins: what they store, what they refuse, and what a batch gives back."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    BatchTicket,
    InvalidMessage,
    InvalidTopic,
    Message,
    MessageColumns,
    MessageStore,
    MessageTooLarge,
    PublishBufferFull,
    StoreClosed,
    StoreError,
    StoreFull,
    StorePoisoned,
    verify_folder,
)
from stratalog.store.api.batch_ticket import GroupsTicket
from stratalog.store.device.ring import Ring
from stratalog.store.format.records import StreamLow
from stratalog.store.log.trims import trim_requests
from stratalog.store.testing import TunedConfig

from ..seeds import draw_seed
from .disks import FailingDisk, GatedDisk
from .helpers import PATIENCE_S, crash_copy, small, start, tiny, until

STREAMS = (("a", 0), ("a", 1), ("b/../c", 5), ("a", 0))  # one of them twice
JSON = b'{"a":"b"}'


class Rows:
    """Random messages, as columns and one by one."""

    def __init__(self, rng: np.random.Generator, count: int, most_bytes: int = 200) -> None:
        self.index = rng.integers(0, len(STREAMS), count)
        self.lengths = rng.integers(0, most_bytes, count)
        self.payload = rng.bytes(int(self.lengths.sum()))
        key_lengths = rng.integers(-1, 8, count)
        self.keys = key_lengths, rng.bytes(int(key_lengths.clip(0).sum()))
        has = rng.random(count) < 0.5
        self.properties = np.where(has, len(JSON), -1), JSON * int(has.sum())
        self.due = np.where(rng.random(count) < 0.5, -1, rng.integers(0, 1 << 40, count))
        self.arguments = (STREAMS, self.index, self.lengths, self.payload, self.keys, self.properties, self.due)

    def messages(self) -> list[tuple[Any, ...]]:
        """(stream, data, key, properties, delivery time) of each."""
        datas = pieces(self.lengths, self.payload)
        keys, properties = pieces(*self.keys), pieces(*self.properties)
        return [
            (STREAMS[at], data, key, None if text is None else {"a": "b"}, None if due < 0 else due)
            for at, data, key, text, due in zip(
                self.index.tolist(), datas, keys, properties, self.due.tolist(), strict=True
            )
        ]


def pieces(lengths: Any, data: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    at = 0
    for length in np.asarray(lengths).tolist():
        found.append(None if length < 0 else data[at : at + length])
        at += max(0, length)
    return found


def plain(message: Message) -> tuple[Any, ...]:
    name = (message.topic, message.queue_id)
    return name, message.data, message.key, message.properties, message.deliver_at_ms


def shut(store: MessageStore, disk: GatedDisk) -> None:
    """From now on no write comes to an end; there is a segment already."""
    store.append("first", 0, b"")
    disk.gate.clear()


def check(store: MessageStore, rows: Rows, offsets: Any, before: dict[Any, int] | None = None) -> None:
    """Every message is at its offset, and the offsets of a queue are its rows in their order."""
    following = {} if before is None else before
    held = {
        name: {message.offset: message for message in store.read(*name, 0, max_messages=1 << 20, max_bytes=1 << 40)}
        for name in set(STREAMS)
    }
    for expected, offset in zip(rows.messages(), offsets.tolist(), strict=True):
        name = expected[0]
        assert offset == following.get(name, 0)
        following[name] = offset + 1
        assert plain(held[name][offset]) == expected


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", small()) as opened:
        yield opened


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 70, 5000])
def test_columns_are_stored_as_messages(tmp_path: Path, lanes: int, count: int) -> None:
    rng = np.random.default_rng(draw_seed())
    first, second = Rows(rng, count), Rows(rng, count)
    with MessageStore.open(tmp_path, small(lanes=lanes)) as opened:
        offsets = opened.append_columns(*first.arguments)
        assert offsets.dtype == np.int64
        following: dict[Any, int] = {}
        check(opened, first, offsets, following)
        check(opened, second, opened.submit_columns(*second.arguments).result(PATIENCE_S), following)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, small(lanes=lanes)) as opened:
        check(opened, first, offsets)


@pytest.mark.parametrize("queues", [1, 70_000])
def test_many_streams_in_one_call(tmp_path: Path, queues: int) -> None:
    """More than a frame's messages, each with a stream of its own: wide numbers, and a definition a message."""
    count = 9000
    table = tuple(("t", queue) for queue in range(queues))
    index = np.arange(count) * 7 % queues
    with MessageStore.open(tmp_path, TunedConfig(max_frame_bytes=1 << 20)) as opened:
        if queues > 65_536:
            every = opened.append_columns(table, np.arange(queues), np.zeros(queues, int), b"")
            assert not every.any()
        data = b"".join(b"%06d" % at for at in range(count))
        for again in range(2):  # the second one with the table that the store has looked up
            offsets = opened.append_columns(table, index, np.full(count, 6), data)
            for at in (0, 1, 4095, 4096, count - 1):
                assert opened.read("t", int(index[at]), int(offsets[at]))[0].data == b"%06d" % at, again
    assert verify_folder(tmp_path).ok


def test_large_messages_and_long_payloads(tmp_path: Path) -> None:
    """Wide lengths; a call of several frames; messages across the ring's end."""
    rng = np.random.default_rng(draw_seed())
    config = TunedConfig(max_message_bytes=200_000, max_frame_bytes=100_000, segment_bytes=1 << 20, recent_bytes=0)
    with MessageStore.open(tmp_path, config) as opened:
        following: dict[Any, int] = {}
        for _ in range(5):
            rows = Rows(rng, 40, 150_000)
            check(opened, rows, opened.append_columns(*rows.arguments), following)
    assert verify_folder(tmp_path).ok


def test_frames_without_bytes(store: MessageStore) -> None:
    assert store.append_columns([("t", 0)], [0, 0], [0, 0], b"").tolist() == [0, 1]
    none = np.full(2, -1)
    assert store.append_columns([("t", 0)], [0, 0], [0, 0], b"", (none, b""), (none, b""), none).tolist() == [2, 3]
    assert [plain(message)[1:] for message in store.read("t", 0)] == [(b"", None, None, None)] * 4
    assert all(batch.extras is None for batch in store.scan())  # a column of nothing is not stored


@pytest.mark.parametrize(
    "kind",
    [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8), lambda data: array("B", data),
     lambda data: np.frombuffer(data, np.uint8).reshape(2, 3), lambda data: (ctypes.c_ubyte * 6)(*data),
     lambda data: (ctypes.c_char * 6)(*data),
     lambda data: memoryview(b"." + data)[1:]],
)  # fmt: skip
def test_any_contiguous_buffer_of_bytes(store: MessageStore, kind: Callable[[bytes], Any]) -> None:
    store.append_columns([("t", 0)], [0, 0], [2, 4], kind(b"abcdef"))
    assert [message.data for message in store.read("t", 0)] == [b"ab", b"cdef"]


def test_types_of_the_calls_take_arrays_of_numpy(store: MessageStore) -> None:
    """For the check of types: on Python 3.11 an array of numpy is no `Buffer` there."""
    data = np.frombuffer(b"abc", np.uint8)
    assert store.append_columns([("t", 0)], [0], [3], data, ([3], data)).tolist() == [0]
    assert [(message.data, message.key) for message in store.read("t", 0)] == [(b"abc", b"abc")]


@pytest.mark.parametrize(
    "integers",
    [list, tuple, lambda given: np.array(given, np.uint8), lambda given: array("I", given),
     lambda given: np.repeat(np.array(given, np.int16), 2)[::2], lambda given: np.array(given, ">i4")],
)  # fmt: skip
def test_any_integers(store: MessageStore, integers: Callable[[list[int]], Any]) -> None:
    offsets = store.append_columns([("t", 0), ("t", 1)], integers([1, 0, 1]), integers([1, 2, 3]), b"abbccc")
    assert offsets.tolist() == [0, 0, 1]
    assert [message.data for message in store.read("t", 1)] == [b"a", b"ccc"]


# -- what is refused ------------------------------------------------------------------------------------


def released() -> memoryview:
    view = memoryview(b"abb")
    view.release()
    return view


GOOD: dict[str, Any] = {
    "streams": [("t", 0), ("t", 1)], "stream_index": [0, 1], "lengths": [1, 2], "payload": b"abb", "keys": None,
    "properties": None, "deliver_at_ms": None,
}  # fmt: skip
WRONG: list[tuple[dict[str, Any], type[StoreError], int | None, str]] = [
    ({"lengths": [1.0, 2.0]}, InvalidMessage, None, "lengths is an array of integers, not of float64"),
    ({"lengths": [True, True], "payload": b"ab"}, InvalidMessage, None, "not of bool"),
    ({"lengths": np.array([], np.float64), "stream_index": [], "payload": b""}, InvalidMessage, None, "not of float"),
    ({"lengths": ["1", "2"]}, InvalidMessage, None, "lengths is an array of integers"),
    ({"lengths": [[1, 2]]}, InvalidMessage, None, "with one dimension"),
    ({"lengths": 3}, InvalidMessage, None, "with one dimension"),
    ({"lengths": [[1], [2, 3]]}, InvalidMessage, None, "lengths is an array of integers"),
    ({"lengths": [4, -1]}, InvalidMessage, 1, "row 1: a length is not negative, but -1 is"),
    ({"lengths": np.array([3, 1 << 63], np.uint64)}, InvalidMessage, 1, "row 1: lengths is below"),
    ({"lengths": [1, 1]}, InvalidMessage, None, "payload has 3 bytes, and the sum of lengths is 2"),
    ({"lengths": [1, 200_000]}, MessageTooLarge, 1, "row 1: the message has 200000 bytes"),
    ({"lengths": np.array([1, (1 << 63) - 1])}, MessageTooLarge, 1, "row 1"),
    ({"stream_index": [0, 2]}, InvalidMessage, 1, "row 1: stream_index is from 0 to 1, as there are 2 streams, not 2"),
    ({"stream_index": [-1, 0]}, InvalidMessage, 0, "row 0"),
    ({"stream_index": [0]}, InvalidMessage, None, "stream_index has 1 elements, and lengths has 2"),
    ({"stream_index": np.array([False, True])}, InvalidMessage, None, "not of bool"),
    ({"stream_index": np.ma.array([0, 1], mask=[False, True])}, InvalidMessage, None, "has masked elements"),
    ({"streams": []}, InvalidMessage, 0, "row 0: `streams` is empty"),
    ({"streams": "t"}, InvalidMessage, None, "pairs"),
    ({"streams": {("t", 0): 1}}, InvalidMessage, None, "pairs"),
    ({"streams": [("t", 0), ("", 1)]}, InvalidTopic, 1, "row 1: a topic has at least one character"),
    ({"streams": [("t", 0), ("t", 1.0)]}, InvalidTopic, 1, "row 1: a queue id is an int"),
    ({"streams": (("t", 0), ("t", True))}, InvalidTopic, 1, "row 1: a queue id is an int, not bool"),
    ({"streams": [None, ("t", 1)]}, InvalidTopic, 0, "row 0: a stream is a"),
    ({"payload": "abb"}, InvalidMessage, None, "payload is a buffer of bytes, not str"),
    ({"payload": None}, InvalidMessage, None, "not NoneType"),
    ({"payload": np.zeros(3, np.uint32)}, InvalidMessage, None, "view as uint8"),
    ({"payload": np.zeros(3, np.bool_)}, InvalidMessage, None, "view as uint8"),
    ({"payload": np.zeros(6, np.uint8)[::2]}, InvalidMessage, None, "payload is not contiguous"),
    ({"payload": b"abbb"}, InvalidMessage, None, "payload has 4 bytes"),
    ({"keys": b"ab"}, InvalidMessage, None, "keys are (lengths, buffer)"),
    ({"keys": ([1, 1], b"abc")}, InvalidMessage, None, "the buffer of keys has 3 bytes"),
    ({"keys": ([1, -2], b"a")}, InvalidMessage, 1, "row 1: a length of keys is -1 for none"),
    ({"keys": ([1], b"a")}, InvalidMessage, None, "the lengths of keys has 1 elements"),
    ({"keys": ([1, 1 << 62], b"a")}, InvalidMessage, None, "the buffer of keys"),
    ({"keys": ([0, 70_000], bytes(70_000))}, MessageTooLarge, 1, "row 1"),
    ({"properties": ([2, 1], b"{}[")}, InvalidMessage, 1, "row 1: properties are JSON of an object"),
    ({"properties": ([7, -1], b'{"a":1}')}, InvalidMessage, 0, "row 0: properties are JSON"),
    ({"properties": ([2, 2], b"{}\xff\xff")}, InvalidMessage, 1, "row 1: properties"),
    ({"deliver_at_ms": [5, -2]}, InvalidMessage, 1, "row 1: deliver_at_ms is ms since the epoch, or -1"),
    ({"deliver_at_ms": [5, 1 << 62]}, InvalidMessage, 1, "row 1"),
    ({"deliver_at_ms": [5.0, 6.0]}, InvalidMessage, None, "not of float64"),
    ({"deliver_at_ms": np.array([5, 6], "m8[D]")}, InvalidMessage, None, "not of timedelta64"),
    ({"deliver_at_ms": np.array([5, 6], "M8[ms]")}, InvalidMessage, None, "not of datetime64"),
    ({"payload": released()}, InvalidMessage, None, "not a memoryview that was released"),
]


@pytest.mark.parametrize(
    ("changes", "kind", "row", "text"), WRONG, ids=[case[3] or str(case[0])[:60] for case in WRONG]
)
def test_wrong_columns_are_refused_and_nothing_is_stored(
    store: MessageStore, changes: dict[str, Any], kind: type[StoreError], row: int | None, text: str
) -> None:
    for call in (store.append_columns, store.submit_columns):
        with pytest.raises(kind) as raised:
            call(**{**GOOD, **changes})
        assert type(raised.value) is kind and text in str(raised.value)
        assert getattr(raised.value, "row", None) == row
    store.flush()
    assert store.topics() == [] and store.stats()["streams"] == 0 and store.stats()["log"]["messages"] == 0


def test_a_name_that_no_row_uses_is_not_looked_at(store: MessageStore) -> None:
    assert store.append_columns([("t", 0), ("", -1)], [0], [1], b"a").tolist() == [0]
    assert store.stats()["streams"] == 1


@pytest.mark.parametrize("streams", [[], [("t", 0)]])
def test_empty_call(store: MessageStore, streams: Any) -> None:
    assert store.append_columns(streams, [], [], b"").tolist() == []
    ticket = store.submit_columns(streams, [], [], b"")
    called: list[BatchTicket] = []
    ticket.add_done_callback(called.append)
    assert ticket.done() and ticket.result(0).tolist() == [] and ticket.exception() is None and called == [ticket]
    assert store.topics() == []


def test_closed_store_takes_no_columns(store: MessageStore) -> None:
    store.close()
    for arguments in (([("t", 0)], [0], [1], b"a"), ([], [], [], b"")):
        for call in (store.append_columns, store.submit_columns):
            with pytest.raises(StoreClosed):
                call(*arguments)


# -- order, tickets, back-pressure ----------------------------------------------------------------------


def test_order_of_a_thread_holds_in_any_mix(tmp_path: Path) -> None:
    """Columns, rows and single messages that become one frame."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as opened:
        shut(opened, disk)
        held = opened.submit("t", 0, b"held")  # its write keeps what follows together
        disk.waiting.acquire()
        tickets = [
            opened.submit("t", 0, b"1", key=b"k"),
            opened.submit_columns([("t", 0), ("u", 0)], [0, 1, 0], [1, 1, 1], b"2x3", None, None, [7, -1, -1]),
            opened.submit("t", 0, b"4"),
            opened.submit_columns([("t", 0)], [0, 0], [1, 1], b"56", ([1, -1], b"K")),
            opened.submit("u", 0, b"y", properties={"a": "b"}),
        ]
        assert not any(ticket.done() for ticket in tickets)
        disk.gate.set()
        assert held.result(PATIENCE_S) == 0
        assert [np.asarray(ticket.result(PATIENCE_S)).tolist() for ticket in tickets] == [1, [2, 0, 3], 4, [5, 6], 1]
        assert opened.stats()["log"]["frames"] == 3  # the first message's, the held one's, and one for all others
        assert [plain(message)[1:] for message in opened.read("t", 0, 1)] == [
            (b"1", b"k", None, None), (b"2", None, None, 7), (b"3", None, None, None), (b"4", None, None, None),
            (b"5", b"K", None, None), (b"6", None, None, None),
        ]  # fmt: skip
        found = [plain(message)[1:4] for message in opened.read("u", 0)]
        assert found == [(b"x", None, None), (b"y", None, {"a": "b"})]
    assert verify_folder(tmp_path).ok


def test_ticket_of_columns(store: MessageStore) -> None:
    ticket = store.submit_columns([("t", 0)], [0, 0], [1, 1], b"ab")
    assert isinstance(ticket, BatchTicket) and "BatchTicket of 2 messages" in repr(ticket)
    heard: list[list[int]] = []
    told = threading.Event()

    def hear(done: BatchTicket) -> None:
        heard.append(done.result().tolist())
        told.set()

    ticket.add_done_callback(hear)
    assert ticket.result().tolist() == [0, 1] and ticket.exception() is None and ticket.done()
    assert told.wait(PATIENCE_S) and heard == [[0, 1]]
    with pytest.raises(InvalidMessage):
        store.submit_columns([("t", 0)], [0], [1], b"c").result("soon")  # type: ignore[arg-type]

    async def main() -> tuple[list[int], list[int]]:
        submitted = store.submit_columns([("t", 1)], [0, 0], [1, 1], b"ab")
        awaited = await store.append_columns_async([("t", 1)], [0], [1], b"c")
        return (await submitted).tolist(), awaited.tolist()

    assert asyncio.run(main()) == ([0, 1], [2])


def test_ticket_waits_for_all_of_its_frames(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as opened:
        shut(opened, disk)
        ticket = opened.submit_columns([("t", 0)], np.zeros(20, int), np.full(20, 10_000), bytes(200_000))
        with pytest.raises(TimeoutError):
            ticket.result(0.01)
        assert not ticket.done()
        disk.gate.set()
        assert ticket.result(PATIENCE_S).tolist() == list(range(20))


def test_ticket_is_done_when_the_last_frame_is(store: MessageStore) -> None:
    parts = store._columns.parts([("t", 0)], np.zeros(20, int), np.full(20, 10_000), bytes(200_000), None, None, None)
    first, *others = parts[0].groups
    ticket = GroupsTicket(parts, store._queues[0].listeners)
    told = threading.Event()
    ticket.add_done_callback(lambda done: told.set())
    first.answer()
    assert others and not ticket.done() and not told.is_set()
    with pytest.raises(TimeoutError):
        ticket.exception(0)
    others[0].answer(StoreFull("no space"))
    for group in others[1:]:
        group.answer()
    assert told.wait(PATIENCE_S) and ticket.done() and isinstance(ticket.exception(), StoreFull)
    with pytest.raises(StoreFull):
        ticket.result()


def test_failed_write_fails_the_ticket(tmp_path: Path) -> None:
    disk = FailingDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as opened:
        opened.append("first", 0, b"")
        disk.fail = "write"
        ticket = opened.submit_columns([("t", 0)], [0], [1], b"a")
        assert isinstance(ticket.exception(PATIENCE_S), StorePoisoned)
        with pytest.raises(StorePoisoned):
            ticket.result()
        with pytest.raises(StorePoisoned):
            opened.append_columns([("t", 0)], [0], [1], b"a")


def test_columns_wait_at_the_cap_in_one_line_with_the_others(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = small(publish_buffer_bytes=20_000, append_timeout_ms=300_000)
    with MessageStore.open(tmp_path, config, disk=disk) as opened:
        shut(opened, disk)
        opened.submit_columns([("t", 0)], [0], [15_000], bytes(15_000), ([4000], bytes(4000)))
        disk.waiting.acquire()
        assert opened.stats()["publish_buffer"]["used_bytes"] == 19_000
        order: list[str] = []

        def columns() -> None:
            order.append(f"columns {opened.append_columns([('t', 0)], [0], [10_000], bytes(10_000)).tolist()}")

        def single() -> None:
            order.append(f"single {opened.append('t', 0, b'x' * 2000)}")

        first = start(columns)
        until(lambda: len(opened._queues[0]._line) == 1)
        second = start(single)  # it would fit, and stands behind the columns
        until(lambda: len(opened._queues[0]._line) == 2)
        disk.gate.set()
        first.join()
        second.join()
        assert sorted(order) == ["columns [1]", "single 2"]


def test_columns_give_up_at_the_cap(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(publish_buffer_bytes=8192, append_timeout_ms=1), disk=disk) as opened:
        shut(opened, disk)
        opened.submit_columns([("t", 0)], [0], [8000], bytes(8000))
        with pytest.raises(PublishBufferFull):
            opened.append_columns([("t", 0)], [0], [8000], bytes(8000))
        disk.gate.set()


def test_bytes_that_change_meanwhile_leave_a_sound_store(tmp_path: Path) -> None:
    """The checksums are those of the bytes that are stored, whatever becomes of the caller's buffer."""
    count, size = 2000, 100
    data = bytearray(count * size)
    over = threading.Event()

    def change() -> None:
        value = 0
        while not over.is_set():
            value = (value + 1) % 256
            data[:] = bytes([value]) * len(data)

    with MessageStore.open(tmp_path, small(max_frame_bytes=1 << 20)) as opened:
        worker = start(change)
        try:
            for _ in range(20):
                opened.append_columns([("t", 0)], np.zeros(count, int), np.full(count, size), data)
        finally:
            over.set()
            worker.join()
        assert len(opened.read_batch("t", 0, max_messages=20 * count)) == 20 * count
    assert verify_folder(tmp_path).ok


def test_bytes_that_change_behind_the_copy_are_not_those_that_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(b"abb")
    real = Ring.fill

    def fill(ring: Ring, position: int, parts: Any, size: int) -> None:
        real(ring, position, parts, size)
        data[:] = b"xyz"

    monkeypatch.setattr(Ring, "fill", fill)
    with MessageStore.open(tmp_path, small()) as opened:
        opened.append("first", 0, b"")
        data[:] = b"abb"
        opened.append_columns([("t", 0)], [0, 0], [1, 2], data)
        assert [message.data for message in opened.read("t", 0)] == [b"a", b"bb"]
    assert verify_folder(tmp_path).ok


def test_columns_of_the_caller_may_change_after_the_call(tmp_path: Path) -> None:
    """All but the payload."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as opened:
        shut(opened, disk)
        opened.submit("t", 0, b"held")
        disk.waiting.acquire()
        index, lengths, due = np.array([0, 1]), np.array([1, 2]), np.array([5, -1])
        key_lengths, key = np.array([1, -1]), bytearray(b"k")
        ticket = opened.submit_columns(STREAMS, index, lengths, b"abb", (key_lengths, key), None, due)
        for column in (index, lengths, due, key_lengths):
            column[:] = 77
        key[:] = b"K"
        disk.gate.set()
        ticket.result(PATIENCE_S)
        assert plain(opened.read("a", 0)[0]) == (("a", 0), b"a", b"k", None, 5)
        assert plain(opened.read("a", 1)[0]) == (("a", 1), b"bb", None, None, None)


def test_payload_is_let_go_when_the_ticket_is_done(store: MessageStore) -> None:
    data = bytearray(b"abc")
    ticket = store.submit_columns([("t", 0)], [0], [3], data)
    ticket.result(PATIENCE_S)
    data.append(0)  # a buffer that is looked at raises BufferError


# -- batches give what append_columns takes -------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
def test_store_is_copied_filtered_and_resharded_by_columns(tmp_path: Path, lanes: int) -> None:
    rng = np.random.default_rng(draw_seed())
    rows = Rows(rng, 6000)
    with (
        MessageStore.open(tmp_path / "source", tiny(lanes=lanes)) as source,
        MessageStore.open(tmp_path / "copy", tiny(lanes=lanes)) as copied,
        MessageStore.open(tmp_path / "filtered", tiny()) as filtered,
        MessageStore.open(tmp_path / "resharded", tiny()) as resharded,
    ):
        source.append_columns(*rows.arguments)
        source.append("a", 1, b"plain")
        for batch in source.scan():
            columns = batch.columns()
            assert columns.payload.obj is batch.buffer.obj  # type: ignore[union-attr]  # a view: no copy
            assert copied.append_columns(*columns).tolist() == batch.offsets.tolist()
            long = columns.take(columns.lengths >= 100)
            filtered.append_columns(*long)
            shards = [("shard", queue) for queue in range(4)]
            resharded.append_columns(*columns._replace(streams=shards, stream_index=batch.offsets % 4))
        for name in sorted(set(STREAMS)):
            expected = source.read(*name, 0, max_messages=10**6, max_bytes=1 << 30)
            assert list(map(plain, copied.read(*name, 0, max_messages=10**6, max_bytes=1 << 30))) == list(
                map(plain, expected)
            )
            kept = [plain(message) for message in expected if len(message.data) >= 100]
            assert list(map(plain, filtered.read(*name, 0, max_messages=10**6, max_bytes=1 << 30))) == kept
        held = [
            message
            for queue in range(4)
            for message in resharded.read("shard", queue, 0, max_messages=10**6, max_bytes=1 << 30)
        ]
        every = [
            message
            for name in sorted(set(STREAMS))
            for message in source.read(*name, 0, max_messages=10**6, max_bytes=1 << 30)
        ]
        assert sorted(plain(one)[1] for one in held) == sorted(plain(one)[1] for one in every)
    assert all(verify_folder(tmp_path / folder).ok for folder in ("copy", "filtered", "resharded"))


def test_read_batch_gives_what_append_columns_takes(tmp_path: Path) -> None:
    rows = Rows(np.random.default_rng(draw_seed()), 300)
    with MessageStore.open(tmp_path, tiny()) as opened:
        opened.append_columns(*rows.arguments)
        for from_offset in (0, 10):
            columns = opened.read_batch("a", 0, from_offset, max_messages=100).columns()
            opened.append_columns(*columns._replace(streams=[("copy", from_offset)]))
            copied = [plain(message)[1:] for message in opened.read("copy", from_offset, 0, max_messages=1000)]
            assert copied == [plain(message)[1:] for message in opened.read("a", 0, from_offset, max_messages=100)]
        empty = opened.read_batch("a", 0, opened.queue_bounds("a", 0)[1]).columns()
        assert opened.append_columns(*empty).tolist() == []


def test_taking_rows() -> None:
    columns = MessageColumns([("t", 0)], np.zeros(3, int), np.array([1, 2, 3]), b"abbccc")
    assert bytes(columns.take([2, 0, 0]).payload) == b"cccaa"
    assert bytes(columns.take(np.array([False, True, True])).payload) == b"bbccc"
    assert bytes(columns.take([]).payload) == b"" and columns.take([]).lengths.tolist() == []
    for wrong in ([3], [-1], [0.5], [True], [[0]]):
        with pytest.raises(InvalidMessage, match="rows are numbers from 0 to 2"):
            columns.take(wrong)


def test_rows_are_taken_of_keys_and_properties_given_as_pairs() -> None:
    keys: Any = (np.array([1, -1, 2]), b"kll")
    nothing: Any = (np.array([-1, -1, 0]), b"")
    columns = MessageColumns([("t", 0)], np.zeros(3, int), np.ones(3, int), b"abc", keys, nothing)
    taken: Any = columns.take([2, 1])
    assert (taken.keys.lengths.tolist(), bytes(taken.keys.data)) == ([2, -1], b"ll")
    assert (taken.properties.lengths.tolist(), bytes(taken.properties.data)) == ([0, -1], b"")


def test_records_of_trims_in_a_frame_of_columns_count(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(4) for _ in range(5)])
        lane, queue = store._lanes[0], store._queues[0]
        stream = store._streams.topics["t"][0]
        (part,) = store._columns.parts([("t", 1)], [0, 0], [1, 1], b"yz", None, None, None)
        (trim,) = trim_requests(lane.lows, [(stream, StreamLow(3))], 4096)
        with queue._lock:  # both come into one frame
            for request in (*part.groups, trim):
                queue._accept(request, request.size_bytes)
        store.flush()
        trim.result()
        assert store.queue_bounds("t", 0) == (3, 5) and store.queue_bounds("t", 1) == (0, 7)
        crash_copy(tmp_path, tmp_path.with_name("crashed"))
    with MessageStore.open(tmp_path.with_name("crashed"), tiny()) as store:
        assert store.queue_bounds("t", 0) == (3, 5) and store.queue_bounds("t", 1) == (0, 7)


def test_store_with_trims_is_copied_by_columns(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "one", tiny()) as one, MessageStore.open(tmp_path / "two", tiny()) as two:
        one.append_batch([("t", queue, b"%d" % at) for queue in range(3) for at in range(5)])
        one.trim("t", 1, before_offset=4)
        for batch in one.scan():
            two.append_columns(*batch.columns())
        assert two.topics() == ["t"]
        assert [two.queue_bounds("t", queue) for queue in range(3)] == [(0, 5), (0, 1), (0, 5)]
        assert two.get_range("t", 1, 0, 1) == {0: b"4"}


def test_list_of_streams_that_changes_between_two_calls_is_looked_up_again(store: MessageStore) -> None:
    """The table of the call before is used again as long as its pairs are the same objects, and cannot change."""
    streams: list[Any] = [("t", 0), ("t", 1)]
    ones, payload = np.ones(2, np.int64), b"ab"

    def append() -> list[tuple[str, int]]:
        before = {name: store.queue_bounds(*name)[1] for name in [("t", 0), ("t", 1), ("t", 2), ("u", 0)]}
        store.append_columns(streams, [0, 1], ones, payload)
        return [name for name, end in before.items() if store.queue_bounds(*name)[1] > end]

    assert append() == append() == [("t", 0), ("t", 1)]
    streams[1] = ("u", 0)
    assert append() == [("t", 0), ("u", 0)]
    streams[1] = pair = ["t", 1]
    assert append() == [("t", 0), ("t", 1)]
    pair[1] = 2
    assert append() == [("t", 0), ("t", 2)]
    streams[:] = [("t", 0), ("t", 1)]
    assert append() == [("t", 0), ("t", 1)]
    streams[1] = ("t", True)  # equal, and no queue id
    with pytest.raises(InvalidTopic):
        append()
