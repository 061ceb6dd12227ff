"""Positions of messages as the index has them: the ledger is the queue id, the entry the low 32 bits of the offset.

So a position is what users call the message. It needs no search in the log, and it stays the same when a message is
copied forward. An offset is told again from its entry and the queue's next offset: so the index is right as long as
fewer than 2**32 messages of the same queue follow one that is still delayed.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

ENTRY_BITS = 32
MOST_ENTRY = (1 << ENTRY_BITS) - 1

Int64s = npt.NDArray[np.int64]
Number = TypeVar("Number", int, Int64s)


def places_of(queue_ids: Number, offsets: Number) -> Number:
    """(n,) one number a message, by which they are in order of queue and offset."""
    return queue_ids << ENTRY_BITS | (offsets & MOST_ENTRY)


def offsets_of(entries: Int64s, next_offset: int | Int64s) -> Int64s:
    """(n,) the offsets of messages of one queue, which goes on at `next_offset`; or of a queue each (n,)."""
    last = np.maximum(np.asarray(next_offset, np.int64) - 1, 0)
    found: Int64s = last - ((last - entries) & MOST_ENTRY)
    return found
