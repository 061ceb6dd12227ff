"""A reader's side of the live page."""

from __future__ import annotations

from pathlib import Path

from ..device.disk import Disk
from ..device.mapped import Mapped, boot_id
from ..format.live_page import (
    BEFORE_AT,
    BEFORE_BYTES,
    BELL_AT,
    LIVE_FILE,
    OPENINGS_AT,
    PAGE_BYTES,
    SLOT_BYTES,
    TURN_AT,
    Before,
    LaneState,
    LiveHeader,
    mark_at,
    mark_of,
    newest_state,
    slot_at,
    state_before,
    unpack_before,
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
        try:
            mapped = disk.map(folder / LIVE_FILE, PAGE_BYTES, BELL_AT)
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

    def read_again(self) -> None:
        """Another writer may have opened the page. One that has just begun may still be writing its identity."""
        header = LiveHeader.unpack(self._mapped.load(0, BELL_AT))
        if header is not None and header[:3] == self.header[:3]:
            self.header, self.is_current = header, header.boot_id == boot_id()

    def is_of(self, opening: LiveHeader | None) -> bool:
        """Whether the states that were read up to now are those of this writer, or of the ones before it."""
        if self._mapped.word(OPENINGS_AT) != self.header.openings:
            self.read_again()
            if self._mapped.word(OPENINGS_AT) != self.header.openings:
                return False
        return self.header == opening

    def states(self) -> list[LaneState | None]:
        """The states of all lanes at one moment: where several change at once, all as before or none."""
        while True:
            turn = self._mapped.word(TURN_AT)
            states = [self.state(lane) for lane in range(self.header.lanes)]
            before: Before | None = []
            if turn & 1:
                before = unpack_before(self._mapped.load(BEFORE_AT, BEFORE_BYTES))
            if self._mapped.word(TURN_AT) == turn:
                break
        if before is None:  # not of a page that was written under this kernel
            return states
        for lane, one in enumerate(before[: len(states)]):
            state = states[lane]
            if one is not None and state is not None:
                states[lane] = state_before(state, one)
        return states

    def state(self, lane: int) -> LaneState | None:
        """The state of a lane; None if the page does not say."""
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
        """Wake all that sleep on the bell."""
        self._mapped.wake()

    def is_in_place(self) -> bool:
        """True if the folder still has this page."""
        return self._mapped.is_in_place()


def bell_of(moves: bytes) -> int:
    """The bell among the moves of a page."""
    return int.from_bytes(moves[:8], "little")
