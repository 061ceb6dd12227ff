"""A bucket on disk: its table and its set of pending entries in memory, and of its rows the next segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from .bitmaps import are_in, bitmap_of, memory_bytes
from .files import Files
from .format import (
    BUCKET_HEADER,
    BUCKET_MAGIC,
    HEADER_BYTES,
    LIVE_HEADER,
    LIVE_MAGIC,
    SUM,
    TABLE,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    VERSION,
    Listed,
    Packing,
    bucket_name,
    check_version,
    checksum,
    damaged,
    live_name,
    without_sum,
)
from .places import NO_ROWS, Rows

FIXED_BYTES = 2_000


class SealedBucket:
    """Entries of a bucket, taken from the front. Its file is never changed.

    Invariants:
        * `live` only loses places; a place that is added again goes into a later bucket.
        * A place leaves `live` for `gone`, and `gone` at the next checkpoint. What the disk says is pending here is
          `live` and `gone` together, so a crash brings back what was taken since the checkpoint, and nothing else.
        * Each place of the two has exactly one row in the segments, and those of `live` have it at the cursor or after.
    """

    def __init__(self, files: Files, listed: Listed) -> None:
        self._files = files
        self._name = bucket_name(listed.number)
        self.number = listed.number
        self.listed = listed
        self.live, self.gone = BitMap64(), BitMap64()
        self.count = 0  # of `live`
        self.last_taken = BitMap64()  # places that the last `take` gave
        self._next = 0  # segment
        self._kept_from = 0  # no segment before this one has a row of `live` or `gone`
        self._open: Rows = NO_ROWS  # the rest of the segment before it
        self._has_dead = False  # rows at or after the cursor that are not in `live`
        self._is_stale = False  # the files list places that are in a later bucket, and so not pending here
        self._read_ends()
        self.low, self.high = (self.live.min(), self.live.max()) if self.live else (0, -1)

    def _read_ends(self) -> None:
        """The header, the trailer, the table and the set of pending entries."""
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
        bitmap_at, bitmap_size, table_at, segments, bitmap_sum, table_sum = placed
        if (magic, end_magic) != (BUCKET_MAGIC, TRAILER_MAGIC) or not number == end_number == self.number:
            raise damaged(self._name)
        check_version(version, self._name)
        self.packing = Packing(width, first_ledger, spread)
        table = self._files.read(self._name, table_at, segments * TABLE.itemsize)
        if checksum(table) != table_sum:
            raise damaged(self._name)
        self._table: npt.NDArray[np.void] = np.frombuffer(table, TABLE)
        if self.listed.live_file:
            data = self._live_section()
        else:
            data = self._files.read(self._name, bitmap_at, bitmap_size)
            if checksum(data) != bitmap_sum:
                raise damaged(self._name)
        self.live = BitMap64.deserialize(data)
        self.live.remove_range(0, self.listed.floor)
        self.count = len(self.live)
        self._has_dead = self.count != self.rows

    def _live_section(self) -> bytes:
        name = live_name(self.listed.live_file)
        try:
            data = self._files.read(name, self.listed.live_at, self.listed.live_size)
        except FileNotFoundError:
            raise damaged(name) from None
        head, bitmap = data[: LIVE_HEADER.size], data[LIVE_HEADER.size + SUM.size :]
        if data[LIVE_HEADER.size :][: SUM.size] != SUM.pack(checksum(head + bitmap)) or len(data) < LIVE_HEADER.size:
            raise damaged(name)
        magic, version, _, _, number, size = LIVE_HEADER.unpack(head)
        check_version(version, name)
        if (magic, number, size) != (LIVE_MAGIC, self.number, len(bitmap)):
            raise damaged(name)
        return bitmap

    def live_section(self) -> bytes:
        """What is pending now, as a section of a live file."""
        self.live.run_optimize()
        bitmap = self.live.serialize()
        head = LIVE_HEADER.pack(LIVE_MAGIC, VERSION, 0, 0, self.number, len(bitmap))
        return head + SUM.pack(checksum(head + bitmap)) + bitmap

    @property
    def names(self) -> list[str]:
        """Of the files that it needs."""
        return [self._name, *([live_name(self.listed.live_file)] if self.listed.live_file else [])]

    @property
    def has_changed(self) -> bool:
        """Whether the disk says that more is pending here than what is."""
        return self._is_stale or bool(self.gone)

    @property
    def is_over(self) -> bool:
        """Nothing of it is pending, here or by what the disk says."""
        return not self.live and not self.gone

    @property
    def memory_bytes(self) -> int:
        """What it occupies in memory, about."""
        rows = sum(column.nbytes for column in self._open)
        return FIXED_BYTES + int(rows) + self._table.nbytes + memory_bytes(self.live) + memory_bytes(self.gone)

    # taking from the front

    @property
    def head_ms(self) -> int | None:
        """The time of the next row; None if there is none. The row may be dead."""
        if len(self._open[0]):
            return int(self._open[0][0])
        return int(self._table["first_ms"][self._next]) if self._next < len(self._table) else None

    @property
    def next_ms(self) -> int | None:
        """The time of the next pending row, without taking it; None if nothing is pending."""
        while self.count and self._has_dead:
            if not len(self._open[0]):
                self._open = self._segments(self._next, self._next + 1)
                self._next += 1
            times, places = self._open
            if int(places[0]) in self.live:
                break
            live = are_in(places, self.live)
            self._open = NO_ROWS if live is None else (times[live], places[live])
        return self.head_ms if self.count else None

    def take(self, until_ms: int, count: int) -> Rows:
        """The first rows that are pending, of one segment, or of several if `count` is more than one has."""
        if not len(self._open[0]):
            end = self._next + 1
            rows = int(self._table["rows"][self._next])
            while end < len(self._table) and rows < count and self._table["first_ms"][end] <= until_ms:
                rows += int(self._table["rows"][end])
                end += 1
            self._open = self._segments(self._next, end)
            self._next = end
        times, places = self._open
        end = min(count, int(np.searchsorted(times, until_ms, side="right")))
        self._open = times[end:], places[end:]
        times, places = times[:end], places[:end]
        if self._has_dead:
            live = are_in(places, self.live)
            if live is None:
                times, places = NO_ROWS
            else:
                times, places = times[live], places[live]
        self.last_taken = bitmap_of(places)
        self.live -= self.last_taken
        self.count -= len(places)
        self.gone |= self.last_taken
        return times, places

    def _segments(self, first: int, end: int) -> Rows:
        """The rows of these segments. Raises TrackerDamaged if one has wrong bytes; a second call tries again."""
        records = self._table[first:end]
        at, width = int(records["at"][0]), self.packing.width
        data = self._files.read(self._name, at, int(records["rows"].sum()) * width)
        view, begin = memoryview(data), 0
        for rows, expected in zip(records["rows"].tolist(), records["checksum"].tolist(), strict=True):
            if checksum(view[begin : begin + rows * width]) != expected:
                raise damaged(f"a segment of {self._name}")
            begin += rows * width
        return self.packing.unpacked(data, records)

    # leaving otherwise

    def cancel(self, place: int) -> bool:
        """Whether it was pending here."""
        if place not in self.live:
            return False
        self.live.remove(place)
        self.count -= 1
        self.gone.add(place)
        self._has_dead = True
        return True

    def trim(self, before_place: int) -> int:
        """Forget places below this one, also what the disk says of them; how many of them were pending."""
        before = self.count
        self.live.remove_range(0, before_place)
        self.count = len(self.live)
        self.gone.remove_range(0, before_place)
        self._has_dead = True
        self.listed = self.listed._replace(floor=max(self.listed.floor, before_place))
        return before - self.count

    def forget(self, places: BitMap64) -> None:
        """These places are in a later bucket on disk."""
        if not self.gone.isdisjoint(places):
            self.gone -= places
            self._is_stale = True  # the later bucket may drop them at a checkpoint, and this one must do so by then

    def forget_older(self, newer: BitMap64) -> None:
        """At an opening: places that a later bucket lists are not pending here."""
        if not self.live.isdisjoint(newer):
            self.live -= newer
            self._is_stale = True
            self.count = len(self.live)
            self._has_dead = True

    def checkpointed(self) -> None:
        """What was taken is durably so."""
        self.gone = BitMap64()
        self._is_stale = False
        self._kept_from = self._next - (1 if len(self._open[0]) else 0)

    # merging

    @property
    def rows_to_merge(self) -> int:
        """That `kept_rows` reads."""
        return int(self._table["rows"][self._kept_from :].sum())

    def kept_rows(self, part_rows: int) -> Iterator[Rows]:
        """All rows that the disk says are pending here, from the first one on, whatever was taken, in parts."""
        first, read, expected = self._kept_from, 0, self.rows_to_merge
        ends = np.cumsum(self._table["rows"][first:], dtype=np.int64)
        while read < expected:
            begin = int(np.searchsorted(ends, read, side="right"))
            end = max(begin + 1, int(np.searchsorted(ends, read + part_rows, side="right")))
            times, places = self._segments(first + begin, first + end)
            read += len(times)
            if self.count + len(self.gone) != self.rows:
                kept = _either(are_in(places, self.live), are_in(places, self.gone))
                if kept is None:
                    continue
                times, places = times[kept], places[kept]
            yield times, places
        if read != expected:
            raise damaged(f"the table of {self._name}")  # no source may be deleted then

    def take_over(self, sources: list[SealedBucket]) -> None:
        """Of a merged bucket: what is pending in it is what is pending in its sources now."""
        self.live, self.gone = BitMap64(), BitMap64()
        for source in sources:
            self.live |= source.live
            self.gone |= source.gone
        self.count = len(self.live)
        self._has_dead = self.count != self.rows
        heads = [head for source in sources if (head := source.head_ms) is not None]
        self._next = len(self._table)
        if heads:
            self._next = int(np.searchsorted(self._table["last_ms"], min(heads)))

    def places(self) -> BitMap64:
        """What the disk says is pending here."""
        return self.live | self.gone


def _either(one: npt.NDArray[np.bool_] | None, other: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    return other if one is None else one if other is None else one | other
