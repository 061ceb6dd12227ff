"""A bucket on disk: memory has the directories that find its rows, and the rows of the next segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from .files import Files
from .format import (
    BUCKET_HEADER,
    BUCKET_MAGIC,
    HEADER_BYTES,
    PAGES,
    TABLE,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    ListedBucket,
    Packing,
    PendingRows,
    bucket_name,
    check_version,
    checksum,
    damaged,
    left_name,
    without_sum,
)
from .pages import PageCache, Pages
from .places import NO_ROWS, Rows, are_in, bitmap_of, memory_bytes, rows_until

FIXED_BYTES = 2_000
NO_MORE = ((1 << 63) - 1, 0)  # the cut of a bucket without a next row

Bools = npt.NDArray[np.bool_]


class SealedBucket:
    """Entries of a bucket, taken from the front. Its file is never changed.

    A row is pending if its (time, place) is at or after the *cut*, the position of the next row; if its place is at or
    above the floor; and if it is not in `dead`. These are the current values; `disk` has those of the last checkpoint,
    which come back after a crash.

    Invariants:
        * rows only stop being pending; an entry that is added again goes into a later bucket;
        * `dead` has places of rows at the cut or after it, and not below the floor;
        * `count` rows are pending now, and `disk.rows` on disk.
    """

    def __init__(self, files: Files, listed: ListedBucket, cache: PageCache) -> None:
        self._files = files
        self._name = bucket_name(listed.number)
        self.number = listed.number
        self.listed = listed
        self._open: Rows = NO_ROWS  # the rest of the segments before `_next`
        self._read_ends(cache)
        directory = self._directory
        self.low, self.high = (int(directory["first"][0]), int(directory["last"][-1])) if len(directory) else (0, -1)
        if listed.left_file:
            self.disk = PendingRows.of_section(self._left_section(), self.number, left_name(listed.left_file))
        else:
            self.disk = PendingRows(self._begin_of(0), 0, BitMap64(), self.rows)
        self.become(self.disk)

    def become(self, left: PendingRows) -> None:
        """Set the pending rows."""
        self.dead, self.floor, self.count = left.dead.copy(), left.floor, left.rows
        self._open, self._cut = NO_ROWS, left.cut
        self._next = max(0, self._segment_of(left.cut))

    def _read_ends(self, cache: PageCache) -> None:
        """Read the header, the trailer, the table of segments and the directory of pages."""
        size = self.listed.size
        try:
            if self._files.size(self._name) != size:
                raise damaged(self._name)
            header = without_sum(self._files.read(self._name, 0, HEADER_BYTES), self._name)
            ends = without_sum(self._files.read(self._name, size - TRAILER_BYTES, TRAILER_BYTES), self._name)
        except FileNotFoundError:
            raise damaged(self._name) from None
        magic, version, width, _, number, first_ledger, spread = BUCKET_HEADER.unpack(header)
        end_magic, _, _, _, end_number, self.rows, *placed = TRAILER.unpack(ends)
        table_at, segments, pages, ledgers, tables_sum, sure_from = placed
        if (magic, end_magic) != (BUCKET_MAGIC, TRAILER_MAGIC) or not number == end_number == self.number:
            raise damaged(self._name)
        check_version(version, self._name)
        self.packing = Packing(width, first_ledger, spread)
        directory_at = segments * TABLE.itemsize
        ends_at = directory_at + pages * PAGES.itemsize
        tables = self._files.read(self._name, table_at, ends_at + 8 * ledgers)
        if checksum(tables) != tables_sum:
            raise damaged(self._name)
        self._table: npt.NDArray[np.void] = np.frombuffer(tables, TABLE, segments).copy()
        self._directory: npt.NDArray[np.void] = np.frombuffer(tables, PAGES, pages, directory_at).copy()
        self._ends = np.frombuffer(tables, np.int64, ledgers, ends_at), int(sure_from)
        self.pages = Pages(self._files, self._name, self._directory, cache)

    def take_ends(self) -> tuple[Int64s, int]:
        """The ends of its ledgers, for `LedgerEnds.note`. They are read once, and not kept."""
        ends, self._ends = self._ends, (NO_ROWS[0], 0)
        return ends

    def _left_section(self) -> bytes:
        name = left_name(self.listed.left_file)
        try:
            return self._files.read(name, self.listed.left_at, self.listed.left_size)
        except FileNotFoundError:
            raise damaged(name) from None

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [self._name, *([left_name(self.listed.left_file)] if self.listed.left_file else [])]

    @property
    def _now(self) -> PendingRows:
        return PendingRows(self.cut, self.floor, self.dead, self.count)

    @property
    def left(self) -> PendingRows:
        """A copy of the current pending rows, for a checkpoint."""
        return self._now._replace(dead=self.dead.copy())

    @property
    def has_changed(self) -> bool:
        """Whether more rows are pending on disk than now."""
        return self.count != self.disk.rows

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes, about."""
        rows = sum(column.nbytes for column in self._open)
        tables = self._table.nbytes + self.pages.memory_bytes
        return FIXED_BYTES + int(rows) + tables + sum(memory_bytes(one) for one in (self.dead, self.disk.dead) if one)

    # pending rows

    def look(self, places: Int64s) -> tuple[Bools, Bools]:
        """(n,) which places, ascending, are pending here now, and which are pending on disk.

        Raises TrackerDamaged, OSError.
        """
        found, times = self.pages.find(places)
        return found & _pending(self._now, times, places), found & _pending(self.disk, times, places)

    def pending_between(self, first: int, before: int) -> Iterator[Int64s]:
        """The pending places `first` .. `before` - 1, ascending, in parts."""
        now = self._now
        for times, places in self.pages.between(first, before):
            yield places[_pending(now, times, places)]

    # taking from the front

    @property
    def cut(self) -> tuple[int, int]:
        """(time, place) of the next row, which may be dead; NO_MORE if there is none."""
        if len(self._open[0]):
            return int(self._open[0][0]), int(self._open[1][0])
        return max(self._cut, self._begin_of(self._next))

    def _begin_of(self, segment: int) -> tuple[int, int]:
        if segment >= len(self._table):
            return NO_MORE
        return int(self._table["first_ms"][segment]), int(self._table["first_place"][segment])

    def _segment_of(self, cut: tuple[int, int]) -> int:
        """The segment with the first row at or after the cut, or the one before it; -1: it is before all of them."""
        low, high = np.searchsorted(self._table["first_ms"], cut[:1]), len(self._table)
        high = int(np.searchsorted(self._table["first_ms"], cut[0], side="right"))
        places = self._table["first_place"][int(low[0]) : high]
        return int(low[0]) + int(np.searchsorted(places, cut[1], side="right")) - 1

    @property
    def head_ms(self) -> int | None:
        """The time of the next row; None if there is none. The row may be dead."""
        time_ms = self.cut[0]
        return None if time_ms == NO_MORE[0] else time_ms

    @property
    def next_ms(self) -> int | None:
        """The time of the next pending row, which is not taken; None if none is pending."""
        while self.count and (self.dead or self.floor or self._cut > self._begin_of(self._next)):
            if not len(self._open[0]):
                self._load(self._next + 1)
                continue
            times, places = self._open
            if int(places[0]) >= self.floor and int(places[0]) not in self.dead:
                break
            alive = _pending(self._now, times, places)
            passed = int(alive.argmax()) if alive.any() else len(alive)
            self._alive(times[:passed], places[:passed])
            self._open = times[passed:], places[passed:]
        return self.head_ms if self.count else None

    def take(self, until_ms: int, count: int) -> Rows:
        """Take the first pending rows, of one segment, or of several if `count` is more than one has."""
        if not len(self._open[0]):
            end = self._next + 1
            rows = int(self._table["rows"][self._next])
            while end < len(self._table) and rows < count and self._table["first_ms"][end] <= until_ms:
                rows += int(self._table["rows"][end])
                end += 1
            self._load(end)
        times, places = self._open
        end = min(count, int(np.searchsorted(times, until_ms, side="right")))
        self._open = times[end:], places[end:]
        times, places = self._alive(times[:end], places[:end])
        self.count -= len(places)
        return times, places

    def _load(self, end: int) -> None:
        """Load the rows of the next segments, up to `end`."""
        rows = self._segments(self._next, end)
        if self._cut > self._begin_of(self._next):
            passed = rows_until(rows, self._cut[0], self._cut[1] - 1)
            rows = rows[0][passed:], rows[1][passed:]
        self._open, self._next = rows, end

    def _alive(self, times: Int64s, places: Int64s) -> Rows:
        """The pending ones of some rows, all of which are passed for good."""
        kept = np.ones(len(places), np.bool_) if not self.floor else places >= self.floor
        if self.dead and (dead := are_in(places, self.dead)) is not None:
            self.dead -= bitmap_of(places[dead])
            kept &= ~dead
        return (times, places) if kept.all() else (times[kept], places[kept])

    def _segments(self, first: int, end: int) -> Rows:
        """The rows of these segments. Raises TrackerDamaged if one has wrong bytes."""
        records = self._table[first:end]
        at, width = int(records["at"][0]), self.packing.width
        data = self._files.read(self._name, at, int(records["rows"].sum()) * width)
        view, begin = memoryview(data), 0
        for rows, expected in zip(records["rows"].tolist(), records["checksum"].tolist(), strict=True):
            if checksum(view[begin : begin + rows * width]) != expected:
                raise damaged(f"a segment of {self._name}")
            begin += rows * width
        return self.packing.unpacked(data, records)

    # other ways to leave

    def kill(self, places: Int64s) -> None:
        """These pending places are not pending any more."""
        self.dead |= bitmap_of(places)
        self.count -= len(places)

    def trim(self, before_place: int) -> tuple[PendingRows, int]:
        """The pending rows for the disk, and the number of pending rows, without places below `before_place`."""
        on_disk = now = 0
        left = self._now
        for times, places in self.pages.between(self.disk.floor, before_place):
            on_disk += int(_pending(self.disk, times, places).sum())
            now += int(_pending(left, times, places).sum())
        dead = self.disk.dead.copy()
        dead.remove_range(0, before_place)
        floor = max(self.disk.floor, before_place)
        return PendingRows(self.disk.cut, floor, dead, self.disk.rows - on_disk), self.count - now

    def trimmed(self, before_place: int, count: int) -> None:
        """The disk has them: apply `trim`."""
        self.floor, self.count = max(self.floor, before_place), count
        self.dead.remove_range(0, before_place)

    # merging

    def rows_to_merge(self, left: PendingRows) -> int:
        """The number of rows that `kept_rows` reads."""
        return int(self._table["rows"][max(0, self._segment_of(left.cut)) :].sum())

    def kept_rows(self, left: PendingRows, part_rows: int) -> Iterator[Rows]:
        """The rows that are pending by `left`, in order, in parts."""
        first = max(0, self._segment_of(left.cut))
        ends = np.cumsum(self._table["rows"][first:], dtype=np.int64)
        read, expected = 0, self.rows_to_merge(left)
        while read < expected:
            begin = int(np.searchsorted(ends, read, side="right"))
            end = max(begin + 1, int(np.searchsorted(ends, read + part_rows, side="right")))
            times, places = self._segments(first + begin, first + end)
            read += len(times)
            kept = _pending(left, times, places)
            yield times[kept], places[kept]

    def kept_places(self, left: PendingRows, part_rows: int) -> Iterator[Rows]:
        """The rows of `kept_rows`, in the order of places."""
        for times, places in self.pages.parts(part_rows):
            kept = _pending(left, times, places)
            yield times[kept], places[kept]

    def passed(self, since: PendingRows, low: tuple[int, int], until: tuple[int, int]) -> BitMap64:
        """The places of rows that were pending by `since`, from (time, place) `low` to before `until`."""
        found = BitMap64()
        for segment in range(max(0, self._segment_of(max(low, since.cut))), len(self._table)):
            if self._begin_of(segment) >= until:
                break
            times, places = self._segments(segment, segment + 1)
            kept = _pending(since, times, places) & ~_before(low, times, places) & _before(until, times, places)
            found |= bitmap_of(places[kept])
        return found


def _before(cut: tuple[int, int], times: Int64s, places: Int64s) -> Bools:
    """(n,) which rows come before (time, place)."""
    time_ms, place = cut
    found: Bools = (times < time_ms) | ((times == time_ms) & (places < place))
    return found


def _pending(left: PendingRows, times: Int64s, places: Int64s) -> Bools:
    """(n,) which rows are pending by `left`."""
    found = ~_before(left.cut, times, places)
    if left.floor:
        found &= places >= left.floor
    if left.dead and (dead := are_in(places, left.dead)) is not None:
        found &= ~dead
    return found


def merged_left(
    bucket: SealedBucket, sources: list[SealedBucket], starts: list[PendingRows], lefts: list[PendingRows]
) -> PendingRows:
    """The pending rows of a bucket that was merged from sources: `starts` at the start of the merge, `lefts` now.

    Rows that left a source since then are before the least cut of all, or in `dead`: the sources are taken from
    together, so their cuts lie near each other.
    """
    cut = min(left.cut for left in lefts)
    floor = max((left.floor for start, left in zip(starts, lefts, strict=True) if left.floor > start.floor), default=0)
    dead = BitMap64()
    for source, start, left in zip(sources, starts, lefts, strict=True):
        dead |= left.dead - start.dead
        dead |= source.passed(start, max(cut, start.cut), left.cut)
    dead.remove_range(0, floor)
    return PendingRows(max(cut, bucket.disk.cut), floor, dead, sum(left.rows for left in lefts))
