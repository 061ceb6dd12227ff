"""Writes a bucket's file: rows come in parts, by time and then by place, and go out as segments and pages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..columns import Int64s
from .files import Files
from .format import (
    BUCKET_HEADER,
    BUCKET_MAGIC,
    HEADER_BYTES,
    TABLE,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    VERSION,
    ListedBucket,
    Packing,
    bucket_name,
    checksum,
    with_sum,
)
from .pages import MOST_ENDS, PageCache, ends_of, packed_pages
from .places import ENTRY_BITS, Rows
from .sealed_bucket import SealedBucket

JOINED_ENDS = 64
GATHERED_ROWS = 1 << 16  # so that a small part does not cut a segment
FLUSHED_BYTES = 8 << 20  # else the end of a merge would wait for all bytes that it has written
MOST_DELTA_MS = (1 << 32) - 1


class SegmentRule:
    """The ends of segments: at a span of time, and after a number of rows."""

    def __init__(self, span_ms: int, most_rows: int) -> None:
        self.span_ms = span_ms
        self.most_rows = most_rows

    def cuts(self, times: Int64s) -> npt.NDArray[np.intp]:
        """The first row of each segment of these rows."""
        spans = times // self.span_ms
        begins = np.append(0, np.flatnonzero(spans[1:] != spans[:-1]) + 1)
        rows = np.diff(begins, append=len(times))
        parts = -(-rows // self.most_rows)
        if len(parts) == int(parts.sum()):
            return begins
        number = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
        found: npt.NDArray[np.intp] = np.repeat(begins, parts) + number * self.most_rows
        return found


class BucketWriter:
    """One bucket's file while it is written. It counts for nothing until the manifest lists it."""

    def __init__(self, files: Files, number: int, packing: Packing, rule: SegmentRule) -> None:
        self._files = files
        self._name = bucket_name(number)
        self._number = number
        self._packing = packing
        self._rule = rule
        self._gathered: list[Rows] = []
        self._waiting = 0
        self._unforced = 0
        self._table: list[npt.NDArray[np.void]] = []
        self._directory: list[npt.NDArray[np.void]] = []
        self._ends: list[Int64s] = []
        self.rows = 0
        self._sure_from = 0  # ledgers before this one are not in `_ends`
        self.placed = 0  # the number of rows that were given by place
        self.size = HEADER_BYTES
        header = BUCKET_HEADER.pack(
            BUCKET_MAGIC, VERSION, packing.width, 0, number, packing.first_ledger, packing.spread
        )
        files.append(self._name, with_sum(header))

    def append(self, times: Int64s, places: Int64s) -> None:
        """Append rows that follow the others."""
        self._gathered.append((times, places))
        self._waiting += len(times)
        self.rows += len(times)
        if self._waiting >= GATHERED_ROWS:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        times, places = (np.concatenate([rows[column] for rows in self._gathered]) for column in (0, 1))
        self._gathered, self._waiting = [], 0
        begins = self._rule.cuts(times)
        rows = np.diff(begins, append=len(times))
        packed = self._packing.packed(times - np.repeat(times[begins], rows), places)
        data = memoryview(packed.tobytes())
        width = self._packing.width
        table = np.zeros(len(begins), TABLE)
        table["at"] = self.size + begins * width
        table["first_ms"] = times[begins]
        table["first_place"] = places[begins]
        table["last_ms"] = times[begins + rows - 1]
        table["rows"] = rows
        table["checksum"] = [
            checksum(data[begin * width : end * width])
            for begin, end in zip(begins.tolist(), (begins + rows).tolist(), strict=True)
        ]
        self._table.append(table)
        self._out(data)

    def append_places(self, times: Int64s, places: Int64s) -> None:
        """After all rows: append them once more, by place."""
        if not self.placed:
            self._write()
        self._gathered.append((times, places))
        self._waiting += len(times)
        self.placed += len(times)
        self._ends.append(ends_of(places))
        if len(self._ends) >= JOINED_ENDS:
            self._ends = [self._joined_ends()]
        if self._waiting >= GATHERED_ROWS:
            self._write_pages()

    def _joined_ends(self) -> Int64s:
        ends = ends_of(np.concatenate(self._ends)) if self._ends else np.empty(0, np.int64)
        if len(ends) > MOST_ENDS:
            ends = ends[-MOST_ENDS:]
            self._sure_from = int(ends[0]) >> ENTRY_BITS
        return ends

    def _write_pages(self) -> None:
        times, places = (np.concatenate([rows[column] for rows in self._gathered]) for column in (0, 1))
        self._gathered, self._waiting = [], 0
        data, directory = packed_pages(places, times, self.size)
        self._directory.append(directory)
        self._out(data)

    def _out(self, data: bytes | memoryview) -> None:
        self._files.append(self._name, data)
        self.size += len(data)
        self._unforced += len(data)
        if self._unforced >= FLUSHED_BYTES:
            self._files.flush(self._name)
            self._unforced = 0

    def finish(self) -> None:
        """Write directory, ends and trailer, and force the file. All rows were appended, in both orders."""
        if self._waiting:
            self._write_pages()
        ends = self._joined_ends()
        tables = [np.concatenate(parts) for parts in (self._table, self._directory) if parts]
        data = b"".join(table.tobytes() for table in [*tables, ends.astype("<i8")])
        segments, pages = (sum(map(len, parts)) for parts in (self._table, self._directory))
        trailer = TRAILER.pack(
            TRAILER_MAGIC, VERSION, 0, 0, self._number, self.rows, self.size, segments, pages, len(ends),
            checksum(data), self._sure_from,
        )  # fmt: skip
        self._files.append(self._name, data + with_sum(trailer))
        self._files.force(self._name)
        self.size += len(data) + TRAILER_BYTES

    def opened(self, cache: PageCache) -> SealedBucket:
        """The bucket, read back from its file."""
        return SealedBucket(self._files, ListedBucket(self._number, self.size), cache)
