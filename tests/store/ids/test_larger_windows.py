"""A window of ids that gets larger: what has left the one before stays forgotten, wherever its table is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.format.hidden import IDS_KIND, hidden_topic
from stratalog.store.format.message_ids import digest_of
from stratalog.store.log.frame_ids import FrameIds
from stratalog.store.log.streams import Stream
from stratalog.store.topics.id_window import IdWindow
from stratalog.testing import VirtualClock

from ..helpers import PATIENCE_S, start, tiny, until
from .test_message_ids import is_repeat

START_MS = 1_700_000_000_000
TABLES = ("in memory", "dropped", "of another opening")


def opened(path: Path, clock: VirtualClock) -> MessageStore:
    return MessageStore.open(path, tiny(lanes=2), clock=clock)


def append_all(store: MessageStore, ids: str) -> list[int]:
    return [store.append("t", queue, b"", message_id=one) for queue, one in enumerate(ids)]


@pytest.mark.parametrize("table", TABLES)
def test_ids_that_are_too_old_for_a_window_do_not_come_back_with_a_larger_one(tmp_path: Path, table: str) -> None:
    clock = VirtualClock(start_ms=START_MS)
    store = opened(tmp_path, clock)
    store.configure_topic("t", id_window_ms=10_000)
    append_all(store, "abc")
    clock.advance(ms=10_001)
    if table == "dropped":
        store._windows.look()
        assert "t" not in store._windows.loaded
    if table == "of another opening":
        store.close()
        store = opened(tmp_path, clock)
    store.configure_topic("t", id_window_ms=100_000)
    store.close()
    with opened(tmp_path, clock) as store:
        assert append_all(store, "abc") == [1, 1, 1], "each of them is stored again"


@pytest.mark.parametrize("table", TABLES)
def test_ids_that_others_have_driven_out_do_not_come_back_with_a_larger_window(tmp_path: Path, table: str) -> None:
    clock = VirtualClock(start_ms=START_MS)
    store = MessageStore.open(tmp_path, tiny(), clock=clock)
    store.configure_topic("t", id_window_count=2)
    rows = [("t", queue, b"") for queue in range(5)]
    store.append_batch(rows, message_ids=list("abcde"))  # in one record, of which two count
    known = {one for one in "abcde" if store._windows.of("t").find(digest(one)) is not None}
    assert known == {"d", "e"}
    if table == "dropped":
        store._windows.loaded.clear()
    if table == "of another opening":
        store.close()
        store = MessageStore.open(tmp_path, tiny(), clock=clock)
    store.configure_topic("t", id_window_count=100)
    for _ in range(2):
        assert {one for one in "abcde" if store._windows.of("t").find(digest(one)) is not None} == known
        store.close()
        store = MessageStore.open(tmp_path, tiny(), clock=clock)
    for one in known:
        assert is_repeat(store, "t", 7, one)
    store.close()


def digest(message_id: str) -> bytes:
    return digest_of(message_id.encode())


def test_a_window_that_gets_no_larger_writes_no_id_again(tmp_path: Path) -> None:
    clock = VirtualClock(start_ms=START_MS)
    with opened(tmp_path, clock) as store:
        append_all(store, "abc")
        ends = [store._windows._bounds(stream) for stream in store._windows._known_streams("t")]
        for window_ms in (600_000, 5000):
            store.configure_topic("t", id_window_ms=window_ms)
        assert [store._windows._bounds(stream) for stream in store._windows._known_streams("t")] == ends
        store.configure_topic("t", id_window_ms=5001)
        assert [store._windows._bounds(stream) for stream in store._windows._known_streams("t")] != ends
        assert append_all(store, "abc") == [0, 0, 0]


def test_appends_beside_a_window_that_gets_larger_keep_their_ids(tmp_path: Path) -> None:
    clock = VirtualClock(start_ms=START_MS)
    stop, stored = threading.Event(), list[tuple[str, int]]()

    def append_on() -> None:
        while not stop.is_set():
            message_id = f"{len(stored)}"
            stored.append((message_id, store.append("t", len(stored) % 4, b"", message_id=message_id)))

    with opened(tmp_path, clock) as store:
        store.configure_topic("t", id_window_ms=1000)
        worker = start(append_on)
        for window_ms in range(2000, 2030):
            store.configure_topic("t", id_window_ms=window_ms)
        stop.set()
        worker.join()
        assert [store.append("t", 9, b"", message_id=one) for one, _ in stored] == [offset for _, offset in stored]
    with opened(tmp_path, clock) as store:
        assert [store.append("t", 9, b"", message_id=one) for one, _ in stored] == [offset for _, offset in stored]
    assert len(stored) > 3


def test_a_larger_window_is_refused_where_ids_are_damaged(tmp_path: Path) -> None:
    clock = VirtualClock(start_ms=START_MS)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.append("t", 0, b"", message_id="a")
        windows = store._windows
        stream = windows._hidden.find(hidden_topic(IDS_KIND, "t", "0"))
        assert stream is not None
        records = windows._records

        def damaged(*args: object, pass_damage: bool) -> object:
            if not pass_damage:
                raise StoreCorrupt("damaged", "file", 7)
            return records(*args, pass_damage=pass_damage)  # type: ignore[arg-type]

        windows._records = damaged  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreCorrupt):
            store.configure_topic("t", id_window_ms=700_000)
        del windows._records
        assert store.topic_settings("t").id_window_ms == 600_000
        assert stream.low == 0 and store.append("t", 1, b"", message_id="a") == 0


def test_a_record_that_can_be_read_before_its_ids_are_durable_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock(start_ms=START_MS)
    settle, go_on, looked, changed = IdWindow.settle, *[threading.Event() for _ in range(3)]

    def settle_late(window: IdWindow, ids: FrameIds) -> None:
        go_on.wait(PATIENCE_S)
        settle(window, ids)

    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.append("t", 0, b"", message_id="a")
        windows = store._windows
        (stream,) = windows._known_streams("t")
        bounds = windows._bounds
        monkeypatch.setattr(IdWindow, "settle", settle_late)
        ticket = store.submit("t", 0, b"", message_id="b")
        until(lambda: bounds(stream)[1] == 2)

        def noted(stream: Stream) -> tuple[int, int]:
            looked.set()
            return bounds(stream)

        monkeypatch.setattr(windows, "_bounds", noted)

        def change() -> None:
            store.configure_topic("t", id_window_ms=700_000)
            changed.set()

        changing = start(change)
        looked.wait(PATIENCE_S)
        assert not changed.wait(0.2), "a change that does not wait passes over the record now"
        go_on.set()
        changing.join()
        assert ticket.result() == 1
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        assert [store.append("t", 1, b"", message_id=one) for one in "ab"] == [0, 1]
