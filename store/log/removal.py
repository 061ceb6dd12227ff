"""Retention: the oldest segments of the lanes are taken out of the log, and their files used again or removed."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ..config import StoreConfig
from ..device.clock import Clock
from ..device.disk import Disk
from ..device.lane_start import write_start
from ..format.layout import RETIRED_PREFIX
from ..format.store_files import LaneStart
from .lane import Lane
from .laps import Laps
from .retention import held_bytes, newest_ms
from .trims import Guard, TrimmedSegments


class Removal:
    """Removes sealed segments of all lanes.

    Invariants:
        * START says durably that a segment is not the log's any more, before its file is renamed;
        * a segment is taken from the readers' view before its file is reused;
        * the newest sealed segment of a lane is never removed: its footer is the lane's stream table.

    Attributes:
        guards: of the store's parts; each may keep a segment.
        allowance: bytes that these parts keep beside what `retention_bytes` leaves.
        recyclable: by lane, removed files that new segments may be made of.
    """

    def __init__(
        self, disk: Disk, config: StoreConfig, store_id: bytes, clock: Clock, removed: Callable[[Lane], None]
    ) -> None:
        """`removed(lane)` is called behind each removal."""
        self._disk = disk
        self._config = config
        self._store_id = store_id
        self._clock = clock
        self._removed = removed
        self._lanes: Sequence[Lane] = ()
        self._retired: deque[tuple[Lane, Path, int]] = deque()
        self._retires = True
        self._trimmed = TrimmedSegments()
        self._laps = Laps()
        self.recyclable: defaultdict[int, deque[Path]] = defaultdict(deque)
        self.guards: list[Guard] = []
        self.allowance: Callable[[], int] = int
        self.removed_segments = 0

    def start(self, lanes: Sequence[Lane]) -> None:
        """Take on the lanes."""
        self._lanes = lanes

    def retire(self) -> None:
        """Remove sealed segments: trimmed ones; by age and by bytes, oldest first (by the newest message in each)."""
        if not self._retires:
            return
        for lane in self._lanes:
            while self._is_free(lane) and self._trimmed.can_go(lane) and self._remove_oldest(lane):
                pass
        if self._config.retention_ms is not None:
            limit = self._clock.wall_ms() - self._config.retention_ms
            for lane in self._lanes:
                while self._is_free(lane) and newest_ms(lane.view.sealed) < limit and self._remove_oldest(lane):
                    pass
        if self._config.retention_bytes is not None:
            left = list(self._lanes)
            while self.held_bytes() > self._config.retention_bytes + self.allowance():
                left = [lane for lane in left if self._is_free(lane)]
                if not left:
                    return
                oldest = min(left, key=lambda lane: newest_ms(lane.view.sealed))
                if not self._remove_oldest(oldest):
                    left.remove(oldest)

    def _is_free(self, lane: Lane) -> bool:
        """Whether retention may ask for a lane's oldest segment: it has another sealed one, and no lap to rest from."""
        return len(lane.view.sealed) > 1 and not self._laps.rests(lane, self._clock.monotonic_s(), self.held_bytes())

    def held_bytes(self) -> int:
        """The bytes that `retention_bytes` counts."""
        return held_bytes(self._lanes)

    def _remove_oldest(self, lane: Lane) -> bool:
        """Remove a lane's oldest segment; False if a guard keeps it."""
        oldest = lane.view.sealed[0]
        self._laps.goes_on(lane, self._clock.monotonic_s(), self.held_bytes())
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

    def clear_away(self) -> None:
        """Keep one file a lane for recycling, remove the other retired ones."""
        while self._retired:
            lane, path, capacity_bytes = self._retired[0]
            fits = not self.recyclable[lane.index] and capacity_bytes >= self._config.segment_bytes
            if fits and not self._is_shared(path):
                self.recyclable[lane.index].append(path)
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

    def close(self) -> None:
        """Remove what was retired; nothing is kept for recycling. Raises OSError."""
        self.clear_away()
        for lane in self._lanes:
            for path in self.recyclable[lane.index]:
                self._disk.remove(path)
