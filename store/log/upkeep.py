"""The work in the background: segments made ahead (R7), full ones sealed, old ones removed, "os" forces.

Three threads for the whole store, woken when there is work, and otherwise twice a second. The first makes spares, which
may take seconds. The second calls the lookers, among them the one that attaches bulk commits, which may take as long;
other processes wake it, and lanes do not. The third does the rest. None waits for another, except that a large commit
waits for a spare that is being made in its lane.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..config import MIB, StoreConfig, TunedConfig
from ..device.background import Background, Bell
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.steps import take_all
from ..errors import StoreCorrupt, StoreFull
from ..format.layout import lane_name
from ..segment.sealed import SealedSegment
from ..segment.sealing import FullSegment
from ..segment.segment import Segment
from .ahead import Ahead
from .early import EarlySeals
from .removal import Removal
from .reserve import Reserve
from .ring_growth import RingGrowth
from .sealer import Sealer
from .spares import Spares
from .written_lane import WrittenLane

TICK_S = 0.5
WARM_AHEAD_BYTES, WARM_UNUSED_BYTES = 16 * MIB, 2 * MIB
DROP_BYTES = 4 * MIB

Result = TypeVar("Result")


class Upkeep:
    """Makes the segments of all lanes, and has full ones sealed and old ones removed.

    Invariant: a segment file's name is durable before a lane writes to it.

    Attributes:
        sealer: gives full segments their footers.
        removal: retention.
        early: makes the full footers that retention waits for.
        lookers: calls that are made twice a second, and at `call_lookers`.
        without_windows: of new segments, see `Segment`.
        last_error: why the last work that failed did so.
    """

    def __init__(
        self, disk: Disk, folder: Path, config: StoreConfig, store_id: bytes, clock: Clock,
        force: Callable[[], None], mark: Callable[[WrittenLane], None],
        removed: Callable[[WrittenLane, Sequence[SealedSegment]], None],
        is_in_place: Callable[[], bool], goes_on: Callable[[], bool], *, direct: bool,
    ) -> None:  # fmt: skip
        """`is_in_place` says whether the folder's path still leads to it, `goes_on` whether there is still a store."""
        self._disk = disk
        self._folder = folder
        self._config = config
        self._store_id = store_id
        self._clock = clock
        self._force = force
        self._mark = mark
        self._is_in_place = is_in_place
        self._goes_on = goes_on
        self.direct = direct
        self._spares: dict[int, Spares] = {}  # by lane
        self._zeros: dict[int, Ahead] = {}
        self.sealer = Sealer(disk, clock)
        self.removal = Removal(disk, config, store_id, clock, removed)
        self.early = EarlySeals(clock, self.sealer)
        self._dropped: dict[int, tuple[int, int]] = {}  # lane -> (sequence, position) up to which pages are gone
        self._lanes: Sequence[WrittenLane] = ()
        self._wake = Bell()
        self._wake_ahead, self._wake_lookers = Bell(), Bell()
        self._closing = False
        self.wake()
        self.without_windows = False
        self.lookers: list[Callable[[], None]] = []
        self.last_error: str | None = None
        self._thread = Background(self._run)
        self._ahead = Background(self._run_ahead)
        self._looking = Background(self._run_lookers)
        self._growth = RingGrowth()

    def start(self, lanes: Sequence[WrittenLane]) -> None:
        """Take on the lanes; their folders' spares were reported with `found_spare` before. Raises StoreFull."""
        self._lanes = lanes
        self.removal.start(lanes)
        share = TunedConfig.of(self._config).prewrite_bytes // max(1, len(lanes))
        found = {lane.index: len(self.spares_of(lane.index)) for lane in lanes}
        try:
            for lane in lanes:
                self.spares_of(lane.index).fill_up(share)
                if share:
                    self.spares_of(lane.index).reserve.secure(lane.footer_room.fixed_bytes)
                    lane.ring.warm_up(lane.tail + share)  # the first appends pay for neither disk nor memory
        except StoreFull:  # where there is no space for all that was asked for, none of it is kept
            for lane in lanes:
                self.spares_of(lane.index).give_back(found[lane.index])
            raise
        self._growth.start(lanes)
        self._thread.start()
        self._ahead.start()
        self._looking.start()

    def spares_of(self, lane: int) -> Spares:
        """The spares of a lane."""
        if lane not in self._spares:
            folder, files = self._folder / lane_name(lane), self.removal.recyclable[lane]
            spares = self._spares[lane] = Spares(self._disk, folder, self._config, files, direct=self.direct)
            self._zeros[lane] = Ahead(self._clock)
            spares.reserve.find()
        return self._spares[lane]

    def found_segment(self, lane: int, sequence: int, capacity_bytes: int) -> None:
        """A segment in use, found when the folder was opened."""
        self.spares_of(lane).found_segment(sequence, capacity_bytes)

    def found_spare(self, lane: int, sequence: int, size_bytes: int) -> None:
        """A pre-written file that no frame was ever forced to, found when the folder was opened."""
        self.spares_of(lane).found(sequence, size_bytes)

    # -- segments for the lanes -----------------------------------------------------------------------

    def next_segment(self, lane: WrittenLane, at_least_bytes: int) -> Segment:
        """The lane's next segment, made on the spot if none is ready.

        Raises StoreFull; FileNotFoundError where the store's files are gone: later frames would be lost as well.
        """
        self._check_in_place(lane)
        self.sealer.make_way(lane)
        self.removal.pace.hold_back(lane, self._wake.set)
        segment = self.spares_of(lane.index).take(lane, at_least_bytes, self._store_id)
        return self._begun(segment)

    def reserve_segment(self, lane: WrittenLane, at_least_bytes: int) -> Segment:
        """The lane's reserve as its next segment. Raises as `next_segment` does."""
        self._check_in_place(lane)
        segment = self.spares_of(lane.index).take_reserve(lane, at_least_bytes, self._store_id)
        return self._begun(segment)

    def _begun(self, segment: Segment) -> Segment:
        segment.without_windows = self.without_windows
        self.wake()
        return segment

    def _check_in_place(self, lane: WrittenLane) -> None:
        """Look whether the folder and the lane's newest segment are where they were. Raises FileNotFoundError."""
        if not self._is_in_place():
            raise gone(self._folder)
        if lane.segment is not None and not lane.segment.writer.file.is_in_place():
            raise gone(lane.segment.path)

    def segment_full(self, lane: WrittenLane, full: FullSegment) -> None:
        """Have a segment sealed soon: all of its frames are forced."""
        self.sealer.add(lane, full)
        self._wake.set()

    def reserves(self) -> list[Reserve]:
        """The reserve of each lane."""
        return [spares.reserve for spares in list(self._spares.values())]

    def spare_count(self) -> int:
        """Segments that stand ready."""
        return sum(map(len, list(self._spares.values())))

    @property
    def prewritten_bytes(self) -> int:
        """Bytes of zeros that were written ahead."""
        zeros = sum(ahead.written_bytes for ahead in list(self._zeros.values()))
        return zeros + sum(spares.prewritten_bytes for spares in list(self._spares.values()))

    @property
    def recycled_segments(self) -> int:
        """Spares that were made of removed segments."""
        return sum(spares.recycled_segments for spares in list(self._spares.values()))

    # -- the background -------------------------------------------------------------------------------

    def _run(self) -> None:
        self.removal.pace.is_running = True
        try:
            self._look_after()
        finally:
            self.removal.pace.is_running = False

    def _look_after(self) -> None:
        forced_ms = self._now_ms()
        interval_ms = self._config.flush_interval_ms
        lazy = self._config.durability == "os"
        while not self._closing:
            self._wake.wait(min(TICK_S, interval_ms / 1000) if lazy else TICK_S)
            self._wake.clear()
            goes_on = self._try(self._goes_on)
            if goes_on is False:  # what stands at our paths now is not ours to seal or remove
                return
            if goes_on is None:  # it cannot be told
                continue
            if lazy and self._now_ms() - forced_ms >= interval_ms:
                forced_ms = self._now_ms()
                self._try(self._force)
            # Each for itself: on a full disk no spare can be made, and retention is what helps.
            for task in (
                self._drop_pages, self.sealer.seal_full, self.removal.retire, self.early.seal, self.removal.clear_away,
                self._mark_idle, self._give_way,
            ):  # fmt: skip
                self._try(task)

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    def _run_ahead(self) -> None:
        while not self._closing:
            self._wake_ahead.wait(TICK_S)
            self._wake_ahead.clear()
            if self._try(self._is_in_place):
                self._try(self._warm)
                self._try(self._keep_ahead)

    def _run_lookers(self) -> None:
        while not self._closing:
            self._wake_lookers.wait(TICK_S)
            self._wake_lookers.clear()
            if self._try(self._is_in_place):
                for look in list(self.lookers):
                    self._try(look)

    def _try(self, task: Callable[[], Result]) -> Result | None:
        """The result of a task; None if it failed, and `last_error` says why."""
        try:
            return task()
        except StoreFull as error:
            self.last_error = str(error)  # the lane that needs the segment reports it to its producers
        except Exception as error:  # also a bug, or no memory: without this thread nothing would be sealed any more
            self.last_error = f"background work failed, and is tried again: {str(error) or type(error).__name__}"
        return None

    def _warm(self) -> None:
        for lane in self._lanes:
            is_used = lane.ring.written(lane.tail) > 0
            lane.ring.warm_up(lane.tail + (WARM_AHEAD_BYTES if is_used else WARM_UNUSED_BYTES))
        self._growth.look()

    def _drop_pages(self) -> None:
        """Have the page cache drop frames that are forced and went through it (R24): the ring has them."""
        for lane in self._lanes:
            sequence, position = lane.under_way.forced_mark
            segment = lane.segment
            if segment is None or segment.writer.direct or segment.sequence != sequence:
                continue
            known, dropped = self._dropped.get(lane.index, (0, 0))
            begin = dropped if known == sequence else 0
            if position - begin >= DROP_BYTES:
                segment.writer.drop_pages(begin, position - begin)
                self._dropped[lane.index] = (sequence, position)

    def stop(self) -> None:
        """End the threads, whatever is left to do. It may be called again."""
        self._closing = True
        self.wake()
        self.call_lookers()
        self._thread.join()
        self._ahead.join()
        self._looking.join()
        self._growth.stop()

    def close(self) -> None:
        """Seal what is full and end. The lanes must have ended."""
        self.stop()
        if not self._is_in_place():
            return
        with contextlib.suppress(OSError, StoreCorrupt):
            self.sealer.seal_full(rest_s=0)
            self.removal.close()

    def _mark_idle(self) -> None:
        """Have lanes without new appends note that all they acknowledged is durable."""
        for lane in self._lanes:
            if lane.wants_mark():
                self._mark(lane)

    def _give_way(self) -> None:
        """Give back leases that another program waits for: it wants to write to a sealed segment."""
        for lane in self._lanes:
            for segment in list(lane.mapped):
                segment.give_way()

    def _keep_ahead(self) -> None:
        """Make each lane's reserve, a spare once its segment is half full, and the zeros ahead of its log.

        Raises the first error at the end.
        """
        take_all([partial(self._keep_lane_ahead, lane) for lane in self._lanes])

    def _keep_lane_ahead(self, lane: WrittenLane) -> None:
        segment, spares = lane.segment, self.spares_of(lane.index)
        if segment is None or segment.base is None:  # nothing was written since the opening
            return
        try:
            spares.reserve.fill(lane.footer_room.fixed_bytes)
        finally:
            try:
                if not len(spares) and (lane.tail - segment.base) * 2 > segment.header.capacity_bytes:
                    spares.keep_ahead()
            finally:
                self._zeros[lane.index].keep(lane, lambda: not self._closing)

    def call_lookers(self) -> None:
        """Wake the thread that calls the lookers: another process has come, or has left a commit."""
        self._wake_lookers.set()

    def wake(self) -> None:
        """Wake the two threads that work for lanes: one has gone on."""
        self._wake.set()
        self._wake_ahead.set()


def gone(path: Path) -> FileNotFoundError:
    """The error of a store whose files were taken from under it."""
    what = "moved, replaced or deleted while the store was open"
    return FileNotFoundError(errno.ENOENT, what, str(path))
