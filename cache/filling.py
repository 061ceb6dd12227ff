"""Fills a block cache: a batch becomes runs, runs get places, bytes are copied, rows are published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .batch import Batch, Runs, grown
from .placing import PlacedMessages, RunSpace, sizes_of
from .publishing import FIRST_STREAMS, Publisher
from .remainder import lend
from .rows import MOST_BYTES

if TYPE_CHECKING:
    from .block_cache import BlockCache

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class BlockWriter:
    """The writing half of a `BlockCache`. The cache's lock is held in all of its methods.

    A column by stream has its last block (-1: none), in which it goes on writing.
    """

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._tails = np.full(FIRST_STREAMS, -1, np.int64)
        self._publisher = Publisher(cache)

    def fill(self, batch: Batch, is_intact: Callable[[], bool]) -> Mask:
        """Take messages. Returns (n,) which were taken. Batches are cut so that none wants more blocks than exist."""
        cache = self._cache
        cached = np.zeros(len(batch), np.bool_)
        if not len(batch):
            return cached
        newest = int(batch.streams.max())
        self._tails = grown(self._tails, newest, -1)
        self._publisher.grow(newest)
        most = min(cache.capacity_bytes, MOST_BYTES)
        fits = (batch.offsets > self._publisher.newest[batch.streams]) & (batch.lengths <= most)
        which = np.flatnonzero(fits)
        if len(which) < len(batch):
            batch = batch.part(which)
        blocks = -(-batch.lengths // cache.block_bytes) + 1
        for cut in batch.cuts(max(1, cache.space.blocks // 2), blocks):
            runs = Runs.of(batch.part(cut))
            cached[which[cut][runs.order[self._fill_runs(runs, is_intact)]]] = True
        return cached

    def forget(self, stream: int, block: int) -> None:
        """A block is free; if its owner was writing to it, it does so no more."""
        if self._tails[stream] == block:
            self._tails[stream] = -1

    def emptied(self, stream: int) -> None:
        """A stream's chain has no live part any more."""
        self._publisher.emptied(stream)

    def _fill_runs(self, runs: Runs, is_intact: Callable[[], bool]) -> Mask:
        cache, block_bytes = self._cache, self._cache.block_bytes
        room = self._make_room(runs)
        placing = PlacedMessages.of(runs, room, cache.space.free, block_bytes)
        taken = np.array(cache.space.take(int(placing.granted.sum())), np.int64)
        cache.space.write(*placing.pieces(runs, room, taken, block_bytes), runs.batch.payload)
        if not is_intact():
            for block in taken.tolist():
                cache.space.give(block)
            return np.zeros(len(runs.batch), np.bool_)
        addresses = placing.addresses(runs, room, taken, block_bytes)
        done = placing.placed
        parts = self._publisher.own(runs, room, placing, taken)
        self._publisher.publish(*_some(runs.batch, addresses, done), parts)
        self._account(runs, room, placing, taken)
        if cache.lends and not bool(done.all()):
            done = done.copy()
            self._lend(runs, done, addresses, is_intact)
        cache.refused_messages += int(np.count_nonzero(~done))
        cache.used_total += int(sizes_of(runs.batch.lengths[done]).sum())
        self._count(runs.batch.lengths[done], addresses[done])
        return done

    def _make_room(self, runs: Runs) -> RunSpace:
        """The space for the runs; with eviction, the oldest blocks are evicted until all runs fit."""
        cache = self._cache
        while True:
            room = RunSpace.of(runs, self._tails[runs.streams], cache.used, cache.block_bytes)
            lacking = int(room.wanted.sum()) - cache.space.free
            if lacking <= 0 or not cache.evict:
                return room
            for _ in range(lacking):
                cache.evict_oldest()  # it may have been the last block of one of the runs

    def _account(self, runs: Runs, room: RunSpace, placing: PlacedMessages, taken: Ints) -> None:
        """Note the used bytes of blocks, and the last block of each stream."""
        cache, used, tails = self._cache, self._cache.used, room.tails
        some = placing.granted > 0
        used[tails[some & (tails >= 0)]] = cache.block_bytes  # a message went on from them
        used[taken] = cache.block_bytes
        newest = tails.copy()
        newest[some] = taken[(placing.firsts + placing.granted - 1)[some]]
        live = newest >= 0
        used[newest[live]] = placing.filled[live]
        self._tails[runs.streams[live]] = newest[live]

    # -- remainders -----------------------------------------------------------------------------------

    def _lend(self, runs: Runs, done: Mask, addresses: Ints, is_intact: Callable[[], bool]) -> None:
        """Put the messages that found no block into the ends of any streams' last blocks."""
        cache = self._cache
        tails, free = self._ends()
        wanted = np.flatnonzero(~done)
        ends, before = lend(sizes_of(runs.batch.lengths[wanted]), free)
        found = ends >= 0
        which, blocks = wanted[found], tails[ends[found]]
        if not len(which):
            return
        batch = runs.batch.part(which)
        addresses[which] = (blocks + 1) * cache.block_bytes - before[found]
        cache.space.write(addresses[which], batch.starts, batch.lengths, batch.payload)
        if not is_intact():
            return  # the written bytes belong to nobody: the ends are as free as before
        cache.used[tails] = cache.block_bytes - free
        self._publisher.publish(batch, addresses[which], self._publisher.borrow(batch, blocks))
        done[which] = True

    def _ends(self) -> tuple[Ints, Ints]:
        """The last blocks of streams that have room, and how much."""
        tails = self._tails[self._tails >= 0]
        free = self._cache.block_bytes - self._cache.used[tails]
        some = free > 0
        return tails[some], free[some]

    def largest_end(self) -> int:
        """The largest free end of a last block, in bytes."""
        return int(self._ends()[1].max(initial=0))

    def _count(self, lengths: Ints, addresses: Ints) -> None:
        counters = self._cache.counters
        if len(counters) == 1:
            counters[0].filled_messages += len(lengths)
            counters[0].filled_bytes += int(lengths.sum())
            return
        tiers = self._cache.space.tiers_of(addresses)
        for index, counter in enumerate(counters):
            mine = lengths[tiers == index]
            counter.filled_messages += len(mine)
            counter.filled_bytes += int(mine.sum())


def _some(batch: Batch, addresses: Ints, which: Mask) -> tuple[Batch, Ints]:
    return (batch, addresses) if bool(which.all()) else (batch.part(which), addresses[which])
