"""A store of another process, followed: all its lanes, and the thread that watches for those who wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..device.background import Background, Bell
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.folder import read_header
from ..device.shared_memory import SharedMemory
from ..errors import StoreCorrupt, StoreError, StoreUnusable
from ..format.live_page import LaneState
from ..format.store_files import StoreHeader
from ..log.streams import StreamMap
from ..read.waiting import WaitingRead, WaitingReaders
from .followed_ring import find_mirror
from .lane import FollowedLane
from .page import LivePage, bell_of
from .publisher import RING_EVERY_S

NO_MOVES = b""
LOOK_S = 0.5  # how often it is looked whether the folder has another page
OLD_LOOK_S = 0.02  # where no page tells that something is new, the files are looked at so often
NAP_S = 0.0005  # between two looks while the writer is busy: what comes meanwhile is taken together
AWAKE_S = 1.5 * RING_EVERY_S  # no sleep for so long behind a move of the bell: the writer counts on it
PATIENCE_S = 1.0  # of a sleep: then it is looked whether there is another page
ENDING_S = 0.01
LOOKS_OF_FOLLOWERS = 2  # a reader with fewer looks at what is new reads the files


class FollowingReaders(WaitingReaders):
    """Waiting readers of a followed store: as long as there is one, the follower watches the page."""

    def __init__(self, streams: StreamMap, clock: Clock) -> None:
        super().__init__(streams, clock)
        self.on_waiting: Callable[[], object] | None = None

    def _watch(self, read: WaitingRead, patience_s: float) -> float:
        sleep_s = super()._watch(read, patience_s)
        if sleep_s and self.on_waiting is not None:
            self.on_waiting()
        return sleep_s


class Follower:
    """Follows the lanes of a store.

    Invariants:
        * when `follow` returns, its readers see at least what was published before the call;
        * whoever brings in what is new tells those who wait for it, so none of them is forgotten;
        * there is a thread only from the first reader who waits, and it sleeps while nobody does.

    Attributes:
        error: the damage that keeps it from going on, while there is any.
        looks: how often there was something to look at.
    """

    def __init__(
        self, disk: Disk, folder: Path, header: StoreHeader, lanes: Sequence[FollowedLane],
        waiting: FollowingReaders, clock: Clock,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._folder = folder
        self._header = header
        self._lanes = lanes
        self._waiting = waiting
        self._clock = clock
        self._page: LivePage | None = None
        self._seen = NO_MOVES  # of the page
        self._look_at = float("-inf")  # of the monotonic time: then it is looked for another page, or at the files
        self._check_at = float("-inf")  # then it is looked whether the folder has another store
        self._lock = threading.Lock()
        self._wanted, self._ended = Bell(), Bell()
        self._mirror: SharedMemory | None = None
        self._mirror_of = 0  # the opening whose mirror was looked for
        self._watching: Background | None = None
        self._closing = False
        self.error: StoreCorrupt | None = None
        self.looks = 0
        waiting.on_waiting = self.watch

    @property
    def page(self) -> LivePage | None:
        """The page that is followed; None while the folder has none."""
        return self._page

    @property
    def is_fresh(self) -> bool:
        """True if there is nothing new, as far as the page tells."""
        page = self._page
        return page is not None and page.moves == self._seen and self._clock.monotonic_s() < self._look_at

    def follow(self) -> None:
        """Bring the lanes up to what is durable. Raises StoreCorrupt, StoreUnusable, OSError."""
        if self.is_fresh:
            return
        with self._lock:
            try:
                self._follow()
                self.error = None
            except BaseException as error:
                self._seen, self._look_at = NO_MOVES, float("-inf")
                self.error = error if isinstance(error, StoreCorrupt) else None
                self._waiting.wake_all()  # to find out for themselves
                raise

    def _follow(self) -> None:
        now = self._clock.monotonic_s()
        due = now >= self._look_at
        if due:
            self._look_at = now + LOOK_S
            self._find_page()
            self._find_mirror()
        page = self._page
        moves = page.moves if page is not None else NO_MOVES  # before the states: these are as new at least
        if page is not None and not page.is_current and (due or moves != self._seen):
            page.look_again()
        current = page is not None and page.is_current
        if moves == self._seen and (current or not due):
            return
        if not current:
            self._look_at = now + OLD_LOOK_S
        self._bring_in(page, moves, current=current)

    def _bring_in(self, page: LivePage | None, moves: bytes, *, current: bool) -> None:
        self.looks += 1
        if self.looks == LOOKS_OF_FOLLOWERS:
            self._look_at = float("-inf")  # the next look finds the mirror
        for followed in self._lanes:
            before = followed.lane.view.sealed
            shown = followed.follow(partial(_state_of, page, followed.lane.index), is_current=current)
            if shown:
                self._waiting.tell(followed.lane, shown)
            if followed.lane.view.sealed is not before:
                self._waiting.look_at_all()  # it may have messages that never were in a growing segment here
        # Not the bell alone: on some processors another's writes are seen in another order.
        newest = max(followed.bell for followed in self._lanes)
        self._seen = moves if newest >= bell_of(moves) else NO_MOVES

    def _find_page(self) -> None:
        if self._page is None or not self._page.is_in_place():
            self._check_store()
            # Without a page of its own the folder's frames tell: one that was taken away may not be written any more.
            self._page, self._seen = LivePage.of(self._disk, self._folder, self._header), NO_MOVES

    def _check_store(self) -> None:
        """Raises StoreUnusable if another store has taken the folder."""
        now = self._clock.monotonic_s()
        if now < self._check_at:
            return
        try:
            header = read_header(self._disk, self._folder)
        except (OSError, StoreError):  # no folder any more, or a damaged one: what is open can still be read
            header = None
        if header is not None and header.store_id != self._header.store_id:
            raise StoreUnusable(
                f"{self._folder} has another store than when this reader was opened; close it, and open it again"
            )
        self._check_at = now + LOOK_S

    @property
    def has_mirror(self) -> bool:
        """Whether a writer's mirror was found. It may be the one of a writer who is gone."""
        return self._mirror is not None

    def _find_mirror(self) -> None:
        """Find the mirror of who writes now. Not for a reader that looks once or twice, as the writer copies for it."""
        page = self._page
        if page is None or self.looks < LOOKS_OF_FOLLOWERS:
            return
        page.look_again()
        if not page.is_current or page.header.openings == self._mirror_of:
            return
        try:
            header = page.header
            found = find_mirror(self._disk, header.pid, header.store_id, header.lanes, header.openings)
            if found is not None:
                for followed in self._lanes:
                    followed.take_mirror(*found)
                self._let_go_of_mirror()
                self._mirror = found[0]
            self._mirror_of = page.header.openings
        except BlockingIOError:  # its writer looks whether it has readers; soon again
            return
        except (OSError, ValueError):  # no room for a mapping
            self._mirror_of = page.header.openings

    def _let_go_of_mirror(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.close()

    def look_at_starts(self) -> bool:
        """Learn where the lanes' logs begin now; True if one has moved. Raises OSError."""
        with self._lock:
            return any([followed.look_at_start() for followed in self._lanes])

    def let_go(self) -> None:
        """Behind `close`: the page and the files of the growing segments are closed with their last reader."""
        with self._lock:
            self._page = None
            for followed in self._lanes:
                followed.let_go()

    # -- watching -------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Somebody waits for a message."""
        if self._watching is None:
            with self._lock:
                if self._watching is None and not self._closing:
                    thread = Background(self._watch)
                    thread.start()
                    self._watching = thread
        self._wanted.set()

    def _watch(self) -> None:
        moves, awake_until = NO_MOVES, time.monotonic() + AWAKE_S
        while not self._closing:
            if not len(self._waiting):
                self._wanted.wait()
                self._wanted.clear()
                awake_until = time.monotonic() + AWAKE_S
            page = self._page
            if page is not None and (found := page.moves) != moves:
                moves = found
                awake_until = time.monotonic() + AWAKE_S
            try:
                self.follow()
            except (OSError, StoreError):  # whoever waits was woken, and finds out
                time.sleep(OLD_LOOK_S)
                continue
            if page is None or not page.is_current:
                time.sleep(OLD_LOOK_S)
            elif (
                time.monotonic() < awake_until or page is not self._page or moves != self._seen
                or page.moves != moves  # behind the look at the time: a mark alone moves no bell
            ):  # fmt: skip
                time.sleep(NAP_S)
            elif not self._closing:
                # On the bell of `moves`: a move that only `follow` has seen needs a wait of its own.
                page.sleep(moves, PATIENCE_S)
                awake_until = time.monotonic() + AWAKE_S
        self._ended.set()

    def close(self) -> None:
        """End the thread. Again is fine."""
        self._closing = True
        self._wanted.set()
        while self._watching is not None and not self._ended.wait(ENDING_S):
            if self._page is not None:
                self._page.wake()  # it may sleep there; others who do look, and go on sleeping
        with self._lock:
            self._let_go_of_mirror()

    def after_fork(self) -> None:
        """In a child process: the thread is not here."""
        self._lock, self._watching, self._closing = threading.Lock(), None, True
        self._mirror = None
        for followed in self._lanes:
            followed.ring.close()  # its mappings would keep the lock that says that somebody reads


def _state_of(page: LivePage | None, lane: int) -> LaneState | None:
    return None if page is None else page.state(lane)
