"""The writer's side of the live page: a word for each move of the high-water mark; a slot now and then, and for
segments."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic

from ..device.disk import Disk
from ..device.mapped import Mapped, boot_id
from ..format.layout import SUM, checksum64
from ..format.live_page import (
    BEFORE_AT,
    BELL_AT,
    LIVE_FILE,
    NO_STATE,
    PAGE_BYTES,
    SLOT_BYTES,
    STATE,
    TURN_AT,
    Before,
    LaneState,
    LiveHeader,
    mark_at,
    mark_of,
    mark_word,
    newest_state,
    pack_before,
    slot_at,
)
from ..log.write import View
from ..log.written_lane import WrittenLane
from .mirror import LaneMirror, Mirror

RING_EVERY_S = 0.005  # readers look by themselves for longer than that before they sleep: see `follower.AWAKE_S`


class _PageState:
    """The page's newest words of a lane. `slot` was written last, `other` is written next."""

    __slots__ = ("first", "lane", "mark", "mark_at", "mirror", "other", "sealed", "slot", "under_way", "view")

    def __init__(self, lane: WrittenLane, slot: int, other: int, mirror: LaneMirror | None) -> None:
        self.lane, self.under_way = lane, lane.under_way  # kept: this is looked at after every force
        self.slot, self.other = slot, other
        self.view: View | None = None
        self.first = self.sealed = 0
        self.mark: tuple[int, int] | None = None  # until the first word is written, whatever that is: there may be any
        self.mark_at = mark_at(lane.index)
        self.mirror = mirror

    def note_view(self, view: View) -> bool:
        """Note which segments there are. False if that says nothing new."""
        known, self.view = (self.first, self.sealed) if self.view is not None else None, view
        sealed, opened = view.sealed, view.open
        if sealed:
            self.first, self.sealed = sealed[0].segment.sequence, sealed[-1].segment.sequence
        else:
            self.first, self.sealed = opened[0].segment.sequence if opened else 0, 0
        return known != (self.first, self.sealed)


class Publisher:
    """Writes the live page of one store.

    Invariants:
        * the page names this opening before it has a state of it, so a reader that has read a state knows whose it is;
        * a lane's state is published after what it says is true: the mark after its force returned, a sealed segment
          after its seal record was forced, the first segment after START says so;
        * the lane's mark, one word, is written after every force. The slot and the bell follow where segments have
          changed, and where `RING_EVERY_S` is over since the last wake: they take ten times as long;
        * of a lane's two slots the older one is written, so a reader finds one whole, also after a kill;
        * the bell is moved after the mark and the slot are written, and its sleepers are woken after that. A mark
          within `RING_EVERY_S` of the last wake wakes no reader: that wake moved the bell, and after a move readers
          stay awake for longer than `RING_EVERY_S`. So a busy writer does not pay a system call for each force;
        * the mirror has what a mark covers before the mark is written, while there are readers that look into it;
        * what several lanes publish inside `telling` appears at once; so does what `begin` publishes, as its opening
          may have finished a bulk commit;
        * no append ever fails because of the page: where there is no room for it, there is none, and `error` says why.
          An error in a lane's hook is logged, and `provide` publishes later what is missing.
    """

    def __init__(
        self, disk: Disk, folder: Path, store_id: bytes, on_reader: Callable[[], object] = lambda: None
    ) -> None:
        """`on_reader` is called when a reader has come: `provide` is to be called soon."""
        self._disk = disk
        self._path = folder / LIVE_FILE
        self._store_id = store_id
        self._on_reader = on_reader
        self._page: Mapped | None = None
        self._mirror: Mirror | None = None
        self._told: list[_PageState] = []
        self._count = 0
        self._rung_at = float("-inf")
        self._lock = threading.RLock()
        self.error: str | None = None

    def begin(self, lanes: Sequence[WrittenLane]) -> None:
        """Take over the page of the writer before, or make one; from then on the lanes publish each step."""
        try:
            page = self._opened(len(lanes))
        except OSError as error:
            self.error = f"readers in other processes cannot follow: {self._path} cannot be made ({error})"
            with suppress(OSError):  # an old one would have them believe that nothing happens
                self._disk.remove(self._path)
            return
        found = LiveHeader.unpack(page.load(0, BELL_AT))
        header = self._header(page, len(lanes), 1 if found is None else found.openings + 1)
        if found is not None:
            # First of all: from now on no reader takes the mirror of the writer before for ours.
            page.store(0, header._replace(boot_id=found.boot_id).pack())
        states = [newest_state(page.load(slot_at(lane.index, 0), 2 * SLOT_BYTES)) or NO_STATE for lane in lanes]
        if not page.word(TURN_AT) & 1:  # else the writer before died in between, and readers go by what it wrote there
            words = [page.word(mark_at(lane.index)) for lane in lanes]
            _hold(page, [_before(state, word) for state, word in zip(states, words, strict=True)])
        # After a power cut the bell may be older than the slots.
        self._count = max(page.word(BELL_AT), *(state.bell for state in states))
        self._page, first = page, None
        mirror = self._mirror = Mirror.of(self._disk, header, lanes, self._on_reader)
        for lane, state in zip(lanes, states, strict=True):
            slots = slot_at(lane.index, 0), slot_at(lane.index, 1)
            newest = page.load(slots[1], len(state.pack())) == state.pack()
            of_lane = None if mirror is None else mirror.lanes[lane.index]
            told = _PageState(lane, slots[newest], slots[not newest], of_lane)
            # Both hooks are set before the first look at the lane: nothing it does from now on is missed.
            lane.under_way.on_forced = lane.on_view = partial(self._publish, told)
            self._told.append(told)
            self._publish(told)
            first = first or told
        # Last, as the boot id is what makes readers believe the states. Then the bell, which moves with a state alone.
        page.store(0, header.pack())
        page.set_word(TURN_AT, page.word(TURN_AT) + 1)
        if first is not None:
            first.view = None
            self._publish(first)

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
        return self._disk.map(self._path, PAGE_BYTES, BELL_AT)

    def _publish(self, told: _PageState) -> None:
        """Publish the news of a lane, after every force; a hook of the lane. Any thread; some 0.5 us."""
        with self._lock:
            page, view, mark = self._page, told.lane.view, told.under_way.forced_mark
            if page is None:
                return
            is_new = view is not told.view and told.note_view(view)
            mirror = self._mirror
            if mark is not told.mark:
                if mirror is not None and mirror.is_read and told.mirror is not None:
                    told.mirror.bring_up(told.under_way.forced)  # first: a reader that sees the mark finds it
                told.mark = mark
                page.set_word(told.mark_at, mark_word(mark))
            elif not is_new:
                return
            if monotonic() - self._rung_at >= RING_EVERY_S:
                self._rung_at = monotonic()
                if mirror is not None:
                    mirror.note_readers()
                self._move(page, told)
                page.wake()
            elif is_new:
                self._move(page, told)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A context: readers see what lanes publish in it at its end, all at once; none of it if it raises."""
        with self._lock:
            page = self._page
            if page is None:
                yield
                return
            _hold(page, [(told.sealed, mark_word(told.mark or NO_STATE.mark)) for told in self._told])
            yield
            for told in self._told:
                self._publish(told)  # also if the lane itself could not
            page.set_word(TURN_AT, page.word(TURN_AT) + 1)
            self._move(page, self._told[0])  # readers look again
            self._rung_at = monotonic()
            page.wake()

    def _move(self, page: Mapped, told: _PageState) -> None:
        """Write a lane's state into its older slot, and move the bell."""
        told.slot, told.other = told.other, told.slot
        self._count = count = self._count + 1
        body = STATE.pack(count, told.first, told.sealed, *(told.mark or NO_STATE.mark))
        page.store_and_set(told.slot, body + SUM.pack(checksum64(body)), BELL_AT, count)

    def provide(self) -> None:
        """Provide memory for readers that have come, and give it back when they have gone. One thread calls it.

        News of a lane that could not be published before is published now.
        """
        for told in self._told:
            self._publish(told)
        mirror = self._mirror
        if mirror is not None:
            mirror.provide()
            with self._lock:
                mirror.retire()

    def close(self) -> None:
        """Publish nothing more. What was published stays true."""
        with self._lock:
            page, self._page = self._page, None
            mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.close()
        if page is not None:
            page.close()

    def after_fork(self) -> None:
        """In a child process: the page is its parent's, and a lost thread may hold the lock."""
        self._lock, self._page, self._mirror = threading.RLock(), None, None


def _hold(page: Mapped, before: Before) -> None:
    """From here on have readers take all lanes by these states, until the turn is even again."""
    page.store(BEFORE_AT, pack_before(before))
    page.set_word(TURN_AT, page.word(TURN_AT) + 1)


def _before(state: LaneState, word: int) -> tuple[int, int]:
    """A lane's state by a page; `word` is its mark's, which counts if it is later than the slot's."""
    mark = max(state.mark, mark_of(word, state.mark)) if word else state.mark
    return state.sealed, mark_word(mark)
