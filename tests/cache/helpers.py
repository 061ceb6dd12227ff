"""What the tests of the cache share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cache.batch import Batch
from cache.block_cache import BlockCache
from cache.space import BlockSpace

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


def check_blocks(cache: BlockCache) -> None:
    """The invariants of `BlockCache` and `BlockSpace` that a look from outside can check."""
    space: BlockSpace = cache.space
    refs = np.zeros(space.blocks, np.int64)
    for chain in cache.chains.values():
        live = chain.blocks[len(chain.blocks) - chain.parts :]
        np.add.at(refs, np.array(live, np.int64), 1)
        assert len(chain.places) == 2 * len(chain.offsets)
        assert list(chain.offsets) == sorted(set(chain.offsets))
    assert refs.tolist() == list(cache.refs)
    assert space.free == int((refs == 0).sum())
    assert bool((cache.used[refs == 0] == 0).all()) and int(cache.used.max(initial=0)) <= cache.block_bytes
    assert cache.used_bytes == int(cache.used.sum())
