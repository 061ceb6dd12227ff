"""The read cache with read-ahead (R22): catch-up reads, jumps, and what goes first."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.cache.batch import Batch
from stratalog.cache.read_ahead import READERS, ReadAhead
from stratalog.cache.read_cache import RUN_BYTES, Fetch, ReadCache

from ..seeds import draw_seed
from .helpers import batch_of, payload_of, tag_of

BLOCK = 4096
SIZE = 500


class Device:
    """Streams of `length` messages; counts its reads."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.reads = 0

    def of(self, stream: int) -> Fetch:
        def fetch(offset: int, least: int, most: int, max_bytes: int) -> Batch:
            assert 0 < least <= most
            self.reads += 1
            count = max(min(most, max_bytes // SIZE), least)
            offsets = range(offset, min(offset + count, self.length))
            return batch_of([(stream, at, payload_of(stream, at, SIZE)) for at in offsets])

        return fetch


def read_checked(cache: ReadCache, device: Device, stream: int, offset: int, limit: int) -> None:
    hit = cache.read(stream, offset, limit, device.of(stream))
    expected = range(offset, min(offset + limit, device.length))
    assert list(hit.offsets) == list(expected)
    assert list(hit.payloads) == [payload_of(stream, at, SIZE) for at in expected]
    assert list(hit.tags) == [tag_of(stream, at) for at in expected]


def test_a_catch_up_read_is_served_by_read_ahead() -> None:
    device, cache = Device(20_000), ReadCache(8 << 20)
    for offset in range(0, device.length, 32):
        read_checked(cache, device, 5, offset, 32)
    assert cache.hits >= 0.9 * device.length
    assert device.reads <= 0.1 * device.length / 32
    assert cache.hits + cache.misses == device.length and cache.wasted_messages == 0


def test_many_readers_of_one_stream_each_read_ahead() -> None:
    device, cache = Device(8_000), ReadCache(16 << 20)
    for offset in range(0, 1_500, 10):
        for begin in (0, 2_000, 4_000, 6_000):
            read_checked(cache, device, 0, begin + offset, 10)
    assert cache.hits >= 0.9 * 4 * 1_500


def test_a_reader_that_jumps_about_reads_little_ahead() -> None:
    rng = random.Random(draw_seed())
    # So long that no jump lands just where a read-ahead ended: that would look like reading on.
    device, cache = Device(1 << 40), ReadCache(1 << 20)
    for _ in range(500):
        read_checked(cache, device, 0, rng.randrange(device.length - 10), 4)
    assert cache.read_ahead_messages <= 500 * 4


def test_what_was_not_read_for_longest_goes_first() -> None:
    device, cache = Device(8), ReadCache(2 * 8 * (SIZE + 40) + 2 * RUN_BYTES)  # two runs, not three
    for stream in (0, 1, 0, 2):
        read_checked(cache, device, stream, 0, 8)
    assert (device.reads, cache.stats()["runs"]) == (3, 2)
    read_checked(cache, device, 0, 0, 8)
    assert device.reads == 3
    read_checked(cache, device, 1, 0, 8)
    assert device.reads == 4


def test_messages_that_are_cached_already_make_no_run() -> None:
    cache = ReadCache(8 * BLOCK)
    run = batch_of([(0, at, payload_of(0, at, SIZE)) for at in range(8)])
    for _ in range(2):
        cache.put(0, run, read=8)
    assert cache.stats()["runs"] == 1


def test_messages_at_the_end_are_found_when_they_come() -> None:
    device, cache = Device(10), ReadCache(1 << 20)
    read_checked(cache, device, 0, 0, 32)
    read_checked(cache, device, 0, 10, 32)
    device.length = 50
    read_checked(cache, device, 0, 0, 64)
    read_checked(cache, device, 0, 10, 32)


def test_a_run_larger_than_the_cache_is_read_and_not_kept() -> None:
    cache = ReadCache(BLOCK)
    large = batch_of([(0, 0, payload_of(0, 0, 10_000))])
    assert cache.read(0, 0, 1, lambda *_: large).payloads == [payload_of(0, 0, 10_000)]
    assert cache.stats()["runs"] == 0


def test_a_cache_without_memory_or_closed_reads_from_the_device() -> None:
    device = Device(100)
    for cache in (ReadCache(0), ReadCache(1 << 20)):
        read_checked(cache, device, 0, 0, 32)
        cache.close()
        read_checked(cache, device, 0, 0, 32)
        assert cache.stats()["runs"] == 0


def test_what_retention_took_is_forgotten() -> None:
    device, cache = Device(100), ReadCache(1 << 20)
    for offset in range(0, 96, 8):
        read_checked(cache, device, 0, offset, 8)
    cache.drop(0, 1000)
    assert cache.stats()["runs"] == 0 and cache.used_bytes == 0
    read_checked(cache, device, 0, 0, 8)


READS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 120), st.integers(1, 40)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(READS, st.integers(1, 20), st.integers(1, 64))
def test_whatever_is_read_is_what_the_device_has(reads: list[tuple[int, int, int]], blocks: int, depth: int) -> None:
    device = Device(100)
    cache = ReadCache(blocks * BLOCK, ReadAhead(max(depth, 32), 32))
    for stream, offset, limit in reads:
        read_checked(cache, device, stream, offset, limit)
        runs = cache._runs.values()
        for number in range(4):
            spans = sorted((run.first, run.end) for run in runs if run.stream == number)
            assert all(end <= first for (_, end), (first, _) in pairwise(spans))
            assert cache._firsts.get(number, []) == [first for first, _ in spans]
        assert cache.used_bytes == sum(run.bytes for run in runs) <= cache.size_bytes


def test_depth_doubles_for_who_reads_on_and_is_bounded() -> None:
    ahead, depths, offset = ReadAhead(most_messages=200), [], 0
    for _ in range(6):
        depth = ahead.depth(1, offset, 10)
        depths.append(depth)
        offset += depth
        ahead.reached(1, offset, depth)
    assert depths == [20, 40, 80, 160, 200, 200]
    assert ahead.depth(1, 7, 10) == 20
    assert ahead.depth(1, offset + 1, 500) == 500  # never less than was asked for


def test_waste_lowers_the_limit_and_use_raises_it() -> None:
    ahead = ReadAhead(most_messages=4096, least_messages=32)
    for _ in range(20):
        ahead.judge(0, 4096)
    assert ahead.limit_messages == 32
    for _ in range(20):
        ahead.judge(4096, 0)
    assert ahead.limit_messages == 4096


def test_places_of_readers_that_never_came_back_are_forgotten() -> None:
    ahead = ReadAhead()
    for offset in range(READERS + 100):
        ahead.reached(0, offset, 64)
    assert len(ahead._places) == READERS
    assert ahead.depth(0, 0, 1) == 2 and ahead.depth(0, READERS + 50, 1) == 128


def test_small_messages_are_cached_however_full_the_cache_is() -> None:
    """What makes room for a message and what it takes are counted alike."""
    cache = ReadCache(18 * BLOCK)

    def small(stream: int) -> Fetch:
        def fetch(offset: int, least: int, most: int, max_bytes: int) -> Batch:
            return batch_of([(stream, at, b"four") for at in range(offset, offset + least)])

        return fetch

    for stream in range(40):  # it is full after some of them
        cache.read(stream, 0, 400, small(stream))
    for _ in range(5):
        cache.read(1000, 0, 400, small(1000))
    assert cache.hits == 4 * 400
