"""Filling a block cache: a batch becomes runs, runs get places, bytes are copied, rows are published."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .batch import Batch, Runs
from .chain import LOW_32, Chain
from .placing import Placing, Room, sizes_of

if TYPE_CHECKING:
    from .block_cache import BlockCache

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
FIRST_STREAMS = 64
WORD_BYTES = 8


class Filler:
    """The writing half of a `BlockCache`, whose lock is held in all of this.

    Two columns by stream: its last block (-1: none), which is where it goes on writing, and its newest offset (-1).
    """

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._tails = np.full(FIRST_STREAMS, -1, np.int64)
        self._newest = np.full(FIRST_STREAMS, -1, np.int64)
        self._new_tails = False  # blocks were taken since the last ones were listed as remainders

    def fill(self, batch: Batch, is_intact: Callable[[], bool]) -> Mask:
        """(n,) what was taken. Cut so that no cut wants more blocks than there are."""
        cache = self._cache
        cached = np.zeros(len(batch), np.bool_)
        if not len(batch):
            return cached
        self._grow(int(batch.streams.max()))
        fits = (batch.offsets > self._newest[batch.streams]) & (batch.lengths <= cache.capacity_bytes)
        which = np.flatnonzero(fits)
        if len(which) < len(batch):
            batch = batch.part(which)
        blocks = -(-batch.lengths // cache.block_bytes) + 1
        for cut in batch.cuts(max(1, cache.space.blocks // 2), blocks):
            runs = Runs.of(batch.part(cut))
            cached[which[cut][runs.order[self._fill_runs(runs, is_intact)]]] = True
        return cached

    def forget(self, stream: int, block: int) -> None:
        """A block is free; if its owner was writing to it, it no longer is."""
        if self._tails[stream] == block:
            self._tails[stream] = -1

    def restart(self, stream: int) -> None:
        """A stream's offsets may begin anywhere again; its chain is gone."""
        if stream < len(self._newest):
            self._newest[stream] = -1

    def _grow(self, stream: int) -> None:
        size = len(self._tails)
        if stream >= size:
            more = max(stream + 1, 2 * size) - size
            self._tails = np.append(self._tails, np.full(more, -1, np.int64))
            self._newest = np.append(self._newest, np.full(more, -1, np.int64))

    def _fill_runs(self, runs: Runs, is_intact: Callable[[], bool]) -> Mask:
        cache, block_bytes = self._cache, self._cache.block_bytes
        room = self._make_room(runs)
        placing = Placing.of(runs, room, cache.space.free, block_bytes)
        taken = np.array(cache.space.take(int(placing.granted.sum())), np.int64)
        cache.space.write(*placing.pieces(runs, room, taken, block_bytes), runs.batch.payload)
        if not is_intact():
            for block in taken.tolist():
                cache.space.give(block)
            return np.zeros(len(runs.batch), np.bool_)
        addresses = placing.addresses(runs, room, taken, block_bytes)
        self._publish(runs, room, placing, taken, addresses)
        self._account(runs, room, placing, taken)
        done = placing.placed
        if cache.remainders is not None and not bool(done.all()):
            done = done.copy()
            self._lend(runs, done, addresses, is_intact)
        cache.refused_messages += int(np.count_nonzero(~done))
        cache.used_total += int(sizes_of(runs.batch.lengths[done]).sum())
        self._newest[runs.batch.streams[done]] = runs.batch.offsets[done]  # the last one of a run wins
        self._count(runs.batch.lengths[done], addresses[done])
        return done

    def _make_room(self, runs: Runs) -> Room:
        """Where the runs can go on, after evicting what is oldest until all of them fit, if that is wanted."""
        cache = self._cache
        while True:
            room = Room.of(runs, self._tails[runs.streams], cache.used, cache.block_bytes)
            lacking = int(room.wanted.sum()) - cache.space.free
            if lacking <= 0 or not cache.evict:
                return room
            for _ in range(lacking):
                cache.evict_oldest()  # it may have been the last block of one of the runs

    def _publish(self, runs: Runs, room: Room, placing: Placing, taken: Ints, addresses: Ints) -> None:
        """Rows and parts of all placed messages. The only loop over runs; their bytes are in place already."""
        chains = self._cache.chains
        words = self._places(runs.batch, addresses)
        offsets, places = np.ascontiguousarray(runs.batch.offsets).data.cast("B"), words.data.cast("B")
        rows = (runs.batch.offsets.tolist(), addresses.tolist(), words[:, 1].tolist())
        steps = (placing.at // self._cache.block_bytes).tolist()
        columns = (runs.begins[:-1], placing.counts, room.tails, placing.granted, placing.firsts)
        lists = [column.tolist() for column in columns]
        blocks = taken.tolist()
        for stream, begin, count, tail, granted, first in zip(runs.streams.tolist(), *lists, strict=True):
            if not count:
                continue
            chain = chains.get(stream)
            if chain is None:
                chain = chains[stream] = Chain()
            if granted or chain.last_block != tail:
                self._open_parts(stream, chain, steps[begin : begin + count], tail, blocks[first : first + granted])
            if count == 1:  # the usual case with many streams
                chain.add_one(rows[0][begin], rows[1][begin], rows[2][begin])
            else:
                low, high = WORD_BYTES * begin, WORD_BYTES * (begin + count)
                chain.add(offsets[low:high], places[2 * low : 2 * high])

    def _open_parts(self, stream: int, chain: Chain, steps: list[int], tail: int, blocks: list[int]) -> None:
        """Parts for new rows: `steps` of them say which begin in the last block of before, and in which new one."""
        row = chain.high_row
        if steps[0] == 0 and chain.last_block != tail:
            chain.open_part(tail, row)  # behind what it borrowed elsewhere, or released
            self._cache.refs[tail] += 1
        for step, block in enumerate(blocks, start=1):
            chain.open_part(block, row + bisect_left(steps, step))
            self._own(stream, block, tail)
            tail = block

    def _own(self, stream: int, block: int, before: int) -> None:
        cache = self._cache
        assert cache.owners[block] == -1 and not cache.refs[block]
        cache.refs[block] = 1
        cache.owners[block] = stream
        cache.ages.add(block)
        if before >= 0:
            cache.next_block[before] = block

    def _places(self, batch: Batch, addresses: Ints) -> Ints:
        """(n, 2): the rows' words."""
        words = np.empty((len(batch), 2), np.int64)
        words[:, 0] = addresses
        words[:, 1] = batch.lengths | (batch.tags & LOW_32) << 32
        return words

    def _account(self, runs: Runs, room: Room, placing: Placing, taken: Ints) -> None:
        """What blocks have in them now, and which are the last ones."""
        cache, used, tails = self._cache, self._cache.used, room.tails
        some = placing.granted > 0
        used[tails[some & (tails >= 0)]] = cache.block_bytes  # a message went on from them
        used[taken] = cache.block_bytes
        newest = tails.copy()
        newest[some] = taken[(placing.firsts + placing.granted - 1)[some]]
        live = newest >= 0
        used[newest[live]] = placing.filled[live]
        self._tails[runs.streams[live]] = newest[live]
        self._new_tails |= bool(len(taken))
        if cache.remainders:
            for block in tails[live & (placing.counts > 0) & (tails >= 0)].tolist():
                if block in cache.remainders:
                    cache.remainders.put(block, cache.block_bytes - int(used[block]))

    # -- remainders (R18) -----------------------------------------------------------------------------

    def _lend(self, runs: Runs, done: Mask, addresses: Ints, is_intact: Callable[[], bool]) -> None:
        """Put the messages that found no block into the ends of any streams' last blocks."""
        cache, remainders = self._cache, self._cache.remainders
        assert remainders is not None
        self.list_tails()
        found: list[int] = []
        places: list[int] = []
        wanted = np.flatnonzero(~done)
        sizes = sizes_of(runs.batch.lengths)
        for index, size in zip(wanted.tolist(), sizes[wanted].tolist(), strict=True):
            block = remainders.find(size)
            if block < 0:
                continue
            used = int(cache.used[block])
            cache.used[block] = used + size
            remainders.put(block, cache.block_bytes - used - size)
            found.append(index)
            places.append(block * cache.block_bytes + used)
        if not found:
            return
        which = np.array(found)
        addresses[which] = places
        cache.space.write(
            addresses[which], runs.batch.starts[which], runs.batch.lengths[which], runs.batch.payload
        )
        if not is_intact():
            cache.used_total += int(sizes[which].sum())  # nobody's until the blocks are free
            return
        self._borrow(runs.batch.part(which), addresses[which])
        done[which] = True

    def list_tails(self) -> None:
        """Every stream's last block becomes a remainder, if it is none yet."""
        cache, remainders = self._cache, self._cache.remainders
        if not self._new_tails or remainders is None:
            return
        tails = self._tails[self._tails >= 0]
        free = cache.block_bytes - cache.used[tails]
        for block, size in zip(tails[free > 0].tolist(), free[free > 0].tolist(), strict=True):
            if block not in remainders:
                remainders.put(block, size)
        self._new_tails = False

    def _borrow(self, batch: Batch, addresses: Ints) -> None:
        """Publish messages that lie in lent blocks."""
        cache, block_bytes = self._cache, self._cache.block_bytes
        words = self._places(batch, addresses)[:, 1]
        columns = (batch.streams.tolist(), batch.offsets.tolist(), addresses.tolist(), words.tolist())
        for stream, offset, address, word in zip(*columns, strict=True):
            chain = cache.chains.get(stream)
            if chain is None:
                chain = cache.chains[stream] = Chain()
            block = address // block_bytes
            if chain.last_block != block:
                chain.open_part(block, chain.high_row)
                cache.refs[block] += 1
            chain.add_one(offset, address, word)

    def _count(self, lengths: Ints, addresses: Ints) -> None:
        counters, bounds = self._cache.counters, self._cache.space.bounds
        if len(counters) == 1:
            counters[0].filled_messages += len(lengths)
            counters[0].filled_bytes += int(lengths.sum())
            return
        tiers = np.searchsorted(np.array(bounds), addresses, side="right") - 1
        for index, counter in enumerate(counters):
            mine = lengths[tiers == index]
            counter.filled_messages += len(mine)
            counter.filled_bytes += int(mine.sum())
