"""What the tests of the cache share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stratalog.cache.batch import Batch
from stratalog.cache.block_cache import BlockCache, CachedMessages
from stratalog.cache.rows import LEAF_ROWS
from stratalog.cache.space import BlockSpace

Message = tuple[int, int, bytes]  # stream, offset, payload


def batch_of(messages: Sequence[Message]) -> Batch:
    """A batch as the store would hand it over; the tag of a message is a mix of its stream and offset."""
    return Batch.of(
        [stream for stream, _, _ in messages],
        [offset for _, offset, _ in messages],
        [len(payload) for _, _, payload in messages],
        b"".join(payload for _, _, payload in messages),
        tags=[tag_of(stream, offset) for stream, offset, _ in messages],
    )


def tag_of(stream: int, offset: int) -> int:
    return (stream * 0x9E3779B1 + offset * 0x85EBCA6B) & 0xFFFFFFFF


def payload_of(stream: int, offset: int, size: int) -> bytes:
    """Bytes that no other message has in this place."""
    seed = b"%d/%d." % (stream, offset)
    return (seed * (size // len(seed) + 1))[:size]


def consume(cache: BlockCache, stream: int, offset: int, limit: int) -> CachedMessages:
    """Read, and let go of what was passed."""
    hit = cache.read(stream, offset, limit)
    if hit.offsets:
        cache.release(stream, hit.offsets[-1] + 1)
    return hit


def check_blocks(cache: BlockCache) -> None:
    """The invariants of `BlockCache` and `BlockSpace` that a look from outside can check."""
    space: BlockSpace = cache.space
    refs = np.zeros(space.blocks, np.int64)
    leaves: list[int] = []
    for chain in cache.chains.values():
        np.add.at(refs, np.array(chain.blocks, np.int64), 1)
        columns, counts = cache.rows.columns, [cache.rows.columns.counts[leaf] for leaf in chain.leaves]
        assert counts[:-1] == [LEAF_ROWS] * (len(counts) - 1) and 0 not in counts and bool(counts) == bool(chain.parts)
        offsets = [
            columns.offsets[leaf * LEAF_ROWS + slot]
            for leaf, count in zip(chain.leaves, counts, strict=True)
            for slot in range(count)
        ]
        assert offsets == sorted(set(offsets))
        leaves += chain.leaves
    assert len(set(leaves)) == len(leaves) == cache.rows.taken
    assert refs.tolist() == list(cache.refs)
    assert space.free == int((refs == 0).sum())
    assert bool((cache.used[refs == 0] == 0).all()) and int(cache.used.max(initial=0)) <= cache.block_bytes
    assert cache.used_bytes == int(cache.used.sum())
