"""Shared remainders: the free ends of streams' last blocks, lent to any stream when blocks run out.

Each stream's last block is half empty on average; with 200,000 streams and blocks of 32 KiB that is 3 GB. The source
numbers these blocks and puts them into sets by their free space, in classes of 1 KiB. A message takes from the
smallest class in which every block has room for it, then from the next; the block moves to its new class. The source
does not say how lent blocks are given back; here the cache counts references: a block is free when the last part of
any chain in it is released.

Here are no sets: columns have each stream's last block and its used bytes, and sorting both finds ends for a batch. So
a class is one byte. In use of 22,000 blocks of 32 KiB, which 20,000 queues had filled with messages of up to 17 KiB,
were 99.57 % (with classes of 64 bytes 99.44 %, and 99.7 to 99.9 % with messages one by one, for ten times the processor
time).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
FEW_SIZES = 1 << 16  # as numbers of 16 bits they are sorted in linear time


def lend(sizes: Ints, free: Ints) -> tuple[Ints, Ints]:
    """Find room for messages of `sizes` (n,) in ends with `free` (m,) bytes, and subtract it from `free`.

    Returns (n,) the index of each message's end, -1 if there is no room for it, and (n,) the bytes that this end had
    free before. Each message gets the smallest end with room for it that the batch's larger messages leave.
    Takes about n / m rounds: 1 ms for 2,048 messages and 64 ends, 38 ms for a single end.
    """
    chosen, before = np.full(len(sizes), -1), np.zeros(len(sizes), np.int64)
    left = sizes.argsort(kind="stable")
    while len(left := left[sizes[left] <= free.max(initial=0)]):
        order = _order(free)
        # A round gives each end to one message: the largest messages with room get one, each the smallest end left. The
        # others find the rest of these ends in the next round.
        at = free[order].searchsorted(sizes[left])
        fits = _can_have_one(at, len(free))
        at, number = at[fits], np.arange(np.count_nonzero(fits))
        some, ends = left[fits], order[np.maximum.accumulate(at - number) + number]
        chosen[some], before[some] = ends, free[ends]
        free[ends] -= sizes[some]
        left = left[~fits]
        assert len(some), "what is not larger than the largest end has room"
    assert int(free.min(initial=0)) >= 0
    return chosen, before


def _can_have_one(first: Ints, ends: int) -> npt.NDArray[np.bool_]:
    """(n,) which messages get an end each, the last ones first; message i can have any of `first[i]` to `ends` - 1.

    `first` ascends. Greedy from the largest: message i gets one if fewer than `ends - first[i]` larger messages did. So
    the count from the last message on grows by one a message, up to that limit.
    """
    number = np.arange(1, len(first) + 1)
    counts = number + np.minimum.accumulate(np.minimum(ends - first[::-1] - number, 0))
    grows = np.empty(len(first), np.bool_)
    grows[0] = counts[0] > 0
    np.greater(counts[1:], counts[:-1], out=grows[1:])
    return grows[::-1]


def _order(free: Ints) -> npt.NDArray[np.intp]:
    few = int(free.max()) < FEW_SIZES
    return (free.astype(np.uint16) if few else free).argsort(kind="stable")
