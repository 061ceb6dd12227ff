"""Old segments go, by age and by bytes; bounds move; nothing old comes back."""

from __future__ import annotations

import contextlib
import errno
import gc
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

from stratalog.cache import MessageCache
from stratalog.store import CacheConfig, MessageStore, OffsetOutOfRange, StoreError
from stratalog.store.device.disk import OsDisk
from stratalog.store.format.layout import RETIRED_PREFIX
from stratalog.store.log.spares import Spares
from stratalog.store.log.streams import lane_of

from .helpers import (
    contents,
    crash_copy,
    has_settled,
    scanned,
    start,
    tiny,
    until,
)

KIB = 1 << 10


def data_of(index: int) -> bytes:
    return b"%06d" % index * 500


def fill(store: MessageStore, begin: int, end: int, queues: int = 1) -> None:
    for index in range(begin, end):
        store.append("t", index % queues, data_of(index))


def first(store: MessageStore) -> int:
    return store.queue_bounds("t", 0)[0]


def disk_bytes(path: Path) -> int:
    total = 0
    for file in path.rglob("*.seg"):
        with contextlib.suppress(FileNotFoundError):  # upkeep may be renaming and removing
            total += file.stat().st_blocks * 512
    return total


def push_until_recycled(store: MessageStore, end: int) -> int:
    """Append until a removed segment's file is in use again; the queue's end. Upkeep may come late to it."""
    while not store.stats()["log"]["recycled_segments"]:
        fill(store, end, end + 5)
        end += 5
    return end


def check(store: MessageStore, end: int) -> int:
    """The queue holds exactly its bounds; the first offset. Nothing may be removed meanwhile."""
    begin, next_offset = store.queue_bounds("t", 0)
    assert next_offset == end
    expected = {offset: data_of(offset) for offset in range(begin, end)}
    assert contents(store, [("t", 0)])["t", 0] == expected
    return begin


def test_bytes_are_kept_under_the_limit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=400 * KIB)) as store:
        fill(store, 0, 400)
        until(lambda: has_settled(store) and disk_bytes(tmp_path) < 700 * KIB)
        begin = check(store, 400)
        assert 200 < begin < 400
        until(lambda: store.stats()["log"]["removed_segments"] > 10)  # noted a moment later
        assert store.stats()["log"]["recycled_segments"] + store.stats()["log"]["removed_segments"] > 10


def test_messages_older_than_the_limit_go(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_ms=100)) as store:
        fill(store, 0, 100)
        until(lambda: has_settled(store) and store.stats()["segments"]["sealed"] == 1)  # that one always stays
        assert check(store, 100) > 50
        assert store.append("t", 0, data_of(100)) == 100


def test_young_messages_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny(retention_ms=3_600_000, retention_bytes=1 << 40)) as store:
        fill(store, 0, 100)
        until(lambda: has_settled(store))
        retire, looks = store._upkeep.removal.retire, list[None]()
        monkeypatch.setattr(store._upkeep.removal, "retire", lambda: looks.append(retire()))
        until(lambda: len(looks) >= 2)
        assert check(store, 100) == 0


def test_reading_below_the_first_offset_is_out_of_range(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=200 * KIB)) as store:
        fill(store, 0, 200)
        until(lambda: has_settled(store))
        begin = first(store)
        assert begin > 0

        def get_ten(topic: str, queue_id: int, offset: int) -> dict[int, bytes]:
            return store.get_range(topic, queue_id, offset, 10)

        for read in (store.read, store.read_batch, get_ten):
            for offset in (0, begin - 1):
                with pytest.raises(OffsetOutOfRange) as caught:
                    read("t", 0, offset)
                assert (caught.value.first, caught.value.next_offset) == store.queue_bounds("t", 0)


def test_queue_whose_messages_are_all_gone_keeps_its_next_offset(tmp_path: Path) -> None:
    config = tiny(retention_bytes=200 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        for index in range(5):
            assert store.append("quiet", 3, b"x") == index
        fill(store, 0, 200)
        until(lambda: store.queue_bounds("quiet", 3) == (5, 5))
        assert store.read("quiet", 3, 5) == []
        with pytest.raises(OffsetOutOfRange):
            store.read("quiet", 3, 4)
    with MessageStore.open(tmp_path, config) as store:
        assert store.queue_bounds("quiet", 3) == (5, 5)
        assert store.append("quiet", 3, b"y") == 5
        assert store.read("quiet", 3, 5)[0].data == b"y"
        fill(store, 200, 400)
        until(lambda: store.queue_bounds("quiet", 3) == (6, 6))


@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_store_opens_again_after_segments_went(tmp_path: Path, how: str) -> None:
    """At each moment: whatever was removed or waits to be recycled, the folder is a whole store."""
    config = tiny(retention_bytes=200 * KIB)
    end = 0
    for turn in range(8):
        path = tmp_path / str(turn)
        with MessageStore.open(path, config) as store:
            assert store.queue_bounds("t", 0)[1] == end
            fill(store, end, end + 37 + turn)
            end += 37 + turn
            if turn % 2:
                time.sleep(0.02 * (turn % 5))  # so that upkeep gets to another moment in each turn
            if how == "crashed":
                crash_copy(path, tmp_path / str(turn + 1))
        if how == "closed":
            crash_copy(path, tmp_path / str(turn + 1))
        with MessageStore.open(tmp_path / str(turn + 1), tiny()) as store:
            check(store, end)


def test_many_segments_that_go_at_once_leave_a_whole_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, 0, 300)
    with MessageStore.open(tmp_path, tiny(retention_bytes=100 * KIB)) as store:
        until(lambda: first(store) > 200)
    with MessageStore.open(tmp_path, tiny()) as store:
        check(store, 300)
        fill(store, 300, 320)
    with MessageStore.open(tmp_path, tiny()) as store:
        check(store, 320)


def test_frames_of_a_recycled_segments_former_life_never_come_back(tmp_path: Path) -> None:
    """Recycled files are full of old, valid frames; a crash in the middle of their next life shows none."""
    config = tiny(retention_bytes=150 * KIB)
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, 0, 150)
        end = push_until_recycled(store, 150)
        for turn in range(15):
            fill(store, end, end + 7)
            end += 7
            with MessageStore.open(crash_copy(tmp_path / "s", tmp_path / "copy"), tiny()) as copy:
                check(copy, end)
                for rows in scanned(copy).values():
                    assert all(data == data_of(offset) for offset, data in rows.items())
                assert list(scanned(copy)) == [("t", 0)]
            if turn % 3 == 0:
                until(lambda: has_settled(store))


def test_readers_beside_retention_get_right_messages_or_out_of_range(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=150 * KIB)) as store:
        store.append("t", 0, data_of(0))
        ended: list[bool] = []

        def read_on() -> None:
            while not ended:
                begin, end = store.queue_bounds("t", 0)
                for offset in (begin, begin + 1, (begin + end) // 2):
                    try:
                        rows = store.get_range("t", 0, offset, 20)
                        batch = store.read_batch("t", 0, offset, max_messages=20)
                    except OffsetOutOfRange:
                        continue
                    assert all(data == data_of(offset + index) for index, data in rows.items())
                    assert [bytes(view) for view in batch.payloads()] == [data_of(at) for at in batch.offsets.tolist()]
                time.sleep(0.001)  # so that the producer has the interpreter

        workers = [start(read_on) for _ in range(2)]
        fill(store, 1, 600)
        ended.append(True)
        for worker in workers:
            worker.join()


def has_removed(store: MessageStore, segments: int) -> bool:
    return int(store.stats()["log"]["removed_segments"]) >= segments


def test_segment_that_is_still_being_read_is_not_recycled(tmp_path: Path) -> None:
    """Also when it was removed long ago: whoever has found it reads its bytes, and not a later segment's."""
    with MessageStore.open(tmp_path, tiny(retention_bytes=256 * KIB)) as store:
        fill(store, 0, 100)
        until(lambda: has_settled(store))
        held = store._lanes[0].view.sealed[0].segment
        before = held.read(0, 32 * KIB)
        end = push_until_recycled(store, 100)
        for _ in range(5):  # what may be recycled is, again and again
            recycled = store.stats()["log"]["recycled_segments"]
            while store.stats()["log"]["recycled_segments"] == recycled:
                fill(store, end, end + 5)
                end += 5
        assert held.read(0, 32 * KIB) == before


def test_scan_beside_retention_ends_well_or_with_an_error_of_ours(tmp_path: Path) -> None:
    """The segments under a running scan are removed and reused; it must not crash, nor show wrong messages."""
    with MessageStore.open(tmp_path, tiny(retention_bytes=150 * KIB)) as store:
        fill(store, 0, 60)
        for turn in range(5):
            scan = store.scan()
            next(scan)
            begin = store.queue_bounds("t", 0)[1]
            fill(store, begin, begin + 200)
            removed = store.stats()["log"]["removed_segments"]
            until(partial(has_removed, store, min(removed, turn)))
            try:
                for batch in scan:
                    for index in range(len(batch)):
                        assert batch.payload(index) == data_of(int(batch.offsets[index]))
            except StoreError:
                pass


def test_lanes_are_retired_together(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2, retention_bytes=500 * KIB)) as store:
        for index in range(600):
            store.append("t", index % 8, data_of(index))
        until(lambda: has_settled(store) and disk_bytes(tmp_path) < 1200 * KIB)
        moved = [queue for queue in range(8) if store.queue_bounds("t", queue)[0] > 0]
        assert len(moved) == 8


def test_oldest_segment_of_all_lanes_goes_first(tmp_path: Path) -> None:
    """A lane that was filled earlier gives its segments up before one that is filled now loses any."""
    config = tiny(lanes=2, retention_bytes=1000 * KIB)
    queues = {lane: next(queue for queue in range(99) if lane_of("t", queue, 2) == lane) for lane in (0, 1)}
    with MessageStore.open(tmp_path, config) as store:
        for index in range(250):  # 750 KiB
            store.append("t", queues[0], data_of(index))
        time.sleep(0.002)  # the messages that follow are younger
        for index in range(150):
            store.append("t", queues[1], data_of(index))
        until(lambda: has_settled(store))
        assert store.queue_bounds("t", queues[0])[0] > 0
        assert store.queue_bounds("t", queues[1])[0] == 0


def test_a_removed_segments_file_goes_when_the_device_lets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that fails is tried again."""
    refused: list[Path] = []
    remove = OsDisk.remove

    def refuse_once(disk: OsDisk, path: Path) -> None:
        if path.name.startswith(RETIRED_PREFIX) and path not in refused:
            refused.append(path)
            raise OSError(errno.EIO, "refused once")
        remove(disk, path)

    monkeypatch.setattr(OsDisk, "remove", refuse_once)
    monkeypatch.setattr(Spares, "_recycle", lambda *given: False)
    with MessageStore.open(tmp_path, tiny(retention_bytes=200 * KIB)) as store:
        fill(store, 0, 300)
        until(lambda: bool(refused) and len(list(tmp_path.rglob(f"{RETIRED_PREFIX}*"))) <= 1)  # kept to be recycled


@pytest.mark.parametrize("cache", ["works", "fails", "was given up"])
def test_a_closed_store_with_a_message_cache_keeps_nothing_of_its_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """Not the descriptors of removed segments either, whose end upkeep wanted to be told of."""

    def broken(*given: object) -> None:
        raise MemoryError("no memory for the test")

    if cache == "fails":
        monkeypatch.setattr(MessageCache, "fill", broken)
    config = tiny(retention_bytes=200 * KIB, cache=CacheConfig(off_heap_bytes=1 << 20))
    store = MessageStore.open(tmp_path, config)
    fill(store, 0, 100)
    if cache == "was given up":
        store._caches.give_up(MemoryError("no memory for the test"))
    fill(store, 100, 300)
    until(lambda: store.stats()["log"]["removed_segments"] > 5)
    lanes = [weakref.ref(lane) for lane in store._lanes]
    store.close()
    store = None  # type: ignore[assignment]  # so that nothing but what leaks holds the lanes
    gc.collect()
    assert [lane() for lane in lanes] == [None]
