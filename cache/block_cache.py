"""The cache of messages in blocks: filled a batch at a time, read without a lock, released after reading."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .ages import Ages
from .batch import Batch
from .chain import Chain, DroppedParts
from .counters import TierCounters
from .filling import BlockWriter
from .rows import Columns, RowSpace
from .space import BlockSpace
from .tier import Tier

ATTEMPTS = 3
BLOCK_BYTES = 32 << 10


class CachedMessages(NamedTuple):
    """Cached messages in offset order; others are left out.

    `offsets` and `tags` are sequences of int, `payloads` of bytes; all have the same length.
    """

    offsets: Sequence[int]
    payloads: Sequence[bytes]
    tags: Sequence[int]


NO_HIT = CachedMessages((), (), ())


class BlockCache:
    """Messages of numbered streams in chains of blocks, over the tiers given.

    One thread fills at a time, any number reads. A reader takes no lock: it copies, and then checks whether the bytes
    were taken away meanwhile (`Chain.version`), as a reader of a ring does.

    Invariants:
        * a block's bytes are written once between `take` and `give`, from its beginning on: `used` only grows;
        * `refs[block]` is the number of live parts in it, over all chains; at 0 it is free;
        * only a stream's last block has room that is written to;
        * a stream has a chain while it has a live part; a reader that holds an older chain finds nothing in it;
        * `refs`, `owners` and `next_block` are columns by block; for whole batches numpy arrays share their memory.
    """

    def __init__(
        self, tiers: Iterable[Tier], block_bytes: int = BLOCK_BYTES, *, evict: bool = True, remainders: bool = True
    ) -> None:
        """`evict`: the oldest messages make room, else messages without room are refused; then `remainders` are
        lent."""
        self.space = BlockSpace(list(tiers), block_bytes)
        self.block_bytes = block_bytes
        self.evict = evict
        self.counters = [TierCounters() for _ in self.space.tiers]
        self.chains: dict[int, Chain] = {}
        self.rows = RowSpace()
        self.used = np.zeros(self.space.blocks, np.int64)
        self.used_total = 0  # the sum of that column
        self.ref_column = np.zeros(self.space.blocks, np.int32)
        self.owner_column = np.full(self.space.blocks, -1, np.int64)
        self.next_column = np.full(self.space.blocks, -1, np.int32)  # where a message that leaves the block goes on
        self.refs, self.owners, self.next_block = self.ref_column.data, self.owner_column.data, self.next_column.data
        self.ages = Ages(self.space.blocks)
        self.lends = remainders and not evict
        self.refused_messages = 0
        self.closed = False
        self._filler = BlockWriter(self)
        self._lock = threading.Lock()
        self._passed: dict[int, int] = {}  # stream -> offset: releases that the next fill makes

    # -- filling --------------------------------------------------------------------------------------

    def fill(self, batch: Batch, is_intact: Callable[[], bool] = lambda: True) -> npt.NDArray[np.bool_]:
        """Copy messages in. Returns (n,) which of them are cached now (unless later ones pushed them out).

        `is_intact` is called after their bytes were copied: if it is False, nobody will ever see them.
        Messages at or below their stream's newest cached offset are not taken: a chain only grows at its end.
        """
        with self._lock:
            if self.closed or not self.space.blocks:
                return np.zeros(len(batch), np.bool_)
            self._drain()
            return self._filler.fill(batch, is_intact)

    # -- reading --------------------------------------------------------------------------------------

    def read(self, stream: int, offset: int, limit: int) -> CachedMessages:
        """Copies of the cached messages with `offset <= .. < offset + limit`."""
        chain = self.chains.get(stream)
        if chain is None:
            return NO_HIT
        hit = self._try_copy(chain, offset, limit)
        if hit is None:
            with self._lock:
                hit = self._copy(chain, offset, limit, self.rows.columns)
        return hit

    def _try_copy(self, chain: Chain, offset: int, limit: int) -> CachedMessages | None:
        """An undisturbed copy; None if another thread takes rows of this chain away again and again."""
        for _ in range(ATTEMPTS):
            version, columns = chain.version, self.rows.columns
            if version & 1:
                return None  # that thread has the lock: wait for it
            try:
                hit = self._copy(chain, offset, limit, columns)
            except (IndexError, ValueError):  # rows were taken away, or are in longer columns
                continue
            # In columns that were replaced meanwhile a leaf may have the rows of an earlier chain.
            if chain.version == version and self.rows.columns is columns:
                return hit
        return None

    def _copy(self, chain: Chain, offset: int, limit: int, columns: Columns) -> CachedMessages:
        """The content by the columns now; garbage, IndexError or ValueError if rows are taken away meanwhile."""
        stretches = chain.find(columns, offset, limit)
        if not stretches:
            return NO_HIT
        (low, high), *more = stretches
        offsets, addresses = columns.offsets[low:high].tolist(), columns.addresses[low:high].tolist()
        lengths, tags = columns.lengths[low:high].tolist(), columns.tags[low:high].tolist()
        for low, high in more:
            offsets += columns.offsets[low:high].tolist()
            addresses += columns.addresses[low:high].tolist()
            lengths += columns.lengths[low:high].tolist()
            tags += columns.tags[low:high].tolist()
        lowest, highest = min(addresses), max(addresses)
        bounds = self.space.bounds
        tier = bisect_right(bounds, lowest) - 1
        if highest < bounds[tier + 1]:
            found = self._copy_tier(tier, addresses, lengths)
        else:
            found = [
                self._copy_tier(bisect_right(bounds, address) - 1, (address,), (length,))[0]
                for address, length in zip(addresses, lengths, strict=True)
            ]
        return CachedMessages(offsets, found, tags)

    def _copy_tier(self, tier: int, addresses: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Messages that begin in one tier."""
        memory, base, inside = self.space.memories[tier], self.space.bounds[tier], self.block_bytes - 1
        found: list[bytes | memoryview] = []
        for address, length in zip(addresses, lengths, strict=True):
            if (address & inside) + length <= inside + 1:
                at = address - base
                found.append(memory[at : at + length])
            else:
                found.append(self._joined(address, length))
        counters = self.counters[tier]
        counters.hit_messages += len(found)
        counters.hit_bytes += sum(lengths)
        return list(map(bytes, found))  # costs nothing if a slice is bytes already

    def _joined(self, address: int, length: int) -> bytes:
        """A message that spans blocks."""
        block_bytes, space = self.block_bytes, self.space
        parts = []
        while length > 0:
            tier = space.tier_of(address)
            size = min(length, block_bytes - address % block_bytes)
            at = address - space.bounds[tier]
            parts.append(space.memories[tier][at : at + size])
            length -= size
            address = self.next_block[address // block_bytes] * block_bytes
        return b"".join(parts)

    # -- releasing ------------------------------------------------------------------------------------

    def release(self, stream: int, offset: int) -> None:
        """Messages below `offset` will not be read any more: blocks with only such messages become free.

        It is only noted, and the next fill does it: a reader takes no lock, and an interrupt leaves nothing half done.
        """
        self._passed[stream] = max(offset, self._passed.get(stream, 0))

    def settle(self) -> None:
        """Make the noted releases."""
        with self._lock:
            self._drain()

    def _drain(self) -> None:
        while self._passed:
            stream, offset = self._passed.popitem()
            chain = self.chains.get(stream)
            if chain is not None:
                self._give(stream, chain, chain.release(offset, self.rows.columns))

    def evict_oldest(self) -> None:
        """Free the block that was taken first, whatever streams have messages in it."""
        block = self.ages.oldest
        owner = self.owners[block]
        chain = self.chains[owner]
        dropped = chain.release_oldest(self.rows.columns)
        assert not self.lends and list(dropped.blocks) == [block], "a chain's oldest part is its oldest block"
        self._give(owner, chain, dropped, evicted=True)
        assert self.owners[block] == -1

    def _give(self, stream: int, chain: Chain, dropped: DroppedParts, *, evicted: bool = False) -> None:
        """Free the dropped parts of a chain, in blocks that no other chain uses. An empty chain is forgotten."""
        blocks, leaves = dropped
        if blocks and not chain.parts:  # an empty chain would stay as long as the cache
            self._filler.emptied(stream)
            self.chains.pop(stream, None)
        for leaf in leaves:
            self.rows.give(leaf)
        for block in blocks:
            self._unref(block, evicted=evicted)

    def _unref(self, block: int, *, evicted: bool) -> None:
        """Count one part less in a block; the last one frees it."""
        left = self.refs[block] = self.refs[block] - 1
        assert left >= 0
        if left:
            return
        counters = self.counters[self.space.give(block)]
        if evicted:
            counters.evicted_blocks += 1
        else:
            counters.released_blocks += 1
        self._filler.forget(self.owners[block], block)
        self.owners[block] = self.next_block[block] = -1
        self.used_total -= int(self.used[block])
        self.used[block] = 0
        self.ages.remove(block)

    # -- figures --------------------------------------------------------------------------------------

    @property
    def capacity_bytes(self) -> int:
        """The bytes of all tiers, in whole blocks."""
        return self.space.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes of blocks that have been written to, released or not."""
        return self.used_total

    @property
    def free_bytes(self) -> int:
        """The bytes that can be written without an eviction: free blocks, and the ends of last ones."""
        return self.capacity_bytes - self.used_bytes

    def largest_room(self) -> int:
        """The size of message that has room now: if all blocks are taken, the largest remainder."""
        with self._lock:
            self._drain()
            if not self.lends or self.space.free:
                return self.capacity_bytes
            return self._filler.largest_end()

    def stats(self) -> dict[str, object]:
        """Plain and nested figures of each tier."""
        with self._lock:
            tiers: dict[str, object] = {}
            for index, tier in enumerate(self.space.tiers):
                low, high = (bound // self.block_bytes for bound in self.space.bounds[index : index + 2])
                used = self.used[low:high]
                tiers[tier.name] = {
                    "kind": tier.kind,
                    "capacity_bytes": (high - low) * self.block_bytes,
                    "used_bytes": int(used.sum()),
                    "used_blocks": int(np.count_nonzero(used)),
                    **self.counters[index].as_dict(),
                }
            return {"tiers": tiers, "refused_messages": self.refused_messages, "streams": len(self.chains)}

    def close(self) -> None:
        """Free all memory; reads find nothing from now on."""
        with self._lock:
            self.closed = True
            for chain in self.chains.values():
                chain.release_all()
            self.chains = {}
            self.space.close()
