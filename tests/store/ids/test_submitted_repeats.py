"""Submitted messages whose ids are durable: a flusher finds them as it takes them, and stores all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreFull
from stratalog.store.testing import SimulatedDisk
from stratalog.store.topics.id_windows import IdWindows
from stratalog.testing import VirtualClock

from ..disks import GatedDisk
from ..helpers import PATIENCE_S, start, tiny, until
from .test_message_ids import transacted


@pytest.mark.parametrize("count", [5, 100])
@pytest.mark.parametrize("lanes", [1, 3])
def test_of_messages_that_are_taken_together_only_the_new_ones_are_stored(
    tmp_path: Path, count: int, lanes: int
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        known = store.append_batch([("t", 0, b"")] * count, message_ids=[f"{number}" for number in range(count)])
        with store._flushers[0].building:
            tickets = []
            for number in range(count):
                tickets.append(store.submit("t", 0, b"again", message_id=f"{number}"))
                tickets.append(store.submit("t", 0, b"new", message_id=f"new {number}"))
                tickets.append(store.submit("t", 0, b"plain", key=b"k"))
                tickets.append(store.submit("u", number % 3, b"other", message_id=f"{number}"))
        for ticket in tickets:
            ticket.result(PATIENCE_S)
        assert [ticket.is_repeat for ticket in tickets] == [True, False, False, False] * count
        assert [ticket.result() for ticket in tickets[::4]] == known.tolist()
        assert [ticket.result() for ticket in tickets[1::4]] == [count + 2 * number for number in range(count)]
        datas = [one.data for one in store.read("t", 0, count, max_messages=9 * count)]
        assert datas == [b"new", b"plain"] * count
        assert [queue.used_bytes for queue in store._queues] == [0] * lanes, "repeats give their room back"
        assert [store._windows.of(topic)._on_way for topic in "tu"] == [{}, {}], "nor is any kept"


def test_a_flush_that_is_taken_with_repeats_alone_returns(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="a")
        with store._flushers[0].building:
            ticket = store.submit("t", 0, b"", message_id="a")
            flushing = start(store.flush)
            until(lambda: len(store._queues[0].requests) == 2)
        flushing.join()
        assert ticket.result(PATIENCE_S) == 0 and ticket.is_repeat
        assert store.queue_bounds("t", 0) == (0, 1)


@pytest.mark.parametrize("how", ["submit", "transaction"])
def test_an_append_that_waits_for_a_repeat_has_the_offset_that_the_topic_knows(tmp_path: Path, how: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"before")
        store.append("t", 0, b"", message_id="a")
        got: list[int] = []
        with store._flushers[0].building:
            first = store.submit("t", 0, b"", message_id="a")
            if how == "submit":
                second = store.submit("t", 0, b"", message_id="a")
                assert second.is_repeat and not second.done()
                second.add_done_callback(lambda ticket: got.append(ticket.result()))
            else:
                got.append(transacted(store, ("t", 0, "a"))[0])  # it needs no flusher
        until(lambda: len(got) > 0)
        assert (first.result(PATIENCE_S), first.is_repeat, got) == (1, True, [1])


@pytest.mark.disk
def test_repeats_are_answered_where_new_messages_find_no_space(tmp_path: Path) -> None:
    disk = SimulatedDisk(capacity_bytes=1 << 20)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"", message_id="a")
        with pytest.raises(StoreFull):
            for _ in range(1000):
                store.append("t", 0, bytes(30_000))
        disk.capacity_bytes = 0  # not what is used now: a spare that was not finished may be going at this moment
        with store._flushers[0].building:
            again, new = (store.submit("t", 0, bytes(30_000), message_id=one) for one in ("a", "b"))
        assert again.result(PATIENCE_S) == 0 and again.is_repeat
        assert isinstance(new.exception(PATIENCE_S), StoreFull) and not new.is_repeat
        disk.capacity_bytes = None
        assert store.submit("t", 0, b"", message_id="b").result(PATIENCE_S) > 0


def test_a_repeat_that_finds_no_room_in_the_publish_buffer_is_answered(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=100_000, append_timeout_ms=50)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"", message_id="a")
        disk.gate.clear()
        filler = [store.submit("t", 0, bytes(30_000)) for _ in range(3)]
        assert store.append("t", 0, bytes(30_000), message_id="a") == 0
        assert store.submit("t", 0, bytes(30_000), message_id="a").is_repeat
        disk.gate.set()
        assert [ticket.result(PATIENCE_S) for ticket in filler] == [1, 2, 3]


def test_an_id_that_has_left_the_window_is_no_repeat_where_the_publish_buffer_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IdWindows, "look", lambda windows: None)  # the upkeep's, which looks once a second
    disk, clock = GatedDisk(), VirtualClock()
    config = tiny(publish_buffer_bytes=100_000, append_timeout_ms=0)
    with MessageStore.open(tmp_path, config, disk=disk, clock=clock) as store:
        store.configure_topic("t", id_window_ms=1000)
        store.append("t", 0, b"", message_id="a")
        disk.gate.clear()
        filler = [store.submit("t", 0, bytes(30_000)) for _ in range(3)]
        clock.advance(ms=1000)
        with pytest.raises(PublishBufferFull):
            store.submit("t", 0, bytes(30_000), message_id="a")
        disk.gate.set()
        assert [ticket.result(PATIENCE_S) for ticket in filler] == [1, 2, 3]


def test_an_id_that_has_left_the_window_when_its_message_is_taken_is_stored(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.configure_topic("t", id_window_ms=1000)
        store.append("t", 0, b"", message_id="a")
        clock.advance(ms=999)
        with store._flushers[0].building:
            ticket = store.submit("t", 0, b"", message_id="a")
            clock.advance(ms=1)
        assert (ticket.result(PATIENCE_S), ticket.is_repeat) == (1, False)


def test_a_close_answers_the_repeats_that_are_queued(tmp_path: Path) -> None:
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"", message_id="a")
    disk.gate.clear()
    first = store.submit("t", 0, bytes(5000))
    tickets = [store.submit("t", 0, b"", message_id=one) for one in ("a", "b", "a", "b")]
    closing = start(store.close)
    until(lambda: store._queues[0].refusal is not None)
    disk.gate.set()
    closing.join()
    assert [ticket.result(PATIENCE_S) for ticket in (first, *tickets)] == [1, 0, 2, 0, 2]
    assert [ticket.is_repeat for ticket in tickets] == [True, False, True, True]
