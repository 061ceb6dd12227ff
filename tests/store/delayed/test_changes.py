"""Cancelled and moved delays: exact, durable, and never undone by a crash or a compaction."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    StoreClosed,
    StoreFull,
    StoreReadOnly,
    StoreUnusable,
    look_into_folder,
)
from stratalog.store.delayed import decisions as decisions_module
from stratalog.store.delayed.changes import ChangedDelays, ChangesReader
from stratalog.store.delayed.parts import StoreParts
from stratalog.store.errors import StoreCorrupt
from stratalog.store.format.delays import CANCELLED, CHANGES, MOST_ROWS, Changes, IndexMark, LogPlace, whole
from stratalog.store.log.request import Request

from ..helpers import crash_copy, tiny, until
from .consumer import START_MS, Consumer, Got, Hand, delays_of, quiet, topic_of


def column(*values: int) -> Any:
    return np.array(values, np.int64)


def test_cancelled_message_is_not_delivered(store: MessageStore, hand: Hand) -> None:
    consumer = Consumer(store)
    for _ in range(3):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    consumer.poll()
    assert store.cancel_delayed("t", 0, 1)
    hand.now_ms += 10
    assert consumer.poll() == [Got(0, 0), Got(0, 2)]
    assert Got(0, 1) in consumer.done, "the subscription hears of it, so that its position can go on"
    assert Consumer(store).poll() == [Got(0, 0), Got(0, 2)], "nor to one that reads all from the beginning"


def test_cancel_says_whether_the_message_was_still_pending(store: MessageStore) -> None:
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    store.append("t", 0, b"x")
    store.append("t", 0, b"x", deliver_at_ms=START_MS)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    assert [store.cancel_delayed("t", 0, offset) for offset in range(6)] == [True, False, False, True, False, False]
    assert not store.cancel_delayed("t", 0, 0), "it is cancelled already"
    assert not store.cancel_delayed("t", 7, 0)
    assert not store.cancel_delayed("unknown", 0, 0)
    assert not store.cancel_delayed("t", 0, 1 << 32), "another message with the same low bits"


def test_message_that_is_due_cannot_be_cancelled_even_if_nobody_has_taken_it(store: MessageStore, hand: Hand) -> None:
    topic_of(store)
    quiet(store)  # nobody else looks
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    assert store.cancel_delayed("t", 0, 1)
    hand.now_ms += 10
    assert not store.cancel_delayed("t", 0, 0)
    assert not store.reschedule_delayed("t", 0, 0, START_MS + 99)


def test_message_can_be_cancelled_before_the_first_subscription(store: MessageStore, hand: Hand) -> None:
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    assert store.cancel_delayed("t", 0, 0)
    hand.now_ms += 10
    assert Consumer(store).poll() == []


@pytest.mark.parametrize(("delay_ms", "to_ms"), [(10, 50), (50, 10), (50, -5)])
def test_moved_message_comes_at_its_new_time(store: MessageStore, hand: Hand, delay_ms: int, to_ms: int) -> None:
    consumer = Consumer(store)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + delay_ms)
    consumer.poll()
    assert store.reschedule_delayed("t", 0, 0, START_MS + to_ms)
    if to_ms > 0:
        hand.now_ms = START_MS + to_ms - 1
        assert consumer.poll() == []
    hand.now_ms = max(START_MS, START_MS + to_ms)
    assert consumer.poll() == [Got(0, 0)]
    hand.now_ms += 100
    assert consumer.poll() == []
    assert Consumer(store).poll() == [Got(0, 0)]


def test_scan_goes_by_the_new_time_of_a_moved_message(store: MessageStore, hand: Hand) -> None:
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 1_000)
    assert store.reschedule_delayed("t", 0, 0, START_MS + 1_000)
    assert store.reschedule_delayed("t", 0, 1, START_MS + 10)
    hand.now_ms += 20
    assert Consumer(store).poll() == [Got(0, 1)]
    assert store.reschedule_delayed("t", 0, 0, START_MS + 30), "again"
    hand.now_ms += 20
    assert Consumer(store).poll() == [Got(0, 0), Got(0, 1)]


@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("compacts", [True, False])
def test_changes_hold_after_an_opening(tmp_path: Path, hand: Hand, crashes: bool, saves: bool, compacts: bool) -> None:
    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        for _ in range(6):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        topic.parts.hidden.find_or_make(topic.decisions.stream.topic)
        if saves:
            delays_of(store).catch_up()
            delays_of(store).checkpoint(topic)
        assert store.cancel_delayed("t", 0, 1)
        assert store.reschedule_delayed("t", 0, 2, START_MS + 500)
        assert store.reschedule_delayed("t", 0, 3, START_MS + 5)
        assert store.reschedule_delayed("t", 0, 4, START_MS + 500)
        assert store.cancel_delayed("t", 0, 4)
        if compacts:
            topic.decisions.compact()
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    with hand.open(tmp_path / ("crashed" if crashes else "s")) as store:
        consumer = Consumer(store)
        assert consumer.poll() == []
        hand.now_ms = START_MS + 5
        assert consumer.poll() == [Got(0, 3)]
        hand.now_ms = START_MS + 100
        assert consumer.poll() == [Got(0, 0), Got(0, 5)]
        hand.now_ms = START_MS + 500
        assert consumer.poll() == [Got(0, 2)]
        hand.now_ms = START_MS + 5_000
        assert consumer.poll() == []


def test_compaction_lets_go_of_older_records_and_of_messages_that_are_gone(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        for _ in range(20):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 1_000)
        topic = topic_of(store)
        for offset in range(20):
            assert store.cancel_delayed("t", 0, offset)
        store.trim("t", 0, 15)
        topic.decisions.compact()
        first, end = store._reader.bounds(topic.decisions.stream)
        assert end - first == 1
        assert len(topic.changes) == 5
    with hand.open(tmp_path / "s") as store:
        assert sorted(topic_of(store).changes.cancelled) == list(range(15, 20))


def test_stream_of_changes_is_compacted_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_module, "COMPACT_BYTES", 100)
    hand = Hand()
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1_000)
        for number in range(50):
            assert store.reschedule_delayed("t", 0, 0, START_MS + 1_000 + number)
        stream = topic_of(store).decisions.stream
        until(lambda: store._reader.bounds(stream)[0] > 6)
        assert topic_of(store).changes.moved == {0: START_MS + 1_049}


def test_of_a_race_of_cancels_and_delivery_exactly_one_wins(tmp_path: Path, hand: Hand) -> None:
    messages, threads = 60, 3
    with hand.open(tmp_path / "s") as store:
        consumer = Consumer(store)
        for number in range(messages):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 1 + number)
        consumer.poll()
        answers: list[list[int]] = [[] for _ in range(threads)]
        begun = threading.Barrier(threads + 1)

        def cancel(mine: list[int]) -> None:
            begun.wait()
            mine.extend(offset for offset in range(messages) if store.cancel_delayed("t", 0, offset))

        running = [threading.Thread(target=cancel, args=(mine,)) for mine in answers]
        for thread in running:
            thread.start()
        begun.wait()
        while any(thread.is_alive() for thread in running):
            hand.now_ms += 1
            consumer.poll()
        for thread in running:
            thread.join()
        hand.now_ms += 1_000
        consumer.poll()
        cancelled = [offset for mine in answers for offset in mine]
        assert sorted([*cancelled, *(got.offset for got in consumer.got)]) == list(range(messages))


def test_cancel_that_cannot_be_written_leaves_the_message_pending(
    store: MessageStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(store)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    consumer.poll()
    topic = topic_of(store)
    put = topic.decisions.stream.lane.queue.put

    def refuse(request: Request, *, wait: bool = True) -> bool:
        if request.count:  # no mark
            raise StoreFull("no space is left")
        return put(request, wait=wait)

    with monkeypatch.context() as patch, pytest.raises(StoreFull):
        patch.setattr(topic.decisions.stream.lane.queue, "put", refuse)
        store.cancel_delayed("t", 0, 0)
    hand.now_ms += 10
    assert consumer.poll() == [Got(0, 0)]


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_change_needs_no_room_in_the_index(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    """The disk is full: a message is taken out of the index, and goes back there though no bucket can be sealed."""
    with hand.open(tmp_path / "s") as store:
        consumer = Consumer(store)
        for _ in range(4):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        consumer.poll()
        topic = topic_of(store)
        monkeypatch.setattr(topic.tracker, "_seal_entries", 2)
        monkeypatch.setattr(topic.tracker, "_most_entries", 3)
        monkeypatch.setattr(topic.tracker, "_seal", Mock(side_effect=OSError(errno.ENOSPC, "no space is left")))
        if is_moved:
            assert store.reschedule_delayed("t", 0, 1, START_MS + 20)
        else:
            with monkeypatch.context() as patch, pytest.raises(StoreFull):
                queue = topic.decisions.stream.lane.queue
                patch.setattr(queue, "put", Mock(side_effect=StoreFull("no space is left")))
                store.cancel_delayed("t", 0, 1)
        assert topic.pending == 4
        assert consumer.poll() == []
        hand.now_ms += 10
        late = [Got(0, 1)] if is_moved else []
        assert consumer.poll() == [Got(0, offset) for offset in range(4) if Got(0, offset) not in late]
        hand.now_ms += 10
        assert consumer.poll() == late


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("", 0, 0), InvalidTopic), (("t", -1, 0), InvalidTopic), (("t", True, 0), InvalidTopic),
        (("t", 0, -1), InvalidMessage), (("t", 0, "0"), InvalidMessage), (("t", 0, 1.0), InvalidMessage),
        ((b"t", 0, 0), InvalidTopic), (("\x01delays\x01t", 0, 0), InvalidTopic),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path: Path, given: Any, error: type[Exception]) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("t", 0, b"x", deliver_at_ms=1 << 61)
        with pytest.raises(error):
            store.cancel_delayed(*given)
        topic, queue_id, offset = given
        with pytest.raises(error):
            store.reschedule_delayed(topic, queue_id, offset, 5)


@pytest.mark.parametrize("time_ms", [-1, 1 << 62, 1 << 80, 1.5, "1", None])
def test_wrong_times_are_refused(tmp_path: Path, time_ms: Any) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("t", 0, b"x", deliver_at_ms=1 << 61)
        with pytest.raises(InvalidMessage):
            store.reschedule_delayed("t", 0, 0, time_ms)
        assert store.cancel_delayed("t", 0, 0)


def test_closed_and_read_only_stores_refuse(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("t", 0, b"x", deliver_at_ms=1 << 61)
        with MessageStore.open(tmp_path / "s", read_only=True) as reader, pytest.raises(StoreReadOnly):
            reader.cancel_delayed("t", 0, 0)  # type: ignore[attr-defined]  # as its caller finds out
    with pytest.raises(StoreClosed):
        store.cancel_delayed("t", 0, 0)
    with look_into_folder(tmp_path / "s") as looked, pytest.raises(StoreUnusable):
        looked.reschedule_delayed("t", 0, 0, 5)  # type: ignore[attr-defined]


# -- records ------------------------------------------------------------------------------------------


def test_bytes_of_changes_and_marks_are_kept() -> None:
    changes = Changes(CHANGES, 0, column(3), column(258), column(CANCELLED)).pack()
    assert changes.hex() == "534c4443010100000100000003000000" + "0201000000000000" + "ff" * 8
    mark = IndexMark("t", 7, [LogPlace(2, 5)]).pack()
    assert (
        mark.hex()
        == "534c444d01000000" + "0700000000000000" + "01000000" + "0200000000000000" + "0500000000000000" + "74"
    )
    assert IndexMark.unpack(mark) == IndexMark("t", 7, [LogPlace(2, 5)])


@pytest.mark.parametrize(
    "data", [b"", b"SLDC", b"SLDX" + bytes(8), b"SLDC\x02\x01" + bytes(6), b"SLDC\x01\x01\0\0\x01\0\0\0"]
)
def test_bytes_that_are_no_changes_are_told(data: bytes) -> None:
    assert Changes.unpack(data) is None
    with pytest.raises(StoreCorrupt):
        ChangesReader().add(data)


def test_whole_without_its_last_part_says_nothing() -> None:
    reader = ChangesReader()
    reader.add(Changes(CHANGES, 0, column(0, 0), column(1, 2), column(CANCELLED, 50)).pack())
    count = 2 * MOST_ROWS + 1
    parts = whole(np.zeros(count, np.int64), np.arange(100, 100 + count), np.full(count, CANCELLED))
    assert len(parts) == 3
    for part in parts[:2]:
        assert len(reader.add(part)) == 0
    assert (sorted(reader.state.cancelled), reader.state.moved) == ([1], {2: 50})
    assert len(reader.add(parts[2])) == count, "all that it lists may have changed"
    assert (len(reader.state.cancelled), reader.state.moved) == (count, {})


def test_changes_between_the_parts_of_a_whole_are_newer_than_it() -> None:
    count = 2 * MOST_ROWS + 1
    parts = whole(np.zeros(count, np.int64), np.arange(100, 100 + count), np.full(count, CANCELLED))
    move = Changes(CHANGES, 0, column(0, 0), column(100, 7), column(50, 60)).pack()
    for at in range(1, len(parts)):
        reader = ChangesReader()
        for data in (*parts[:at], move, *parts[at:]):
            reader.add(data)
        assert (len(reader.state.cancelled), reader.state.moved) == (count - 1, {100: 50, 7: 60})


def test_a_whole_after_one_whose_writer_died_takes_the_place_of_all() -> None:
    count = 2 * MOST_ROWS + 1
    unfinished = whole(np.zeros(count, np.int64), np.arange(100, 100 + count), np.full(count, CANCELLED))
    for written in (1, 2):
        reader = ChangesReader()
        for data in unfinished[:written]:
            reader.add(data)
        for data in whole(np.zeros(count, np.int64), np.arange(9000, 9000 + count), np.full(count, 50)):
            reader.add(data)
        assert (len(reader.state.cancelled), len(reader.state.moved)) == (0, count)


def test_the_newest_change_of_a_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreParts, "next_offset", lambda _self, _topic, _queue_id: 10)
    parts = StoreParts(*[None] * len(StoreParts._fields))  # type: ignore[arg-type]
    state = ChangedDelays()
    for time_ms in (5, CANCELLED, 9):
        state.note(1, time_ms)
    state.note(2, CANCELLED)
    assert state.times_of(column(1, 2, 3), column(70, 71, 72)).tolist() == [9, CANCELLED, 72]
    assert state.are_cancelled(column(1, 2, 3)).tolist() == [False, True, False]
    queues, offsets, times = state.rows("t", parts)
    assert (queues.tolist(), offsets.tolist(), times.tolist()) == ([0, 0], [1, 2], [9, CANCELLED])
