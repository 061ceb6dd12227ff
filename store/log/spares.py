"""Spares: segments of a lane that stand ready, at least their first part pre-written (R7)."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from pathlib import Path

from ..config import MIB, StoreConfig, TunedConfig
from ..device.disk import Disk
from ..errors import StoreFull
from ..format.layout import BLOCK_BYTES, RETIRED_PREFIX, align_up, segment_name
from ..segment.segment import Segment
from ..segment.writer import prewrite
from ..segment.zeros import first_bytes
from .reserve import Reserve, full
from .written_lane import WrittenLane

FIRST_SEGMENT_BYTES = 4 * MIB
SEGMENT_GROWTH = 4


class Spares:
    """The spares of one lane. Its builder takes them; the background, or the builder if it has none, makes them.

    Invariants:
        * a file has the name of a segment only once all of its space is reserved: until then it has a name of those
          that the next opening removes, so whatever interrupts its making leaves no half-made spare;
        * numbers follow each other without a gap, also on the device: a spare is listed when its name is durable, and
          the next one is made after that;
        * while one is ready, taking it waits for no other that is being made.
    """

    def __init__(self, disk: Disk, folder: Path, config: StoreConfig, recyclable: deque[Path], *, direct: bool) -> None:
        """`recyclable`: files of removed segments, to be used again."""
        self._disk = disk
        self._folder = folder
        self._config = config
        self._prewrites = TunedConfig.of(config).prewrite_bytes > 0
        self._recyclable = recyclable
        self._direct = direct
        self._ready: deque[tuple[int, int]] = deque()  # (sequence, bytes)
        self._last = (0, 0)  # of all segments and spares
        self.making = threading.RLock()
        self.reserve = Reserve(disk, folder, config, recyclable, self.making, direct=direct)
        self.prewritten_bytes = 0
        self.recycled_segments = 0

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def next_sequence(self) -> int:
        """The number of the lane's next segment. `making` is held, and nobody takes one."""
        return self._ready[0][0] if self._ready else self._last[0] + 1

    def attached(self, sequence: int, used_bytes: int) -> None:
        """Segments up to this number came from elsewhere, some in the place of spares. `making` is held.

        Args:
            used_bytes: of the segment before them. The next one need not be four times the size of one that was not
                filled.
        """
        while self._ready and self._ready[0][0] <= sequence:
            self._ready.popleft()
        if not self._ready:
            self._last = (sequence, min(used_bytes, self._last[1]))

    def found_segment(self, sequence: int, capacity_bytes: int) -> None:
        """A segment in use, found when the folder was opened."""
        self._last = max(self._last, (sequence, capacity_bytes))

    def found(self, sequence: int, size_bytes: int) -> None:
        """A pre-written file that no frame was ever forced to, found when the folder was opened."""
        self._ready.append((sequence, size_bytes))
        self._last = max(self._last, (sequence, size_bytes))

    def take(self, lane: WrittenLane, at_least_bytes: int, store_id: bytes) -> Segment:
        """The lane's next segment, made on the spot if none is ready. One thread at a time.

        Raises StoreFull; FileNotFoundError where the lane's folder or the spare has gone.
        """
        if not self._ready:
            with self.making:
                if not self._ready:  # else the background was just making it
                    self.make(self._next_capacity(at_least_bytes), at_least_bytes)
        sequence, size = self._ready[0]
        if size < at_least_bytes:
            size = self._extend(sequence, size, at_least_bytes)
        segment = self._opened(lane, sequence, size, store_id)
        self._ready.popleft()
        return segment

    def take_reserve(self, lane: WrittenLane, at_least_bytes: int, store_id: bytes) -> Segment:
        """Make the lane's reserve its next segment, for records. Raises StoreFull, FileNotFoundError.

        A spare goes first, since numbers follow each other: it was a reserve before a crash, or too small for `take`.
        """
        with self.making:
            if self._ready:
                return self.take(lane, at_least_bytes, store_id)
            sequence = self._last[0] + 1
            path, footer_bytes = self._folder / segment_name(sequence), lane.footer_room.fixed_bytes
            size = self.reserve.become(path, at_least_bytes, footer_bytes)
            self._last = (sequence, self._last[1])  # the next one is as large as if this one were not
            self._ready.append((sequence, size))
            segment = self._opened(lane, sequence, size, store_id)
            self._ready.popleft()
        return segment

    def _opened(self, lane: WrittenLane, sequence: int, size: int, store_id: bytes) -> Segment:
        segment = Segment(self._disk, self._folder, lane.next_header(sequence, size, store_id), direct=self._direct)
        try:
            segment.open_writer()  # now: once there is a frame for it, a refusal would cost more than this append
            segment.writer.find_zeros()
        except OSError as error:
            raise _full(error, size) from error
        return segment

    def keep_ahead(self) -> None:
        """Make one if none is ready. Raises StoreFull."""
        with self.making:
            if not self._ready:
                self.make(self._next_capacity())

    def fill_up(self, size_bytes: int) -> None:
        """Have spares of `size_bytes` in all. Raises StoreFull; then none that was made is kept."""
        kept = len(self._ready)
        missing = size_bytes - sum(size for _, size in self._ready)
        free = self._disk.free_bytes(self._folder)
        if missing > free:  # else the disk would be filled before the error is known
            raise StoreFull(
                f"prewrite_bytes wants {missing} more bytes for a lane, and its file system has {free}. Ask for less, "
                "or free some space. Nothing was written."
            )
        try:
            while sum(size for _, size in self._ready) < size_bytes:
                self.make(self._config.segment_bytes, self._config.segment_bytes)
        except StoreFull:
            self.give_back(kept)
            raise

    def give_back(self, kept: int = 0) -> None:
        """Remove all but the first, the newest first and each durably: a crash in between leaves no gap."""
        with contextlib.suppress(OSError):
            while len(self._ready) > kept:
                self._disk.remove(self._folder / segment_name(self._ready[-1][0]))
                self._disk.force_folder(self._folder)
                self._ready.pop()

    def _next_capacity(self, at_least_bytes: int = 0) -> int:
        """Small stores have small segments: each is four times the one before, up to the full size."""
        full = self._config.segment_bytes
        grown = full if self._prewrites else max(FIRST_SEGMENT_BYTES, self._last[1] * SEGMENT_GROWTH)
        return max(min(full, grown), align_up(at_least_bytes))

    def make(self, capacity_bytes: int, zeros_bytes: int = 0) -> None:
        """Make the next one, and write `zeros_bytes` of zeros into it at least. Raises StoreFull."""
        first = max(first_bytes(capacity_bytes), align_up(zeros_bytes))
        with self.making:
            sequence = self._last[0] + 1
            path = self._folder / segment_name(sequence)
            fresh = path.with_name(RETIRED_PREFIX + path.stem)
            recycled = self._recycle(capacity_bytes)
            try:
                if not recycled:
                    self.prewritten_bytes += prewrite(
                        self._disk, fresh, capacity_bytes, direct=self._direct, first_bytes=first
                    )
                    self._disk.rename(fresh, path)
                else:
                    self._disk.rename(self._recyclable[0], path)
                    self._recyclable.popleft()
                self._disk.force_folder(self._folder)
            except BaseException as error:  # also an interrupt: no half-made segment stays
                for name in (fresh, path):
                    with contextlib.suppress(OSError):
                        self._disk.remove(name)
                if isinstance(error, OSError):
                    raise _full(error, capacity_bytes) from error
                raise
            self.recycled_segments += recycled
            self._last = (sequence, capacity_bytes)
            self._ready.append((sequence, capacity_bytes))

    def _recycle(self, capacity_bytes: int) -> bool:
        """Give the next file of a removed segment the size of the spare, and no seal record: it is pre-written already.

        False if there is none. Raises StoreFull; the file is then still there.
        """
        if not self._recyclable:
            return False
        path = self._recyclable[0]
        try:
            file = self._disk.open(path)
            try:
                size = file.size()
                if size > capacity_bytes:
                    file.truncate(capacity_bytes)
                # A crash in the middle of the next segment's first write must not leave a part of this seal record.
                file.write([bytes(BLOCK_BYTES)], BLOCK_BYTES)
                file.force()
            finally:
                file.close()
            if size < capacity_bytes:
                prewrite(self._disk, path, capacity_bytes, direct=self._direct, begin=size & -BLOCK_BYTES)
        except FileNotFoundError:
            self._recyclable.popleft()  # somebody has removed it
            return False
        except OSError as error:
            raise _full(error, capacity_bytes) from error
        return True

    def _extend(self, sequence: int, size: int, at_least_bytes: int) -> int:
        """Make the first one large enough for one message that is larger than it."""
        wanted = align_up(at_least_bytes)
        try:
            prewrite(self._disk, self._folder / segment_name(sequence), wanted, direct=self._direct, begin=size)
        except OSError as error:
            raise _full(error, wanted) from error
        with self.making:
            self._ready[0] = (sequence, wanted)
            self._last = max(self._last, (sequence, wanted))
        return wanted


def _full(error: OSError, size: int) -> Exception:
    return full(error, f"another segment of {size} bytes")
