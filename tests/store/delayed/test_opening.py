"""An index after a clean end, a crash, damage and loss: the log says what is pending, and nobody waits for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from stratalog.index.trackers.time_buckets import WAITING_BYTES
from stratalog.store import MessageStore, StoreConfig
from stratalog.store.delayed import delays as delays_module
from stratalog.store.delayed import due_scan
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.due_scan import DueScan
from stratalog.store.delayed.messages import figures_of
from stratalog.store.delayed.parts import offsets_of, places_of

from ..helpers import crash_copy, tiny, until
from .consumer import START_MS, Consumer, Got, Hand, delays_of, quiet, topic_of

COUNT = 300


def fill(store: MessageStore, count: int = COUNT, size: int = 1000) -> None:
    """Some segments with delays of 1 .. count ms, and others between them."""
    for number in range(count):
        store.append("t", number % 3, bytes(size), deliver_at_ms=START_MS + 1 + number)
        if number % 4 == 0:
            store.append("t", 7, bytes(size))


def catches_up(store: MessageStore) -> None:
    until(lambda: not topic_of(store).is_lagging)


def index_folder(store: Path) -> Path:
    (folder,) = (store / "delayed").iterdir()
    return folder


def check_all(store: MessageStore, hand: Hand, taken: int = 0) -> None:
    """Everything but the first `taken` is pending, and comes in time."""
    consumer = Consumer(store)
    got = consumer.poll()
    assert sorted(one for one in got if one.queue_id < 7) == sorted(Got(n % 3, n // 3) for n in range(taken))
    catches_up(store)
    for now_ms in range(taken + 1, COUNT + 1, 7):
        hand.now_ms = START_MS + now_ms
        # Damage is found as late as now, and then the index is built anew.
        until(lambda: consumer.poll() is None or not topic_of(store).is_lagging)
        consumer.poll()
        assert sum(one.queue_id < 7 for one in consumer.got) == now_ms
    hand.now_ms = START_MS + COUNT
    consumer.poll()
    assert len(consumer.got) == COUNT + COUNT // 4


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("how", ["closed", "crashed", "crashed after a checkpoint", "without its files"])
def test_pending_messages_are_pending_after_an_opening(tmp_path: Path, hand: Hand, how: str, lanes: int) -> None:
    with hand.open(tmp_path / "s", tiny(lanes=lanes)) as store:
        consumer = Consumer(store)
        fill(store, COUNT // 2)
        hand.now_ms += 40
        consumer.poll()
        if "checkpoint" in how:
            delays_of(store).checkpoint(topic_of(store))
        for number in range(COUNT // 2, COUNT):
            store.append("t", number % 3, bytes(1000), deliver_at_ms=START_MS + 1 + number)
            if number % 4 == 0:
                store.append("t", 7, bytes(1000))
        hand.now_ms += 40
        consumer.poll()
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    folder = tmp_path / ("crashed" if "crashed" in how else "s")
    if "without" in how:
        shutil.rmtree(folder / "delayed")
    with hand.open(folder) as store:
        assert topic_of(store).last_rebuild is None
        check_all(store, hand, taken=80)


@pytest.mark.parametrize("what", ["MANIFEST", "bucket"])
def test_damaged_index_is_built_anew_from_the_log(tmp_path: Path, hand: Hand, what: str) -> None:
    with hand.open(tmp_path / "s") as store:
        topic_of(store)
        fill(store)
    (damaged,) = (path for path in index_folder(tmp_path / "s").iterdir() if path.name.endswith(what))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 4
    damaged.write_bytes(data)
    with hand.open(tmp_path / "s") as store:
        check_all(store, hand)
        assert topic_of(store).rebuilds == 1


@pytest.mark.parametrize("lanes", [1, 3])
def test_index_that_is_ahead_of_the_log_is_built_anew(tmp_path: Path, hand: Hand, lanes: int) -> None:
    """Also where it is ahead of the log of one lane alone."""
    with hand.open(tmp_path / "s", tiny(lanes=lanes)) as store:
        topic_of(store)
        fill(store)
        crash_copy(tmp_path / "s", tmp_path / "older")
        for _ in range(COUNT):
            store.append("t", 1, bytes(1000), deliver_at_ms=START_MS + 1)
    shutil.rmtree(tmp_path / "older" / "delayed", ignore_errors=True)
    shutil.copytree(tmp_path / "s" / "delayed", tmp_path / "older" / "delayed")
    with hand.open(tmp_path / "older", tiny(lanes=lanes)) as store:
        assert topic_of(store).last_rebuild == "it is ahead of the log"
        check_all(store, hand)


def test_index_of_another_topic_is_built_anew(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s") as store:
        topic_of(store, "t"), topic_of(store, "u")
        fill(store)
        store.append("u", 0, b"x", deliver_at_ms=START_MS + 5)
        one, other = (topic_of(store, name).parts.folder_of(name) for name in ("t", "u"))
    one.rename(one.with_name("between"))
    other.rename(one)
    one.with_name("between").rename(other)
    with hand.open(tmp_path / "s") as store:
        assert [topic_of(store, name).rebuilds for name in ("t", "u")] == [1, 1]
        check_all(store, hand)


def test_store_whose_acknowledged_messages_may_be_lost_builds_its_index_anew(tmp_path: Path, hand: Hand) -> None:
    config = tiny(durability="os")
    with hand.open(tmp_path / "s", config) as store:
        topic_of(store)
        fill(store)
    with hand.open(tmp_path / "s", config) as store:
        assert topic_of(store).rebuilds == 1
        check_all(store, hand)


def test_consumption_is_not_blocked_while_the_index_is_built(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery blocked the dispatcher elsewhere."""
    with hand.open(tmp_path / "s") as store:
        fill(store)
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s") as store:
        hand.now_ms += 20
        consumer = Consumer(store)
        got = consumer.poll()
        assert sorted(one.offset for one in got if one.queue_id == 7) == list(range(COUNT // 4))
        assert sorted(one for one in got if one.queue_id < 7) == sorted(Got(n % 3, n // 3) for n in range(20))
        assert topic_of(store).is_lagging
        assert store.cancel_delayed("t", 0, 50), "exact, although the index does not know it yet"
        assert not store.cancel_delayed("t", 0, 0)
        monkeypatch.undo()
        catches_up(store)
        hand.now_ms = START_MS + COUNT
        consumer.poll()
        assert len(consumer.got) == COUNT + COUNT // 4 - 1


def test_a_cancelled_message_stays_cancelled_while_the_index_is_behind(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log behind an index has the message, and says nothing of its cancellation."""
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s") as store:
        fill(store)
        consumer = Consumer(store)
        assert topic_of(store).is_lagging
        assert store.cancel_delayed("t", 0, 50)
        assert not store.cancel_delayed("t", 0, 50)
        assert not store.reschedule_delayed("t", 0, 50, START_MS + 10)
        monkeypatch.undo()
        catches_up(store)
        hand.now_ms = START_MS + COUNT
        consumer.poll()
        assert Got(0, 50) not in consumer.got


def test_index_at_its_limit_of_memory_goes_on_from_disk_and_loses_nothing(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "MEMORY_LIMIT_BYTES", 200_000)
    monkeypatch.setattr("stratalog.index.trackers.pages.KEPT_PAGES", 1)
    monkeypatch.setattr("stratalog.index.trackers.pages.PAGE_ROWS", 256)
    monkeypatch.setattr("stratalog.store.delayed.topic_index.MEASURED_ROWS", 16)
    with hand.open(tmp_path / "s") as store:
        consumer, count, many = Consumer(store), 60_000, np.ones(1_000, np.int64)
        for number in range(0, count, 1_000):
            times = START_MS + 1 + number + np.arange(1_000)
            store.append_columns([("t", 0)], many * 0, many, bytes(1_000), deliver_at_ms=times)
            assert consumer.poll() == []
        figures = figures_of(topic_of(store))
        assert (figures["pending"], figures["memory_limit_bytes"], figures["paused"]) == (count, 200_000, False)
        assert figures["memory_bytes"] < 200_000 + 16 * WAITING_BYTES  # of what was added since the last look
        assert figures["buckets"] > 0
        while len(consumer.got) < count:
            hand.now_ms += 1_000
            consumer.poll()
            assert [got.offset for got in consumer.got] == list(range(hand.now_ms - START_MS))


def test_index_that_paused_at_its_limit_goes_on_once_most_of_what_it_has_was_taken(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finds entries on disk is too much where each has a segment of its own. Some of all are due in years."""
    limit_bytes, count, part, apart_ms, years_ms = 300_000, 12_000, 200, 300_000, 1 << 40
    monkeypatch.setattr(delays_module, "MEMORY_LIMIT_BYTES", limit_bytes)
    monkeypatch.setattr("stratalog.store.delayed.topic_index.MEASURED_ROWS", 16)
    with hand.open(tmp_path / "s") as store:
        consumer, delays, ones = Consumer(store), quiet(store), np.ones(part, np.int64)
        for number in range(0, count, part):
            times = START_MS + apart_ms * (1 + number + np.arange(part))
            times[0] += years_ms
            store.append_columns([("t", 0)], ones * 0, ones, bytes(part), deliver_at_ms=times)
            assert consumer.poll() == []
        figures = figures_of(topic_of(store))
        assert (figures["paused"], figures["is_behind"]) == (True, True)
        assert figures["memory_bytes"] < limit_bytes + (16 + part) * WAITING_BYTES
        store.append("t", 0, b"late", deliver_at_ms=START_MS + 1)
        assert consumer.poll() == []
        for _ in range(200):
            hand.now_ms = min(hand.now_ms + 100 * apart_ms, START_MS + count * apart_ms)
            consumer.poll()
            delays.checkpoint(topic_of(store))
            delays.work()
        assert sorted(got.offset for got in consumer.got) == [n for n in range(count + 1) if n == count or n % part]
        figures = figures_of(topic_of(store))
        assert (figures["pending"], figures["paused"], figures["is_behind"]) == (count // part, False, False)


def test_walk_gives_each_delayed_message_once_sealed_or_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_scan, "STEP_MESSAGES", 7)
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        scan, found = DueScan(store._lanes[0]), list[tuple[int, int]]()

        def go_on() -> None:
            for rows in scan.parts(-1):
                found.extend(zip(rows.numbers.tolist(), rows.offsets.tolist(), strict=True))
            assert scan.is_at_end()

        for number in range(COUNT):
            store.append("t", number % 3, bytes(1000), deliver_at_ms=number)
            store.append("t", number % 3, bytes(1000))
            if number in (5, 6, 90, 200):
                go_on()
        until(lambda: not any(table.entries < table.visible for _, table in store._lanes[0].view.open))
        go_on()
        numbers = {stream.queue_id: stream.number for stream in store._lanes[0].streams if stream.topic == "t"}
        assert found == [(numbers[n % 3], 2 * (n // 3)) for n in range(COUNT)]
        again = DueScan(store._lanes[0])
        assert sum(len(rows.numbers) for rows in again.parts(-1)) == COUNT
        again = DueScan(store._lanes[0])
        late = sum(len(rows.numbers) for rows in again.parts(COUNT - 20))
        assert 20 <= late < COUNT, "segments in which all is over are passed"


def test_offset_is_told_again_from_its_low_bits() -> None:
    for offset in (0, 5, (1 << 32) - 1, 1 << 32, (1 << 40) + 7):
        for later in (1, 2, (1 << 32) - 1):
            entries = np.array([places_of(3, offset) & ((1 << 32) - 1)])
            assert offsets_of(entries, offset + later).tolist() == [offset]


def test_many_queues_and_lanes_have_one_index(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", StoreConfig(lanes=4, segment_bytes=1 << 20)) as store:
        consumer = Consumer(store)
        streams = [("t", queue_id) for queue_id in range(500)]
        times = START_MS + 1 + np.arange(2_000)[::-1]
        store.append_columns(
            streams, np.arange(2_000) % 500, np.ones(2_000, np.int64), bytes(2_000), deliver_at_ms=times
        )
        assert consumer.poll() == []
        hand.now_ms += 2_000
        assert consumer.poll() == [Got(number % 500, number // 500) for number in reversed(range(2_000))]


@pytest.mark.parametrize("behind", ["a", "b"])
def test_the_thread_goes_on_at_once_while_any_topic_is_behind(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    for topic in ("a", "b"):
        store.append(topic, 0, b"x", deliver_at_ms=START_MS + 10)
        store.subscribe(topic, "s").receive()
    delays = delays_of(store)
    assert set(delays.topics) == {"a", "b"}
    with monkeypatch.context() as patch:
        patch.setattr(Delays, "_catch_up_topic", lambda _delays, topic: topic.name == behind)
        delays.topics[behind].ask_for_visit()
        assert delays.work() == 0
