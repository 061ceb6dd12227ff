"""The work in the background: segments made ahead (R7), full ones sealed, old ones removed, "os" forces.

Two threads for the whole store, woken by what there is to do and otherwise twice a second: one makes spares, which
may take seconds, and the other does all the rest, so neither waits for the other.
"""

from __future__ import annotations

import contextlib
import errno
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import MIB, StoreConfig
from ..device.background import Background, Bell
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.lane_start import write_start
from ..errors import StoreCorrupt, StoreFull
from ..format.footer import Footer
from ..format.layout import RETIRED_PREFIX, lane_name
from ..format.store_files import LaneStart
from ..segment.sealing import Ended, StreamNames, let_go, rows_of, seal
from ..segment.segment import Segment
from .lane import Lane
from .retention import held_bytes, newest_ms
from .ring_growth import RingGrowth
from .spares import Spares
from .trims import Guard, TrimmedSegments
from .write import FullSegment

TICK_S = 0.5
WARM_AHEAD_BYTES, WARM_UNUSED_BYTES = 16 * MIB, 2 * MIB
DROP_BYTES = 4 * MIB


class Upkeep:
    """Makes, seals, recycles and removes the segments of all lanes.

    Invariants:
        * a segment file's name is durable before a lane writes to it;
        * START says durably that a segment is not the log's any more, before its file is renamed;
        * the segments of a lane are sealed in the order of its log, whatever became of earlier attempts: a footer
          begins with the offsets that the one before ends with;
        * a segment is taken from the readers' view before its file is reused;
        * the newest sealed segment of a lane is never removed: its footer is the lane's stream table.
    """

    def __init__(
        self, disk: Disk, folder: Path, config: StoreConfig, store_id: bytes, clock: Clock,
        force: Callable[[], None], mark: Callable[[Lane], None], removed: Callable[[Lane], None],
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
        self._removed = removed
        self._is_in_place = is_in_place
        self._goes_on = goes_on
        self.direct = direct
        self._spares: dict[int, Spares] = {}  # by lane
        self._recyclable: defaultdict[int, deque[Path]] = defaultdict(deque)
        self._retired: deque[tuple[Lane, Path, int]] = deque()
        self._full: deque[tuple[Lane, FullSegment]] = deque()
        self._dropped: dict[int, tuple[int, int]] = {}  # lane -> (sequence, position) up to which pages are gone
        self.names: defaultdict[int, StreamNames] = defaultdict(StreamNames)
        self._lanes: Sequence[Lane] = ()
        self._wake = Bell()
        self._wake_ahead = Bell()
        self._closing, self._retires = False, True
        self._trimmed = TrimmedSegments()
        self.guards: list[Guard] = []  # of the store's parts
        self.allowance: Callable[[], int] = int  # bytes that they keep beside what retention leaves
        self.look()
        self.reads_alone = False  # of new segments
        self.on_look: Callable[[], None] = lambda: None  # called twice a second: what else there is to do
        self.removed_segments = 0
        self.last_error: str | None = None
        self._thread = Background(self._run)
        self._ahead = Background(self._run_ahead)
        self._growth = RingGrowth()

    def start(self, lanes: Sequence[Lane]) -> None:
        """Take on the lanes; their folders' spares were reported with `found_spare` before. Raises StoreFull."""
        self._lanes = lanes
        share = self._config.prewrite_bytes // max(1, len(lanes))
        found = {lane.index: len(self.spares_of(lane.index)) for lane in lanes}
        try:
            for lane in lanes:
                self.spares_of(lane.index).fill_up(share)
                if share:
                    lane.ring.warm_up(lane.tail + share)  # the first appends pay for neither disk nor memory
        except StoreFull:  # where there is no space for all that was asked for, none of it is kept
            for lane in lanes:
                self.spares_of(lane.index).give_back(found[lane.index])
            raise
        self._growth.start(lanes)
        self._thread.start()
        self._ahead.start()

    def spares_of(self, lane: int) -> Spares:
        """The spares of a lane."""
        if lane not in self._spares:
            folder, files = self._folder / lane_name(lane), self._recyclable[lane]
            self._spares[lane] = Spares(self._disk, folder, self._config, files, direct=self.direct)
        return self._spares[lane]

    def found_segment(self, lane: int, sequence: int, capacity_bytes: int) -> None:
        """A segment in use, found when the folder was opened."""
        self.spares_of(lane).found_segment(sequence, capacity_bytes)

    def found_spare(self, lane: int, sequence: int, size_bytes: int) -> None:
        """A pre-written file that no frame was ever forced to, found when the folder was opened."""
        self.spares_of(lane).found(sequence, size_bytes)

    # -- segments for the lanes -----------------------------------------------------------------------

    def next_segment(self, lane: Lane, at_least_bytes: int) -> Segment:
        """The lane's next segment, made on the spot if none is ready.

        Raises StoreFull; FileNotFoundError where the store's files are gone: what comes behind would be lost as well.
        """
        self._check_in_place(lane)
        segment = self.spares_of(lane.index).take(lane, at_least_bytes, self._store_id)
        segment.reads_alone = self.reads_alone
        self.look()
        return segment

    def _check_in_place(self, lane: Lane) -> None:
        """Look whether the folder and the lane's newest segment are where they were. Raises FileNotFoundError."""
        if not self._is_in_place():
            raise gone(self._folder)
        if lane.segment is not None and not lane.segment.log.is_in_place():
            raise gone(lane.segment.path)

    def segment_full(self, lane: Lane, full: FullSegment) -> None:
        """All of a segment's frames are forced: seal it soon."""
        self._full.append((lane, full))
        self._wake.set()

    def spare_count(self) -> int:
        """Segments that stand ready."""
        return sum(map(len, list(self._spares.values())))

    @property
    def prewritten_bytes(self) -> int:
        """Bytes of the spares that were written."""
        return sum(spares.prewritten_bytes for spares in list(self._spares.values()))

    @property
    def recycled_segments(self) -> int:
        """Spares that were made of removed segments."""
        return sum(spares.recycled_segments for spares in list(self._spares.values()))

    # -- the background -------------------------------------------------------------------------------

    def _run(self) -> None:
        forced = self._clock.monotonic_s()
        interval_s = self._config.flush_interval_ms / 1000
        lazy = self._config.durability == "os"
        while not self._closing:
            self._wake.wait(min(TICK_S, interval_s) if lazy else TICK_S)
            self._wake.clear()
            if not self._goes_on():  # what stands at our paths now is not ours to seal or remove
                return
            if lazy and self._clock.monotonic_s() - forced >= interval_s:
                forced = self._clock.monotonic_s()
                self._try(self._force)
            # Each for itself: on a full disk no spare can be made, and retention is what helps.
            for task in (
                self._drop_pages, self._seal_full, self._retire, self._clear_away, self._mark_quiet, self._give_way,
            ):  # fmt: skip
                self._try(task)

    def _run_ahead(self) -> None:
        while not self._closing:
            self._wake_ahead.wait(TICK_S)
            self._wake_ahead.clear()
            if self._is_in_place():
                self._try(self._warm)
                self._try(self._keep_ahead)
                self._try(self.on_look)

    def _try(self, task: Callable[[], None]) -> None:
        try:
            task()
        except StoreFull as error:
            self.last_error = str(error)  # the lane that needs the segment reports it to its producers
        except Exception as error:  # also a bug, or no memory: without this thread nothing would be sealed any more
            self.last_error = f"background work failed, and is tried again: {str(error) or type(error).__name__}"

    def _warm(self) -> None:
        for lane in self._lanes:
            is_used = lane.ring.written(lane.tail) > 0
            lane.ring.warm_up(lane.tail + (WARM_AHEAD_BYTES if is_used else WARM_UNUSED_BYTES))
        self._growth.look()

    def _drop_pages(self) -> None:
        """Where frames go through the page cache, they leave it once they are forced (R24): the ring has them."""
        for lane in self._lanes:
            sequence, position = lane.under_way.forced_mark
            segment = lane.segment
            if segment is None or segment.direct or segment.sequence != sequence:
                continue
            known, dropped = self._dropped.get(lane.index, (0, 0))
            begin = dropped if known == sequence else 0
            if position - begin >= DROP_BYTES:
                segment.drop_pages(begin, position - begin)
                self._dropped[lane.index] = (sequence, position)

    def stop(self) -> None:
        """End the threads, whatever is left to do. Again is fine."""
        self._closing = True
        self.look()
        self._thread.join()
        self._ahead.join()
        self._growth.stop()

    def close(self) -> None:
        """Seal what is full and end. The lanes must have ended."""
        self.stop()
        if not self._is_in_place():
            return
        with contextlib.suppress(OSError, StoreCorrupt):
            self._seal_full()
            self._clear_away()
            for lane in self._lanes:
                for path in self._recyclable[lane.index]:
                    self._disk.remove(path)

    def _mark_quiet(self) -> None:
        """Have lanes that have gone quiet note that all they acknowledged is durable."""
        for lane in self._lanes:
            if lane.wants_mark():
                self._mark(lane)

    def _give_way(self) -> None:
        """Hold nobody up who wants to write to a sealed segment."""
        for lane in self._lanes:
            for sealed in lane.view.sealed:
                sealed.give_way()

    def _seal_full(self) -> None:
        """Seal what is full, of each lane in order. Raises the first error, when all lanes had their turn."""
        failed: dict[int, Exception] = {}
        while True:
            due = next((entry for entry in list(self._full) if entry[0].index not in failed), None)
            if due is None:
                break
            lane, full = due
            try:
                if any(opened.segment is full.segment for opened in lane.view.open):
                    self.seal_now(lane, full)  # else it is done: an interrupt came behind that
            except Exception as error:
                failed[lane.index] = error
                continue
            self._full.remove(due)
            rows = rows_of(full.table)
            del due, full
            let_go(rows)
        for first in failed.values():
            raise first

    def seal_now(self, lane: Lane, full: FullSegment) -> None:
        """Write a segment's footer and let readers use it. Raises OSError; the segment then stays open."""
        if not lane.view.open or lane.view.open[0].segment is not full.segment:  # before its footer is written
            raise RuntimeError(f"{full.segment.path} is sealed before an older segment of its lane")
        if not full.segment.direct:
            full.segment.drop_pages(0, full.data_end)
        before: Footer | Ended | None = None
        if lane.view.sealed:
            try:
                before = lane.view.sealed[-1].footer
            except StoreCorrupt:  # and its segment cannot tell either: that costs no other segment its footer
                before = Ended(full.table.first_offsets())
        lane.replace_open(seal(self._disk, full, lane.streams, self.names[lane.index], before))

    def _keep_ahead(self) -> None:
        """One spare a lane, once its segment is half full. Raises the first error, when all had their turn."""
        errors: list[Exception] = []
        for lane in self._lanes:
            segment, spares = lane.segment, self.spares_of(lane.index)
            if segment is None or segment.base is None or len(spares):
                continue
            if (lane.tail - segment.base) * 2 > segment.header.capacity_bytes:
                try:
                    spares.keep_ahead()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def look(self) -> None:
        """A lane has got on: look soon whether it needs anything."""
        self._wake.set()
        self._wake_ahead.set()

    # -- retention ------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Remove sealed segments: trimmed ones; by age and by bytes, oldest first (by the newest message in each)."""
        if not self._retires:
            return
        for lane in self._lanes:
            while self._trimmed.can_go(lane) and self._remove_oldest(lane):
                pass
        if self._config.retention_ms is not None:
            limit = self._clock.wall_ms() - self._config.retention_ms
            for lane in self._lanes:
                while len(lane.view.sealed) > 1 and newest_ms(lane.view.sealed) < limit and self._remove_oldest(lane):
                    pass
        if self._config.retention_bytes is not None:
            left = list(self._lanes)
            while self._held_bytes() > self._config.retention_bytes + self.allowance():
                left = [lane for lane in left if len(lane.view.sealed) > 1]
                if not left:
                    return
                oldest = min(left, key=lambda lane: newest_ms(lane.view.sealed))
                if not self._remove_oldest(oldest):
                    left.remove(oldest)

    def _held_bytes(self) -> int:
        return held_bytes(self._lanes)

    def _remove_oldest(self, lane: Lane) -> bool:
        """Remove a lane's oldest segment; False if a guard keeps it."""
        oldest = lane.view.sealed[0]
        if not all([guard(lane, oldest) for guard in self.guards]):
            return False
        segment = oldest.segment
        retired = segment.path.with_name(RETIRED_PREFIX + segment.path.stem)
        following = lane.view.sealed[1].segment
        start = LaneStart(lane.index, self._store_id, following.sequence, following.header.messages_before)
        segment.removed = True  # from here on it keeps its file open
        try:
            segment.open_data()  # for the readers who found it before, and know only its old name
            segment.unmap()
            write_start(self._disk, lane.folder, start)  # before the file goes: what is missing else is damage
            self._disk.rename(segment.path, retired)
        except OSError:
            segment.removed = False
            raise
        lane.forget_oldest()  # not before: a segment that keeps its name is still there at the next opening
        self.removed_segments += 1
        try:
            self._disk.force_folder(lane.folder)
        except OSError:
            self._retires = False  # a later removal could reach the device without this one: a gap
            raise
        # Its bytes are touched when the last of those readers has let go, not before; and not while Python ends.
        weakref.finalize(segment, self._unused, lane, retired, segment.header.capacity_bytes).atexit = False
        self._removed(lane)
        return True

    def _unused(self, lane: Lane, path: Path, capacity_bytes: int) -> None:
        """Nobody reads a removed segment any more. Runs in whichever thread was the last."""
        self._retired.append((lane, path, capacity_bytes))

    def _clear_away(self) -> None:
        """Keep one file a lane for recycling, remove the other retired ones."""
        while self._retired:
            lane, path, capacity_bytes = self._retired[0]
            fits = not self._recyclable[lane.index] and capacity_bytes >= self._config.segment_bytes
            if fits and not self._is_shared(path):
                self._recyclable[lane.index].append(path)
            else:
                with contextlib.suppress(FileNotFoundError):  # the last time it was the force that failed
                    self._disk.remove(path)
                self._disk.force_folder(lane.folder)
            self._retired.popleft()  # not before: what fails is tried again

    def _is_shared(self, path: Path) -> bool:
        """Does another process still read a removed segment? Nobody new can: its name leads to it no longer."""
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return False  # whoever recycles it finds out
        try:
            ask = getattr(file, "is_shared", None)
            return ask is not None and bool(ask())
        finally:
            file.close()


def gone(path: Path) -> FileNotFoundError:
    """The error of a store whose files were taken from under it."""
    what = "moved, replaced or deleted while the store was open"
    return FileNotFoundError(errno.ENOENT, what, str(path))
