"""Block chains: filling, reading, release on consumption, eviction (R13 to R16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.cache.batch import Batch
from stratalog.cache.block_cache import BlockCache
from stratalog.cache.tier import Tier

from .helpers import Message, batch_of, check_blocks, consume, payload_of, tag_of

BLOCK = 512


def messages(stream: int, first: int, sizes: list[int]) -> list[Message]:
    return [(stream, first + i, payload_of(stream, first + i, size)) for i, size in enumerate(sizes)]


def new_cache(blocks: int, **settings_: bool) -> BlockCache:
    return BlockCache([Tier("off-heap", blocks * BLOCK)], BLOCK, **settings_)


def test_what_is_filled_is_read_with_offsets_and_tags() -> None:
    cache = new_cache(8)
    assert cache.fill(batch_of(messages(3, 10, [100, 0, 200]))).tolist() == [True] * 3
    hit = cache.read(3, 10, 32)
    assert list(hit.offsets) == [10, 11, 12]
    assert hit.payloads == [payload_of(3, 10, 100), b"", payload_of(3, 12, 200)]
    assert list(hit.tags) == [tag_of(3, offset) for offset in (10, 11, 12)]
    assert all(type(payload) is bytes for payload in hit.payloads)


def test_a_range_is_cut_at_both_ends_and_leaves_out_what_is_not_cached() -> None:
    cache = new_cache(8)
    cache.fill(batch_of([(1, offset, payload_of(1, offset, 20)) for offset in (2, 3, 7, 9)]))
    assert list(cache.read(1, 3, 6).offsets) == [3, 7]
    assert list(cache.read(1, 0, 2).offsets) == list(cache.read(1, 10, 5).offsets) == []
    assert list(cache.read(2, 0, 99).offsets) == []


def test_a_message_spans_blocks_and_tiers() -> None:
    cache = BlockCache([Tier("heap", 2 * BLOCK), Tier("off-heap", 4 * BLOCK)], BLOCK)
    cache.fill(batch_of(messages(0, 0, [300, 1700])))
    assert cache.read(0, 0, 2).payloads == [payload_of(0, 0, 300), payload_of(0, 1, 1700)]


@pytest.mark.parametrize("over", [-1, 0, 1, BLOCK + 1])
def test_a_message_that_ends_at_about_the_end_of_a_block_is_whole(over: int) -> None:
    cache = new_cache(4)
    sizes = [300, BLOCK - 300 + over]
    cache.fill(batch_of(messages(0, 0, sizes)))
    assert cache.read(0, 0, 2).payloads == [payload_of(0, at, size) for at, size in enumerate(sizes)]


def test_messages_of_a_frame_are_grouped_by_stream() -> None:
    cache = new_cache(16)
    frame = [(stream, offset, payload_of(stream, offset, 40)) for offset in range(5) for stream in (9, 0, 4)]
    cache.fill(batch_of(frame))
    for stream in (0, 4, 9):
        assert cache.read(stream, 0, 5).payloads == [payload_of(stream, offset, 40) for offset in range(5)]
    cache.settle()
    assert cache.space.free == 16 - 3


def test_payloads_are_taken_from_where_they_lie() -> None:
    cache = new_cache(4)
    cache.fill(Batch.of([0, 0], [0, 1], [3, 2], memoryview(b"..abc.de.").cast("B"), starts=[2, 6]))
    assert cache.read(0, 0, 2).payloads == [b"abc", b"de"]


def test_a_reader_that_passes_a_block_gives_it_back() -> None:
    cache = new_cache(8)
    cache.fill(batch_of(messages(0, 0, [256] * 8)))
    cache.settle()
    assert cache.space.free == 4
    assert len(consume(cache, 0, 0, 3).offsets) == 3
    cache.settle()
    assert cache.space.free == 5
    assert list(cache.read(0, 0, 8).offsets) == list(range(2, 8))  # the rest of the second block is still there


def test_reading_to_the_end_gives_everything_back_and_the_stream_goes_on() -> None:
    cache = new_cache(8)
    cache.fill(batch_of(messages(0, 0, [200] * 5)))
    consume(cache, 0, 0, 5)
    cache.settle()
    assert cache.space.free == 8
    cache.fill(batch_of(messages(0, 5, [200])))
    assert cache.read(0, 0, 9).payloads == [payload_of(0, 5, 200)]
    check_blocks(cache)


def test_reading_without_consuming_keeps_everything() -> None:
    cache = new_cache(8)
    cache.fill(batch_of(messages(0, 0, [200] * 5)))
    assert cache.read(0, 0, 5) == cache.read(0, 0, 5)
    cache.settle()
    assert cache.space.free == 6


def test_skipped_messages_are_released_too() -> None:
    cache = new_cache(8)
    cache.fill(batch_of(messages(0, 0, [500] * 6)))
    consume(cache, 0, 5, 1)
    cache.settle()
    assert cache.space.free == 8


def test_nothing_consumed_the_oldest_goes_first() -> None:
    cache = new_cache(4)
    for offset in range(10):
        cache.fill(batch_of(messages(offset % 2, offset, [BLOCK])))
    assert list(cache.read(0, 0, 99).offsets) == [6, 8]
    assert list(cache.read(1, 0, 99).offsets) == [7, 9]
    assert cache.counters[0].evicted_blocks == 6


def test_without_eviction_what_finds_no_room_is_refused() -> None:
    cache = new_cache(4, evict=False, remainders=False)
    taken = cache.fill(batch_of(messages(0, 0, [BLOCK] * 6)))
    assert taken.tolist() == [True] * 4 + [False] * 2
    assert cache.refused_messages == 2
    consume(cache, 0, 0, 2)
    assert cache.fill(batch_of(messages(0, 6, [BLOCK]))).tolist() == [True]
    assert list(cache.read(0, 0, 99).offsets) == [2, 3, 6]


def test_offsets_that_are_not_new_are_not_taken_again() -> None:
    cache = new_cache(4)
    cache.fill(batch_of(messages(0, 5, [10])))
    again = [(0, 5, b"other"), (0, 6, b"new")]
    assert cache.fill(batch_of(again)).tolist() == [False, True]
    assert cache.read(0, 0, 9).payloads == [payload_of(0, 5, 10), b"new"]


def test_a_message_larger_than_the_cache_is_not_taken() -> None:
    cache = new_cache(4)
    assert cache.fill(batch_of(messages(0, 0, [10, 4 * BLOCK + 1, 10]))).tolist() == [True, False, True]
    assert cache.fill(batch_of(messages(1, 0, [4 * BLOCK]))).tolist() == [True]
    assert cache.read(1, 0, 1).payloads == [payload_of(1, 0, 4 * BLOCK)]


def test_more_streams_in_a_frame_than_blocks_is_no_error() -> None:
    cache = new_cache(3)
    cache.fill(batch_of([(stream, 0, payload_of(stream, 0, 30)) for stream in range(50)]))
    found = [stream for stream in range(50) if cache.read(stream, 0, 1).payloads == [payload_of(stream, 0, 30)]]
    assert found == [47, 48, 49]


def test_dram_is_filled_before_persistent_memory(tmp_path: Path) -> None:
    tiers = [Tier("persistent", 4 * BLOCK, tmp_path), Tier("heap", BLOCK), Tier("off-heap", BLOCK)]
    cache = BlockCache(tiers, BLOCK)
    assert [tier.name for tier in cache.space.tiers] == ["heap", "off-heap", "persistent"]
    cache.fill(batch_of(messages(0, 0, [BLOCK] * 3)))
    assert [counters.filled_messages for counters in cache.counters] == [1, 1, 1]
    consume(cache, 0, 0, 2)
    cache.fill(batch_of(messages(0, 3, [BLOCK] * 2)))
    assert [counters.filled_messages for counters in cache.counters] == [2, 2, 1]
    assert [counters.hit_messages for counters in cache.counters] == [1, 1, 0]


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0)])
def test_without_any_memory_nothing_is_cached(sizes: tuple[int, ...]) -> None:
    cache = BlockCache([Tier("heap", size) for size in sizes], BLOCK)
    assert cache.fill(batch_of(messages(0, 0, [10]))).tolist() == [False]
    assert list(cache.read(0, 0, 1).offsets) == []
    cache.release(0, 5)
    cache.close()


def test_after_closing_nothing_is_found() -> None:
    cache = new_cache(4)
    cache.fill(batch_of(messages(0, 0, [10])))
    cache.close()
    assert list(cache.read(0, 0, 1).offsets) == []
    assert cache.fill(batch_of(messages(0, 1, [10]))).tolist() == [False]


def test_long_chains_forget_their_dead_rows() -> None:
    cache = new_cache(64)
    for first in range(0, 20_000, 50):
        cache.fill(batch_of(messages(0, first, [20] * 50)))
        consume(cache, 0, first, 49)  # all but the last one: an empty chain would be forgotten whole
    chain = cache.chains[0]
    assert len(chain._leaves) < 2_000 and len(chain._parts) < 2_000 and cache.rows.taken < 20
    check_blocks(cache)


def test_streams_whose_messages_are_gone_keep_no_chain() -> None:
    cache = new_cache(64)
    for stream in range(500):
        cache.fill(batch_of(messages(stream, 0, [400] * 3)))
        if stream % 3 == 0:
            consume(cache, stream, 0, 3)
    cache.settle()
    assert 0 < len(cache.chains) <= 64
    assert cache.stats()["streams"] == len(cache.chains)
    check_blocks(cache)
    assert cache.fill(batch_of(messages(0, 3, [400]))).tolist() == [True]  # it begins again, behind what it had
    assert cache.fill(batch_of(messages(3, 1, [400]))).tolist() == [False]
    assert list(cache.read(0, 0, 9).offsets) == [3]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("fill"),
            st.lists(
                st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from([0, 1, 60, 300, 511, 512, 513, 1400])),
                max_size=25,
            ),
        ),
        st.tuples(st.just("read"), st.integers(0, 4), st.integers(0, 40), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("release"), st.integers(0, 4), st.integers(0, 60)),
    ),
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(1, 12), st.integers(0, 6), st.booleans(), st.booleans())
def test_it_is_a_dict_that_may_forget(
    steps: list[tuple[Any, ...]], heap: int, off_heap: int, evict: bool, lend: bool
) -> None:
    """Model: whatever is found is what was filled; what is not released, nor pushed out, is found."""
    cache = BlockCache(
        [Tier("heap", heap * BLOCK), Tier("off-heap", off_heap * BLOCK)], BLOCK, evict=evict, remainders=lend
    )
    model: dict[tuple[int, int], bytes] = {}
    floors, newest = [0] * 5, [-1] * 5
    for name, *arguments in steps:
        if name == "fill":
            rows: list[Message] = []
            for stream, gap, size in arguments[0]:
                newest[stream] += gap
                rows.append((stream, newest[stream], payload_of(stream, newest[stream], size)))
            taken = cache.fill(batch_of(rows))
            model |= {(s, o): data for (s, o, data), is_in in zip(rows, taken, strict=True) if is_in}
        elif name == "release":
            stream, offset = arguments
            cache.release(stream, offset)
            floors[stream] = max(floors[stream], offset)
        else:
            stream, offset, limit, consumes = arguments
            hit = (consume if consumes else BlockCache.read)(cache, stream, offset, limit)
            for at, data, tag in zip(*hit, strict=True):
                assert model[stream, at] == data and tag == tag_of(stream, at)
            floor = max(offset, floors[stream])
            wanted = [o for s, o in model if s == stream and floor <= o < offset + limit]
            assert evict or set(wanted) <= set(hit.offsets)
            if consumes and hit.offsets:
                floors[stream] = max(floor, hit.offsets[-1] + 1)
        check_blocks(cache)
    for stream in range(5):
        cache.release(stream, newest[stream] + 1)
    cache.settle()
    assert cache.space.free == cache.space.blocks and cache.used_bytes == 0


def test_columns_of_any_integers_become_those_of_a_batch() -> None:
    batch = Batch.of(np.zeros(2, np.uint8), np.array([3, 4], np.uint32), np.full(2, 2, np.uint16), b"abcd", tags=[1, 2])
    columns = (batch.streams, batch.offsets, batch.lengths, batch.starts, batch.tags)
    assert {column.dtype for column in columns} == {np.dtype(np.int64)}
    assert batch.starts.tolist() == [0, 2]
