"""What the log keeps of message ids: retention, trims of old records, compaction, damage and repair, forks."""

from __future__ import annotations

import gc
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from stratalog.store import (
    MessageStore,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnusable,
    TopicSettings,
    compact_store,
    rebuild_store,
    verify_folder,
)  # fmt: skip
from stratalog.store.format.layout import MAX_FRAME_MESSAGES
from stratalog.store.log.frame_ids import FrameIds
from stratalog.store.topics.id_window import IdWindow
from stratalog.store.topics.table import TopicTable
from stratalog.testing import VirtualClock
from tests.seeds import draw_seed

from ..disks import GatedDisk
from ..helpers import crash_copy, payload, place_of, start, tiny, until
from ..subscriptions.test_removed_counts import ByHand, remove_by_hand
from .test_message_ids import is_repeat

SIZE = 3_000
START_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_by_hand(monkeypatch)


def fill(store: MessageStore, count: int, topic: str = "filler") -> None:
    store.append_batch([(topic, 0, bytes(SIZE))] * count)


def records(store: MessageStore, topic: str = "t", lane: int = 0) -> int:
    """How many records of ids the log has."""
    target = store._windows.target(topic, store._windows.of(topic), store._lanes[lane])
    first, end = store._reader.bounds(target.stream)
    return end - first


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("lanes", [1, 2])
def test_retention_keeps_the_ids_of_the_window(tmp_path: Path, lanes: int, reopened: bool) -> None:
    clock = VirtualClock(start_ms=START_MS)
    config = tiny(retention_bytes=200_000, lanes=lanes)
    store = MessageStore.open(tmp_path, config, clock=clock)
    store.configure_topic("t", id_window_ms=10_000)
    offsets = [store.append("t", number % 4, bytes(200), message_id=f"old {number}") for number in range(8)]
    clock.advance(ms=6000)
    offsets += store.append_batch([("t", 0, bytes(200))] * 500, message_ids=[f"{at}" for at in range(500)]).tolist()
    for _ in range(3):
        if reopened:
            store.close()
            store = MessageStore.open(tmp_path, config, clock=clock)
        for topic in ("filler", "other", "third", "fourth"):
            fill(store, 60, topic)
            ByHand(store)()
        assert store.stats()["log"]["removed_segments"] > 0
    assert store.queue_bounds("t", 0)[0] == store.queue_bounds("t", 0)[1], "all messages with ids are gone"
    ids = [f"old {number}" for number in range(8)] + [f"{at}" for at in range(500)]
    assert store.append_batch([("t", 1, b"")] * 508, message_ids=ids).tolist() == offsets
    clock.advance(ms=4000)
    store.close()
    store = MessageStore.open(tmp_path, config, clock=clock)
    assert store.append("t", 0, b"", message_id="7") == offsets[15]
    assert not is_repeat(store, "t", 0, "old 7")
    store.close()


def test_kept_ids_leave_the_window_in_their_order(tmp_path: Path) -> None:
    config = tiny(retention_bytes=200_000)
    with MessageStore.open(tmp_path, config) as store:
        store.configure_topic("t", id_window_count=100)
        for number in range(60):
            store.append("t", 0, b"", message_id=f"{number}")
        fill(store, 200)
        ByHand(store)()
        for number in range(60, 120):
            store.append("t", 0, b"", message_id=f"{number}")
    with MessageStore.open(tmp_path, config) as store:
        assert [store.append("t", 0, b"", message_id=f"{number}") for number in range(119, 19, -1)] == list(
            range(119, 19, -1)
        )
        assert store.append("t", 0, b"", message_id="19") == 120


def test_retention_does_not_keep_ids_that_the_topic_has_forgotten(tmp_path: Path) -> None:
    config = tiny(retention_bytes=200_000)
    with MessageStore.open(tmp_path, config) as store:
        store.configure_topic("t", id_window_count=10)
        store.append_batch([("t", 0, b"")] * 1000, message_ids=[f"{at}" for at in range(1000)])
        for _ in range(2):
            fill(store, 90)
            ByHand(store)()
        target = store._windows.target("t", store._windows.of("t"), store._lanes[0])
        first, end = store._reader.bounds(target.stream)
        kept = list(store._windows._records(target.stream, first, end, pass_damage=False))
        assert [len(one.digests) for one in kept] == [10]
        assert len(store._windows.of("t")) == 10
        store.delete_topic("t")
        fill(store, 90)
        ByHand(store)()
        assert records(store) == 0


def test_records_that_left_the_window_are_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.topics.id_window.MARK_IDS", 50)
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        store.configure_topic("t", id_window_count=100)
        for number in range(1070):
            store.append("t", 0, b"", message_id=f"{number}")
        store.flush()
        lane = store._streams.topics["t"][0].lane.index
        assert 100 <= records(store, lane=lane) <= 300
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        assert [store.append("t", 0, b"", message_id=f"{number}") for number in range(970, 1070)] == [*range(970, 1070)]


def test_an_opening_reads_the_window_and_not_all_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.topics.id_windows.READ_RECORDS", 64)
    monkeypatch.setattr("stratalog.store.topics.id_windows.FEW_RECORDS", 200)
    clock = VirtualClock(start_ms=START_MS)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.configure_topic("t", id_window_count=100)
        for number in range(1000):
            store.append("t", 0, b"", message_id=f"{number}")
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        before = store.stats()["reads"]["messages"]
        assert store.append("t", 0, b"", message_id="950") == 950
        assert store.stats()["reads"]["messages"] - before <= 200
        store.flush()
        assert records(store) <= 200
        store.configure_topic("t", id_window_ms=5000)
    clock.advance(ms=6000)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        before = store.stats()["reads"]["messages"]
        assert store.append("t", 0, b"", message_id="950") == 1000
        assert store.stats()["reads"]["messages"] - before <= 65


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_compaction_keeps_the_ids(tmp_path: Path, lanes: int) -> None:
    config = tiny(lanes=lanes)
    with MessageStore.open(tmp_path, config) as store:
        offsets = [store.append("t", number % 5, payload(number, 900), message_id=f"{number}") for number in range(300)]
        fill(store, 50)
        for queue in range(5):
            store.trim("t", queue, 30)
        store.delete_topic("filler")
    compact_store(tmp_path)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, config) as store:
        assert [store.append("t", 4, b"", message_id=f"{number}") for number in range(300)] == offsets
        assert sum(store.queue_bounds("t", queue)[1] for queue in range(5)) == 300


@pytest.mark.parametrize("columns", [False, True])
def test_a_torn_frame_keeps_neither_the_message_nor_its_id(tmp_path: Path, columns: bool) -> None:
    with MessageStore.open(tmp_path / "a", tiny()) as store:
        store.append("t", 0, b"before", message_id="before")
        store.flush()
        with store._flushers[0].building:  # all in one frame
            tickets = [store.submit("t", 0, bytes(5000), message_id=f"{number}") for number in range(4)]
            if columns:
                store.submit_columns([("u", 0)], [0], [3], b"abc")
        assert [ticket.result() for ticket in tickets] == [1, 2, 3, 4]
        path, position = place_of(store, ("t", 0), 3)
        crash_copy(tmp_path / "a", tmp_path / "b")
    torn = tmp_path / "b" / path.relative_to(tmp_path / "a")
    content = bytearray(torn.read_bytes())
    content[position:] = bytes(len(content) - position)  # a part of the frame, from its third message on
    torn.write_bytes(content)
    (tmp_path / "b" / "LIVE").unlink()
    with MessageStore.open(tmp_path / "b", tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, 1)
        again = [store.submit("t", 0, b"", message_id=f"{number}") for number in range(4)]
        assert [ticket.result() for ticket in again] == [1, 2, 3, 4]
        assert not any(ticket.is_repeat for ticket in again)
        assert is_repeat(store, "t", 0, "before")


def test_batches_that_share_a_frame_have_their_own_offsets(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="before")
        found: dict[str, list[int]] = {}

        def append(name: str, queues: list[int]) -> None:
            rows = [("t", queue, b"x") for queue in queues]
            ids = [f"{name} {at}" if at % 3 else None for at in range(len(rows))]
            found[name] = store.append_batch(rows, message_ids=ids).tolist()

        with store._flushers[0].building:
            workers = [start(append, name, [at % 2 for at in range(9)]) for name in "abc"]
            until(lambda: len(store._queues[0].requests) == 3)
        for worker in workers:
            worker.join()
        assert sorted(found["a"] + found["b"] + found["c"]) == sorted([*range(1, 16), *range(12)])
    with MessageStore.open(tmp_path, tiny()) as store:
        for name, offsets in found.items():
            for at in (1, 2, 4, 5, 7, 8):
                assert store.append("t", 0, b"", message_id=f"{name} {at}") == offsets[at]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_damage_to_a_record_is_reported_and_a_repair_forgets_its_ids(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="a")
        path, position = place_of(store, ("t", 0), 0)
        store.append("t", 0, b"", message_id="b")
    flip(path, position + 40)  # a digest of the record after the empty message
    assert not verify_folder(tmp_path).ok
    with pytest.raises(StoreCorrupt) as raised:
        MessageStore.open(tmp_path, tiny())
    assert raised.value.file == str(path) and raised.value.position == position
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "ba"] == [1, 2]


def test_damage_in_a_sealed_segment_is_reported_by_whoever_needs_its_ids(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="a")
        path, position = place_of(store, ("t", 0), 0)
        store.append("t", 0, b"", message_id="b")
        fill(store, 100)
    flip(path, position + 40)
    with MessageStore.open(tmp_path, tiny()) as store:
        for message_id in ("b", "new"):
            with pytest.raises(StoreCorrupt) as raised:
                store.append("t", 0, b"", message_id=message_id)
            assert raised.value.file == str(path) and raised.value.position == position
        assert store.append("t", 0, b"plain") == 2
        assert store.append("u", 0, b"", message_id="b") == 0
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "ba"] == [1, 3]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "ba"] == [1, 3]


def test_retention_does_not_stop_at_a_damaged_record(tmp_path: Path) -> None:
    config = tiny(retention_bytes=200_000)
    with MessageStore.open(tmp_path, config) as store:
        for message_id in "abc":
            store.append("t", 0, b"", message_id=message_id)
        path, position = place_of(store, ("t", 0), 1)
        fill(store, 30)
    flip(path, position + 40)
    with MessageStore.open(tmp_path, config) as store:
        for _ in range(2):
            fill(store, 90)
            ByHand(store)()
        assert store.queue_bounds("t", 0) == (3, 3)
    with MessageStore.open(tmp_path, config) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "acb"] == [0, 2, 3]


@pytest.mark.parametrize("error", [StoreCorrupt("damaged", "file", 0), StoreUnusable("of a later version")])
def test_retention_keeps_all_ids_of_a_topic_whose_settings_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    config = tiny(retention_bytes=200_000)
    with MessageStore.open(tmp_path, config) as store:
        store.configure_topic("t", id_window_count=200)
        ids = [f"{number}" for number in range(150)]
        store.append_batch([("t", 0, b"")] * 150, message_ids=ids)
    with MessageStore.open(tmp_path, config) as store:
        configured = type(store._fetcher.configured)
        settings = configured.settings

        def unreadable(table: TopicTable, topic: str) -> TopicSettings:
            if topic == "t":
                raise error
            return settings(table, topic)

        with monkeypatch.context() as patch:
            patch.setattr(configured, "settings", unreadable)
            for _ in range(2):
                fill(store, 90)
                ByHand(store)()
            assert store.queue_bounds("t", 0) == (150, 150)
        assert store.append_batch([("t", 0, b"")] * 150, message_ids=ids).tolist() == [*range(150)]


def test_one_table_that_cannot_settle_leaves_the_others_their_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, raised = IdWindow.settle, list[None]()

    def fails_first(window: IdWindow, ids: FrameIds) -> None:
        if not raised:
            raised.append(None)
            raise MemoryError
        settle(window, ids)

    store = MessageStore.open(tmp_path, tiny())
    store.append("t", 0, b"")
    monkeypatch.setattr(IdWindow, "settle", fails_first)
    with store._flushers[0].building:
        store.submit("t", 0, b"", message_id="a")
        store.submit("u", 0, b"", message_id="a")
        again = store.submit("u", 0, b"", message_id="a")
    assert again.result(5) == 0
    with suppress(StoreError):
        store.close()


def test_the_table_of_an_idle_topic_is_dropped_and_read_again(tmp_path: Path) -> None:
    clock = VirtualClock(start_ms=START_MS)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        windows = store._windows
        store.configure_topic("t", id_window_ms=10_000)
        store.configure_topic("u", id_window_ms=60_000)
        for topic in "tu":
            store.append_batch([(topic, 0, b"")] * 100, message_ids=[f"{number}" for number in range(100)])
        clock.advance(ms=5000)
        windows.look()
        assert sorted(windows.loaded) == ["t", "u"]
        held = windows.of("t")  # as an append has it that is about to let its id in
        clock.advance(ms=5001)
        windows.look()
        assert [*windows.loaded] == ["u"] and len(held) == 0
        store.configure_topic("t", id_window_ms=20_000)
        assert windows.of("t") is held and held._window_ms == 20_000
        assert store.append("t", 0, b"", message_id="7") == 100
        clock.advance(ms=20_001)
        windows.look()
        del held
        gc.collect()
        assert not windows._dropped and "t" not in windows.loaded
        assert [store.append("t", 0, b"", message_id="7") for _ in range(2)] == [101, 101]
        assert store.append("u", 0, b"", message_id="7") == 7
        assert store._queues[0].frame_messages == MAX_FRAME_MESSAGES - 2, "a frame has a record for each of two topics"


def test_random_records_come_back_as_they_were(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    known: dict[str, tuple[int, int]] = {}
    ends = [0] * 6
    for _ in range(6):
        with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
            for _ in range(rng.randrange(1, 30)):
                names = [f"{rng.randrange(400)}" for _ in range(rng.choice((1, 1, 5, 60)))]
                queues = [rng.randrange(6) for _ in names]
                rows = [("t", queue, b"x") for queue in queues]
                offsets = store.append_batch(rows, message_ids=names).tolist()
                for name, queue, offset in zip(names, queues, offsets, strict=True):
                    if name not in known:
                        known[name] = queue, ends[queue]
                        ends[queue] += 1
                    assert offset == known[name][1]
            assert [store.queue_bounds("t", queue)[1] for queue in range(6)] == ends
            crash_copy(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
        with MessageStore.open(tmp_path.parent / f"{tmp_path.name}-copy", tiny(lanes=2)) as store:
            assert store.append_batch([("t", 0, b"")] * len(known), message_ids=list(known)).tolist() == [
                offset for _, offset in known.values()
            ]


def test_a_rebuild_changes_no_id(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        offsets = [store.append("t", 0, bytes(900), message_id=f"{number}") for number in range(300)]
    rebuild_store(tmp_path)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=f"{number}") for number in range(300)] == offsets


def test_a_forked_child_is_told_at_once(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"before")
        disk.gate.clear()
        first = store.submit("t", 0, b"x", message_id="a")
        again = store.submit("t", 0, b"x", message_id="a")
        child = os.fork()
        if child == 0:
            told = isinstance(again.exception(5), StoreClosed) and isinstance(first.exception(5), StoreClosed)
            os._exit(0 if told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        disk.gate.set()
        assert (first.result(), again.result()) == (1, 1)
