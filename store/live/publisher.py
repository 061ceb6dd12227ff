"""The writer's side of the live page: a few words, written where the high-water mark moves and segments change."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

from ..device.disk import Disk
from ..device.mapped import Mapped, boot_id
from ..format.live_page import (
    BELL_AT,
    LIVE_FILE,
    NO_STATE,
    PAGE_BYTES,
    SLOT_BYTES,
    LiveHeader,
    newest_state,
    pack_state,
    slot_at,
)
from ..log.lane import Lane

RING_EVERY_S = 0.002  # readers look by themselves for longer than that before they sleep: see `follower.AWAKE_S`


class Publisher:
    """Writes the live page of one store.

    Invariants:
        * a lane's state is published after what it says is true: the mark after its force returned, a sealed segment
          after its seal record was forced, the first segment after START says so;
        * of a lane's two slots the older one is written, so a reader, and whoever comes after a kill, finds one whole;
        * the bell is moved after the slot is written, and those who sleep on it are woken after that. Nobody is woken
          behind a move that is over less than `RING_EVERY_S` after the moment before the last move with a wake: readers
          do not sleep for longer than that behind a move, and so none can have fallen asleep since that wake. Thus a
          busy writer does not pay a system call for each force;
        * no append ever fails because of the page: where there is no room for it, there is none, and `error` says why.
    """

    def __init__(self, disk: Disk, folder: Path, store_id: bytes) -> None:
        self._disk = disk
        self._path = folder / LIVE_FILE
        self._store_id = store_id
        self._page: Mapped | None = None
        self._count = 0
        self._told: dict[int, tuple[int, int, int, int]] = {}  # by lane
        self._turn: dict[int, int] = {}  # of each lane: the slot that is written next
        self._rung_at = float("-inf")
        self._lock = threading.Lock()
        self.error: str | None = None

    def begin(self, lanes: Sequence[Lane]) -> None:
        """Take over the page of the writer before, or make one; from here on the lanes tell of each step."""
        try:
            page = self._opened(len(lanes))
        except OSError as error:
            self.error = f"readers in other processes cannot follow: {self._path} cannot be made ({error})"
            with suppress(OSError):  # an old one would have them believe that nothing happens
                self._disk.remove(self._path)
            return
        found = LiveHeader.unpack(page.load(0, BELL_AT))
        states = [newest_state(page.load(slot_at(lane.index, 0), 2 * SLOT_BYTES)) or NO_STATE for lane in lanes]
        # Behind a power cut the bell may be older than the slots.
        self._count = max(page.word(BELL_AT), *(state.bell for state in states))
        self._page = page
        for lane, state in zip(lanes, states, strict=True):
            # Both hooks are set before the first look at the lane: nothing it does from now on is missed.
            lane.under_way.on_forced = lane.on_view = partial(self.publish, lane)
            in_second = page.load(slot_at(lane.index, 1), len(state.pack())) == state.pack()
            self._turn[lane.index] = 0 if in_second else 1
            self.publish(lane)
        openings = 0 if found is None else found.openings
        # Last, as it is what makes readers believe the states. Then the bell, which moves with a state alone.
        page.store(0, self._header(page, len(lanes), openings + 1).pack())
        self._told.clear()
        self.publish(lanes[0])

    def _header(self, page: Mapped, lanes: int, openings: int) -> LiveHeader:
        return LiveHeader(lanes, self._store_id, page.inode, boot_id(), os.getpid(), openings)

    def _opened(self, lanes: int) -> Mapped:
        """The page in the folder if it is this store's, else a new one. Raises OSError."""
        with suppress(OSError):
            page = self._map()
            header = LiveHeader.unpack(page.load(0, BELL_AT))
            if header is not None and header[:3] == (lanes, self._store_id, page.inode):
                return page
        fresh = self._path.with_name(LIVE_FILE + ".new")
        file = self._disk.open(fresh, create=True)
        try:
            file.truncate(0)
            file.write([bytes(PAGE_BYTES)], 0)  # all of it: a store to a hole may find no space, and there it kills
            file.force()
        finally:
            file.close()
        self._disk.rename(fresh, self._path)
        return self._map()

    def _map(self) -> Mapped:
        mapper = getattr(self._disk, "map", None)
        if mapper is None:
            raise OSError("this disk maps no files")
        page: Mapped = mapper(self._path, PAGE_BYTES, BELL_AT)
        return page

    def publish(self, lane: Lane) -> None:
        """Tell what is new of a lane. Any thread; a microsecond or two."""
        with self._lock:
            page, index = self._page, lane.index
            told = _state_of(lane)
            if page is None or self._told.get(index) == told:
                return
            self._told[index] = told
            turn = self._turn[index]
            self._turn[index] = 1 - turn
            self._count = count = self._count + 1
            page.store(slot_at(index, turn), pack_state(count, *told))
            before = monotonic()
            page.set_word(BELL_AT, count)
            if monotonic() - self._rung_at >= RING_EVERY_S:
                self._rung_at = before
                page.wake()

    def close(self) -> None:
        """Publish nothing more. What was published stays true."""
        with self._lock:
            page, self._page = self._page, None
        if page is not None:
            page.close()

    def after_fork(self) -> None:
        """In a child process: the page is its parent's, and a lost thread may hold the lock."""
        self._lock, self._page = threading.Lock(), None


def _state_of(lane: Lane) -> tuple[int, int, int, int]:
    """(first, sealed, sequence, position): see `LaneState`."""
    sealed, opened = lane.view
    mark = lane.under_way.forced_mark
    if sealed:
        return sealed[0].segment.sequence, sealed[-1].segment.sequence, *mark
    return (opened[0].segment.sequence if opened else 0), 0, *mark
