"""The edge cache: the short fragments of large messages that stick out of their aligned blocks.

A message that is too large for the cache is read from the device, in whole blocks of 4 KiB. If only a few bytes of
it lie in its first or last block, that block is read for few bytes. So a fragment under 1 KiB at either end is
kept here: it takes half a KiB on average and saves a read of 4 KiB, eight times what the same memory saves otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .batch import Batch
from .block_cache import BlockCache
from .tier import Tier

Ints = npt.NDArray[np.int64]
DEVICE_BLOCK_BYTES = 4096
EDGE_BYTES = 1024
CHAIN_BLOCK_BYTES = 512  # fragments are short, and a stream has few of them


class Edges(NamedTuple):
    """Fragments of messages, in offset order: the first and the last bytes of each; one of the two may be empty."""

    offsets: Sequence[int]
    heads: Sequence[bytes]
    tails: Sequence[bytes]


class EdgeCache:
    """Fragments in block chains of their own; the oldest make room.

    The two fragments of a message lie back to back, and the row's tag is the length of the first one.
    """

    def __init__(self, tier: Tier) -> None:
        self.cache = BlockCache([tier], CHAIN_BLOCK_BYTES)

    def fill(self, batch: Batch, positions: Ints, is_intact: Callable[[], bool] = lambda: True) -> int:
        """Keep the fragments of messages that lie at `positions` (n,) on the device. Returns how many have some."""
        heads, tails = edge_lengths(positions, batch.lengths)
        which = np.flatnonzero(heads + tails)
        if not len(which):
            return 0
        batch, heads, tails = batch.part(which), heads[which], tails[which]
        ends = batch.starts + batch.lengths
        columns = (batch.starts, batch.starts + heads, ends - tails, ends)
        payload, pieces = batch.payload, []
        for head, head_end, tail, tail_end in zip(*(column.tolist() for column in columns), strict=True):
            pieces += [payload[head:head_end], payload[tail:tail_end]]
        fragments = Batch.of(batch.streams, batch.offsets, heads + tails, b"".join(pieces), tags=heads)
        return int(np.count_nonzero(self.cache.fill(fragments, is_intact)))

    def read(self, stream: int, offset: int, limit: int) -> Edges:
        """The kept fragments of the messages with `offset <= .. < offset + limit`."""
        hit = self.cache.read(stream, offset, limit)
        pairs = list(zip(hit.payloads, hit.tags, strict=True))
        return Edges(hit.offsets, [data[:head] for data, head in pairs], [data[head:] for data, head in pairs])

    def release(self, stream: int, offset: int) -> None:
        """Messages below `offset` will not be read any more."""
        self.cache.release(stream, offset)

    def close(self) -> None:
        """Free all memory."""
        self.cache.close()


def edge_lengths(positions: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """((n,), (n,)): bytes of each message before its first and after its last block border; 0 if there are too many.

    A message within one block has none: its block has to be read anyway.
    """
    heads = -positions % DEVICE_BLOCK_BYTES
    tails = (positions + lengths) % DEVICE_BLOCK_BYTES
    crosses = heads < lengths  # a border lies inside
    heads = np.where(crosses & (heads < EDGE_BYTES), heads, 0)
    tails = np.where(crosses & (tails < EDGE_BYTES) & (tails < lengths), tails, 0)
    return heads, tails


def device_blocks(positions: Ints, lengths: Ints) -> Ints:
    """(n,) how many device blocks each range touches."""
    last = (positions + lengths - 1) // DEVICE_BLOCK_BYTES
    blocks: Ints = np.where(lengths > 0, last - positions // DEVICE_BLOCK_BYTES + 1, 0)
    return blocks
