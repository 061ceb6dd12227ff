"""What is done in the background: segments made ahead (R7), full ones sealed, old ones removed, "os" forces.

One thread for the whole store, woken by what there is to do and otherwise twice a second.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from .config import MIB, StoreConfig
from .disk import Disk
from .errors import StoreCorrupt, StoreFull
from .footer import Footer
from .format import BLOCK_BYTES, RETIRED_PREFIX, align_up, segment_name
from .lane import Lane
from .sealing import Ended, StreamNames, let_go, rows_of, seal
from .segment import Segment, prewrite
from .write import FullSegment

FIRST_SEGMENT_BYTES = 4 * MIB
SEGMENT_GROWTH = 4
TICK_S = 0.5
WARM_AHEAD_BYTES = 16 * MIB
DROP_BYTES = 4 * MIB


class Upkeep:
    """Makes, seals, recycles and removes the segments of all lanes.

    Invariants:
        * a segment file's name is durable before a lane writes to it;
        * a segment is taken from the readers' view before its file is reused;
        * the newest sealed segment of a lane is never removed: its footer is the lane's stream table.
    """

    def __init__(
        self, disk: Disk, folder: Path, config: StoreConfig, store_id: bytes, clock_ms: Callable[[], int],
        force: Callable[[], None], mark: Callable[[Lane], None],
        removed: Callable[[Lane], None], *, direct: bool,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._folder = folder
        self._config = config
        self._store_id = store_id
        self._clock_ms = clock_ms
        self._force = force
        self._mark = mark
        self._removed = removed
        self.direct = direct
        self._spares: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)  # (sequence, bytes)
        self._last: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._recyclable: defaultdict[int, deque[Path]] = defaultdict(deque)
        self._retired: deque[tuple[Lane, Path, int]] = deque()
        self._full: deque[tuple[Lane, FullSegment]] = deque()
        self._dropped: dict[int, tuple[int, int]] = {}  # lane -> (sequence, position) up to which pages are gone
        self._names: defaultdict[int, StreamNames] = defaultdict(StreamNames)
        self._lanes: Sequence[Lane] = ()
        self._making = threading.RLock()
        self._wake = threading.Event()
        self._closing = False
        self._retires = True
        self._wake.set()
        self.reads_alone = False  # of new segments
        self.prewritten_bytes = 0
        self.recycled_segments = 0
        self.removed_segments = 0
        self.last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="stratalog-upkeep", daemon=True)

    def start(self, lanes: Sequence[Lane]) -> None:
        """Take on the lanes; their folders' spares were reported with `found_spare` before."""
        self._lanes = lanes
        share = self._config.prewrite_bytes // max(1, len(lanes))
        with contextlib.ExitStack() as undo:  # newest first: a crash in between leaves no gap in the numbers
            for lane in lanes:
                while sum(size for _, size in self._spares[lane.index]) < share:
                    self._make_spare(lane, self._config.segment_bytes)
                    undo.callback(self._remove_spare, lane, self._last[lane.index][0])
                if share:
                    lane.ring.warm_up(lane.tail + share)  # the first appends pay for neither disk nor memory
            undo.pop_all()
        self._thread.start()

    def _remove_spare(self, lane: Lane, sequence: int) -> None:
        """Where there is no space for all that was asked for, none of it is kept."""
        with contextlib.suppress(OSError):
            self._disk.remove(lane.folder / segment_name(sequence))

    def found_segment(self, lane: int, sequence: int, capacity_bytes: int) -> None:
        """A segment in use, found when the folder was opened."""
        self._last[lane] = max(self._last[lane], (sequence, capacity_bytes))

    def found_spare(self, lane: int, sequence: int, size_bytes: int) -> None:
        """A pre-written file that no frame was ever forced to, found when the folder was opened."""
        self._spares[lane].append((sequence, size_bytes))
        self._last[lane] = max(self._last[lane], (sequence, size_bytes))

    # -- segments for the lanes -----------------------------------------------------------------------

    def next_segment(self, lane: Lane, at_least_bytes: int) -> Segment:
        """The lane's next segment, made on the spot if none is ready. Raises StoreFull."""
        with self._making:
            if not self._spares[lane.index]:
                self._make_spare(lane, self._next_capacity(lane.index, at_least_bytes))
            sequence, size = self._spares[lane.index][0]
            if size < at_least_bytes:
                size = self._extend(lane, sequence, size, at_least_bytes)
            header = lane.next_header(sequence, size, self._store_id)
            segment = Segment(self._disk, lane.folder, header, direct=self.direct)
            segment.reads_alone = self.reads_alone
            try:
                segment.open_log()  # now: once there is a frame for it, a refusal would cost more than this append
            except OSError as error:
                raise _full(error, size) from error
            self._spares[lane.index].popleft()
        self._wake.set()
        return segment

    def segment_full(self, lane: Lane, full: FullSegment) -> None:
        """All of a segment's frames are forced: seal it soon."""
        self._full.append((lane, full))
        self._wake.set()

    def spare_count(self) -> int:
        """Segments that stand ready."""
        return sum(len(spares) for spares in self._spares.values())

    def _next_capacity(self, lane: int, at_least_bytes: int = 0) -> int:
        """Small stores have small segments: each is four times the one before, up to the full size."""
        full = self._config.segment_bytes
        grown = full if self._config.prewrite_bytes else max(FIRST_SEGMENT_BYTES, self._last[lane][1] * SEGMENT_GROWTH)
        return max(min(full, grown), align_up(at_least_bytes))

    def _make_spare(self, lane: Lane, capacity_bytes: int) -> None:
        with self._making:
            sequence = self._last[lane.index][0] + 1
            path = lane.folder / segment_name(sequence)
            try:
                if not self._recycle(lane, path, capacity_bytes):
                    prewrite(self._disk, path, capacity_bytes, direct=self.direct)
                    self.prewritten_bytes += capacity_bytes
                self._disk.force_folder(lane.folder)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._disk.remove(path)
                raise _full(error, capacity_bytes) from error
            self._last[lane.index] = (sequence, capacity_bytes)
            self._spares[lane.index].append((sequence, capacity_bytes))

    def _recycle(self, lane: Lane, path: Path, capacity_bytes: int) -> bool:
        """Give a removed segment's file a new name and sequence: its blocks are pre-written already."""
        files = self._recyclable[lane.index]
        if not files:
            return False
        try:
            self._disk.rename(files[0], path)
        except FileNotFoundError:
            files.popleft()  # somebody has removed it
            return False
        files.popleft()
        file = self._disk.open(path)
        try:
            size = file.size()
            if size > capacity_bytes:
                file.truncate(capacity_bytes)
        finally:
            file.close()
        if size < capacity_bytes:
            prewrite(self._disk, path, capacity_bytes, direct=self.direct, begin=size & -BLOCK_BYTES)
        self.recycled_segments += 1
        return True

    def _extend(self, lane: Lane, sequence: int, size: int, at_least_bytes: int) -> int:
        """Make a spare large enough for one message that is larger than it."""
        wanted = align_up(at_least_bytes)
        try:
            prewrite(self._disk, lane.folder / segment_name(sequence), wanted, direct=self.direct, begin=size)
        except OSError as error:
            raise _full(error, wanted) from error
        self._last[lane.index] = max(self._last[lane.index], (sequence, wanted))
        return wanted

    # -- the background -------------------------------------------------------------------------------

    def _run(self) -> None:
        forced = time.monotonic()
        interval_s = self._config.flush_interval_ms / 1000
        lazy = self._config.durability == "os"
        while not self._closing:
            self._wake.wait(min(TICK_S, interval_s) if lazy else TICK_S)
            self._wake.clear()
            if lazy and time.monotonic() - forced >= interval_s:
                forced = time.monotonic()
                self._try(self._force)
            # Each for itself: on a full disk no spare can be made, and retention is what helps.
            for task in (
                self._warm, self._drop_pages, self._seal_full, self._retire, self._clear_away, self._keep_ahead
            ):  # fmt: skip
                self._try(task)
            self._try(self._mark_quiet)

    def _try(self, task: Callable[[], None]) -> None:
        try:
            task()
        except StoreFull as error:
            self.last_error = str(error)  # the lane that needs the segment reports it to its producers
        except Exception as error:  # also a bug, or no memory: without this thread nothing would be sealed any more
            self.last_error = f"background work failed, and is tried again: {str(error) or type(error).__name__}"

    def _warm(self) -> None:
        for lane in self._lanes:
            lane.ring.warm_up(lane.tail + WARM_AHEAD_BYTES)

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
        """End the thread, whatever is left to do."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Seal what is full and end. The lanes must have ended."""
        self.stop()
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

    def _seal_full(self) -> None:
        while self._full:
            lane, full = self._full[0]
            self.seal_now(lane, full)
            self._full.popleft()
            rows = rows_of(full.table)
            del full
            let_go(rows)

    def seal_now(self, lane: Lane, full: FullSegment) -> None:
        """Write a segment's footer and let readers use it. Raises OSError; the segment then stays open."""
        if not full.segment.direct:
            full.segment.drop_pages(0, full.data_end)
        before: Footer | Ended | None = None
        if lane.view.sealed:
            try:
                before = lane.view.sealed[-1].footer
            except StoreCorrupt:  # and its segment cannot tell either: that costs no other segment its footer
                before = Ended(full.table.first_offsets())
        lane.replace_open(seal(self._disk, full, lane.streams, self._names[lane.index], before))

    def _keep_ahead(self) -> None:
        """One spare a lane, once its segment is half full."""
        for lane in self._lanes:
            segment = lane.segment
            if segment is None or segment.base is None or self._spares[lane.index]:
                continue
            if (lane.tail - segment.base) * 2 > segment.header.capacity_bytes:
                self._make_spare(lane, self._next_capacity(lane.index))

    def look(self) -> None:
        """A lane has got on: look soon whether it needs anything."""
        self._wake.set()

    # -- retention ------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Remove sealed segments by age and by bytes, oldest first (by the newest message in each)."""
        if not self._retires:
            return
        if self._config.retention_ms is not None:
            limit = self._clock_ms() - self._config.retention_ms
            for lane in self._lanes:
                while len(lane.view.sealed) > 1 and _newest_ms(lane) < limit:
                    self._remove_oldest(lane)
        if self._config.retention_bytes is not None:
            while self._held_bytes() > self._config.retention_bytes:
                lanes = [lane for lane in self._lanes if len(lane.view.sealed) > 1]
                if not lanes:
                    return
                self._remove_oldest(min(lanes, key=_newest_ms))

    def _held_bytes(self) -> int:
        total = 0
        for lane in self._lanes:
            total += sum(sealed.record.footer_position + sealed.record.footer_bytes for sealed in lane.view.sealed)
            total += sum(opened.segment.header.capacity_bytes for opened in lane.view.open)
        return total

    def _remove_oldest(self, lane: Lane) -> None:
        oldest = lane.view.sealed[0]
        segment = oldest.segment
        retired = segment.path.with_name(RETIRED_PREFIX + segment.path.stem)
        segment.removed = True  # from here on it keeps its file open
        try:
            segment.open_data()  # for the readers who found it before, and know only its old name
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

    def _unused(self, lane: Lane, path: Path, capacity_bytes: int) -> None:
        """Nobody reads a removed segment any more. Runs in whichever thread was the last."""
        self._retired.append((lane, path, capacity_bytes))

    def _clear_away(self) -> None:
        """Keep one file a lane for recycling, remove the other retired ones."""
        while self._retired:
            lane, path, capacity_bytes = self._retired[0]
            if not self._recyclable[lane.index] and capacity_bytes >= self._config.segment_bytes:
                self._recyclable[lane.index].append(path)
            else:
                with contextlib.suppress(FileNotFoundError):  # the last time it was the force that failed
                    self._disk.remove(path)
                self._disk.force_folder(lane.folder)
            self._retired.popleft()  # not before: what fails is tried again


def _newest_ms(lane: Lane) -> int:
    """When the newest message of the lane's oldest sealed segment was written; that segment is not the only one.

    Where damage hides it, the oldest segment counts as being as young as the first one that tells. The newest one
    counts as young in any case: retention by age then leaves them all.
    """
    for sealed in lane.view.sealed:
        with contextlib.suppress(StoreCorrupt):
            return int(sealed.footer.time_max_ms)
    return sys.maxsize


def _full(error: OSError, size: int) -> StoreFull:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(
            f"no space for another segment of {size} bytes ({error.strerror}). Nothing was written; free some "
            f"space, or lower segment_bytes, and append again."
        )
    return StoreFull(f"another segment of {size} bytes could not be made: {error}. Nothing was written.")
