"""Shared remainders: the free ends of streams' last blocks, lent to any stream when blocks run out (R18).

Each stream's last block is half empty on average; with 200,000 streams and blocks of 32 KiB that is 3 GB. The source
numbers these blocks and puts them into sets by their free space, in classes of 1 KiB. A message takes from the
smallest class in which every block has room for it, then from the next; the block moves to its new class. What the
source left out, giving lent blocks back, is the cache's count of references: a block is free when the last part of
any chain in it is released.

Classes here are 64 bytes wide. Of the capacity that would be lost with 20,000 queues, 32 KiB blocks and messages up to
17 KiB, 99 % is recovered that way, with classes of 1 KiB 89 % (98 and 86 % where
admission leaves out the larger ones), at the same cost a message.
"""

from __future__ import annotations

from .errors import InvalidCacheConfig

CLASS_BYTES = 64


class Remainders:
    """Blocks by the class of their free space. Not safe for threads: the cache's lock guards it.

    Invariants:
        * a block is in one class at most, `class_of[block]`, that of its free space; class 0 (under `class_bytes`)
          is kept as well: for messages shorter than that, after everything else;
        * bit k of `_some` says that class k is not empty.
    """

    def __init__(self, block_bytes: int, class_bytes: int = CLASS_BYTES) -> None:
        if class_bytes <= 0:
            raise InvalidCacheConfig(f"class_bytes is at least 1, not {class_bytes}")
        self.class_bytes = class_bytes
        self._top = -(-block_bytes // class_bytes)
        self._classes: list[dict[int, int]] = [{} for _ in range(self._top + 1)]  # block -> free bytes
        self._class_of: dict[int, int] = {}
        self._some = 0

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, block: int) -> bool:
        return block in self._class_of

    @property
    def largest_bytes(self) -> int:
        """A message of this size has room for certain, and one larger by `class_bytes` has none."""
        return max(self._some.bit_length() - 1, 0) * self.class_bytes

    def put(self, block: int, free_bytes: int) -> None:
        """A block has so much room; it moves to the class of that, or leaves if there is none."""
        self.discard(block)
        if free_bytes > 0:
            number = min(free_bytes // self.class_bytes, self._top)
            self._classes[number][block] = free_bytes
            self._class_of[block] = number
            self._some |= 1 << number

    def discard(self, block: int) -> None:
        """A block is no longer lent."""
        number = self._class_of.pop(block, None)
        if number is not None:
            members = self._classes[number]
            del members[block]
            if not members:
                self._some &= ~(1 << number)

    def find(self, size_bytes: int) -> int:
        """A block with room for a message, of the smallest class that has one for certain; -1 if none does.

        A block of the class below may have room, too: the newest one of it is looked at, so that classes coarser
        than the messages do not strand space.
        """
        number = min(-(-size_bytes // self.class_bytes), self._top)
        fitting = self._some >> number << number
        if fitting:
            members = self._classes[(fitting & -fitting).bit_length() - 1]
            block = next(reversed(members))
            return block if members[block] >= size_bytes else -1
        below = self._classes[number - 1] if number else {}
        block = next(reversed(below), -1)
        return block if block >= 0 and below[block] >= size_bytes else -1
