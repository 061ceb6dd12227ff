"""The order in which blocks were taken: oldest first, in columns."""

from __future__ import annotations

from array import array

NONE = -1


class Ages:
    """A doubly linked list of blocks in two columns: 8 bytes a block, and every operation takes constant time.

    Not a dict in order of insertion: finding its first key takes time linear in what was removed before it.
    Invariant: a block is in it once or not at all.
    """

    def __init__(self, blocks: int) -> None:
        self._older = array("i", [NONE]) * blocks
        self._newer = array("i", [NONE]) * blocks
        self.oldest = self.newest = NONE

    def add(self, block: int) -> None:
        """As the newest."""
        assert self._older[block] == self._newer[block] == NONE != block and block != self.newest
        if self.newest == NONE:
            self.oldest = block
        else:
            self._newer[self.newest] = block
            self._older[block] = self.newest
        self.newest = block

    def remove(self, block: int) -> None:
        """From wherever it is."""
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
