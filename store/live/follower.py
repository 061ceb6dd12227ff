"""A store of another process, followed: all its lanes, and the thread that watches for reads that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..device.background import Background, Bell, NoThread
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.folder import read_header
from ..device.shared_memory import SharedMemory
from ..errors import StoreCorrupt, StoreError, StoreUnusable
from ..format.joint import JointPlace
from ..format.live_page import LaneState, LiveHeader
from ..format.store_files import StoreHeader
from ..log.streams import StreamMap
from ..read.waiting import WaitingRead, WaitingReaders
from .followed_ring import find_mirror
from .lane import FollowedLane
from .page import LivePage, bell_of
from .publisher import RING_EVERY_S

Seen = TypeVar("Seen")

NO_MOVES = b""
LOOK_S = 0.5  # between two looks whether the folder has another page
OLD_LOOK_S = 0.02  # between two looks at the files where no page tells that something is new
NAP_S = 0.0005  # between two looks while the writer is busy: what comes meanwhile is taken together
AWAKE_S = 1.5 * RING_EVERY_S  # no sleep for so long after a move of the bell: the writer counts on it
PATIENCE_S = 1.0  # of a sleep: then look whether there is another page
LOOKS_OF_FOLLOWERS = 2  # a reader with fewer looks at what is new reads the files


class FollowingReaders(WaitingReaders):
    """Waiting readers of a followed store: as long as there is one, the follower watches the page."""

    def __init__(self, streams: StreamMap, clock: Clock) -> None:
        super().__init__(streams, clock)
        self.on_waiting: Callable[[], object] | None = None

    def _watch(self, read: WaitingRead) -> float:
        sleep_s = super()._watch(read)
        if sleep_s and self.on_waiting is not None:
            try:
                self.on_waiting()
            except NoThread:  # it looks for itself, soon
                return min(sleep_s, OLD_LOOK_S)
        return sleep_s


class Follower:
    """Follows the lanes of a store. It looks by the machine's time, whatever the store's clock: the writer is another
    process.

    Invariants:
        * when `follow` returns, its readers see at least what was published before the call;
        * then they see all lanes as the page had them at one moment, so a bulk commit in all of its lanes or in none;
        * a thread that brings in news wakes the reads that wait for it, so none of them is forgotten;
        * the mirror that is used is the one of the writer whose states are followed: this is compared after each state
          is read, and before anything is taken that it covers;
        * there is a thread only from the first read that waits, and it sleeps while none does. It goes on until
          `close`, whatever error it meets: it wakes the reads that wait, and they meet the error in their own calls.

    Attributes:
        error: the damage that keeps it from going on, while there is any.
        looks: how often there was something to look at.
    """

    def __init__(
        self, disk: Disk, folder: Path, header: StoreHeader, lanes: Sequence[FollowedLane],
        waiting: FollowingReaders,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._folder = folder
        self._header = header
        self._lanes = lanes
        self._waiting = waiting
        self._page: LivePage | None = None
        self._seen = NO_MOVES  # of the page
        self._look_at = float("-inf")  # monotonic time of the next look for another page, or at the files
        self._check_at = float("-inf")  # and of the next look whether the folder has another store
        self._lock = threading.Lock()
        self._wanted = Bell()
        self._mirror: SharedMemory | None = None
        self._mirror_of: LiveHeader | None = None  # the writer whose mirror was looked for
        self._watching: Background | None = None
        self._awake_until = 0.0  # of the watching thread
        self._watched = NO_MOVES
        self._closing = False
        self.error: StoreCorrupt | None = None
        self.looks = 0
        waiting.on_waiting = self.watch
        for followed in lanes:
            followed.is_beyond = self._is_beyond

    @property
    def page(self) -> LivePage | None:
        """The page that is followed; None while the folder has none."""
        return self._page

    @property
    def is_fresh(self) -> bool:
        """True if there is nothing new, as far as the page tells."""
        page = self._page
        return page is not None and page.moves == self._seen and time.monotonic() < self._look_at

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
        now = time.monotonic()
        due = now >= self._look_at
        if due:
            self._look_at = now + LOOK_S
            self._find_page()
            self._find_mirror()
        page = self._page
        moves = page.moves if page is not None else NO_MOVES  # before the states: these are as new at least
        if page is not None and not page.is_current and (due or moves != self._seen):
            page.read_again()
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
        moment = _LaneStates(page)
        while moment.begin():
            for followed in self._lanes:
                before = followed.lane.view.sealed
                shown = followed.follow(partial(self._state_of, moment, followed.lane.index), is_current=current)
                if shown:
                    self._waiting.tell(followed.lane, shown)
                if followed.lane.view.sealed is not before:
                    self._waiting.look_at_all()  # it may have messages that never were in a growing segment here
        # Not the bell alone: on some processors another's writes are seen in another order.
        newest = max(followed.bell for followed in self._lanes)
        self._seen = moves if newest >= bell_of(moves) else NO_MOVES

    def _is_beyond(self, place: JointPlace) -> bool:
        """Does the page say that a lane was durable beyond a place? An old page is true as well."""
        page = self._page
        state = None if page is None else page.states()[place.lane]
        return state is not None and max((state.sealed + 1, 0), state.mark) > (place.sequence, place.position)

    def _find_page(self) -> None:
        if self._page is None or not self._page.is_in_place():
            self._check_store()
            # If the folder has no page of its own, its frames tell: one that was taken away may not be written any
            # more.
            self._page, self._seen = LivePage.of(self._disk, self._folder, self._header), NO_MOVES

    def _check_store(self) -> None:
        """Raises StoreUnusable if another store has taken the folder."""
        now = time.monotonic()
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
        """Whether a writer's mirror was found. That writer may be gone."""
        return self._mirror is not None

    def _find_mirror(self) -> None:
        """Find the writer's mirror. Not for a reader that looks once or twice, as the writer copies for it."""
        page = self._page
        if page is None or self.looks < LOOKS_OF_FOLLOWERS:
            return
        page.read_again()
        if not page.is_current or page.is_of(self._mirror_of):
            return
        self._let_go_of_mirror()
        try:
            found = find_mirror(self._disk, page.header)
            if found is not None:
                self._mirror = found[0]
                for followed in self._lanes:
                    followed.take_mirror(*found)
        except BlockingIOError:  # its writer looks whether it has readers; soon again
            return
        except (OSError, ValueError):  # no room for a mapping: the lanes that have theirs use it
            pass
        self._mirror_of = page.header

    def _state_of(self, moment: _LaneStates, lane: int) -> LaneState | None:
        """The page's state of a lane. A mirror of another writer is let go of."""
        state, page = moment.state_of(lane), self._page
        if self._mirror is not None and (page is None or not page.is_of(self._mirror_of)):
            self._let_go_of_mirror()
        return state

    def _let_go_of_mirror(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            for followed in self._lanes:
                followed.ring.close()
            mirror.close()

    def at_one_moment(self, call: Callable[[], Seen]) -> Seen:
        """The result of a call that looks at several lanes; none is brought up meanwhile."""
        with self._lock:
            return call()

    def learn_starts(self) -> bool:
        """Learn where the lanes' logs begin now; True if one has moved. Raises OSError."""
        with self._lock:
            has_moved = any([followed.learn_start() for followed in self._lanes])
            # The next look takes what is there now, whatever the page says: it may be an old one. Also where nothing
            # has moved: another call may have looked before.
            self._seen, self._look_at = NO_MOVES, float("-inf")
            return has_moved

    def let_go(self) -> None:
        """Called after `close`: the page and the files of the growing segments are closed with their last reader."""
        with self._lock:
            self._page = None
            for followed in self._lanes:
                followed.let_go()

    # -- watching -------------------------------------------------------------------------------------

    def watch(self) -> None:
        """A read waits for a message: start the thread if there is none, and have it look. Raises NoThread."""
        if self._watching is None:
            with self._lock:
                if self._watching is None and not self._closing:
                    thread = Background(self._watch)
                    thread.start()
                    self._watching = thread
        self._wanted.set()

    def _watch(self) -> None:
        while not self._closing:
            try:
                self._watch_once()
            except BaseException:  # the thread goes on: without it nobody would be woken by what is new
                with suppress(BaseException):
                    self._waiting.wake_all()  # to find out for themselves, if they do not know yet
                time.sleep(OLD_LOOK_S)

    def _watch_once(self) -> None:
        """Take what is new, and sleep until there may be more."""
        if not len(self._waiting):
            self._wanted.wait()
            self._wanted.clear()
            self._stay_awake()
        page = self._page
        if page is not None and (found := page.moves) != self._watched:
            self._watched = found
            self._stay_awake()
        self.follow()
        moves = self._watched
        if page is None or not page.is_current:
            time.sleep(OLD_LOOK_S)
        elif (
            time.monotonic() < self._awake_until or page is not self._page or moves != self._seen
            or page.moves != moves  # after the look at the time: a mark alone moves no bell
        ):  # fmt: skip
            time.sleep(NAP_S)
        elif not self._closing:
            # On the bell of `moves`: a move that only `follow` has seen needs a wait of its own.
            page.sleep(moves, PATIENCE_S)
            self._stay_awake()

    def _stay_awake(self) -> None:
        self._awake_until = time.monotonic() + AWAKE_S

    def close(self) -> None:
        """End the thread. It may be called again."""
        self._closing = True
        self._wanted.set()
        if self._watching is not None:
            self._watching.join(self._wake_sleeper)
        with self._lock:
            self._let_go_of_mirror()

    def _wake_sleeper(self) -> None:
        if self._page is not None:
            self._page.wake()  # it may sleep there; other sleepers look, and sleep again

    def telling(self) -> AbstractContextManager[object]:
        """Does nothing: a reader tells no other process."""
        return nullcontext()

    def after_fork(self) -> None:
        """In a child process: the thread is not here."""
        self._lock, self._watching, self._closing = threading.Lock(), None, True
        self._mirror = None
        for followed in self._lanes:
            followed.ring.close()  # its mappings would keep the lock that marks a reader


class _LaneStates:
    """The states of all lanes at one moment; at a later one if one of them has to be read again meanwhile.

    Then all lanes are followed once more, up to that moment: so readers see none of them later than the others.
    """

    def __init__(self, page: LivePage | None) -> None:
        self._page = page
        self._states: list[LaneState | None] = []
        self._taken: set[int] = set()
        self._is_new = True

    def begin(self) -> bool:
        """False once all lanes were followed up to one moment."""
        if not self._is_new:
            return False
        if not self._states:
            self._read()
        self._is_new = False
        self._taken.clear()
        return True

    def _read(self) -> None:
        self._states = [] if self._page is None else self._page.states()

    def state_of(self, lane: int) -> LaneState | None:
        """The page's state of a lane, read again where it is asked for again."""
        if lane in self._taken:
            self._read()
            self._is_new = len(self._states) > 1
        self._taken.add(lane)
        return self._states[lane] if self._states else None
