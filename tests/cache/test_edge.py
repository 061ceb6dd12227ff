"""The edge cache (R12): short fragments outside of a large message's aligned blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.cache.batch import Batch
from stratalog.cache.edge import DEVICE_BLOCK_BYTES, EdgeCache, device_blocks, edge_lengths
from stratalog.cache.tier import Tier

from .helpers import payload_of


def lengths_of(position: int, length: int) -> tuple[int, int]:
    heads, tails = edge_lengths(np.array([position]), np.array([length]))
    return int(heads[0]), int(tails[0])


def test_fragments_under_a_kib_on_either_side_are_cut_off() -> None:
    assert lengths_of(4096 - 300, 300 + 8192 + 200) == (300, 200)
    assert lengths_of(4096 - 1023, 1023 + 4096) == (1023, 0)
    assert lengths_of(0, 4096 + 1) == (0, 1)


def test_long_fragments_and_aligned_ends_are_left_alone() -> None:
    assert lengths_of(4096 - 1024, 1024 + 4096 + 1024) == (0, 0)
    assert lengths_of(4096, 8192) == (0, 0)


def test_a_message_within_one_block_has_no_edges() -> None:
    assert lengths_of(4096 - 500, 400) == lengths_of(10, 100) == lengths_of(4096 - 500, 500) == (0, 0)


def test_a_short_message_over_a_border_may_be_all_edges() -> None:
    assert lengths_of(4096 - 100, 150) == (100, 50)


@given(st.integers(0, 1 << 40), st.integers(0, 20_000))
def test_each_fragment_saves_a_block_of_the_device(position: int, length: int) -> None:
    head, tail = lengths_of(position, length)
    rest = length - head - tail
    assert 0 <= head < 1024 and 0 <= tail < 1024 and rest >= 0
    before = int(device_blocks(np.array([position]), np.array([length]))[0])
    after = int(device_blocks(np.array([position + head]), np.array([rest]))[0])
    assert before - after == (head > 0) + (tail > 0)
    assert not head or (position + head) % DEVICE_BLOCK_BYTES == 0


def test_fragments_come_back_as_they_lie_in_the_message() -> None:
    cache = EdgeCache(Tier("heap", 64 << 10))
    data = [payload_of(1, offset, 10_000) for offset in range(5)]
    positions = np.array([4096 - 300, 4096 - 2000, 8192, 4096 - 100, 12_288 - 1904])
    batch = Batch.of([1] * 5, range(5), [len(item) for item in data], b"".join(data))
    heads, tails = edge_lengths(positions, batch.lengths)
    assert cache.fill(batch, positions) == int(np.count_nonzero(heads + tails)) > 0
    found = cache.read(1, 0, 10)
    assert len(found.offsets) == int(np.count_nonzero(heads + tails))
    for offset, head, tail in zip(*found, strict=True):
        assert head == data[offset][: heads[offset]]
        assert tail == data[offset][10_000 - int(tails[offset]) :]


def test_half_a_kib_saves_a_read_of_four() -> None:
    """The yield that R12 claims: device bytes saved a byte of cache, for large messages anywhere."""
    rng = np.random.default_rng(7)
    positions, lengths = rng.integers(0, 1 << 40, 20_000), rng.integers(12_000, 17 * 1024, 20_000)
    heads, tails = edge_lengths(positions, lengths)
    saved = device_blocks(positions, lengths) - device_blocks(positions + heads, lengths - heads - tails)
    assert int(saved.sum()) * DEVICE_BLOCK_BYTES / int((heads + tails).sum()) == pytest.approx(8, rel=0.03)


def test_consumed_fragments_are_given_back_and_the_oldest_make_room() -> None:
    cache = EdgeCache(Tier("heap", 4 * 4096))
    for offset in range(100):
        data = payload_of(0, offset, 9_000)
        cache.fill(Batch.of([0], [offset], [9_000], data), np.array([4096 - 500]))
    kept = cache.read(0, 0, 100)
    assert 15 <= len(kept.offsets) < 25 and kept.offsets[-1] == 99
    cache.release(0, 100)
    cache.cache.settle()
    assert cache.cache.space.free == cache.cache.space.blocks
    cache.close()
