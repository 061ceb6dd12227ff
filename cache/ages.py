"""The order in which blocks were taken: oldest first, in columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NONE = -1


class Ages:
    """A doubly linked list of blocks in two columns: 8 bytes a block, and every operation takes constant time.

    Not a dict in insertion order: finding its first key takes time linear in the keys removed before it.
    Invariant: a block is in it once or not at all.
    """

    def __init__(self, blocks: int) -> None:
        self._columns = np.full(blocks, NONE, np.int32), np.full(blocks, NONE, np.int32)
        self._older, self._newer = self._columns[0].data, self._columns[1].data
        self.oldest = self.newest = NONE

    def add(self, blocks: npt.NDArray[np.int64]) -> None:
        """Append blocks (n,) as the newest, in this order."""
        if not len(blocks):
            return
        older, newer = self._columns
        assert bool((older[blocks] == NONE).all()) and self.newest not in blocks
        first, last = int(blocks[0]), int(blocks[-1])
        newer[blocks[:-1]] = blocks[1:]
        older[blocks[1:]] = blocks[:-1]
        if self.newest == NONE:
            self.oldest = first
        else:
            newer[self.newest] = first
            older[first] = self.newest
        self.newest = last

    def remove(self, block: int) -> None:
        """Remove a block from its place."""
        older, newer = self._older[block], self._newer[block]
        assert older != NONE or self.oldest == block
        if older == NONE:
            self.oldest = newer
        else:
            self._newer[older] = newer
        if newer == NONE:
            self.newest = older
        else:
            self._older[newer] = older
        self._older[block] = self._newer[block] = NONE
