"""The files of a bucket tracker. All numbers are little-endian, all checksums are xxh3 of 64 bits.

    MANIFEST            which buckets there are; it is replaced in one step (written as MANIFEST.new, forced, renamed)
    0000...2a.bucket    bucket 42: entries by their times, in segments; never changed
    0000...2b.live      which entries of some buckets are still pending since a checkpoint; a bucket that is in no such
                        file: those that it lists

A file that the manifest does not list is of a step that a crash has cut off, and is removed at the next opening.
Numbers ascend and are not given again. If two buckets list the same entry, the one of the higher number is right.

BUCKET
    header    magic "STRABUCK", version, row width, zero, bucket number, first ledger, spread; checksum of these
    segments  rows of `width` bytes, by (time, ledger, entry), one segment behind another
                  time - the segment's first time, in ms       4 bytes
                  (ledger - first ledger) * spread + entry // 65,536
                                                               2 bytes (width 8) or 4 (width 10)
                  entry % 65,536                               2 bytes
              with width 12 the last two are one number of 8 bytes, ledger * 2**32 + entry
    places    the set of the entries that are pending in this bucket as it was written: the portable format of 64-bit
              Roaring bitmaps, of ledger * 2**32 + entry
    table     a record a segment: place in the file, first time, last time, rows, zero, checksum of the segment
    trailer   magic "STRAENDS", version, zeros, bucket number, rows, place of the bitmap, its size, place of the table,
              segments, checksums of the bitmap and of the table; checksum of these

A segment ends where a span of 5 minutes (from 0 on) ends, and after 5,000 rows. Both are settings.

LIVE
    for each bucket a section: magic "STRALIVE", version, zeros, bucket number, size of the bitmap; checksum of this
    header and the bitmap; the bitmap

MANIFEST
    magic "STRAMANI", version, zeros, next bucket number, size of the mark, number of buckets; then a record a bucket:
    its number, size in bytes, number of the live file (0: none), place and size of its section there, floor (entries
    at places below were trimmed); then the caller's mark; then a checksum of all that.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ..columns import Int64s
from ..errors import TrackerDamaged
from .places import ENTRY_BITS, Rows, positions_of

VERSION: Final = 1
MANIFEST: Final = "MANIFEST"
MANIFEST_NEW: Final = "MANIFEST.new"
SUM: Final = struct.Struct("<Q")

BUCKET_HEADER: Final = struct.Struct("<8sHHIQqQ")
BUCKET_MAGIC: Final = b"STRABUCK"
HEADER_BYTES: Final = BUCKET_HEADER.size + SUM.size
TRAILER: Final = struct.Struct("<8sHHIQQQQQQQQ")
TRAILER_MAGIC: Final = b"STRAENDS"
TRAILER_BYTES: Final = TRAILER.size + SUM.size
TABLE: Final = np.dtype(
    [("at", "<u8"), ("first_ms", "<i8"), ("last_ms", "<i8"), ("rows", "<u4"), ("zero", "<u4"), ("checksum", "<u8")]
)
LIVE_HEADER: Final = struct.Struct("<8sHHIQQ")
LIVE_MAGIC: Final = b"STRALIVE"
MANIFEST_HEADER: Final = struct.Struct("<8sHHIQII")
MANIFEST_MAGIC: Final = b"STRAMANI"
LISTED: Final = struct.Struct("<QQQQQQ")

LOW_BITS: Final = 16
WIDE: Final = 12
ROW_TYPES: Final = {
    8: np.dtype([("delta", "<u4"), ("book", "<u2"), ("low", "<u2")]),
    10: np.dtype([("delta", "<u4"), ("book", "<u4"), ("low", "<u2")]),
    WIDE: np.dtype([("delta", "<u4"), ("place", "<i8")]),
}


def checksum(data: bytes | memoryview) -> int:
    """Of 64 bits."""
    return xxh3_64_intdigest(data)


def bucket_name(number: int) -> str:
    """Of a bucket's file."""
    return f"{number:016x}.bucket"


def live_name(number: int) -> str:
    """Of a file that says which entries of some buckets are pending."""
    return f"{number:016x}.live"


class Packing(NamedTuple):
    """How the rows of a bucket are packed."""

    width: int
    first_ledger: int
    spread: int

    @classmethod
    def of(cls, first_place: int, last_place: int, most_entry: int) -> Packing:
        """The narrowest packing for these ledgers and entries."""
        first_ledger, spread = first_place >> ENTRY_BITS, (most_entry >> LOW_BITS) + 1
        books = ((last_place >> ENTRY_BITS) - first_ledger + 1) * spread
        return cls(8 if books <= 1 << 16 else 10 if books <= 1 << 32 else WIDE, first_ledger, spread)

    def packed(self, deltas: Int64s, places: Int64s) -> npt.NDArray[np.void]:
        """Rows as they are on disk."""
        rows = np.empty(len(places), ROW_TYPES[self.width])
        rows["delta"] = deltas
        if self.width == WIDE:
            rows["place"] = places
            return rows
        ledgers, entries = positions_of(places)
        rows["low"] = entries.astype(np.uint16)
        rows["book"] = (ledgers - self.first_ledger) * self.spread + (entries >> LOW_BITS)
        return rows

    def unpacked(self, data: bytes, segments: npt.NDArray[np.void]) -> Rows:
        """The rows of segments that lie one behind another."""
        rows = np.frombuffer(data, ROW_TYPES[self.width])
        times = np.repeat(segments["first_ms"], segments["rows"]) + rows["delta"]
        if self.width == WIDE:
            return times, rows["place"].astype(np.int64)
        books = rows["book"].astype(np.int64)
        if self.spread == 1:
            places = (books + self.first_ledger) << ENTRY_BITS
        else:
            ledgers, high = np.divmod(books, self.spread)
            places = ((ledgers + self.first_ledger) << ENTRY_BITS) | (high << LOW_BITS)
        places |= rows["low"]
        return times, places


def with_sum(data: bytes) -> bytes:
    """The bytes and their checksum."""
    return data + SUM.pack(checksum(data))


def without_sum(data: bytes, what: str) -> bytes:
    """The bytes without the checksum at their end. Raises TrackerDamaged if it is wrong."""
    body = data[: -SUM.size]
    if len(data) < SUM.size or SUM.pack(checksum(body)) != data[-SUM.size :]:
        raise damaged(what)
    return body


def damaged(what: str) -> TrackerDamaged:
    """The error that says what to do."""
    return TrackerDamaged(
        f"{what} is missing or has wrong bytes. No message is lost, they are in the log: remove the tracker's folder "
        "and add what is pending again from the log"
    )


class Listed(NamedTuple):
    """What the manifest says of one bucket."""

    number: int
    size: int
    live_file: int = 0
    live_at: int = 0
    live_size: int = 0
    floor: int = 0


class Manifest(NamedTuple):
    """Which buckets there are."""

    next_number: int
    buckets: tuple[Listed, ...]
    mark: bytes

    def encoded(self) -> bytes:
        """The file's bytes."""
        header = MANIFEST_HEADER.pack(
            MANIFEST_MAGIC, VERSION, 0, 0, self.next_number, len(self.mark), len(self.buckets)
        )
        return with_sum(header + b"".join(LISTED.pack(*listed) for listed in self.buckets) + self.mark)

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """Raises TrackerDamaged."""
        if len(data) < MANIFEST_HEADER.size + SUM.size:
            raise damaged(MANIFEST)
        magic, version, _, _, next_number, mark_size, count = MANIFEST_HEADER.unpack_from(data)
        if magic != MANIFEST_MAGIC:
            raise damaged(MANIFEST)
        check_version(version, MANIFEST)
        body = without_sum(data, MANIFEST)[MANIFEST_HEADER.size :]
        end = count * LISTED.size
        if len(body) != end + mark_size:
            raise damaged(MANIFEST)
        return cls(next_number, tuple(Listed(*fields) for fields in LISTED.iter_unpack(body[:end])), body[end:])


def check_version(version: int, what: str) -> None:
    """Raises TrackerDamaged for a file of a later version."""
    if version != VERSION:
        raise TrackerDamaged(f"{what} is of version {version} of the format, and this program knows version {VERSION}")
