"""A reader's side of the live page."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..device.mapped import Mapped, boot_id
from ..format.live_page import (
    BELL_AT,
    LIVE_FILE,
    PAGE_BYTES,
    SLOT_BYTES,
    LaneState,
    LiveHeader,
    mark_at,
    mark_of,
    newest_state,
    slot_at,
)
from ..format.store_files import StoreHeader

TRIES = 100  # of a slot that is being written: one look in thousands meets that


class LivePage:
    """The page of one store, mapped.

    Attributes:
        is_current: it was written under the kernel that runs now, so it is as new as the log. An older page is true as
            well, but the log may be longer.
    """

    def __init__(self, mapped: Mapped, header: LiveHeader) -> None:
        self._mapped = mapped
        self._slots: dict[int, tuple[int, LaneState]] = {}  # each lane's newer slot, and the bell before it was read
        self.header = header
        self.is_current = header.boot_id == boot_id()

    @classmethod
    def of(cls, disk: Disk, folder: Path, store: StoreHeader) -> LivePage | None:
        """The page of a store's folder; None if it has none of its own."""
        mapper = getattr(disk, "map", None)
        if mapper is None:
            return None
        try:
            mapped: Mapped = mapper(folder / LIVE_FILE, PAGE_BYTES, BELL_AT)
        except (OSError, ValueError):
            return None
        header = LiveHeader.unpack(mapped.load(0, BELL_AT))
        if header is None or header.inode != mapped.inode:
            return None
        return cls(mapped, header) if (header.store_id, header.lanes) == (store.store_id, store.lanes) else None

    @property
    def moves(self) -> bytes:
        """The bell and the lanes' marks: other bytes after each publication."""
        return self._mapped.load(BELL_AT, mark_at(self.header.lanes) - BELL_AT)

    def look_again(self) -> None:
        """Another writer may have opened the page."""
        header = LiveHeader.unpack(self._mapped.load(0, BELL_AT))
        if header is not None:
            self.header, self.is_current = header, header.boot_id == boot_id()

    def state(self, lane: int) -> LaneState | None:
        """What the page says of a lane; None if that cannot be told."""
        found = self._slot(lane)
        if found is None:
            return None
        if self.is_current:  # else the mark has been to a disk and back, and has no checksum
            word = self._mapped.word(mark_at(lane))
            mark = mark_of(word, found.mark) if word else found.mark
            if mark > found.mark:
                return found._replace(sequence=mark[0], position=mark[1])
        return found

    def _slot(self, lane: int) -> LaneState | None:
        """The newer one of a lane's slots. It is read again only when the bell has moved, as it does with each slot."""
        bell = self._mapped.word(BELL_AT)
        known = self._slots.get(lane)
        if known is not None and known[0] == bell:
            return known[1]
        for _ in range(TRIES):
            found = newest_state(self._mapped.load(slot_at(lane, 0), 2 * SLOT_BYTES))
            if found is not None:
                if found.bell >= bell:  # else another lane's, or on some processors this lane's, which is still to come
                    self._slots[lane] = bell, found
                return found
        return None

    def sleep(self, seen: bytes, patience_s: float) -> None:
        """Sleep until the bell is no longer that of `seen`, or the time is up, or for no reason."""
        self._mapped.sleep(bell_of(seen), patience_s)

    def wake(self) -> None:
        """Wake all who sleep."""
        self._mapped.wake()

    def is_in_place(self) -> bool:
        """True if the folder still has this page."""
        return self._mapped.is_in_place()


def bell_of(moves: bytes) -> int:
    """The bell among the moves of a page."""
    return int.from_bytes(moves[:8], "little")
