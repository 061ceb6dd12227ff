"""Places the messages of a batch in blocks: all runs at once, in columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .batch import Runs

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LEAST_BYTES = 32


def sizes_of(lengths: Ints) -> Ints:
    """The bytes that messages take: short ones take more than their length, as each has a row of columns, too."""
    return np.maximum(lengths, LEAST_BYTES)


@dataclass(frozen=True, slots=True)
class RunSpace:
    """The space of each run: the end of its stream's last block, and new blocks.

    Attributes, each of shape (runs,):
        tails: the last block, -1 if there is none.
        used: its used bytes; a whole block if there is none.
        wanted: new blocks that the run needs for all of its messages.
    """

    tails: Ints
    used: Ints
    wanted: Ints

    @classmethod
    def of(cls, runs: Runs, tails: Ints, used: Ints, block_bytes: int) -> RunSpace:
        """`tails` (runs,), `used` (all blocks,)."""
        mine = np.where(tails >= 0, used[tails], block_bytes)
        return cls(tails, mine, _blocks_for(runs.sums(sizes_of(runs.batch.lengths)), mine, block_bytes))


@dataclass(frozen=True, slots=True)
class PlacedMessages:
    """The places of the messages that found one: the first ones of each run, back to back.

    The chain of a run counts as one range, which begins with its stream's last block (*step* 0) and goes on in new
    blocks (steps 1, 2 ..).

    Attributes:
        placed: (n,) which messages.
        counts: (runs,) how many of each run.
        at: (n,) the start of each in that range.
        granted: (runs,) new blocks that are needed for them.
        firsts: (runs,) the index among all new blocks of the run's first one.
        filled: (runs,) bytes in use of the run's newest block, afterwards.
    """

    placed: Mask
    counts: Ints
    at: Ints
    granted: Ints
    firsts: Ints
    filled: Ints

    @classmethod
    def of(cls, runs: Runs, room: RunSpace, free_blocks: int, block_bytes: int) -> PlacedMessages:
        """Place the runs in their order, with at most `free_blocks` new blocks."""
        sizes = sizes_of(runs.batch.lengths)
        before = room.wanted.cumsum() - room.wanted
        offered = np.clip(free_blocks - before, 0, room.wanted)
        at: Ints = room.used[runs.run_of] + runs.before(sizes)
        placed: Mask = at + sizes <= (block_bytes * (1 + offered))[runs.run_of]
        taken_bytes = runs.sums(np.where(placed, sizes, 0))
        granted = _blocks_for(taken_bytes, room.used, block_bytes)
        assert bool((granted <= offered).all())
        filled = room.used + taken_bytes - block_bytes * granted
        return cls(placed, runs.sums(placed.astype(np.int64)), at, granted, granted.cumsum() - granted, filled)

    def addresses(self, runs: Runs, room: RunSpace, taken: Ints, block_bytes: int) -> Ints:
        """(n,) the addresses of all messages; those of messages without a place are undefined."""
        return self._address(runs.run_of, self.at, room, taken, block_bytes)

    def _address(self, run_of: Ints, at: Ints, room: RunSpace, taken: Ints, block_bytes: int) -> Ints:
        step = at // block_bytes
        if not len(taken):
            return room.tails[run_of] * block_bytes + at % block_bytes
        new = taken[np.minimum(self.firsts[run_of] + np.maximum(step - 1, 0), len(taken) - 1)]
        found: Ints = np.where(step == 0, room.tails[run_of], new) * block_bytes + at % block_bytes
        return found

    def pieces(self, runs: Runs, room: RunSpace, taken: Ints, block_bytes: int) -> tuple[Ints, Ints, Ints]:
        """(addresses, starts, lengths) of pieces to copy, none over the end of a block; neighbours are joined."""
        placed = self.placed
        at, run_of = self.at[placed], runs.run_of[placed]
        starts, lengths = runs.batch.starts[placed], runs.batch.lengths[placed]
        inside = at % block_bytes
        counts = (inside + sizes_of(lengths) - 1) // block_bytes + 1
        if int(counts.max(initial=1)) > 1:
            index = np.repeat(np.arange(len(counts)), counts)
            number = np.arange(len(index)) - np.repeat(counts.cumsum() - counts, counts)  # of the piece in its message
            low = np.maximum(number * block_bytes - inside[index], 0)
            high = np.minimum((number + 1) * block_bytes - inside[index], lengths[index])
            at, run_of, starts, lengths = at[index] + low, run_of[index], starts[index] + low, np.maximum(high - low, 0)
        return join_neighbours(self._address(run_of, at, room, taken, block_bytes), starts, lengths, block_bytes)


def join_neighbours(addresses: Ints, starts: Ints, lengths: Ints, block_bytes: int) -> tuple[Ints, Ints, Ints]:
    """Join pieces that follow each other both in the payload and in a block."""
    if not len(addresses):
        return addresses, starts, lengths
    follows = (addresses[1:] == (addresses + lengths)[:-1]) & (starts[1:] == (starts + lengths)[:-1])
    follows &= addresses[1:] % block_bytes != 0
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    return addresses[first], starts[first], np.add.reduceat(lengths, first)


def _blocks_for(sizes: Ints, used: Ints, block_bytes: int) -> Ints:
    """The new blocks for `sizes` bytes after `used` bytes of the last block."""
    blocks: Ints = np.maximum(-(-(sizes - (block_bytes - used)) // block_bytes), 0)
    return blocks
