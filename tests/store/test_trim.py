"""Trimmed queues and deleted topics: nothing of them is read again, whatever happens, and offsets go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    Message,
    MessageStore,
    OffsetOutOfRange,
    StoreClosed,
    StoreConfig,
    StorePoisoned,
    StoreReader,
    StoreUnusable,
    inspect_folder,
    look_into_folder,
    verify_folder,
)
from stratalog.store.format.layout import segment_name
from stratalog.store.format.records import RECORDS_TOPIC
from stratalog.store.testing import TunedCacheConfig

from .disks import FailingDisk
from .helpers import crash_copy, has_settled, scanned, segment_paths, small, start, tiny, until

LARGE = 4000  # bytes; some sixteen fill a segment


def fill(store: MessageStore, count: int, *, queues: int = 1, size: int = 20, topic: str = "t") -> None:
    store.append_batch([(topic, index % queues, b"%06d" % index + bytes(size)) for index in range(count)])


def read_all(store: MessageStore, topic: str, queue: int) -> list[Message]:
    return store.read(topic, queue, store.queue_bounds(topic, queue)[0], max_messages=10_000, max_bytes=1 << 30)


def reads_below(store: StoreReader, offset: int, queue: int = 0) -> list[Callable[[], object]]:
    return [
        lambda: store.read("t", queue, offset),
        lambda: store.read_batch("t", queue, offset),
        lambda: store.get_range("t", queue, offset, 10),
        lambda: store.read("t", queue, offset, max_messages=0),
        lambda: store.read_batch("t", queue, offset, max_messages=0),
        lambda: store.get_range("t", queue, offset, 0),
    ]


def check_begins_at(store: StoreReader, low: int, end: int, queue: int = 0) -> None:
    """All ways to read agree that the queue has the messages low .. end - 1 and no others."""
    assert store.queue_bounds("t", queue) == (low, end)
    assert [message.offset for message in store.read("t", queue, low, max_messages=10_000, max_bytes=1 << 30)] == list(
        range(low, end)
    )
    assert store.read_batch("t", queue, low, max_messages=10_000).offsets.tolist() == list(range(low, end))
    assert sorted(store.get_range("t", queue, low, 10_000)) == list(range(end - low))
    for read in reads_below(store, low - 1, queue):
        with pytest.raises(OffsetOutOfRange):
            read()
    assert sorted(scanned(store).get(("t", queue), {})) == list(range(low, end))
    assert store.offset_at("t", queue, 0) == low


@contextmanager
def in_each_state(path: Path, config: StoreConfig, low: int, end: int) -> Iterator[MessageStore]:
    """The store; behind the block it is checked open, as a crash leaves it, closed, opened, and opened again."""
    with MessageStore.open(path, config) as store:
        yield store
        check_begins_at(store, low, end)
        crash_copy(path, path.with_name("crashed"))
    for folder in (path, path.with_name("crashed")):
        with look_into_folder(folder) as looked:
            check_begins_at(looked, low, end)
        for _ in range(2):
            with MessageStore.open(folder, config) as store:
                check_begins_at(store, low, end)
        assert verify_folder(folder).damages == []


@pytest.mark.parametrize("config", [tiny(), tiny(durability="os"), tiny(lanes=3)], ids=["force", "os", "lanes"])
@pytest.mark.parametrize(("count", "size", "low"), [(10, 20, 4), (10, 20, 10), (100, LARGE, 70), (100, LARGE, 100)])
def test_trimmed_messages_are_gone_for_good(
    tmp_path: Path, config: StoreConfig, count: int, size: int, low: int
) -> None:
    with in_each_state(tmp_path / "store", config, low, count) as store:
        fill(store, count, size=size)
        assert store.trim("t", 0, low) == low


def test_record_in_a_sealed_segment_is_in_its_footer(tmp_path: Path) -> None:
    """Opening reads the newest footer and the log behind it: the record itself lies in front of both."""
    with in_each_state(tmp_path / "store", tiny(), 5, 105) as store:
        fill(store, 5)
        store.trim("t", 0, 5)
        fill(store, 100, size=LARGE)
        until(lambda: store.stats()["segments"]["sealed"] >= 5)
        assert all(sealed.footer.trimmed for sealed in store._lanes[0].view.sealed)


def test_footer_has_the_trims_of_its_own_segment_and_of_those_before_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        lows: list[int] = []
        for _ in range(6):
            fill(store, 20, size=LARGE)
            lows.append(store.trim("t", 0, store.queue_bounds("t", 0)[1] - 40) if lows else store.trim("t", 0, 1))
        until(lambda: has_settled(store))
        sealed = store._lanes[0].view.sealed
        found = [one.footer.trimmed[0].low if one.footer.trimmed else 0 for one in sealed]
        assert found == sorted(found)
        assert set(found) <= {0, *lows}
        for one, low in zip(sealed, found, strict=True):
            assert low <= one.first_of(0)[0] + one.first_of(0)[1], "a footer knows of a trim of a later segment"


def test_offsets_go_on_behind_a_trim(tmp_path: Path) -> None:
    with in_each_state(tmp_path / "store", tiny(), 10, 12) as store:
        fill(store, 10)
        store.trim("t", 0, 10)
        assert store.queue_bounds("t", 0) == (10, 10)
        assert store.read("t", 0, 10) == []
        assert [store.append("t", 0, b"x") for _ in range(2)] == [10, 11]


def test_trim_at_or_below_the_first_offset_writes_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.trim("t", 0, 0) == 0
        fill(store, 10)
        assert store.trim("t", 0, 0) == 0
        assert store.trim("t", 0, before_offset=6) == 6
        written = store.stats()["log"]["records"]
        assert [store.trim("t", 0, low) for low in (6, 5, 0)] == [6, 6, 6]
        assert store.stats()["log"]["records"] == written == 1


def test_trim_beyond_the_next_offset_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 10)
        with pytest.raises(OffsetOutOfRange):
            store.trim("t", 0, 11)
        with pytest.raises(OffsetOutOfRange):
            store.trim("new", 0, 1)
        assert store.queue_bounds("t", 0) == (0, 10)


@pytest.mark.parametrize("given", [("t", 0, -1), ("t", 0, 1.0), ("t", 0, None), ("t", 0, True)])
def test_offset_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    with MessageStore.open(tmp_path, tiny()) as store, pytest.raises(InvalidMessage):
        store.trim(*given)


@pytest.mark.parametrize("topic", ["", 7, RECORDS_TOPIC, "\x00"])
def test_topic_that_cannot_be_is_refused(tmp_path: Path, topic: Any) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 3)
        store.trim("t", 0, 1)
        with pytest.raises(InvalidTopic):
            store.trim(topic, 0, 0)
        with pytest.raises(InvalidTopic):
            store.delete_topic(topic)
        with pytest.raises(InvalidTopic):
            store.append(topic, 0, b"x")
        with pytest.raises(InvalidTopic):
            store.trim("t", -1, 0)


def test_closed_poisoned_and_looked_at_stores_refuse(tmp_path: Path) -> None:
    disk = FailingDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        fill(store, 10)
        disk.fail = "write"
        with pytest.raises(StorePoisoned):
            store.trim("t", 0, 5)
        with pytest.raises(StorePoisoned):
            store.delete_topic("t")
        assert store.queue_bounds("t", 0) == (0, 10), "what is not durable is not shown"
    with pytest.raises(StoreClosed):
        store.trim("t", 0, 5)
    with pytest.raises(StoreClosed):
        store.delete_topic("t")
    with look_into_folder(tmp_path) as looked, pytest.raises(StoreUnusable):
        looked.trim("t", 0, 5)  # type: ignore[attr-defined]


# -- deleted topics -----------------------------------------------------------------------------------


def test_deleted_topic_is_gone_until_it_has_a_new_message(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(lanes=2)) as store:
        fill(store, 40, queues=8)
        store.append("other", 0, b"x")
        assert store.delete_topic("t") is True
    for _ in range(2):
        with MessageStore.open(path, tiny()) as store:
            assert (store.topics(), store.queues("t")) == (["other"], [])
            assert [store.queue_bounds("t", queue) for queue in range(8)] == [(5, 5)] * 8
            assert list(scanned(store)) == [("other", 0)]
            assert store.delete_topic("t") is False
    with look_into_folder(path) as looked:
        assert looked.topics() == ["other"]
    figures = inspect_folder(path)
    assert (figures["topics"], figures["streams"]) == (["other"], 1)
    with MessageStore.open(path, tiny()) as store:
        assert store.append("t", 3, b"again") == 5
        assert (store.topics(), store.queues("t")) == (["other", "t"], [3])
    with MessageStore.open(path, tiny()) as store:
        assert (store.topics(), store.queues("t")) == (["other", "t"], [3])
        assert store.delete_topic("t") is True
        assert store.topics() == ["other"]
    assert verify_folder(path).damages == []


def test_trimmed_queue_is_listed_although_it_is_empty(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 10)
        store.trim("t", 0, 10)
        assert (store.topics(), store.queues("t")) == (["t"], [0])
        assert store.delete_topic("t") is True
        assert (store.topics(), store.queues("t")) == ([], [])


def test_unknown_topic_is_deleted_without_a_record(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.delete_topic("none") is False
        assert store.stats()["log"]["records"] == 0


def test_topic_of_many_queues_is_deleted_in_a_few_frames(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        fill(store, 10_000, queues=10_000)
        frames = store.stats()["log"]["frames"]
        store.delete_topic("t")
        assert store.stats()["log"]["records"] == 10_000
        assert store.stats()["log"]["frames"] - frames <= 8
        assert store.topics() == []
    with MessageStore.open(tmp_path, small()) as store:
        assert store.topics() == []
        assert list(store.scan()) == []


def test_keys_of_a_deleted_topic_keep_their_queues(tmp_path: Path) -> None:
    keys = [b"%d" % number for number in range(20)]

    def queues_of_keys(store: MessageStore, topic: str) -> list[int]:
        for key in keys:
            store.append(topic, data=key, key=key)
        found = {message.key: queue for queue in store.queues(topic) for message in read_all(store, topic, queue)}
        return [found[key] for key in keys]

    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 8, queues=8)
        chosen = queues_of_keys(store, "t")
        store.delete_topic("t")
    with MessageStore.open(tmp_path, tiny()) as store:
        assert queues_of_keys(store, "t") == chosen


# -- what stays out of sight --------------------------------------------------------------------------


def test_records_are_seen_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny()) as store:
        fill(store, 10)
        seen = store.stats()
        store.trim("t", 0, 3)
        after = store.stats()
        assert after["streams"] == seen["streams"] == 1
        assert after["log"]["messages"] == seen["log"]["messages"] == 10
        assert {name for batch in store.scan() for name in batch.topics} == {"t"}
    figures = inspect_folder(path)
    assert figures["queues"] == [{"topic": "t", "queue": 0, "first": 3, "next_offset": 10}]
    assert (figures["topics"], figures["streams"], figures["totals"]["messages"]) == (["t"], 1, 10)
    assert figures["lanes"][0]["segments"][0]["streams"] == 1
    assert verify_folder(path).messages == 10
    json.dumps(figures)


def test_inspect_agrees_with_the_store_in_every_state(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, tiny()) as store:
        fill(store, 60, queues=3, size=LARGE)
        store.trim("t", 0, 7)
        store.append("gone", 0, b"x")
        store.delete_topic("gone")
        crash_copy(path, tmp_path / "crashed")
    for folder in (path, tmp_path / "crashed"):
        rows = [(row["queue"], row["first"], row["next_offset"]) for row in inspect_folder(folder)["queues"]]
        assert rows == [(0, 7, 20), (1, 0, 20), (2, 0, 20)]


def test_time_is_looked_for_behind_the_trim(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for index in range(60):
            store.append("t", 0, b"%d" % index + bytes(LARGE))
        until(lambda: has_settled(store))
        times = [message.timestamp_ms for message in store.read("t", 0, 0, max_messages=100, max_bytes=1 << 30)]
        store.trim("t", 0, 25)
        for wanted in sorted({*times, times[-1] + 1}):
            expected = next((at for at, time_ms in enumerate(times) if at >= 25 and time_ms >= wanted), 60)
            assert store.offset_at("t", 0, wanted) == expected


def test_coroutines_are_refused_below_a_trim(tmp_path: Path) -> None:
    async def read(store: MessageStore, offset: int) -> list[Message]:
        return await store.read_async("t", 0, offset)

    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 10)
        store.trim("t", 0, 4)
        assert [message.offset for message in asyncio.run(read(store, 4))] == list(range(4, 10))
        with pytest.raises(OffsetOutOfRange):
            asyncio.run(read(store, 3))


def test_reads_that_begin_after_a_trim_give_nothing_of_it(tmp_path: Path) -> None:
    """Beside producers, sealing, and segments that go."""
    acknowledged = [0]
    ended = threading.Event()

    def read_on(store: MessageStore) -> int:
        looks = 0
        while not ended.is_set() or not looks:
            low = acknowledged[0]
            first, _ = store.queue_bounds("t", 0)
            assert first >= low
            for batch in store.scan():
                assert not len(batch) or int(batch.offsets.min()) >= low
            with contextlib.suppress(OffsetOutOfRange):  # trimmed further meanwhile
                assert all(
                    message.offset >= first
                    for message in store.read("t", 0, first, max_messages=100, max_bytes=1 << 30)
                )
            looks += 1
        return looks

    with MessageStore.open(tmp_path, tiny()) as store:
        readers = [start(read_on, store) for _ in range(2)]
        try:
            for _ in range(30):
                fill(store, 10, size=LARGE)
                _, end = store.queue_bounds("t", 0)
                acknowledged[0] = store.trim("t", 0, end - 5)
        finally:
            ended.set()
        for reader in readers:
            reader.join()
        until(lambda: store.stats()["log"]["removed_segments"] > 3)
        check_begins_at(store, 295, 300)


# -- memory and disk ----------------------------------------------------------------------------------


def test_caches_give_nothing_below_a_trim_and_free_its_memory(tmp_path: Path) -> None:
    cache = TunedCacheConfig(heap_bytes=1 << 20, block_bytes=4096)
    config = small(cache=cache, read_cache_bytes=1 << 20)
    with MessageStore.open(tmp_path, config) as store:
        fill(store, 300, size=900)
        assert store._feeder is not None
        store._feeder.settle()
        used = store.stats()["cache"]["messages"]["used_bytes"]
        assert store.trim("t", 0, 200) == 200
        check_begins_at(store, 200, 300)
        store.trim("t", 0, 300)
        assert store._caches.messages is not None
        store._caches.messages.blocks.settle()  # as the next fill does
        assert store.stats()["cache"]["messages"]["used_bytes"] < used
        assert store.stats()["cache"]["error"] is None


def test_segments_go_when_all_that_they_hold_is_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with in_each_state(path, tiny(), 95, 100) as store:
        fill(store, 100, size=LARGE)
        until(lambda: has_settled(store))
        sealed = store.stats()["segments"]["sealed"]
        assert sealed >= 5
        store.trim("t", 0, 95)
        until(lambda: store.stats()["log"]["removed_segments"] >= sealed - 1)
        names = {file.name for file in segment_paths(path)}
        assert segment_name(1) not in names


def test_segment_with_one_message_of_another_queue_stays(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append_batch([("kept", 0, b"x"), ("t", 0, b"beside it")])  # both in the first segment
        fill(store, 100, size=LARGE)
        until(lambda: has_settled(store))
        store.trim("t", 0, 101)
        for _ in range(3):
            store._upkeep.removal.retire()
        assert store.stats()["log"]["removed_segments"] == 0
        assert store.read("kept", 0)[0].data == b"x"
        store.trim("kept", 0, 1)
        until(lambda: store.stats()["log"]["removed_segments"] > 0)


def test_trim_outlives_the_segment_that_has_its_record(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with in_each_state(path, tiny(retention_bytes=130 << 10), 400, 400) as store:
        fill(store, 400)
        store.trim("t", 0, 400)
        fill(store, 100, size=LARGE, topic="other")
        until(lambda: segment_name(1) not in {file.name for file in segment_paths(path)})


# -- any order of calls -------------------------------------------------------------------------------
