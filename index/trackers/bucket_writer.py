"""Writing a bucket's file: rows in order come in parts of any size, and go out as segments."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

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
    Listed,
    Packing,
    bucket_name,
    checksum,
    with_sum,
)
from .places import Rows
from .sealed_bucket import SealedBucket

GATHERED_ROWS = 1 << 16  # so that segments are not cut where a small part ends
FLUSHED_BYTES = 8 << 20  # else the end of a merge would wait for all that it has written
MOST_DELTA_MS = (1 << 32) - 1


class SegmentRule:
    """Where segments end: with a span of time, and after a number of rows."""

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
    """One bucket's file on its way. It counts for nothing until the manifest lists it."""

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
        self.rows = 0
        self.size = HEADER_BYTES
        header = BUCKET_HEADER.pack(
            BUCKET_MAGIC, VERSION, packing.width, 0, number, packing.first_ledger, packing.spread
        )
        files.append(self._name, with_sum(header))

    def append(self, times: Int64s, places: Int64s) -> None:
        """Rows that follow the others."""
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
        table["last_ms"] = times[begins + rows - 1]
        table["rows"] = rows
        table["checksum"] = [
            checksum(data[begin * width : end * width])
            for begin, end in zip(begins.tolist(), (begins + rows).tolist(), strict=True)
        ]
        self._files.append(self._name, data)
        self._unforced += len(data)
        if self._unforced >= FLUSHED_BYTES:
            self._files.flush(self._name)
            self._unforced = 0
        self._table.append(table)
        self.size += len(data)

    def finish(self, places: BitMap64) -> None:
        """Write the set of what is pending, the table and the trailer, and force the file."""
        self._write()
        places.run_optimize()
        bitmap = places.serialize()
        table = np.concatenate(self._table).tobytes() if self._table else b""
        table_at = self.size + len(bitmap)
        trailer = TRAILER.pack(
            TRAILER_MAGIC, VERSION, 0, 0, self._number, self.rows, self.size, len(bitmap), table_at,
            len(table) // TABLE.itemsize, checksum(bitmap), checksum(table),
        )  # fmt: skip
        self._files.append(self._name, bitmap + table + with_sum(trailer))
        self._files.force(self._name)
        self.size = table_at + len(table) + TRAILER_BYTES

    def opened(self) -> SealedBucket:
        """The bucket, read back from its file."""
        return SealedBucket(self._files, Listed(self._number, self.size))
