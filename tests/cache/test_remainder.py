"""Shared remainder blocks (R18): found by class, recovered, and given back by the count of references."""

from __future__ import annotations

from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.cache.batch import Batch
from stratalog.cache.block_cache import BLOCK_BYTES, BlockCache
from stratalog.cache.remainder import lend
from stratalog.cache.tier import Tier

from ..seeds import draw_seed
from .helpers import batch_of, check_blocks, consume, payload_of

QUEUES = 20_000
BLOCK = 4096


class Nowhere:
    """Memory that takes what is written and has nothing: for counting at full size."""

    readonly = False

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, where: slice, data: memoryview) -> None:
        assert 0 <= where.start <= where.stop <= self._size and where.stop - where.start == len(data)


class NowhereTier(Tier):
    def __init__(self, size_bytes: int) -> None:
        super().__init__("heap", 0)
        self.size_bytes, self.view = size_bytes, cast(memoryview, Nowhere(size_bytes))


def used_part(*, remainders: bool, seed: int) -> float:
    """Fill a cache with just its capacity in messages of 20,000 queues; the part of it that is in use then."""
    rng = np.random.default_rng(seed)
    tier = NowhereTier(22_000 * BLOCK_BYTES)
    cache = BlockCache([tier], BLOCK_BYTES, evict=False, remainders=remainders)
    count = int(tier.size_bytes / ((100 + 17 * 1024) / 2))
    sizes, streams = rng.integers(100, 17 * 1024, count), rng.integers(0, QUEUES, count)
    payload = bytes(17 * 1024)
    for begin in range(0, count, 1024):
        part = slice(begin, begin + 1024)
        offsets = np.arange(begin, min(begin + 1024, count))
        cache.fill(Batch.of(streams[part], offsets, sizes[part], payload, starts=np.zeros(len(offsets), np.int64)))
    check_blocks(cache)
    return cache.used_bytes / cache.capacity_bytes


def test_what_would_be_lost_in_half_empty_blocks_is_recovered() -> None:
    seed = draw_seed()
    without, with_them = used_part(remainders=False, seed=seed), used_part(remainders=True, seed=seed)
    lost = 1 - without
    assert lost > 0.1
    assert with_them - without >= 0.95 * lost


def full_cache(blocks: int) -> BlockCache:
    """Each of as many streams as there are blocks has a message of 1,000 bytes in its own block."""
    cache = BlockCache([Tier("heap", blocks * BLOCK)], BLOCK, evict=False)
    cache.fill(batch_of([(stream, 0, payload_of(stream, 0, 1000)) for stream in range(blocks)]))
    cache.settle()
    assert cache.space.free == 0
    return cache


def test_when_blocks_run_out_the_ends_of_others_are_used() -> None:
    cache = full_cache(4)
    rows = [(9, offset, payload_of(9, offset, 3000)) for offset in range(4)]
    assert cache.fill(batch_of(rows)).tolist() == [True] * 4
    assert cache.read(9, 0, 4).payloads == [data for _, _, data in rows]
    assert not cache.fill(batch_of([(9, 4, payload_of(9, 4, 100))]))[0]
    check_blocks(cache)


def test_a_lent_block_is_free_when_both_are_done_with_it_in_either_order() -> None:
    for first, second in ((0, 9), (9, 0)):
        cache = full_cache(1)
        cache.fill(batch_of([(9, 0, payload_of(9, 0, 2000))]))
        cache.release(first, 1)
        cache.settle()
        assert cache.space.free == 0
        assert consume(cache, second, 0, 1).offsets
        cache.settle()
        assert cache.space.free == 1
        check_blocks(cache)


def test_the_owner_goes_on_writing_behind_what_was_lent() -> None:
    cache = full_cache(1)
    cache.fill(batch_of([(9, 0, payload_of(9, 0, 2000))]))
    cache.fill(batch_of([(0, 1, payload_of(0, 1, 1000))]))
    assert cache.read(0, 0, 2).payloads == [payload_of(0, 0, 1000), payload_of(0, 1, 1000)]
    assert cache.read(9, 0, 1).payloads == [payload_of(9, 0, 2000)]
    check_blocks(cache)


def test_the_owner_goes_on_writing_after_its_own_part_was_consumed() -> None:
    cache = full_cache(1)
    cache.fill(batch_of([(9, 0, payload_of(9, 0, 2000))]))
    consume(cache, 0, 0, 1)
    cache.fill(batch_of([(0, 1, payload_of(0, 1, 1000))]))
    assert cache.read(0, 0, 2).payloads == [payload_of(0, 1, 1000)]
    cache.release(9, 1)
    cache.release(0, 2)
    cache.settle()
    assert cache.space.free == 1
    check_blocks(cache)


def test_the_largest_room_is_what_a_message_finds() -> None:
    cache = full_cache(2)
    largest = cache.largest_room()
    assert BLOCK - 1000 - 64 < largest <= BLOCK - 1000
    assert cache.fill(batch_of([(7, 0, payload_of(7, 0, largest))])).tolist() == [True]
    cache.release(0, 1)
    cache.release(7, 1)
    assert cache.largest_room() == cache.capacity_bytes  # there is a whole block


def lent(free: list[int], sizes: list[int]) -> list[int]:
    """Which end each message gets."""
    ends, _ = lend(np.array(sizes, np.int64), np.array(free, np.int64))
    return list(ends)


def test_the_smallest_end_that_fits_is_taken_first() -> None:
    free = [1500, 6000, 4000, 4200]
    assert lent(free, [3500]) == lent(free, [4000]) == [2]
    assert lent(free, [4001]) == [3]
    free[3] = 100
    assert lent(free, [4001]) == [1]
    free[1] = 0
    assert lent(free, [4001]) == [-1]


def test_a_batch_shares_the_ends_among_its_messages() -> None:
    assert lent([5000, 2048, 4100], [4000, 2000, 900, 4500, 3000]) == [2, 1, -1, 0, -1]  # large ones first
    assert lent([5900, 2048, 4100], [4000, 2000, 900, 4500, 3000]) == [2, 1, 0, 0, -1]  # in what these leave
    assert lent([1000], [100] * 11).count(0) == 10


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 4096), max_size=40),
    st.lists(st.integers(1, 4096), max_size=60),
)
def test_what_is_lent_has_room_and_what_is_left_fits_nowhere(free: list[int], sizes: list[int]) -> None:
    left = np.array(free, np.int64)
    chosen, before = lend(np.array(sizes, np.int64), left)
    taken: dict[int, list[tuple[int, int]]] = {}
    for size, end, room in zip(sizes, chosen.tolist(), before.tolist(), strict=True):
        if end >= 0:
            taken.setdefault(end, []).append((free[end] - room, size))
        else:
            assert size > left.max(initial=0)
    for end, pieces in taken.items():
        at = 0
        for begin, size in sorted(pieces):
            assert begin == at  # back to back
            at += size
        assert at == free[end] - left[end] <= free[end]
