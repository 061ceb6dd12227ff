"""Reads: by offset, in columns, of the whole store; waits; what there is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stratalog import InvalidMessage, InvalidTopic, Message, MessageBatch, OffsetOutOfRange, TopicSettings
from stratalog.plans import ScanFilter

PATIENCE_S = 60.0


@pytest.fixture
def filled(store: Any) -> Any:
    """20 messages in queue 0 of t, 1 in queue 3."""
    store.append_batch([("t", 0, b"%d" % number) for number in range(20)])
    store.append("t", 3, b"three", key=b"k", properties={"tag": "a"})
    return store


def test_read_gives_messages_in_order(filled: Any) -> None:
    found = filled.read("t", 0, 5, max_messages=3)
    assert all(isinstance(one, Message) for one in found)
    assert [(one.offset, one.data) for one in found] == [(5, b"5"), (6, b"6"), (7, b"7")]
    assert len(filled.read("t", 0)) == 20
    assert [one.data for one in filled.read("t", 0, 10, max_bytes=4)] == [b"10", b"11"]


def test_the_ends_of_a_queue(filled: Any) -> None:
    assert filled.read("t", 0, 20) == [] and filled.get_range("t", 0, 20, 5) == {}
    assert len(filled.read_batch("t", 0, 20)) == 0
    for call in (filled.read, filled.read_batch):
        with pytest.raises(OffsetOutOfRange) as caught:
            call("t", 0, 21)
        error = caught.value
        assert (error.topic, error.queue_id, error.offset, error.first, error.next_offset) == ("t", 0, 21, 0, 20)
    with pytest.raises(OffsetOutOfRange, match="offset 99 is outside 't'/0"):
        filled.get_range("t", 0, 99, 5)
    assert filled.read("never used", 7) == []


def test_get_range_gives_payloads_by_place(filled: Any) -> None:
    assert filled.get_range("t", 0, 18, 32) == {0: b"18", 1: b"19"}
    assert filled.get_range("t", 3, 0, 1) == {0: b"three"}


def test_read_batch_gives_columns(filled: Any) -> None:
    batch = filled.read_batch("t", 0, 10)
    assert isinstance(batch, MessageBatch)
    assert batch.offsets.tolist() == list(range(10, 20))
    assert [bytes(one) for one in batch.payloads()] == [b"%d" % number for number in range(10, 20)]
    assert set(batch.topics) == {"t"} and set(batch.queue_ids.tolist()) == {0} and batch.extras is None
    assert batch.messages() == filled.read("t", 0, 10)
    other = filled.read_batch("t", 3)
    assert other.extras is not None and other.message(0).properties == {"tag": "a"}


@pytest.mark.parametrize(
    "wrong", [{"offset": -1}, {"offset": 1.5}, {"max_messages": -1}, {"max_bytes": -1}, {"wait_ms": True},
              {"wait_ms": "x"}, {"wait_ms": None}, {"queue_id": "0"}, {"topic": ""}]
)  # fmt: skip
def test_a_wrong_argument_of_a_read_is_refused(filled: Any, wrong: Any) -> None:
    for call in (filled.read, filled.read_batch):
        with pytest.raises((InvalidMessage, InvalidTopic, OffsetOutOfRange)):
            call(**{"topic": "t", "queue_id": 0, **wrong})


def test_a_read_waits_for_a_message(filled: Any) -> None:
    found: list[Message] = []
    thread = threading.Thread(target=lambda: found.extend(filled.read("t", 0, 20, wait_ms=60_000)))
    thread.start()
    filled.append("t", 0, b"late")
    thread.join(PATIENCE_S)
    assert [one.data for one in found] == [b"late"]


def test_a_read_waits_for_some_messages(filled: Any) -> None:
    found: list[Message] = []
    thread = threading.Thread(
        target=lambda: found.extend(filled.read("t", 0, 20, wait_ms=60_000, min_messages=2, min_bytes=3))
    )
    thread.start()
    for data in (b"a", b"b", b"c"):
        filled.append("t", 0, data)
    thread.join(PATIENCE_S)
    assert [one.data for one in found][:3] == [b"a", b"b", b"c"]


def test_a_wait_ends_with_nothing(filled: Any) -> None:
    assert filled.read("t", 0, 20, wait_ms=20) == []
    assert len(filled.read_batch("t", 0, 20, wait_ms=20)) == 0


def test_a_scan_gives_all(filled: Any) -> None:
    batches = list(filled.scan())
    assert sum(len(one) for one in batches) == 21
    names = {name for one in batches for name in zip(one.topics, one.queue_ids.tolist(), strict=True)}
    assert names == {("t", 0), ("t", 3)}


def test_a_scan_takes_wishes(filled: Any) -> None:
    found = [one for batch in filled.scan(ScanFilter(queue_ids=(0,), start_offset=15)) for one in batch.messages()]
    assert [one.offset for one in found] == [15, 16, 17, 18, 19]
    assert sum(len(one) for one in filled.scan(filter="tag = 'a'")) == 1
    assert sum(len(one) for one in filled.scan(filter={"tag": {"b"}})) == 0
    with pytest.raises(InvalidMessage) as caught:
        list(filled.scan(filter="tag = = 'a'"))
    assert caught.value.position is not None


def test_a_scan_is_a_snapshot_and_may_be_left(filled: Any) -> None:
    scan = filled.scan()
    first = next(scan)
    filled.append("t", 0, b"later")
    rest = sum(len(one) for one in scan)
    assert len(first) + rest == 21
    for _ in filled.scan():
        break
    assert filled.queue_bounds("t", 0) == (0, 21)


def test_what_there_is(filled: Any) -> None:
    assert (filled.topics(), filled.queues("t"), filled.queues("u")) == (["t"], [0, 3], [])
    assert filled.queue_bounds("t", 0) == (0, 20)
    times = [one.timestamp_ms for one in filled.read("t", 0)]
    assert filled.offset_at("t", 0, times[0]) == 0
    assert filled.offset_at("t", 0, times[-1] + 1) == 20
    with pytest.raises(InvalidTopic):
        filled.queue_bounds("", 0)


def test_a_topic_has_settings(store: Any) -> None:
    given: dict[str, Any] = {
        "queues": 4,
        "retention_ms": 60_000,
        "keep": "unacknowledged",
        "ttl_ms": 5000,
        "id_window_count": 7,
        "types": ("normal", "delay"),
    }
    assert store.configure_topic("t", **given) == TopicSettings(**given)
    assert store.topic_settings("t") == TopicSettings(**given)
    assert store.topic_settings("other") == TopicSettings()
    assert store.queues("t") == [0, 1, 2, 3]
    with pytest.raises(InvalidTopic):
        store.append("t", 4, b"x")
    for wrong in ({"queues": 0}, {"keep": "for ever"}, {"ttl_ms": 1.5}, {"types": ["lite"]}, {"types": ()}):
        with pytest.raises(InvalidMessage):
            store.configure_topic("t", **wrong)


def test_trim_and_delete(filled: Any) -> None:
    assert filled.trim("t", 0, 5) == 5
    assert filled.queue_bounds("t", 0) == (5, 20)
    with pytest.raises(OffsetOutOfRange) as caught:
        filled.read("t", 0, 3)
    assert caught.value.first == 5
    assert filled.delete_topic("t") is True
    assert filled.delete_topic("t") is False
    assert filled.topics() == []


def test_statistics_are_a_dict_for_json(filled: Any) -> None:
    found = filled.stats()
    assert found["durability"] == "os" and found["poisoned"] is None
    assert found["log"]["messages"] >= 21


def test_metrics_are_prometheus_text_of_the_store(filled: Any) -> None:
    assert "# TYPE stratalog_" in filled.metrics()


def test_flush_covers_what_was_handed_over(store: Any) -> None:
    tickets = [store.submit("t", 0, b"x") for _ in range(100)]
    store.flush()
    assert all(one.done() for one in tickets)


def test_two_writers_share_a_store(store: Any) -> None:
    def write(queue: int) -> None:
        for number in range(100):
            store.submit("t", queue, b"%d" % number)

    threads = [threading.Thread(target=write, args=[queue]) for queue in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE_S)
    store.flush()
    for queue in range(8):
        found = store.read("t", queue, max_messages=200)
        assert [one.data for one in found] == [b"%d" % number for number in range(100)]
