"""The blocks of all tiers as one row of numbers, and one range of addresses.

A *block* is `block_bytes` of one tier. Blocks are numbered through all tiers in their order of use; a byte's
*address* is block x `block_bytes` + its place in the block. Free blocks are taken from the first tier that has
one: DRAM first, persistent memory last.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .tier import Tier

Ints = npt.NDArray[np.int64]
LEAST_BLOCK_BYTES = 512
MOST_BLOCKS = 1 << 31


class BlockSpace:
    """Takes and gives blocks; copies bytes in. Not safe for threads: the cache's lock guards it.

    Attributes:
        bounds: the address at which each tier begins, and the end after the last one.
        memories: per tier, the memory that readers slice.

    Invariants:
        * `free` is the number of free blocks; no block is given twice;
        * DRAM tiers come before persistent memory.
    """

    def __init__(self, tiers: Sequence[Tier], block_bytes: int) -> None:
        active = [tier for tier in tiers if tier.size_bytes]
        self.tiers = sorted(active, key=lambda tier: tier.is_persistent_memory)  # stable
        self.block_bytes = block_bytes
        counts = [tier.size_bytes // block_bytes for tier in self.tiers]
        self.blocks = sum(counts)
        assert self.blocks < MOST_BLOCKS and block_bytes & (block_bytes - 1) == 0, "the config has looked at both"
        firsts = [sum(counts[:index]) for index in range(len(counts) + 1)]
        self.bounds = [first * block_bytes for first in firsts]
        self.memories: list[mmap.mmap | memoryview] = [tier.memory for tier in self.tiers]
        self._views = [tier.view for tier in self.tiers]
        self._fresh = firsts[:-1]  # per tier: the first block that was never taken
        self._ends = firsts[1:]
        self._given = [array("i") for _ in counts]  # per tier: returned blocks, the last one is taken first
        self.free = self.blocks

    @property
    def capacity_bytes(self) -> int:
        """Bytes in whole blocks, over all tiers."""
        return self.blocks * self.block_bytes

    def tier_of(self, address: int) -> int:
        """The index of an address's tier."""
        return bisect_right(self.bounds, address) - 1

    def tiers_of(self, addresses: Ints) -> Ints:
        """(n,) the index of each address's tier."""
        if len(self.tiers) == 1:
            return np.zeros(len(addresses), np.int64)
        tiers: Ints = np.array(self.bounds).searchsorted(addresses, side="right") - 1
        return tiers

    def take(self, count: int) -> list[int]:
        """Take `count` free blocks, of the first tiers that have some."""
        assert 0 <= count <= self.free
        taken: list[int] = []
        for index, given in enumerate(self._given):
            wanted = count - len(taken)
            if not wanted:
                break
            fresh = self._fresh[index]
            until = min(fresh + wanted, self._ends[index])
            taken += range(fresh, until)  # neighbours, while there are any
            self._fresh[index] = until
            wanted -= until - fresh
            if wanted and given:
                taken += given[-wanted:]
                del given[-wanted:]
        assert len(taken) == count
        self.free -= count
        return taken

    def give(self, block: int) -> int:
        """Take a block back. Returns its tier."""
        tier = bisect_right(self._ends, block)
        self._given[tier].append(block)
        self.free += 1
        assert self.free <= self.blocks
        return tier

    def write(self, addresses: Ints, starts: Ints, lengths: Ints, payload: memoryview) -> None:
        """Copy pieces `payload[start : start + length]` to their addresses; each stays within its block."""
        assert bool((addresses % self.block_bytes + lengths <= self.block_bytes).all())
        if len(self.tiers) == 1:
            self._write(0, addresses, starts, lengths, payload)
            return
        tiers = self.tiers_of(addresses)
        for index in np.unique(tiers).tolist():
            mine = tiers == index
            self._write(index, addresses[mine], starts[mine], lengths[mine], payload)

    def _write(self, tier: int, addresses: Ints, starts: Ints, lengths: Ints, payload: memoryview) -> None:
        view, to = self._views[tier], addresses - self.bounds[tier]
        columns = (to.tolist(), (to + lengths).tolist(), starts.tolist(), (starts + lengths).tolist())
        for low, high, start, end in zip(*columns, strict=True):
            view[low:high] = payload[start:end]

    def close(self) -> None:
        """Free all memory. A reader under way finds no bytes, and gets no error."""
        self._views = []
        self.memories = [memoryview(b"")] * len(self.tiers)
        for tier in self.tiers:
            tier.close()
