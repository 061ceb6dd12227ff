"""The memory that readers hold of a store's sealed segments, within one bound (R24)."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any, Generic, TypeVar

HELD_BYTES = 32 << 20  # where no plan says how much
ITEM_BYTES = 400  # what an item costs besides its columns: objects, and its place here
PLACE_BYTES = 256  # of an owner's dict for an item: more than a dict takes that has only grown
HOME_BYTES = 1024  # of an owner's dict: not worth giving back


class HeldItem:
    """Something that is held, and can be made again from the files.

    Attributes:
        size_bytes: all of its memory.
        used: a reader has used it since the last round of evictions.
        home, number: the dict of its owner by which it is found, and its key there.
    """

    __slots__ = ("home", "number", "size_bytes", "used")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes + ITEM_BYTES
        self.used = False
        self.home: dict[int, Any] = {}
        self.number = 0


Kind = TypeVar("Kind", bound=HeldItem)


class HeldItems(Generic[Kind]):
    """Items within a number of bytes, each in a dict of its owner. Any number of threads may use it.

    Looking one up takes no lock: `home.get(number)`, and then `used = True`. The oldest item goes first; one that was
    used meanwhile stays for another round.

    Invariants:
        * `used_bytes` is at most `limit_bytes`, or there is a single item;
        * `items`, `used_bytes` and the owners' dicts change under the lock alone;
        * what is in an owner's dict is in `items`, unless an interrupt came between the two; the next `drop` mends it;
        * an owner's dict is no larger than its items want it: HOME_BYTES, and PLACE_BYTES each.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.evicted = 0
        self.items: OrderedDict[Kind, None] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, home: dict[int, Kind], number: int, item: Kind) -> None:
        """Hold an item in its owner's dict, unless another thread has put one there meanwhile."""
        with self._lock:
            if number not in home:
                item.home, item.number = home, number
                self.used_bytes += item.size_bytes  # first: an interrupt in between leaves too much, not too little
                self.items[item] = None
                home[number] = item
            self._make_room()

    def drop(self, home: dict[int, Kind], number: int) -> None:
        """Hold an owner's item no more, if it is held."""
        with self._lock:
            item = home.get(number)
            if item is not None and item in self.items:  # first: an interrupt after it leaves what is not counted
                del self.items[item]
                self.used_bytes -= item.size_bytes
            home.pop(number, None)

    def limit(self, limit_bytes: int) -> None:
        """Hold no more than this from now on."""
        with self._lock:
            self.limit_bytes = limit_bytes
            self._make_room()

    def clear(self) -> None:
        """Hold nothing."""
        with self._lock:
            for item in self.items:
                item.home.clear()
            self.items.clear()
            self.used_bytes = 0

    def _make_room(self) -> None:
        items = self.items
        while self.used_bytes > self.limit_bytes and len(items) > 1:
            item = next(iter(items))
            if item.used:
                item.used = False
                items.move_to_end(item)
            else:
                if item.home.get(item.number) is item:  # an interrupt may have left it without its place
                    item.home.pop(item.number, None)
                    _shrink(item.home)
                del items[item]
                self.used_bytes -= item.size_bytes
                self.evicted += 1
        if len(items) == 1:  # whatever an interrupt left it at
            self.used_bytes = next(iter(items)).size_bytes


def _shrink(home: dict[int, Any]) -> None:
    """Give back what a dict keeps for items that went. A reader that finds it empty meanwhile makes an item again."""
    if sys.getsizeof(home) > HOME_BYTES + PLACE_BYTES * len(home):
        left = home.copy()
        home.clear()
        home.update(left)


class HeldMemory:
    """The memory of a store's sealed segments, and of the optional columns of its open ones.

    Attributes:
        frames: decoded heads of frames, the optional columns of those of open segments, and windows of open segments.
        footers: indexes of segments: what is held of their footers, and whole ones that were made again of the frames
            because the footer is damaged. They have at most half of the memory (or there is one): to make one again,
            all of a segment is read.
        places: the tables of the lanes' places by the number of the lane; they are among `frames`.
    """

    def __init__(self, limit_bytes: int = HELD_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.frames: HeldItems[Any] = HeldItems(limit_bytes)  # each owner has one kind
        self.footers: HeldItems[Any] = HeldItems(limit_bytes // 2)
        self.places: dict[int, Any] = {}
        self.remade_footers = 0
        self._windows: list[weakref.ref[Any]] = []  # the oldest first; some may not be held any more
        self._windows_lock = threading.Lock()

    def keep_footer(self, home: dict[int, Any], item: HeldItem, *, is_remade: bool) -> None:
        """Hold an index, `is_remade` of the frames or not; frames may have the memory that it leaves."""
        self.remade_footers += is_remade
        self.footers.keep(home, 0, item)
        self.frames.limit(max(self.limit_bytes - self.footers.used_bytes, self.limit_bytes // 2))

    def footer_room(self) -> int:
        """The bytes of a footer that may be held. None is driven out for it: what is not held is read from the file."""
        return max(0, self.footers.limit_bytes - self.footers.used_bytes)

    def keep_places(self, lane: int, item: HeldItem) -> None:
        """Hold the table of a lane's places, in place of the one that there is."""
        self.frames.drop(self.places, lane)
        self.frames.keep(self.places, lane, item)

    def drop_places(self, lane: int) -> None:
        """A segment of the lane was removed: drop the table, which refers to it, so that its file can be used again."""
        self.frames.drop(self.places, lane)

    def takes_window(self, size_bytes: int, most_bytes: int) -> bool:
        """Whether a window of an open segment may be kept, so that those of all segments stay within `most_bytes`.

        If there is no room, the oldest one goes, unless readers have used it since the last call: then the new one must
        wait. So windows without readers make way, and those in use are seldom driven out.
        """
        with self._windows_lock:
            there = [(known, one) for known in self._windows if (one := known()) is not None]
            kept = [(known, one) for known, one in there if one.home.get(one.number) is one]
            self._windows = [known for known, _ in kept]
            used_bytes: int = sum([one.size_bytes for _, one in kept])
            if used_bytes + size_bytes <= most_bytes or not kept:
                return used_bytes + size_bytes <= most_bytes
            known, oldest = kept[0]
            del self._windows[0]
            if oldest.used:
                oldest.used = False
                self._windows.append(known)
                return False
            self.frames.drop(oldest.home, oldest.number)
            used_bytes -= oldest.size_bytes
            return used_bytes + size_bytes <= most_bytes

    def keep_window(self, home: dict[int, Any], number: int, window: HeldItem) -> None:
        """Hold a window, in the place of an older copy of it."""
        with self._windows_lock:
            self._windows.append(weakref.ref(window))
            self.frames.drop(home, number)
            self.frames.keep(home, number, window)

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
