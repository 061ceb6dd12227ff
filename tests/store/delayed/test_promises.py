"""What faults, idle consumers, many changes and trims must not do to delayed messages: come early, or never."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, StoreUnreadable, Subscription
from stratalog.store.delayed import delays as delays_module
from stratalog.store.delayed import due_list
from stratalog.store.delayed import topic as topic_module
from stratalog.store.delayed.messages import figures_of
from stratalog.store.delayed.parts import DiskFiles, places_of
from stratalog.store.delayed.topic import DelayedTopic, waiting
from stratalog.store.subscriptions.dispatcher import Dispatcher
from stratalog.store.testing import TunedConfig
from tests.clocks import SteppedClock

from ..helpers import tiny
from ..interrupts import Interrupted, interrupt_at, places
from .consumer import START_MS, Consumer, Got, Hand, catch_up, delays_of, quiet, topic_of

HOUR_MS = 3_600_000


def add(store: MessageStore, count: int, delay_ms: int = HOUR_MS, queue_id: int = 0) -> list[int]:
    """Delayed messages, due one ms after another."""
    now_ms = store._shared.clock.wall_ms()
    rows = [("t", queue_id, b"x") for _ in range(count)]
    return [store.append(*row, deliver_at_ms=now_ms + delay_ms + at) for at, row in enumerate(rows)]


# -- interrupts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Interrupted, MemoryError])
def test_messages_whose_way_into_the_index_is_cut_short_come_neither_early_nor_never(
    store: MessageStore, hand: Hand, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    topic_of(store)
    quiet(store)
    consumer = Consumer(store)
    offsets = add(store, 5)
    add_to, calls = DelayedTopic._add_to, list[int]()

    def once(topic: DelayedTopic, *rows: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise kind
        add_to(topic, *rows)

    monkeypatch.setattr(DelayedTopic, "_add_to", once)
    with pytest.raises(kind):
        consumer.poll()
    assert consumer.poll() == []
    figures = figures_of(topic_of(store))
    assert (figures["pending"], figures["mended_messages"]) == (5, 0)
    hand.now_ms += 2 * HOUR_MS
    assert consumer.poll() == [Got(0, offset) for offset in offsets]


def test_interrupt_at_any_step_of_taking_what_is_due_loses_it_for_nobody(tmp_path: Path, hand: Hand) -> None:
    files = tuple(f"delayed/{name}.py" for name in ("topic", "topic_index", "due_list", "delays", "due_scan"))
    files += ("trackers/tracker.py", "trackers/bucket_tracker.py", "trackers/time_buckets.py")
    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        quiet(store)
        other, given = Consumer(store), set[Got]()
        for place in places():
            pointer = topic.open_pointer()
            mine = {Got(0, offset) for offset in add(store, 3, 5)}
            assert other.poll() == []
            hand.now_ms += 10
            interrupted, _ = interrupt_at(place * 7, files, pointer.take)
            found = other.poll()
            catch_up(store)
            found += other.poll()
            assert mine <= set(found), f"place {place}"
            given.update(found)
            pointer.close()
            if not interrupted:
                break
        assert topic.pending == 0
        assert topic.rebuilds


def test_damaged_index_is_taken_from_its_files_and_the_log_after_them(store: MessageStore, hand: Hand) -> None:
    topic, delays = topic_of(store), quiet(store)
    consumer = Consumer(store)
    offsets = add(store, 20)
    assert consumer.poll() == []
    delays.checkpoint(topic)
    offsets += add(store, 20)
    assert store.cancel_delayed("t", 0, 3)
    assert store.reschedule_delayed("t", 0, 25, START_MS + 5)
    hand.now_ms += 10
    assert consumer.poll() == [Got(0, 25)]
    topic.tracker._is_changing = True  # as an interrupt leaves it
    assert consumer.poll() == []
    catch_up(store)
    assert (topic.rebuilds, topic.pending) == (1, 38)
    assert not store.cancel_delayed("t", 0, 25)
    hand.now_ms += 2 * HOUR_MS
    assert sorted(consumer.poll()) == [Got(0, offset) for offset in offsets if offset not in (3, 25)]


def test_message_that_the_index_has_missed_is_pending_by_its_own_time(store: MessageStore, hand: Hand) -> None:
    topic = topic_of(store)
    quiet(store)
    offsets = add(store, 3)
    topic.delays.catch_up()
    for offset in offsets:
        assert topic.tracker.cancel(0, offset)  # as if it had never got there
    consumer = Consumer(store)
    assert consumer.poll() == []
    assert figures_of(topic)["mended_messages"] == 3
    assert store.cancel_delayed("t", 0, 1)
    hand.now_ms += 2 * HOUR_MS
    assert consumer.poll() == [Got(0, 0), Got(0, 2)]
    assert Consumer(store).poll() == [Got(0, 0), Got(0, 2)]


# -- damage -----------------------------------------------------------------------------------------------


def test_damaged_frame_hides_its_own_messages_alone(tmp_path: Path, hand: Hand) -> None:
    config = TunedConfig(segment_bytes=64 << 10, recent_bytes=0, memory_limit_bytes=0, max_message_bytes=4 << 10)
    with hand.open(tmp_path / "s", config) as store:
        for number in range(30):
            store.append("t", number, b"delayed %04d " % number * 200, deliver_at_ms=START_MS + HOUR_MS)
    for path in (tmp_path / "s").glob("lane-*/*"):
        data = path.read_bytes()
        at = data.find(b"delayed 0003 ")
        if at >= 0:
            with path.open("r+b") as file:
                file.seek((at - 1) // 4096 * 4096 + 20)  # in the head of its frame
                file.write(b"\xff\xff\xff")
    with hand.open(tmp_path / "s", config) as store:
        topic = topic_of(store)
        quiet(store)
        catch_up(store)
        figures = figures_of(topic)
        assert (figures["pending"], figures["damaged_frames"]) == (29, 1)
        whole = [number for number in range(30) if number != 3]
        at_ms = np.array([START_MS + HOUR_MS])
        for number in whole:
            assert waiting(topic, number, np.array([0]), at_ms)[0].tolist() == [True]
        assert figures_of(topic)["mended_messages"] == 0
        assert waiting(topic, 3, np.array([0]), at_ms)[0].tolist() == [True], "its own time decides"
        assert figures_of(topic)["mended_messages"] == 1


# -- idle subscriptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [0, 1, 7, 19])
def test_pointer_that_stopped_anywhere_holds_others_up_for_a_while_only(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(due_list, "DUE_ROWS", 20)
    monkeypatch.setattr(topic_module, "DRAINED_ROWS", 6)
    clock = SteppedClock()
    monkeypatch.setattr(clock, "wall_ms", lambda: hand.now_ms)
    with MessageStore.open(tmp_path / "s", tiny(), clock=clock) as store:
        idle, busy = Consumer(store), Consumer(store)
        quiet(store)
        add(store, 60, 1)
        assert idle.poll() + busy.poll() == []
        hand.now_ms += 100
        if taken:
            assert len(idle.poll(taken)) == taken
        while busy.poll(10):
            pass
        held_up = len(busy.got)
        assert held_up < 60
        assert 0 < busy.pointer.due_in_s() <= 0.1, "nobody looks each millisecond"
        clock.now += due_list.STALE_S
        for _ in range(20):
            busy.poll(10)
        assert len(busy.got) == 60
        while idle.poll():
            pass
        assert sorted(idle.got) == [Got(0, offset) for offset in range(60)]
        assert idle.missed == 1


# -- many changes -----------------------------------------------------------------------------------------


def test_messages_that_were_moved_and_have_come_do_not_fill_the_index(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "MEMORY_LIMIT_BYTES", 16_000)
    monkeypatch.setattr("stratalog.store.delayed.topic_index.MEASURED_ROWS", 16)
    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        quiet(store)
        consumer = Consumer(store)
        for _ in range(4):
            for offset in add(store, 60):
                assert store.reschedule_delayed("t", 0, offset, hand.now_ms)
            assert len(consumer.poll()) == 60
        figures = figures_of(topic)
        assert (figures["moved"], figures["moved_and_come"], figures["paused"]) == (0, 240, False)
        assert figures["memory_bytes"] < 3_000
        assert not store.cancel_delayed("t", 0, 5), "it has come"
        assert len(Consumer(store).poll()) == 240, "also for one who knows their own times alone"
        topic.decisions.compact()
    with hand.open(tmp_path / "s") as store:
        assert len(Consumer(store).poll()) == 240
        assert topic_of(store).pending == 0


def test_index_that_is_full_of_changes_delivers_all_the_same(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "MEMORY_LIMIT_BYTES", 4_000)
    monkeypatch.setattr("stratalog.store.delayed.topic_index.MEASURED_ROWS", 1)
    monkeypatch.setattr("stratalog.store.delayed.changes.MOVED_BYTES", 5_000)  # in place of many
    with hand.open(tmp_path / "s") as store:
        topic, delays = topic_of(store), quiet(store)
        consumer = Consumer(store)
        (offset,) = add(store, 1)
        assert store.reschedule_delayed("t", 0, offset, START_MS + 3 * HOUR_MS)
        assert consumer.poll() == []
        assert topic.changes.memory_bytes > 4_000
        later = add(store, 3, 5)
        assert consumer.poll() == []
        hand.now_ms += 100
        for _ in range(20):
            delays.work()
        consumer.poll()
        assert [got.offset for got in consumer.got] == later


# -- rebuilding -------------------------------------------------------------------------------------------


def test_rebuild_that_fails_is_tried_again_by_the_next_call(
    store: MessageStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(store)
    sub = store.subscribe("t", "a")
    offsets = add(store, 10)
    assert sub.receive() == []
    quiet(store)

    def refuse(files: DiskFiles) -> list[str]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(DiskFiles, "names", refuse)
    topic.tracker._is_changing = True
    for _ in range(3):
        with pytest.raises(StoreUnreadable, match="too many open files"):
            sub.receive()
    monkeypatch.undo()
    assert sub.receive() == []
    catch_up(store)
    hand.now_ms += 2 * HOUR_MS
    assert [one.message.offset for one in sub.receive()] == offsets


def test_close_saves_the_index_of_each_topic_and_raises_nothing_foreign(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = hand.open(tmp_path / "s")
    for name in ("a", "b", "c"):
        topic_of(store, name)
        store.append(name, 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
    delays = quiet(store)
    delays.catch_up()
    bad = delays.topics["a"]
    bad._tracker._is_changing = True
    names = DiskFiles.names

    def refuse(files: DiskFiles) -> list[str]:
        if files._folder == delays_of(store).parts.folder_of("a"):
            raise OSError(errno.EMFILE, "too many open files")
        return names(files)

    monkeypatch.setattr(DiskFiles, "names", refuse)
    store.close()
    assert bad.last_error is not None
    assert "too many open files" in bad.last_error
    monkeypatch.undo()
    for name in ("b", "c"):
        assert delays.topics[name].unsaved == 0
    with hand.open(tmp_path / "s") as store:
        hand.now_ms += 2 * HOUR_MS
        assert [len(Consumer(store, name).poll()) for name in ("a", "b", "c")] == [1, 1, 1]


# -- trims ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["trim", "delete"])
def test_trims_take_entries_out_of_the_index_at_once_and_for_good(tmp_path: Path, hand: Hand, how: str) -> None:
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        add(store, 20)
        add(store, 10, queue_id=1)
        assert sub.receive() == []
        quiet(store)
        topic = topic_of(store)
        delays_of(store).checkpoint(topic)
        if how == "trim":
            store.trim("t", 0, 15)
        else:
            store.delete_topic("t")
        left = 15 if how == "trim" else 0
        assert (topic.pending, store.stats()["delayed"]["t"]["pending"]) == (left, left)
        assert sub.backlog() == (0, 0, left)
        topic.tracker._is_changing = True  # made anew it has none of them either
        assert sub.receive() == []
        catch_up(store)
        assert topic.pending == left
    with hand.open(tmp_path / "s") as store, store.subscribe("t", "a") as sub:
        assert sub.receive() == []
        assert sub.backlog() == (0, 0, left)
        hand.now_ms += 2 * HOUR_MS
        assert len(sub.receive(100)) == left


def test_offset_beyond_all_is_refused(store: MessageStore) -> None:
    add(store, 1)
    assert not store.cancel_delayed("t", 0, 1 << 62)
    with pytest.raises(InvalidMessage, match="2\\*\\*63"):
        store.cancel_delayed("t", 0, 1 << 63)
    with pytest.raises(InvalidMessage, match="2\\*\\*63"):
        store.reschedule_delayed("t", 0, random.randrange(1 << 63, 1 << 70), START_MS)


def test_message_is_read_for_a_change_without_the_lock_of_its_topic(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, 1)
    topic, free = topic_of(store), list[bool]()
    quiet(store)
    reader = topic.parts.reader
    read = type(reader).read

    def look(*given: Any) -> Any:
        free.append(not topic.lock._is_owned())  # type: ignore[attr-defined]  # what `Condition` asks
        return read(*given)

    monkeypatch.setattr(type(reader), "read", look)
    assert store.cancel_delayed("t", 0, 0)
    assert free == [True]


def test_precision_wakes_nobody_while_nothing_is_due(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a", precision_ms=100)
    add(store, 1, 12_345)
    assert sub.receive() == []
    quiet(store)
    delays = sub._dispatcher.delays
    assert 12.345 <= delays.due_in_s() < 12.345 + 0.1
    rung = sub._state.version
    topic_of(store).look()
    assert sub._state.version == rung
    assert store.reschedule_delayed("t", 0, 0, START_MS + 250)
    assert sub._state.version == rung + 1, "that is earlier than it knows"
    assert 0.25 <= delays.due_in_s() <= 0.3
    hand.now_ms += 300
    assert [one.message.offset for one in sub.receive()] == [0]


def test_loop_of_a_coroutine_never_waits_for_the_lock_of_the_index(tmp_path: Path) -> None:
    async def waits(store: MessageStore, sub: Subscription, topic: DelayedTopic) -> bool:
        mine = threading.get_ident()
        lock, asked = topic.lock, list[bool]()

        class Told:
            def __enter__(self) -> None:
                asked.append(threading.get_ident() == mine)
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        topic.lock = Told()  # type: ignore[assignment]
        try:
            await sub.receive_async(wait_ms=30)
        finally:
            topic.lock = lock
        return any(asked) or not asked

    with MessageStore.open(tmp_path / "s", tiny()) as store, store.subscribe("t", "a") as sub:
        add(store, 1)
        assert sub.receive() == []
        quiet(store)
        assert not asyncio.run(waits(store, sub, topic_of(store)))


@pytest.mark.parametrize("how", ["trim", "trim at the first offset", "delete"])
def test_copies_of_messages_that_were_trimmed_neither_come_nor_count(tmp_path: Path, hand: Hand, how: str) -> None:
    """Retention has removed their segments, and the queue is empty."""
    with hand.open(tmp_path / "s", tiny(retention_ms=1_000)) as store:
        sub = store.subscribe("t", "a")
        topic = topic_of(store)
        rows = np.array([places_of(0, at) for at in add(store, 3)])
        assert sub.receive() == []
        quiet(store)
        messages = store.read("t", 0, 0, max_messages=10)
        topic.copies.take_in(topic.copies.append(messages))
        assert topic.copies.places.tolist() == rows.tolist()
        if how == "delete":
            store.delete_topic("t")
        elif how == "trim":
            store.append("t", 0, b"plain")
            sub.ack_batch(sub.receive())
            store.trim("t", 0, 4)
        else:
            store._trimming._bounds = lambda stream: (3, 3) if stream.topic == "t" else (0, 3)  # type: ignore[method-assign]
            store.trim("t", 0, 3)
        assert (sub.backlog().total, figures_of(topic)["copies"], figures_of(topic)["pending"]) == (0, 0, 0)
        assert not store.cancel_delayed("t", 0, 1)
    with hand.open(tmp_path / "s", tiny(retention_ms=1_000)) as store, store.subscribe("t", "a") as sub:
        assert sub.backlog().total == store.subscriptions("t")[0].backlog.total == 0
        hand.now_ms += 2 * HOUR_MS
        assert sub.receive() == []
        assert sub.backlog().total == 0


def test_closing_that_is_cut_short_loses_no_delayed_message(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pointer is gone, and what was left out for that is not read anew yet."""

    def interrupt(_: Dispatcher) -> None:
        raise Interrupted

    with hand.open(tmp_path / "s") as store:
        topic_of(store)
        quiet(store)
        sub, other = store.subscribe("t", "mine"), store.subscribe("t", "other")
        offsets = add(store, 1, 5)
        assert sub.receive() == other.receive() == []
        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            patched.setattr(Dispatcher, "restart", interrupt)
            sub.close()
        hand.now_ms += 10
        for each in (other, store.subscribe("t", "mine")):
            assert [one.message.offset for one in each.receive()] == offsets
