"""What readers hold of a store's sealed segments in memory: one bound for all of them (R24)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from typing import Any, Generic, TypeVar

HELD_BYTES = 32 << 20  # where no plan says how much
ITEM_BYTES = 400  # what an item costs beside its columns: objects, and its place here
KEY_BITS = 32

_OWNERS = count(1)


def fresh_key() -> int:
    """The key of an owner's first item; the owner may use the 2**KEY_BITS keys from there on."""
    return next(_OWNERS) << KEY_BITS


class Item:
    """Something that is held, and can be made again from the files.

    Attributes:
        size_bytes: all of its memory.
        used: a reader has used it since the last round of evictions.
    """

    __slots__ = ("size_bytes", "used")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes + ITEM_BYTES
        self.used = False


Kind = TypeVar("Kind", bound=Item)


class Held(Generic[Kind]):
    """Items within a number of bytes. Any number of threads may use it.

    Looking one up takes no lock: `items.get(key)`, and then `used = True`. The oldest item goes first; one that was
    used since goes round once more.

    Invariants:
        * `used_bytes` is at most `limit_bytes`, or there is a single item;
        * `items` and `used_bytes` change under the lock alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.evicted = 0
        self.items: OrderedDict[int, Kind] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: int, item: Kind) -> None:
        """Hold an item, unless another thread has put one there meanwhile."""
        with self._lock:
            if key not in self.items:
                self.used_bytes += item.size_bytes  # first: an interrupt in between leaves too much, not too little
                self.items[key] = item
            self._make_room()

    def limit(self, limit_bytes: int) -> None:
        """Hold no more than this from now on."""
        with self._lock:
            self.limit_bytes = limit_bytes
            self._make_room()

    def clear(self) -> None:
        """Hold nothing."""
        with self._lock:
            self.items.clear()
            self.used_bytes = 0

    def _make_room(self) -> None:
        items = self.items
        while self.used_bytes > self.limit_bytes and len(items) > 1:
            key = next(iter(items))
            item = items[key]
            if item.used:
                item.used = False
                items.move_to_end(key)
            else:
                del items[key]
                self.used_bytes -= item.size_bytes
                self.evicted += 1
        if len(items) == 1:  # whatever an interrupt left it at
            self.used_bytes = next(iter(items.values())).size_bytes


class HeldMemory:
    """The memory of a store's sealed segments, and of the optional columns of its open ones.

    Attributes:
        frames: decoded heads of frames, and the optional columns of those of open segments.
        footers: indexes that were made again of the frames, because the footer is damaged. They have at most half of
            the memory (or there is one): to make one again, all of a segment is read.
    """

    def __init__(self, limit_bytes: int = HELD_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.frames: Held[Any] = Held(limit_bytes)  # each key has one kind
        self.footers: Held[Any] = Held(limit_bytes // 2)
        self.remade_footers = 0

    def keep_footer(self, key: int, item: Item) -> None:
        """Hold an index; the frames get what it leaves."""
        self.remade_footers += 1
        self.footers.keep(key, item)
        self.frames.limit(max(self.limit_bytes - self.footers.used_bytes, self.limit_bytes // 2))

    def stats(self) -> dict[str, int]:
        """Bytes and counts, for `stats()`."""
        return {
            "limit_bytes": self.limit_bytes,
            "used_bytes": self.frames.used_bytes + self.footers.used_bytes,
            "frames": len(self.frames.items),
            "evicted_frames": self.frames.evicted,
            "footers": len(self.footers.items),
            "remade_footers": self.remade_footers,
        }

    def clear(self) -> None:
        """Hold nothing."""
        self.frames.clear()
        self.footers.clear()
