"""Publishes a batch whose bytes are in place: parts of chains, then rows, the counts of rows last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .batch import Batch, Runs, first_of_each, grown
from .chain import Chain
from .placing import PlacedMessages, RunSpace
from .rows import LEAF_ROWS

if TYPE_CHECKING:
    from .block_cache import BlockCache

Ints = npt.NDArray[np.int64]
FIRST_STREAMS = 64


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Parts to open, each of shape (n,): stream, block, and the offset after the message before; in chain order."""

    streams: Ints
    blocks: Ints
    offsets: Ints


class Publisher:
    """The newest end of all chains, in columns by stream. The cache's lock is held in all methods.

    Attributes:
        newest: the newest offset, -1 if there was none.

    Python takes a step for each new leaf and each new part, not for each message.

    Invariants:
        * `_leaf[stream]` and `_block[stream]` are the last leaf and the block of the last part of its chain, -1 if
          the chain has no live part.
    """

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self.newest = np.full(FIRST_STREAMS, -1, np.int64)
        self._leaf = np.full(FIRST_STREAMS, -1, np.int64)
        self._block = np.full(FIRST_STREAMS, -1, np.int64)

    def grow(self, stream: int) -> None:
        """Make the columns long enough for this stream."""
        self.newest, self._leaf, self._block = (
            grown(column, stream, -1) for column in (self.newest, self._leaf, self._block)
        )

    def emptied(self, stream: int) -> None:
        """A chain has no live part any more."""
        if stream < len(self._leaf):
            self._leaf[stream] = self._block[stream] = -1

    # -- parts ----------------------------------------------------------------------------------------

    def own(self, runs: Runs, room: RunSpace, placing: PlacedMessages, taken: Ints) -> OpenedParts:
        """Make the parts of placed messages; the blocks in `taken` become their streams' own.

        A group is the messages of a run that begin in one block: its old last block, or a new one.
        """
        cache, newest = self._cache, self.newest[runs.streams]
        heads = placing.firsts + np.arange(len(runs.streams))  # the first group of each run
        run_of = np.arange(len(runs.streams)).repeat(placing.granted + 1)  # of each group
        some = placing.placed
        groups = heads[runs.run_of[some]] + placing.at[some] // cache.block_bytes
        counts = np.bincount(groups, minlength=len(run_of))
        before = counts.cumsum() - counts  # placed messages before each group
        blocks = np.empty(len(run_of), np.int64)
        is_new = np.ones(len(run_of), np.bool_)
        is_new[heads] = False
        blocks[heads], blocks[is_new] = room.tails, taken
        offsets = np.append(runs.batch.offsets[some], -1)[before - 1]  # of the message before each group
        offsets = np.where(before > before[heads][run_of], offsets, newest[run_of]) + 1
        # If the chain's newest part is not its own last block (it borrowed, or released), a new part begins there.
        is_new[heads] = (counts[heads] > 0) & (self._block[runs.streams] != room.tails)
        opened = np.flatnonzero(is_new)
        self._take_over(runs.streams[run_of], blocks, placing, taken)
        parts = OpenedParts(runs.streams[run_of[opened]], blocks[opened], offsets[opened])
        cache.ref_column[parts.blocks] += 1  # each block is in it once
        self._block[parts.streams] = parts.blocks  # the last one of a run wins
        return parts

    def _take_over(self, streams: Ints, blocks: Ints, placing: PlacedMessages, taken: Ints) -> None:
        """Note the owners of the taken blocks; `streams` and `blocks` are those of all groups."""
        cache = self._cache
        if not len(taken):
            return
        assert bool((cache.owner_column[taken] == -1).all()) and not bool(cache.ref_column[taken].any())
        is_taken = np.ones(len(blocks), np.bool_)
        is_taken[placing.firsts + np.arange(len(placing.firsts))] = False
        groups = np.flatnonzero(is_taken)
        cache.owner_column[taken] = streams[groups]
        before = blocks[groups - 1]  # of the same run: its first group is no new block
        cache.next_column[before[before >= 0]] = taken[before >= 0]
        cache.ages.add(taken)

    def borrow(self, batch: Batch, blocks: Ints) -> OpenedParts:
        """Make the parts of messages, sorted by stream, that lie in lent `blocks` (n,)."""
        first = first_of_each(batch.streams)
        blocks_before, offsets = np.roll(blocks, 1), np.roll(batch.offsets, 1)
        blocks_before[first], offsets[first] = self._block[batch.streams[first]], self.newest[batch.streams[first]]
        opened = np.flatnonzero(blocks != blocks_before)
        parts = OpenedParts(batch.streams[opened], blocks[opened], offsets[opened] + 1)
        np.add.at(self._cache.ref_column, parts.blocks, 1)
        self._block[parts.streams] = parts.blocks
        return parts

    # -- rows -----------------------------------------------------------------------------------------

    def publish(self, batch: Batch, addresses: Ints, parts: OpenedParts) -> None:
        """Show messages, sorted by stream, that lie at `addresses` (n,), and the new `parts` with them."""
        if not len(batch):
            return
        rows = self._cache.rows
        is_first = first_of_each(batch.streams)
        begins, run_of = np.flatnonzero(is_first), is_first.cumsum() - 1
        streams = batch.streams[begins]
        last = self._leaf[streams]
        goes_on = last >= 0
        used = np.where(goes_on, rows.counts(last), 0)
        filled = used + np.diff(begins, append=len(batch))
        # A run's leaves are numbered 0, 1 ..; the first one is the chain's old last leaf, if it has one.
        counts = (filled + LEAF_ROWS - 1) // LEAF_ROWS
        heads = counts.cumsum() - counts
        leaves = np.empty(int(counts.sum()), np.int64)
        is_new = np.ones(len(leaves), np.bool_)
        is_new[heads[goes_on]] = False
        leaves[heads], leaves[is_new] = last, rows.take(int(np.count_nonzero(is_new)))
        at = np.arange(len(batch)) + (used - begins)[run_of]
        places = leaves[heads[run_of] + at // LEAF_ROWS] * LEAF_ROWS + at % LEAF_ROWS
        rows.write(places, batch.offsets, addresses, batch.lengths, batch.tags)
        number = np.arange(len(leaves)) - heads.repeat(counts)
        # In this order: parts before their rows, which may be released at once; a leaf's count before it is listed.
        self._add_parts(parts)
        rows.show(leaves, np.minimum(filled.repeat(counts) - number * LEAF_ROWS, LEAF_ROWS))
        self._add_leaves(streams.repeat(counts)[is_new], leaves[is_new])
        ends = filled - used + begins - 1
        self._leaf[streams], self.newest[streams] = leaves[heads + counts - 1], batch.offsets[ends]

    def _add_parts(self, parts: OpenedParts) -> None:
        chains = self._cache.chains
        columns = (parts.streams.tolist(), parts.blocks.tolist(), parts.offsets.tolist())
        for stream, block, offset in zip(*columns, strict=True):
            chain = chains.get(stream)
            if chain is None:
                chains[stream] = Chain(block, offset)
            else:
                chain.open_part(block, offset)

    def _add_leaves(self, streams: Ints, leaves: Ints) -> None:
        chains = self._cache.chains
        for stream, leaf in zip(streams.tolist(), leaves.tolist(), strict=True):
            chains[stream].add_leaf(leaf)
