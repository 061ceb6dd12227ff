"""Retention: the oldest segments of the lanes are taken out of the log, and their files used again or removed."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import StoreConfig
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.lane_start import write_start
from ..errors import StoreCorrupt, StoreError
from ..format.hidden import is_said_again
from ..format.layout import RETIRED_PREFIX
from ..format.store_files import LaneStart
from .lane import Lane
from .pace import Pace
from .request import Barrier
from .retention import held_bytes, size_of
from .retention_rounds import RetentionRounds
from .written_lane import WrittenLane

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from ..segment.segment import Segment

MOST_AT_ONCE = 32

Guard = Callable[[Lane, "SealedSegment"], bool]  # may it go? What is needed of it was moved out of it before

Counter = Callable[[Lane, "Sequence[SealedSegment]"], None]


class Removal:
    """Removes sealed segments of all lanes. The store's upkeep alone calls it: of two threads at once, one would remove
    segments that no guard has seen.

    Invariants:
        * what was written again of a segment's records is durable, also with "os", before START says that it is gone;
        * START says durably that a segment has left the log before its file is renamed;
        * a segment is taken from the readers' view before its file is reused;
        * the newest sealed segment of a lane is never removed, nor that of its newest full footer, which is the lane's
          stream table: once retention comes to it, the next footer is a full one. See `early` for idle lanes.

    Attributes:
        guards: of the store's parts; each may keep a segment.
        counters: of the store's parts; each is told the segments that have left the log, before a reader or consumer of
            this process can see it: what it finds is how far each consumer was when they went. It raises nothing.
        is_done: of the store's parts: whether a lane's segment, by its number, goes before its time has come.
        allowance: bytes that these parts keep in addition to `retention_bytes`.
        before: called before segments are removed; it trims topics by ages of their own.
        outlives: whether a segment that is older than `retention_ms` is kept for such an age.
        recyclable: by lane, removed files that new segments may be made of.
        pace: holds appends back that are faster than removal.
    """

    def __init__(
        self, disk: Disk, config: StoreConfig, store_id: bytes, clock: Clock,
        removed: Callable[[WrittenLane, Sequence[SealedSegment]], None],
    ) -> None:  # fmt: skip
        """`removed` is called after each removal, with the segments that are gone."""
        self._disk = disk
        self._config = config
        self._store_id = store_id
        self._clock = clock
        self._removed = removed
        self._lanes: Sequence[WrittenLane] = ()
        self._retired: deque[tuple[WrittenLane, Path, int]] = deque()
        self._retires = True
        self._trimmed = TrimmedSegments()
        self._laps = RetentionRounds()
        self.recyclable: defaultdict[int, deque[Path]] = defaultdict(deque)
        self.guards: list[Guard] = []
        self.counters: list[Counter] = []
        self.is_done: Callable[[Lane, Sequence[SealedSegment], int], bool] = lambda lane, segments, at: False
        self.allowance: Callable[[], int] = int
        self.before: Callable[[], object] = bool
        self.outlives: Callable[[Lane, SealedSegment], bool] = lambda lane, sealed: False
        self.removed_segments = 0
        self.pace = Pace(self.held_bytes, config.segment_bytes)

    def start(self, lanes: Sequence[WrittenLane]) -> None:
        """Take on the lanes."""
        self._lanes = lanes

    def retire(self) -> None:
        """Remove sealed segments: trimmed ones; by age and by bytes, oldest first (by the newest message in each); and
        those that are done with.
        """
        if not self._retires:
            return
        with contextlib.suppress(StoreError, OSError):  # it tries again; removal goes on, and may make room for it
            self.before()
        try:
            self.pace.looked(self._limit_bytes(), is_stuck=not self._retire())
        except BaseException:
            self.pace.looked(None, is_stuck=True)
            raise
        for lane in self._lanes:  # last: it may have to append
            while self._remove_oldest(lane, partial(self.is_done, lane), rests=False):
                pass

    def _retire(self) -> bool:
        """As `retire`; False if it had to leave more than it should."""
        for lane in self._lanes:
            while self._remove_oldest(lane, partial(self._trimmed.can_go, lane)):
                pass
        if self._config.retention_ms is not None:
            limit = self._clock.wall_ms() - self._config.retention_ms
            for lane in self._lanes:
                while self._remove_oldest(lane, partial(self._is_old, lane, limit)):
                    pass
        left = list(self._lanes)
        while self._excess_bytes() > 0:
            left = [lane for lane in left if self._is_free(lane)]
            if not left:
                return False
            ages = [lane.view.sealed[0].record.newest_ms for lane in left]
            oldest = ages.index(min(ages))
            wanted = _OverLimit(self._excess_bytes(), min(ages[:oldest] + ages[oldest + 1 :], default=sys.maxsize))
            if not self._remove_oldest(left[oldest], wanted):
                del left[oldest]
        return True

    def _is_old(self, lane: Lane, limit_ms: int, sealed: Sequence[SealedSegment], at: int) -> bool:
        """Whether retention by age wants a lane's segment to go."""
        return sealed[at].record.newest_ms < limit_ms and not self.outlives(lane, sealed[at])

    def _limit_bytes(self) -> int | None:
        """The bytes that the lanes may hold by `retention_bytes` and the store's parts; None without a limit."""
        limit = self._config.retention_bytes
        return None if limit is None else limit + self.allowance()

    def _excess_bytes(self) -> int:
        limit = self._limit_bytes()
        return 0 if limit is None else self.held_bytes() - limit

    def _is_free(self, lane: WrittenLane, at: int = 0, *, rests: bool = True) -> bool:
        """Whether retention may ask for a lane's segment: another sealed one follows, and no round `rests` at it.

        `at` counts from the oldest one; those before it are about to go. Rounds: see `retention_rounds`.
        """
        if len(lane.view.sealed) < at + 2:
            return False
        return not rests or not self._laps.rests(lane, at, self._clock.monotonic_s(), self.held_bytes)

    def held_bytes(self) -> int:
        """The bytes that `retention_bytes` counts."""
        return held_bytes(self._lanes)

    def _remove_oldest(
        self, lane: WrittenLane, wanted: Callable[[Sequence[SealedSegment], int], bool], *, rests: bool = True
    ) -> bool:
        """Remove a lane's oldest segments while they are `wanted`, at most `MOST_AT_ONCE`; False if none went.

        The segment of the newest full footer stays: the next footer is then a full one. If a guard raises, those before
        its segment are removed first.
        """
        count = 0
        try:
            while count < MOST_AT_ONCE and self._is_free(lane, count, rests=rests) and wanted(lane.view.sealed, count):
                oldest = lane.view.sealed[count]
                if lane.groups.known_at(lane.view.sealed)[0][-1:] == [oldest.segment.sequence]:
                    lane.groups.wants_full = True
                    break
                self._laps.goes_on(lane, count, self._clock.monotonic_s(), self.held_bytes())
                if not all([guard(lane, oldest) for guard in self.guards]):
                    break
                count += 1
        finally:
            if count:
                self._force()
                self._remove(lane, lane.view.sealed[: count + 1])
        return count > 0

    def _force(self) -> None:
        """What was written again of segments is on the device before these go. Raises as an append does.

        The guards have done so, or the parts by themselves before: new settings, a snapshot of a subscription.
        """
        if self._config.durability != "os":
            return  # it was durable before anybody went on
        barriers = [Barrier() for _ in self._lanes]
        self.pace.is_forcing = True
        try:
            for lane, barrier in zip(self._lanes, barriers, strict=True):
                lane.queue.put(barrier)
            for barrier in barriers:
                barrier.result()
        finally:
            self.pace.is_forcing = False

    def _remove(self, lane: WrittenLane, sealed: Sequence[SealedSegment]) -> None:
        """Remove a lane's oldest segments, all of these but the last one, in one step. Raises OSError."""
        *going, following = [one.segment for one in sealed]
        start = LaneStart(lane.index, self._store_id, following.sequence, following.header.messages_before)
        renamed = 0
        try:
            for segment in going:
                segment.removed = True  # from here on it keeps its file open
                segment.open_data()  # for readers that found it before, and know only its old name
                segment.unmap()
            write_start(self._disk, lane.folder, start)  # first: a file that is missing without this is damage
            for segment in going:
                self._disk.rename(segment.path, _retired(segment))
                renamed += 1
        finally:  # a segment that keeps its name is still there at the next opening
            for segment in going[renamed:]:
                segment.removed = False
            if renamed:
                self._forget(lane, sealed[:renamed])

    def _forget(self, lane: WrittenLane, gone: Sequence[SealedSegment]) -> None:
        """The files of a lane's oldest segments have lost their names. Raises OSError."""
        try:
            for count in self.counters:
                count(lane, gone)
        finally:
            lane.forget_oldest(len(gone))
        self.removed_segments += len(gone)
        self.pace.went()
        try:
            self._disk.force_folder(lane.folder)
        except OSError:
            self._retires = False  # a later removal could reach the device without this one: a gap
            raise
        for sealed in gone:
            # Its bytes are touched when the last of those readers has let go, not before; and not while Python ends.
            segment = sealed.segment
            told = lane, _retired(segment), segment.header.capacity_bytes
            weakref.finalize(segment, self._unused, *told).atexit = False
        self._removed(lane, gone)

    def _unused(self, lane: WrittenLane, path: Path, capacity_bytes: int) -> None:
        """Note that nothing reads a removed segment any more. Runs in the thread of its last reader."""
        self._retired.append((lane, path, capacity_bytes))

    def clear_away(self) -> None:
        """Keep one file a lane for recycling, remove the other retired ones: those of a lane with one force."""
        touched: list[WrittenLane] = []
        try:
            for _ in range(len(self._retired)):
                lane, path, capacity_bytes = self._retired[0]
                fits = not self.recyclable[lane.index] and capacity_bytes >= self._config.segment_bytes
                if fits and not self._is_shared(path):
                    self.recyclable[lane.index].append(path)
                else:
                    if lane not in touched:
                        touched.append(lane)
                    with contextlib.suppress(FileNotFoundError):  # the last time it was the force that failed
                        self._disk.remove(path)
                self._retired.popleft()  # not before: what fails is tried again
        finally:
            for lane in touched:
                self._disk.force_folder(lane.folder)

    def _is_shared(self, path: Path) -> bool:
        """Does another process still read a removed segment? Nobody new can: its name leads to it no longer."""
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return False  # the segment's next owner will see the error
        try:
            return file.is_shared()
        finally:
            file.close()

    def close(self) -> None:
        """Remove what was retired; nothing is kept for recycling. Raises OSError."""
        self.clear_away()
        for lane in self._lanes:
            for path in self.recyclable[lane.index]:
                self._disk.remove(path)


def _retired(segment: Segment) -> Path:
    """The name of a segment's file once it is removed from the log."""
    return segment.path.with_name(RETIRED_PREFIX + segment.path.stem)


class _OverLimit:
    """Whether retention by bytes wants a lane's segment to go: there is too much, and no other lane's is older."""

    def __init__(self, left_bytes: int, others_ms: int) -> None:
        self._left_bytes = left_bytes
        self._others_ms = others_ms

    def __call__(self, sealed: Sequence[SealedSegment], at: int) -> bool:
        if self._left_bytes <= 0 or (at and sealed[at].record.newest_ms > self._others_ms):
            return False
        self._left_bytes -= size_of(sealed[at])
        return True


class TrimmedSegments:
    """Finds segments without a readable message. Each is checked again when something has changed."""

    def __init__(self) -> None:
        self._looked: dict[int, tuple[int, int]] = {}  # by lane: (sequence, `shown`) of the newest look

    def can_go(self, lane: Lane, segments: Sequence[SealedSegment], at: int) -> bool:
        """Is all trimmed that a lane's segment holds? `at` is its number; those before it are about to go."""
        sealed = segments[at]
        shown = lane.lows.shown
        look = sealed.segment.sequence, shown
        if not shown or self._looked.get(lane.index) == look:
            return False
        try:
            footer = sealed.footer
        except StoreCorrupt:
            footer = None
        lows = lane.lows.column(lane.streams)
        if footer is not None and lows is not None:
            there = footer.counts > 0
            numbers = footer.numbers[there]
            held = numbers[footer.next_offsets[there] > lows[numbers]]
            # These records can be written again at the log's end, and upkeep's guards do so.
            if {*held.tolist()} <= {stream.number for stream in lane.hidden if is_said_again(stream.topic)}:
                return True
        self._looked[lane.index] = look
        return False
