"""A store that is opened with read_only=True: beside its writer, after it, and without a live page."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    InvalidConfig,
    MessageStore,
    OffsetOutOfRange,
    StoreConfig,
    StoreCorrupt,
    StoreLocked,
    StoreReader,
    StoreReadOnly,
    StoreUnusable,
)
from stratalog.store.format.live_page import LIVE_FILE

from .helpers import (
    contents,
    crash_copy,
    flip_bit,
    has_settled,
    mark,
    scanned,
    segment_path,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)

QUEUES = [("t", queue) for queue in range(4)]

READS = {
    "open", "close", "closed", "stats", "read", "read_async", "read_batch", "get_range", "scan", "queue_bounds",
    "offset_at", "topics", "queues", "subscriptions", "aclose", "read_batch_async",
    "topic_settings", "metrics",
}  # fmt: skip
APPENDS: dict[str, Callable[[Any], object]] = {
    "append": lambda store: store.append("t", 0, b"x"),
    "flush_async": lambda store: store.flush_async(),
    "trim_async": lambda store: store.trim_async("t", 0, 1),
    "delete_topic_async": lambda store: store.delete_topic_async("t"),
    "cancel_delayed_async": lambda store: store.cancel_delayed_async("t", 0, 0),
    "reschedule_delayed_async": lambda store: store.reschedule_delayed_async("t", 0, 0, 1),
    "submit": lambda store: store.submit("new", 0, b"x"),
    "append_batch": lambda store: store.append_batch([("t", 0, b"x"), ("new", 0, b"x")]),
    "append_async": lambda store: asyncio.run(_awaited(lambda: store.append_async("t", 0, b"x"))),
    "append_batch_async": lambda store: asyncio.run(_awaited(lambda: store.append_batch_async([("t", 0, b"x")]))),
    "flush": lambda store: store.flush(),
    "attach_pending": lambda store: store.attach_pending(),
    "append_columns": lambda store: store.append_columns([("t", 0)], [0], [1], b"x"),
    "submit_columns": lambda store: store.submit_columns([("new", 0)], [0], [1], b"x"),
    "append_columns_async": lambda store: asyncio.run(
        _awaited(lambda: store.append_columns_async([("t", 0)], [0], [1], b"x"))
    ),
    "trim": lambda store: store.trim("t", 0, before_offset=1),
    "delete_topic": lambda store: store.delete_topic("t"),
    "configure_topic": lambda store: store.configure_topic("new", queues=1),
    "configure_topic_async": lambda store: store.configure_topic_async("new", queues=1),
    "transaction": lambda store: store.transaction(),
    "subscribe": lambda store: store.subscribe("t", "s"),
    "redrive": lambda store: store.redrive("t"),
    "redrive_async": lambda store: store.redrive_async("t"),
    "delete_subscription": lambda store: store.delete_subscription("t", "s"),
    "cancel_delayed": lambda store: store.cancel_delayed("t", 0, 0),
    "reschedule_delayed": lambda store: store.reschedule_delayed("t", 0, 0, 5),
}


async def _awaited(call: Callable[[], object]) -> object:
    return await call()  # type: ignore[misc]


def read_only(folder: Path) -> StoreReader:
    return MessageStore.open(folder, read_only=True)


def append_some(store: MessageStore, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        store.append("t", number % 4, b"%d" % number + bytes(number * 13 % 3000), key=b"k")


def seen(reader: StoreReader) -> dict[tuple[str, int], dict[int, bytes]]:
    """All that a reader has, by queues and by a scan, which must agree."""
    queues = [(topic, queue) for topic in reader.topics() for queue in reader.queues(topic)]
    found = contents(reader, queues)
    assert scanned(reader) == found
    return found


def test_reader_follows_its_writer_message_by_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store, read_only(tmp_path) as reader:
        assert (reader.topics(), reader.queue_bounds("t", 0), reader.read("t", 0)) == ([], (0, 0), [])
        for number in range(60):
            offset = store.append("t", number % 4, b"%d" % number, key=b"k")
            message = reader.read("t", number % 4, offset)[0]
            assert (message.data, message.key, message.offset) == (b"%d" % number, b"k", offset)
            assert reader.queue_bounds("t", number % 4) == store.queue_bounds("t", number % 4)


def test_reader_follows_through_new_segments_and_sealing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store, read_only(tmp_path) as reader:
        for begin in range(0, 300, 50):
            append_some(store, 50, begin)
            assert seen(reader) == contents(store, QUEUES)
        until(lambda: reader.stats()["segments"]["sealed"] > 3 or not reader.topics())
        assert seen(reader) == contents(store, QUEUES)
        with read_only(tmp_path) as late:
            assert seen(late) == contents(store, QUEUES)
            assert late.offset_at("t", 1, 0) == 0
            assert late.read_batch("t", 1).offsets.tolist() == store.read_batch("t", 1).offsets.tolist()


def test_reader_goes_on_with_the_next_writer(tmp_path: Path) -> None:
    expected = 0
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 10)
        reader = read_only(tmp_path)
    with reader:
        for life in range(4):
            with MessageStore.open(tmp_path, tiny()) as store:
                append_some(store, 30)
                expected = store.queue_bounds("t", 0)[1]
                assert reader.queue_bounds("t", 0) == (0, expected), life
                assert seen(reader) == contents(store, QUEUES)
        assert reader.queue_bounds("t", 0) == (0, expected)


@pytest.mark.parametrize("page", ["kept", "lost"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_closed_store_is_read_without_a_writer(tmp_path: Path, page: str, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        append_some(store, 150)
        expected = contents(store, QUEUES)
    if page == "lost":
        (tmp_path / LIVE_FILE).unlink()
    with read_only(tmp_path) as reader:
        assert seen(reader) == expected


def test_copy_of_a_crashed_store_shows_what_its_frames_prove(tmp_path: Path) -> None:
    """The page in a copy is another store's. A quiet lane has noted on disk how far it was durable."""
    with MessageStore.open(tmp_path / "a", tiny()) as store:
        append_some(store, 60)
        mark(store)
        expected = contents(store, QUEUES)
        crash_copy(tmp_path / "a", tmp_path / "b")
    with read_only(tmp_path / "b") as reader:
        assert not reader.stats()["live"]["page"]
        assert seen(reader) == expected


def test_page_of_another_start_of_the_machine_is_not_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a power cut the page may be old: frames and records are asked as well."""
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 5)
        old = (tmp_path / LIVE_FILE).read_bytes()
        append_some(store, 100, 5)
        expected = contents(store, QUEUES)
    with (tmp_path / LIVE_FILE).open("r+b") as page:
        page.write(old)
    with read_only(tmp_path) as reader:
        assert seen(reader) != expected  # the page counts as new: nobody else has started the machine
    monkeypatch.setattr("stratalog.store.live.page.boot_id", lambda: b"another start..")
    with read_only(tmp_path) as reader:
        assert seen(reader) == expected


def test_a_page_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 20)
        expected = contents(store, QUEUES)
    for data in (b"", b"x" * 100, bytes(1 << 16), os.urandom(1 << 16)):
        (tmp_path / LIVE_FILE).write_bytes(data)
        with read_only(tmp_path) as reader:
            assert seen(reader) == expected
    with MessageStore.open(tmp_path, tiny()) as store, read_only(tmp_path) as reader:
        store.append("t", 0, b"x")
        assert seen(reader) == contents(store, QUEUES)


def test_reader_finds_the_page_that_comes_after_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 20)
    (tmp_path / LIVE_FILE).unlink()
    with read_only(tmp_path) as reader, MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 20)
        until(lambda: reader.queue_bounds("t", 0) == store.queue_bounds("t", 0))
        assert seen(reader) == contents(store, QUEUES)


def test_reader_whose_page_was_taken_away_goes_by_the_frames(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, read_only(tmp_path) as reader:
        append_some(store, 20)
        assert seen(reader) == contents(store, QUEUES)
        (tmp_path / LIVE_FILE).unlink()
        append_some(store, 20, 20)
        mark(store)  # else nothing says that the last frame is durable
        until(lambda: reader.queue_bounds("t", 3) == store.queue_bounds("t", 3))
        assert seen(reader) == contents(store, QUEUES)


@pytest.mark.parametrize("name", APPENDS)
def test_appending_call_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, read_only(tmp_path) as reader:
        append_some(store, 4)
        assert reader.topics() == ["t"]
        with pytest.raises(StoreReadOnly, match="read_only=True"):
            APPENDS[name](reader)
        assert (reader.topics(), reader.queues("new")) == (["t"], [])


def test_every_public_call_reads_or_is_refused() -> None:
    """Whoever adds a call to the store says here which of the two it is."""
    names = {name for name, _ in inspect.getmembers(MessageStore) if not name.startswith("_")}
    assert names == READS | set(APPENDS)


def test_nothing_in_the_folder_is_changed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        append_some(store, 100)
    before, times = take_snapshot(tmp_path), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with read_only(tmp_path) as reader:
        seen(reader)
        assert reader.read("t", 0, reader.queue_bounds("t", 0)[1], wait_ms=20) == []
    assert take_snapshot(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_no_lock_is_needed_and_none_is_held(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 30)
        expected = contents(store, QUEUES)
    (tmp_path / "LOCK").unlink()
    with read_only(tmp_path) as reader, read_only(tmp_path) as another:
        assert seen(reader) == seen(another) == expected
        assert not (tmp_path / "LOCK").exists()
        with MessageStore.open(tmp_path, tiny()), pytest.raises(StoreLocked):
            MessageStore.open(tmp_path, tiny())


def test_what_is_no_store_is_refused_and_not_made_one(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(StoreUnusable):
            read_only(folder)
    assert list(tmp_path.iterdir()) == []
    MessageStore.open(tmp_path, tiny()).close()
    with pytest.raises(InvalidConfig, match="repair"):
        MessageStore.open(tmp_path, read_only=True, repair=True)
    with pytest.raises(InvalidConfig, match="lanes"):
        MessageStore.open(tmp_path, StoreConfig(lanes=7), read_only=True)


def test_unforced_messages_are_not_shown(tmp_path: Path) -> None:
    """With "os" an answer does not wait for the force, and a reader process does."""
    config = tiny(durability="os", flush_interval_ms=3_600_000)
    with MessageStore.open(tmp_path, config) as store, read_only(tmp_path) as reader:
        append_some(store, 8)
        assert store.queue_bounds("t", 0) == (0, 2)
        assert reader.queue_bounds("t", 0) == (0, 0)
        store.flush()
        assert reader.queue_bounds("t", 0) == (0, 2)
        assert seen(reader) == contents(store, QUEUES)


def test_damage_below_the_durable_position_is_told(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"first")
        store.append("t", 0, b"second")
        flip_bit(segment_path(tmp_path, 1), 8192 + 20)  # in the first frame's header
        with pytest.raises(StoreCorrupt, match="frame"):
            read_only(tmp_path)


def test_damaged_message_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for number in range(5):
            store.append("t", 0, b"message %d" % number)
        path = segment_paths(tmp_path)[0]
        flip_bit(path, path.read_bytes().index(b"message 3"))
        with read_only(tmp_path) as reader:
            assert len(reader.read("t", 0)) == 3
            with pytest.raises(StoreCorrupt, match="checksum"):
                reader.read("t", 0, 3)
            assert reader.read("t", 0, 4)[0].data == b"message 4"


def test_offsets_out_of_range_are_those_of_the_writer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, read_only(tmp_path) as reader:
        append_some(store, 8)
        for one in (store, reader):
            with pytest.raises(OffsetOutOfRange) as caught:
                one.read("t", 0, 3)
            assert (caught.value.first, caught.value.next_offset) == (0, 2)


def test_fork_and_close_end_a_reader(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        append_some(store, 8)
        reader = read_only(tmp_path)
        assert reader.read("t", 0, 2, wait_ms=1) == []  # there is a thread now
        child = os.fork()
        if not child:
            os._exit(0 if reader.closed else 1)
        assert os.waitpid(child, 0)[1] == 0
        reader.close()
        reader.close()
        assert reader.closed


def test_trims_and_deleted_topics_are_followed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, MessageStore.open(tmp_path, read_only=True) as reader:
        store.append_batch([("jobs", index % 2, b"%d" % index) for index in range(20)])
        assert reader.queue_bounds("jobs", 0) == (0, 10)
        store.trim("jobs", 0, before_offset=4)
        assert reader.queue_bounds("jobs", 0) == (4, 10)
        with pytest.raises(OffsetOutOfRange):
            reader.read("jobs", 0, 3)
        store.append("kept", 0, b"kept")
        store.delete_topic("jobs")
        assert reader.topics() == ["kept"] and reader.queues("jobs") == []
        assert sum(len(batch) for batch in reader.scan()) == 1
        assert store.append("jobs", 0, b"again") == 10
        assert reader.topics() == ["jobs", "kept"] and reader.queue_bounds("jobs", 0) == (10, 11)


def test_trims_of_sealed_segments_are_seen_by_a_reader_that_comes_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for index in range(10):
            store.append("jobs", 0, b"%d" % index * 2000)
        store.trim("jobs", 0, before_offset=7)
        while len(store._lanes[0].view.sealed) < 3:
            store.append("kept", 0, bytes(20_000))
        with MessageStore.open(tmp_path, read_only=True) as reader:
            assert reader.queue_bounds("jobs", 0) == (7, 10)
            assert reader.topics() == ["jobs", "kept"]
    with MessageStore.open(tmp_path, read_only=True) as reader:
        assert reader.queue_bounds("jobs", 0) == (7, 10)


def test_close_lets_go_of_every_file_at_once(tmp_path: Path) -> None:
    """Not when the cycle collector comes: a program may open a store for each of thousands of requests."""
    gc.collect()
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.append_batch([(*QUEUES[at % 4], b"x" * 3_000) for at in range(100)])
        until(lambda: has_settled(store))
        gc.disable()
        try:
            left = [files_left(store.path) for _ in range(3)]
        finally:
            gc.enable()
        assert min(left) <= 0  # the writer opens and closes files beside it, too


def files_left(folder: Path) -> int:
    """How many files more are open behind a reader than before it."""
    before = len(os.listdir("/proc/self/fd"))
    with MessageStore.open(folder, read_only=True) as reader:
        assert len(scanned(reader)) == 4
        assert reader.read(*QUEUES[0], 25, wait_ms=1) == []
        assert len(os.listdir("/proc/self/fd")) > before
    return len(os.listdir("/proc/self/fd")) - before
