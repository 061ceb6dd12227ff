"""A store with caches: what is read is what the log has, wherever it comes from."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.cache import ActiveCursors, BlockCache, CachedMessages, MessageCache
from stratalog.store import (
    CacheConfig,
    InvalidConfig,
    MessageStore,
    OffsetOutOfRange,
    StoreConfig,
    StoreCorrupt,
    StoreUnusable,
)
from stratalog.store.device.ring import Ring
from stratalog.store.read.caches import RECENT_BYTES, Caches
from stratalog.store.testing import TunedCacheConfig, TunedConfig

from ..seeds import draw_seed
from .helpers import (
    KIB,
    calls_that_read,
    contents,
    flip_bit,
    has_settled,
    memory_folder,
    scanned,
    segment_path,
    small,
    start,
    tiny,
    until,
)

MIB = KIB << 10
QUEUES = 12
SIZES = (64, 2000, 40_000)
SETTINGS: dict[str, dict[str, Any]] = {
    "one tier": {"cache": CacheConfig(off_heap_bytes=64 * MIB)},
    "two small tiers": {"cache": CacheConfig(heap_bytes=256 * KIB, off_heap_bytes=MIB)},
    "small blocks": {"cache": TunedCacheConfig(off_heap_bytes=MIB, block_bytes=512)},
    "computed threshold": {
        "cache": TunedCacheConfig(off_heap_bytes=2 * MIB, expected_bytes=8 * MIB, edge_bytes=MIB, block_bytes=4096)
    },
    "edges": {"cache": CacheConfig(off_heap_bytes=2 * MIB, expected_bytes=8 * MIB, edges=True)},
    "released when read": {"cache": CacheConfig(off_heap_bytes=64 * MIB, readers="once")},
    "active readers": {"cache": TunedCacheConfig(readers="near", active_backlog_messages=20)},
    "read cache": {"read_cache_bytes": 2 * MIB},
    "both caches": {"cache": CacheConfig(off_heap_bytes=MIB), "read_cache_bytes": MIB},
    "edges alone": {"cache": TunedCacheConfig(off_heap_bytes=0, edge_bytes=MIB)},
    "nothing": {"cache": CacheConfig(off_heap_bytes=0)},
    "two lanes": {"lanes": 2, "cache": CacheConfig(off_heap_bytes=64 * MIB)},
}

Rows = dict[tuple[str, int], dict[int, bytes]]


@pytest.fixture(params=SETTINGS)
def config(request: pytest.FixtureRequest) -> StoreConfig:
    return small(**SETTINGS[request.param])


def fill(store: MessageStore, chance: random.Random, rows: Rows, messages: int = 1600) -> Rows:
    """Messages of 0 to 40,000 bytes, some with a key, to a dozen queues: more than the ring holds."""
    for number in range(messages):
        name, data = ("t", chance.randrange(QUEUES)), chance.randbytes(chance.randrange(chance.choice(SIZES)))
        key = b"key" if chance.random() < 0.1 else None
        ticket = store.submit(*name, data, key=key)
        mine = rows.setdefault(name, {})
        mine[len(mine)] = data
        if number % 40 == 39:
            assert ticket.result(60) == len(mine) - 1
            catch_up(store)
    store.flush()
    catch_up(store)
    return rows


def catch_up(store: MessageStore) -> None:
    if store._feeder is not None:
        store._feeder.settle()


def cache_of(store: MessageStore) -> MessageCache:
    assert store._caches.messages is not None
    return store._caches.messages


def key_of(store: MessageStore, queue: int) -> int:
    """A queue's number in the caches."""
    stream = store._streams.get("t", queue)
    assert stream is not None
    return store._caches.key(stream.lane, stream.number)


def ranges(store: MessageStore, rows: Rows, step: int) -> Iterator[tuple[dict[int, bytes], dict[int, bytes]]]:
    """(what `get_range` gives, what it should give), all queues from front to back."""
    for name, mine in rows.items():
        for at in range(0, len(mine) + 1, step):
            expected = {index: mine[at + index] for index in range(step) if at + index in mine}
            yield store.get_range(*name, at, step), expected


def reads(store: MessageStore) -> dict[str, int]:
    found: dict[str, Any] = {**store.stats()["reads"]}
    return found


# -- what is read -------------------------------------------------------------------------------------


def test_every_read_gives_what_the_log_has(tmp_path: Path, config: StoreConfig) -> None:
    seed = draw_seed()
    chance, rows = random.Random(seed), Rows()
    for _ in range(2):  # the second time with sealed segments of before, and a cache that knows none of it
        with MessageStore.open(tmp_path, config) as store:
            fill(store, chance, rows, 1000)
            for found, expected in ranges(store, rows, 13):
                assert list(found) == list(expected)
                assert found == expected
            assert contents(store, list(rows)) == rows
            for name, mine in rows.items():
                batch = store.read_batch(*name)
                assert [bytes(batch.payload(index)) for index in range(len(batch))] == list(mine.values())
            assert scanned(store) == rows
            stats = store.stats()
            assert stats["reads"]["recent_messages"] < stats["reads"]["messages"]
            assert stats["reads"]["unsound_messages"] == 0
            assert stats["cache"]["error"] is None


@pytest.mark.parametrize("config", ["two small tiers", "edges", "both caches", "active readers"], indirect=True)
def test_random_reads_beside_appends_give_what_was_appended(tmp_path: Path, config: StoreConfig) -> None:
    seed = draw_seed()
    acknowledged = [0] * 4
    ended = threading.Event()

    pool = random.Random(seed).randbytes(1 << 16)

    def data(queue: int, offset: int) -> bytes:
        begin = (queue * 7919 + offset * 104_729) % 50_000
        return pool[begin : begin + offset * 31 % 15_000]

    with MessageStore.open(tmp_path, config) as store:

        def append(queue: int) -> None:
            for first in range(0, 160, 20):
                store.append_batch([("t", queue, data(queue, first + index)) for index in range(20)])
                acknowledged[queue] = first + 20

        def read(number: int) -> None:
            chance = random.Random(seed + number)
            while not ended.is_set():
                queue = chance.randrange(4)
                known = acknowledged[queue]
                at, count = chance.randrange(known + 1), chance.randrange(1, 40)
                found = store.get_range("t", queue, at, count)
                assert len(found) >= min(count, known - at)
                assert found == {index: data(queue, at + index) for index in range(len(found))}

        readers = [start(read, number) for number in range(2)]
        writers = [start(append, queue) for queue in range(4)]
        for writer in writers:
            writer.join(60)
        ended.set()
        for reader in readers:
            reader.join()
        assert store.stats()["cache"]["error"] is None


def test_a_message_across_the_end_of_the_ring_is_cached_whole(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        size = store._lanes[0].ring.size_bytes
        sent: list[bytes] = []
        while len(sent) < 2 * size // 60_000 + 2:
            sent.append(random.Random(len(sent)).randbytes(60_000))
            store.append("t", 0, sent[-1])
            catch_up(store)
        hit = cache_of(store).read(key_of(store, 0), 0, len(sent))
        assert list(hit.offsets) == list(range(len(sent)))
        assert list(hit.payloads) == sent


# -- where it comes from ------------------------------------------------------------------------------


def test_tail_reads_touch_neither_device_nor_lower_tiers(tmp_path: Path) -> None:
    settings = CacheConfig(heap_bytes=MIB, off_heap_bytes=MIB)
    with MessageStore.open(tmp_path, small(cache=settings, recent_bytes=8 * MIB)) as store:
        for number in range(2000):
            offset = store.append("t", number % 7, b"%d" % number * 100)
            assert store.get_range("t", number % 7, offset, 32) == {0: b"%d" % number * 100}
        found = reads(store)
        assert (found["recent_messages"], found["device_reads"], found["cached_messages"]) == (2000, 0, 0)


def test_what_has_left_the_ring_comes_from_the_cache_and_not_from_the_device(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        rows = fill(store, random.Random(1), {}, 3000)
        before = reads(store)
        for found, expected in ranges(store, rows, 32):
            assert found == expected
        after = reads(store)
        assert after["cached_messages"] - before["cached_messages"] > 1000
        assert after["device_reads"] == before["device_reads"]
        assert store.stats()["cache"]["missed_messages"] == 0


def test_a_reader_that_goes_on_is_served_by_what_was_read_ahead(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        for number in range(3000):
            store.submit("t", 0, b"%5d" % number * 100)
    with MessageStore.open(tmp_path, small(read_cache_bytes=4 * MIB)) as store:
        for at in range(0, 3000, 10):
            assert store.get_range("t", 0, at, 10) == {index: b"%5d" % (at + index) * 100 for index in range(10)}
        assert reads(store)["read_ahead_messages"] > 2900


def test_edges_save_the_bytes_they_hold(tmp_path: Path) -> None:
    device = {}
    for edge_bytes in (0, 4 * MIB):
        settings = TunedCacheConfig(off_heap_bytes=0, edge_bytes=edge_bytes)
        with MessageStore.open(tmp_path / str(edge_bytes), small(cache=settings)) as store:
            rows = fill(store, random.Random(3), {}, 3000)
            before = reads(store)["device_bytes"]
            for found, expected in ranges(store, rows, 8):
                assert found == expected
            device[edge_bytes] = reads(store)["device_bytes"] - before
            kept = store.stats()["cache"]["messages"]["edges"]
    assert kept["tiers"]["off-heap"]["hit_bytes"] > 0
    assert device[4 * MIB] < device[0]


@pytest.mark.parametrize(("name", "alone"), [("computed threshold", True), ("one tier", False), ("read cache", False)])
def test_nothing_is_read_around_messages_that_a_threshold_left_out(tmp_path: Path, name: str, alone: bool) -> None:
    rows: Rows = {}
    for _ in range(2):  # new segments, and those of before
        with MessageStore.open(tmp_path, small(**SETTINGS[name])) as store:
            fill(store, random.Random(5), rows, 100)
            view = store._lanes[0].view
            held = [sealed.segment for sealed in view.sealed] + [opened.segment for opened in view.open]
            assert {segment.without_windows for segment in held} == {alone}


# -- what a cache has wrong ---------------------------------------------------------------------------


def test_bytes_that_went_bad_in_a_tier_are_read_from_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        rows = fill(store, random.Random(1), {}, 3000)
        messages = cache_of(store)
        view = messages.blocks.space.tiers[0].view
        view[: 8 * MIB] = bytes(8 * MIB)
        for found, expected in ranges(store, rows, 16):
            assert found == expected
        assert contents(store, list(rows)) == rows
        assert reads(store)["unsound_messages"] > 0


def test_messages_of_all_calls_are_counted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        rows = fill(store, random.Random(1), {}, 400)
        before = reads(store)["messages"]
        total = sum(len(found) for found, _ in ranges(store, rows, 16))
        assert reads(store)["messages"] - before == total == sum(map(len, rows.values()))


def test_bytes_that_went_bad_in_the_read_cache_are_read_from_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["read cache"])) as store:
        rows = fill(store, random.Random(1), {}, 3000)
        some = {at: rows["t", 0][at] for at in range(10)}
        assert store.get_range("t", 0, 0, 10) == some
        assert store._caches.reads is not None
        for run in store._caches.reads._runs.values():
            run.batch = replace(run.batch, payload=memoryview(bytes(len(run.batch.payload))))
        assert store.get_range("t", 0, 0, 10) == some
        assert reads(store)["unsound_messages"] == 10
        assert [message.data for message in store.read("t", 0, 0, max_messages=10)] == list(some.values())


@pytest.fixture(scope="module")
def cached(shared_path: Path) -> Iterator[tuple[MessageStore, Rows]]:
    """A store whose messages are in a cache, for tests that only read."""
    with MessageStore.open(shared_path, small(**SETTINGS["one tier"])) as store:
        yield store, fill(store, random.Random(1), {}, 6000)


@pytest.mark.parametrize(("stream", "step"), [(1, 0), (0, 1), (0, 256), (1, -3), (-5, 40)])
def test_a_row_that_leads_to_another_message_is_a_miss(
    cached: tuple[MessageStore, Rows], monkeypatch: pytest.MonkeyPatch, stream: int, step: int
) -> None:
    """Its bytes have their right checksum; they are just not of this queue and offset."""
    store, rows = cached
    messages, wanted = cache_of(store), key_of(store, 0)
    read = MessageCache.read

    def astray(self: MessageCache, key: int, offset: int, limit: int) -> CachedMessages:
        hit = read(self, key + stream if key == wanted else key, offset + step, limit)
        return hit._replace(offsets=[at - step for at in hit.offsets])

    assert len(read(messages, wanted + stream, 40 + step, 8).offsets) == 8
    monkeypatch.setattr(MessageCache, "read", astray)
    before = reads(store)["unsound_messages"]
    assert store.get_range("t", 0, 40, 8) == {at: rows["t", 0][40 + at] for at in range(8)}
    assert [message.data for message in store.read("t", 0, 40, max_messages=8)] == [
        rows["t", 0][40 + at] for at in range(8)
    ]
    assert reads(store)["unsound_messages"] > before


@pytest.mark.parametrize("name", ["read cache", "one tier", "nothing", "edges alone"])
def test_a_message_with_a_damaged_neighbour_stays_readable(tmp_path: Path, name: str) -> None:
    """Also where a cache reads ahead, and the damage is in what nobody has asked for."""
    rows = [b"%04d-" % at * 80 for at in range(600)]
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t", 0, data) for data in rows])
    path = segment_path(tmp_path, 1)
    flip_bit(path, path.read_bytes().index(rows[40]) + 17)
    with MessageStore.open(tmp_path, small(**SETTINGS[name])) as store:
        for limit in (1, 8, 100):
            for at in [*range(20, 40), *range(41, 60)]:
                found = store.get_range("t", 0, at, limit)
                end = at + limit if at > 40 else min(at + limit, 40)
                assert list(found.values()) == rows[at:end]
                assert [message.data for message in store.read("t", 0, at, max_messages=limit)] == rows[at:end]
                assert [bytes(data) for data in store.read_batch("t", 0, at, max_messages=limit).payloads()] == rows[
                    at:end
                ]
            for read in calls_that_read(store).values():
                with pytest.raises(StoreCorrupt) as caught:
                    read("t", 0, 40, max_messages=limit)
                assert caught.value.position == path.read_bytes().index(rows[39]) + 400
        assert store.stats()["cache"]["error"] is None


def test_what_the_ring_lost_while_it_was_copied_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        feeder = store._feeder
        assert feeder is not None
        ring = store._lanes[0].ring
        fill_blocks = BlockCache.fill

        def overtaken(self: BlockCache, *given: Any) -> Any:
            ring.low += ring.size_bytes
            return fill_blocks(self, *given)

        with feeder._stepping:  # the thread stands still
            offsets = [store.append("t", 0, b"x" * 1000) for _ in range(50)]
            monkeypatch.setattr(BlockCache, "fill", overtaken)
        until(lambda: store.stats()["cache"]["missed_messages"] > 0 or not feeder.step())
        messages = cache_of(store)
        assert messages.read(0, 0, 100).offsets == ()
        assert messages.blocks.space.free == messages.blocks.space.blocks
        assert [message.offset for message in store.read("t", 0, 0, max_messages=100)] == offsets


def test_a_cache_that_fails_is_turned_off_and_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise MemoryError("no memory for the test")

    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        store.append("t", 0, b"first")
        monkeypatch.setattr(MessageCache, "fill", broken)
        until(lambda: store.append("t", 0, bytes(50_000)) >= 0 and store.stats()["cache"]["error"] is not None)
        assert "no memory for the test" in str(store.stats()["cache"]["error"])
        end = store.append("t", 0, b"last")
        assert store.get_range("t", 0, 0, end + 1)[end] == b"last"
        assert len(store.read("t", 0, 0, max_messages=end + 1, max_bytes=1 << 30)) == end + 1


@pytest.mark.parametrize(
    ("name", "owner", "call"),
    [
        ("one tier", MessageCache, "read"), ("edges alone", MessageCache, "read_edges"),
        ("released when read", MessageCache, "release"), ("active readers", ActiveCursors, "move"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["get_range", "read", "read_batch"])
def test_a_cache_that_fails_a_reader_is_turned_off_and_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: type, call: str, way: str
) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise IndexError("broken for the test")

    with MessageStore.open(tmp_path, small(**SETTINGS[name])) as store:
        rows = fill(store, random.Random(3), {}, 1200)
        monkeypatch.setattr(owner, call, broken)
        for (topic, queue), mine in rows.items():
            for at in (0, 1):
                found = calls_that_read(store)[way](topic, queue, at, max_messages=10)
                assert (len(found), store.get_range(topic, queue, at, 1)) == (10, {0: mine[at]})
        assert "broken for the test" in str(store.stats()["cache"]["error"])
        assert contents(store, list(rows)) == rows


# -- what is let go -----------------------------------------------------------------------------------


def test_reading_releases_what_was_read_if_that_is_wanted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["released when read"])) as store:
        rows = fill(store, random.Random(2), {}, 3000)
        messages = cache_of(store)
        before = messages.blocks.used_bytes
        for found, expected in ranges(store, rows, 32):
            assert found == expected
        assert before > 8 * MIB
        messages.blocks.settle()
        assert messages.blocks.used_bytes == 0
        assert contents(store, list(rows)) == rows


def test_only_what_an_active_reader_will_want_is_cached(tmp_path: Path) -> None:
    with MessageStore.open(
        tmp_path, small(cache=TunedCacheConfig(readers="near", active_backlog_messages=100))
    ) as store:
        for queue in range(2):
            for _ in range(50):
                store.append("t", queue, b"before anybody reads")
        catch_up(store)
        store.get_range("t", 1, 0, 50)
        for queue in range(2):
            for _ in range(300):
                store.append("t", queue, b"after")
        catch_up(store)
        messages = cache_of(store)
        keys = [key_of(store, queue) for queue in range(2)]
        assert messages.read(keys[0], 0, 1000).offsets == ()
        assert list(messages.read(keys[1], 0, 1000).offsets) == list(range(50, 150))


def test_retention_takes_messages_from_the_caches_as_well(tmp_path: Path) -> None:
    settings = TunedCacheConfig(off_heap_bytes=64 * MIB, evict=False)
    config = tiny(cache=settings, read_cache_bytes=MIB, retention_bytes=400 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        messages = cache_of(store)
        for number in range(900):
            store.append("t", number % 3, random.Random(number).randbytes(2000))
            catch_up(store)
        until(lambda: has_settled(store))
        first, end = store.queue_bounds("t", 0)
        assert first > 200
        assert len(store.get_range("t", 0, first, end - first)) == end - first
        with pytest.raises(OffsetOutOfRange):
            store.get_range("t", 0, 0, 1)
        until(lambda: messages.blocks.used_bytes < MIB)


def test_what_was_read_from_the_ring_is_released_before_it_is_cached(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["released when read"])) as store:
        feeder, messages = store._feeder, cache_of(store)
        assert feeder is not None
        with feeder._stepping:  # the thread stands still
            for queue in range(4):
                store.append_batch([("t", queue, b"x" * 500)] * 100)
            store.get_range("t", 0, 0, 100)
            assert len(store.read("t", 1, 0, max_messages=40)) == 40
            assert len(store.read_batch("t", 2, 0, max_messages=70)) == 70
        catch_up(store)
        keys = [key_of(store, queue) for queue in range(4)]
        found = [list(messages.read(key, 0, 1000).offsets) for key in keys]
        assert found == [[], list(range(40, 100)), list(range(70, 100)), list(range(100))]


def test_the_ring_is_fed_from_late_and_at_the_latest_when_all_is_quiet(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(**SETTINGS["one tier"])) as store:
        messages = cache_of(store)
        store.append("t", 0, b"alone")
        until(lambda: messages.read(0, 0, 1).payloads == [b"alone"])
        size = store._lanes[0].ring.size_bytes
        for _ in range(2 * size // 60_000):
            store.append("t", 0, bytes(60_000))
        assert len(messages.read(0, 0, 1000).offsets) > 50
        assert store.stats()["cache"]["missed_messages"] == 0


# -- settings -----------------------------------------------------------------------------------------


def test_sizes_follow_from_one_number() -> None:
    caches = Caches(StoreConfig(memory_limit_bytes=96 * MIB))
    plan = caches.plan
    assert plan is not None
    assert plan.memory_limit_bytes == 96 * MIB
    assert caches.recent_bytes == plan.dram_bytes
    assert caches.publish_buffer_bytes == plan.publish_buffer_bytes < 64 * MIB
    assert (caches.messages, caches.reads) == (None, None)


def test_the_plans_own_tiers_can_be_asked_for() -> None:
    caches = Caches(StoreConfig(memory_limit_bytes=96 * MIB, cache="plan"))
    assert caches.plan is not None and caches.messages is not None
    assert caches.recent_bytes == caches.plan.write_cache_bytes
    assert 0 < caches.messages.blocks.capacity_bytes <= caches.plan.tail_cache_bytes
    caches.close()
    with pytest.raises(InvalidConfig, match="needs a plan"):
        StoreConfig(memory_limit_bytes=0, cache="plan")


def test_what_is_set_stands_whatever_the_plan_says(tmp_path: Path) -> None:
    assert Caches(TunedConfig(recent_bytes=5 * MIB)).recent_bytes == 5 * MIB
    assert Caches(StoreConfig()).recent_bytes <= RECENT_BYTES
    nothing = Caches(StoreConfig(memory_limit_bytes=0))
    assert (nothing.plan, nothing.recent_bytes) == (None, RECENT_BYTES)
    with MessageStore.open(tmp_path, tiny(memory_limit_bytes=0)) as store:
        assert store.stats()["cache"]["plan"] is None


def test_the_plan_is_in_the_stats(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreConfig(memory_limit_bytes=400 * MIB)) as store:
        found = store.stats()
        assert found["cache"]["plan"]["memory_limit_bytes"] == 400 * MIB
        assert found["recent_bytes"] == pytest.approx(Caches(store.config).recent_bytes, abs=4096)


@pytest.mark.parametrize("value", [-1, 1, 8.5e9, True, "1GiB", (8 << 20) - 1])
def test_wrong_memory_limits_are_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match="memory_limit_bytes"):
        StoreConfig(memory_limit_bytes=value)


def test_other_wrong_settings_are_refused() -> None:
    wrong: Any = {"off_heap_bytes": 1}
    with pytest.raises(InvalidConfig, match="CacheConfig"):
        StoreConfig(cache=wrong)
    with pytest.raises(InvalidConfig, match="read_cache_bytes"):
        TunedConfig(read_cache_bytes=-1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"private_file_bytes": 1 << 20, "private_file_folder": Path("/nowhere/at/all")}, "private-file"),
        ({"persistent_bytes": 1 << 20, "persistent_folder": Path("/nowhere/at/all")}, "persistent"),
        ({"off_heap_bytes": 1 << 45}, "off-heap"),
    ],
)
def test_a_tier_that_cannot_be_had_is_an_error_at_open_and_harms_nothing(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"safe")
    with pytest.raises(StoreUnusable, match=words):
        MessageStore.open(tmp_path, tiny(cache=TunedCacheConfig(**settings)))
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.get_range("t", 0, 0, 1) == {0: b"safe"}


def test_persistent_memory_without_space_is_an_error_at_open(tmp_path: Path) -> None:
    with memory_folder() as folder:
        settings = CacheConfig(persistent_bytes=1 << 45, persistent_folder=folder)
        with pytest.raises(StoreUnusable, match="persistent"):
            MessageStore.open(tmp_path, tiny(cache=settings))
        assert list(folder.iterdir()) == []


def test_reads_after_close_do_not_find_what_was_cached(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, small(**SETTINGS["both caches"]))
    fill(store, random.Random(4), {}, 200)
    caches = store._caches
    store.close()
    assert caches.messages is not None
    assert caches.messages.read(0, 0, 10).offsets == ()


def test_the_ring_hands_out_memory_that_nobody_can_write_to() -> None:
    ring = Ring(1 << 16)
    assert ring.memory.readonly
    assert np.frombuffer(ring.memory, np.uint8).sum() == 0
