"""Appends: offsets, order, queues, keys, properties, ids, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from stratalog import BatchTicket, InvalidMessage, InvalidTopic, MessageTooLarge, StoreError, Ticket

PATIENCE_S = 60.0


def test_offsets_of_a_queue_count_from_0(store: Any) -> None:
    assert [store.append("t", 0, b"x") for _ in range(3)] == [0, 1, 2]
    assert store.append("t", 1, b"x") == 0


def test_what_is_appended_is_read(store: Any) -> None:
    store.append("t", 3, b"data", key=b"k-17", properties={"colour": "röt", "": ""}, deliver_at_ms=7)
    (message,) = store.read("t", 3)
    assert (message.topic, message.queue_id, message.offset, message.data) == ("t", 3, 0, b"data")
    assert (message.key, message.properties, message.deliver_at_ms) == (b"k-17", {"colour": "röt", "": ""}, 7)
    assert message.timestamp_ms > 0


def test_an_empty_message_and_an_empty_key_are_not_none(store: Any) -> None:
    store.append("t", 0, b"", key=b"", properties={})
    store.append("t", 0, b"")
    first, second = store.read("t", 0)
    assert (first.data, first.key, first.properties) == (b"", b"", {})
    assert (second.data, second.key, second.properties) == (b"", None, None)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_data_is_any_kind_of_bytes(store: Any, make: Any) -> None:
    store.append("t", 0, make(b"some"))
    assert store.read("t", 0)[0].data == b"some"


def test_a_buffer_may_change_after_the_call(store: Any) -> None:
    data = bytearray(b"before")
    ticket = store.submit("t", 0, data)
    data[:] = b"after!"
    ticket.result(PATIENCE_S)
    assert store.read("t", 0)[0].data == b"before"


def test_a_message_of_half_a_mebibyte_travels_whole(store: Any) -> None:
    data = np.random.default_rng(7).bytes(512 << 10)
    store.append("t", 0, data)
    assert store.read("t", 0)[0].data == data


def test_a_ticket_has_the_offset(store: Any) -> None:
    tickets = [store.submit("t", 0, b"%d" % number) for number in range(50)]
    assert all(isinstance(one, Ticket) for one in tickets)
    assert [one.result(PATIENCE_S) for one in tickets] == list(range(50))
    assert all(one.done() and one.exception() is None and not one.is_repeat for one in tickets)
    assert [one.data for one in store.read("t", 0, max_messages=100)] == [b"%d" % number for number in range(50)]


def test_a_callback_is_called_once_with_its_ticket(store: Any) -> None:
    called: list[Any] = []
    is_called = threading.Event()

    def note(ticket: Any) -> None:
        called.append(ticket)
        is_called.set()

    ticket = store.submit("t", 0, b"x")
    ticket.add_done_callback(note)
    assert is_called.wait(PATIENCE_S)
    ticket.add_done_callback(called.append)  # it is done: at once
    assert called == [ticket, ticket]


def test_a_callback_may_append_and_wait(store: Any) -> None:
    found: list[int] = []
    is_done = threading.Event()

    def append(ticket: Any) -> None:
        found.append(store.append("t", 1, b"y"))
        is_done.set()

    store.submit("t", 0, b"x").add_done_callback(append)
    assert is_done.wait(PATIENCE_S)
    assert found == [0]


def test_a_callback_that_raises_harms_no_other(store: Any) -> None:
    is_called = threading.Event()
    ticket = store.submit("t", 0, b"x")
    ticket.add_done_callback(lambda one: 1 / 0)
    ticket.add_done_callback(lambda one: is_called.set())
    assert is_called.wait(PATIENCE_S)


def test_a_wait_for_a_ticket_takes_a_number(store: Any) -> None:
    ticket = store.submit("t", 0, b"x")
    for wrong in ("1", [1], float("nan")):
        with pytest.raises(InvalidMessage):
            ticket.result(wrong)
    assert ticket.result(PATIENCE_S) == 0


def test_a_batch_has_an_offset_a_row(store: Any) -> None:
    offsets = store.append_batch([("t", 0, b"a"), ("t", 1, b"b"), ("t", 0, bytearray(b"c"))])
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [0, 0, 1]
    assert store.append_batch(iter([("t", 0, b"d")])).tolist() == [2]
    assert store.append_batch([]).tolist() == []


def test_a_wrong_row_is_named_and_no_row_is_stored(store: Any) -> None:
    wrong: list[tuple[Any, type[StoreError]]] = [
        (("t", "0", b"x"), InvalidTopic), (("", 0, b"x"), InvalidTopic), (("t", -1, b"x"), InvalidTopic),
        (("t", 1.0, b"x"), InvalidTopic), (("t", True, b"x"), InvalidTopic), ((b"t", 0, b"x"), InvalidTopic),
        (("t", None, b"x"), InvalidTopic), (("t", 0, "x"), InvalidMessage), (("t", 0, None), InvalidMessage),
        (("t", 0), InvalidMessage), (7, InvalidMessage), (("t", 0, bytes(2 << 20)), MessageTooLarge),
    ]  # fmt: skip
    for row, kind in wrong:
        with pytest.raises(kind, match="row 1: ") as caught:
            store.append_batch([("t", 0, b"a"), row, ("t", 0, b"c")])
        assert vars(caught.value)["row"] == 1
    assert store.queue_bounds("t", 0) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"topic": ""}, InvalidTopic), ({"topic": "a\nb"}, InvalidTopic), ({"topic": "x" * 256}, InvalidTopic),
        ({"topic": 7}, InvalidTopic), ({"topic": b"t"}, InvalidTopic), ({"topic": "\ud800"}, InvalidTopic),
        ({"queue_id": -1}, InvalidTopic), ({"queue_id": 1 << 31}, InvalidTopic), ({"queue_id": "0"}, InvalidTopic),
        ({"queue_id": True}, InvalidTopic), ({"data": "text"}, InvalidMessage), ({"data": None}, InvalidMessage),
        ({"data": 7}, InvalidMessage), ({"key": "k"}, InvalidMessage), ({"properties": {"a": 1}}, InvalidMessage),
        ({"properties": ["a"]}, InvalidMessage), ({"deliver_at_ms": -1}, InvalidMessage),
        ({"deliver_at_ms": 1.5}, InvalidMessage), ({"message_id": ""}, InvalidMessage),
        ({"message_id": 7}, InvalidMessage), ({"message_id": "x" * 256}, InvalidMessage),
        ({"queue_id": None, "queues": 0}, InvalidMessage), ({"queue_id": None, "queues": "x"}, InvalidMessage),
        ({"data": bytes((1 << 20) + 1)}, MessageTooLarge),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_and_nothing_is_stored(store: Any, arguments: Any, kind: type[StoreError]) -> None:
    given = {"topic": "t", "queue_id": 0, "data": b"x", **arguments}
    with pytest.raises(kind):
        store.append(**given)
    with pytest.raises(kind):
        store.submit(**given).result(PATIENCE_S)
    assert store.topics() == []


def test_a_wrong_message_leaves_those_beside_it(store: Any) -> None:
    good = [store.submit("t", 0, b"a"), store.submit("t", 0, b"b")]
    with pytest.raises(InvalidTopic):
        store.submit("t", -3, b"x").result(PATIENCE_S)
    good.append(store.submit("t", 0, b"c"))
    assert [one.result(PATIENCE_S) for one in good] == [0, 1, 2]


def test_a_key_keeps_its_queue(store: Any) -> None:
    for number in range(40):
        store.append("t", data=b"x", key=b"k%d" % (number % 5), queues=4)
    found = [one for queue in store.queues("t") for one in store.read("t", queue, max_messages=100)]
    queues = {one.key: {other.queue_id for other in found if other.key == one.key} for one in found}
    assert len(found) == 40 and all(len(one) == 1 for one in queues.values())


def test_without_a_key_the_queues_take_turns(store: Any) -> None:
    for _ in range(8):
        store.submit("t", data=b"x", queues=4)
    for queue in range(2):
        store.append("u", data=b"x", queues=[7, 9][queue : queue + 1])
    store.flush()
    assert [store.queue_bounds("t", queue) for queue in range(4)] == [(0, 2)] * 4
    assert store.queues("u") == [7, 9]


def test_numbers_of_numpy_are_numbers(store: Any) -> None:
    assert store.append("t", np.int64(3), b"x", deliver_at_ms=np.int64(5)) == 0
    assert store.read("t", np.int32(3), np.int64(0))[0].deliver_at_ms == 5
    assert store.append_batch([("t", np.int16(3), b"y")]).tolist() == [1]


# -- message ids --------------------------------------------------------------------------------------


def test_an_id_is_stored_once(store: Any) -> None:
    assert store.append("t", 0, b"first", message_id="o-17") == 0
    assert store.append("t", 0, b"x") == 1
    assert store.append("t", 5, b"other", message_id="o-17") == 0
    assert store.queues("t") == [0]
    ticket = store.submit("t", 0, b"again", message_id="o-17")
    assert (ticket.result(PATIENCE_S), ticket.is_repeat) == (0, True)
    ticket = store.submit("t", 0, b"new", message_id="o-18")
    assert (ticket.result(PATIENCE_S), ticket.is_repeat) == (2, False)


def test_ids_of_a_batch_are_stored_once(store: Any) -> None:
    rows = [("t", 0, b"a"), ("t", 0, b"b"), ("t", 0, b"c")]
    assert store.append_batch(rows, message_ids=["1", "2", "1"]).tolist() == [0, 1, 0]
    assert store.append_batch(rows, message_ids=["2", None, "3"]).tolist() == [1, 2, 3]
    with pytest.raises(InvalidMessage):
        store.append_batch(rows, message_ids=["1"])


def test_ids_keep_the_order_of_a_thread(store: Any) -> None:
    tickets = []
    for number in range(60):
        given = {"message_id": f"id-{number}"} if number % 3 == 0 else {}
        tickets.append(store.submit("t", 0, b"%d" % number, **given))
        if number % 10 == 9:
            store.append_batch([("t", 0, b"batch")])
    for one in tickets:
        one.result(PATIENCE_S)
    datas = [one.data for one in store.read("t", 0, max_messages=100)]
    assert [data for data in datas if data != b"batch"] == [b"%d" % number for number in range(60)]
    assert [at for at, data in enumerate(datas) if data == b"batch"] == [10, 21, 32, 43, 54, 65]


# -- columns ------------------------------------------------------------------------------------------


def test_columns_are_appended_and_read(store: Any) -> None:
    streams = (("t", 0), ("t", 1), ("unused", 7))
    keys, due = (np.array([2, -1, 0, 1]), b"k1k"), [5, -1, -1, 9]
    properties = (np.array([9, -1, -1, 2]), b'{"a":"b"}{}')
    offsets = store.append_columns(streams, [0, 1, 0, 1], [5, 3, 0, 4], b"firsttwofour", keys, properties, due)
    assert offsets.tolist() == [0, 0, 1, 1]
    found = store.read("t", 0) + store.read("t", 1)
    assert [one.data for one in found] == [b"first", b"", b"two", b"four"]
    assert [one.key for one in found] == [b"k1", b"", None, b"k"]
    assert [one.properties for one in found] == [{"a": "b"}, None, None, {}]
    assert [one.deliver_at_ms for one in found] == [5, None, None, 9]
    assert store.topics() == ["t"]


def test_columns_have_a_ticket(store: Any) -> None:
    tickets = [store.submit_columns([("t", 0)], [0, 0], [1, 1], b"ab") for _ in range(3)]
    assert all(isinstance(one, BatchTicket) for one in tickets)
    assert [one.result(PATIENCE_S).tolist() for one in tickets] == [[0, 1], [2, 3], [4, 5]]
    assert all(one.done() and one.exception() is None for one in tickets)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream_index": [0, 5]}, {"stream_index": [0, -1]}, {"lengths": [1]}, {"lengths": [1, -1]},
        {"lengths": [1, 5]}, {"payload": b"abc"}, {"stream_index": [0.5, 1]}, {"stream_index": [True, False]},
        {"keys": ([1], b"k")}, {"keys": ([1, 1], b"k")}, {"properties": ([3, -1], b"{x}")},
        {"deliver_at_ms": [1.5, 2]}, {"streams": [("", 0)]}, {"streams": [("t", "0")]}, {"streams": [("t",)]},
        {"streams": 7}, {"payload": "ab"}, {"lengths": [[1], [1]]},
    ],
)  # fmt: skip
def test_wrong_columns_are_refused_and_nothing_is_stored(store: Any, wrong: Any) -> None:
    given = {"streams": [("t", 0)], "stream_index": [0, 0], "lengths": [1, 1], "payload": b"ab", **wrong}
    with pytest.raises((InvalidMessage, InvalidTopic)):
        store.append_columns(**given)
    with pytest.raises((InvalidMessage, InvalidTopic)):
        store.submit_columns(**given).result(PATIENCE_S)
    assert store.topics() == []


def test_a_batch_that_was_read_is_appended_again(store: Any) -> None:
    store.append("t", 0, b"one", key=b"k")
    store.append("t", 0, b"two", properties={"a": "b"})
    for batch in store.scan():
        store.append_columns(*batch.columns()._replace(streams=[("copy", 2)]))
    first, second = store.read("copy", 2)
    assert (first.data, first.key, second.data, second.properties) == (b"one", b"k", b"two", {"a": "b"})
