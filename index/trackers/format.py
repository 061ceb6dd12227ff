"""The files of a bucket tracker. All numbers are little-endian, all checksums are xxh3 of 64 bits.

    MANIFEST            the list of the buckets; it is replaced in one step (written as MANIFEST.new, forced, renamed)
    0000...2a.bucket    bucket 42: entries by their times, in segments, and by their places, in pages; never changed
    0000...2b.left      which entries of some buckets are still pending; of a bucket in no such file, all are

A file that the manifest does not list was left by a step that a crash has cut off; the next opening removes it.
Numbers ascend and are never given twice. An entry is pending in at most one bucket.

BUCKET
    header    magic "STRABUCK", version, row width, zero, bucket number, first ledger, spread; checksum of these
    segments  rows of `width` bytes, by (time, ledger, entry), one segment after another
                  time - the segment's first time, in ms       4 bytes
                  (ledger - first ledger) * spread + entry // 65,536
                                                               2 bytes (width 8) or 4 (width 10)
                  entry % 65,536                               2 bytes
              with width 12 the last two are one number of 8 bytes, ledger * 2**32 + entry
    pages     the same rows by (ledger, entry): of each page first all
                  place - the place before it, 0 for the first 1, 2, 4 or 8 bytes, as the directory says
              then all
                  time - the page's first time                 likewise
    table     a record a segment: place in the file, first time, last time, first place, rows, zero, checksum
    directory a record a page: place in the file, first place, last place, first time, rows, bytes of a place, bytes of
              a time, zeros, checksum
    ends      the last place of each ledger, ascending, 8 bytes each; of the 65,536 highest ledgers at most
    trailer   magic "STRAENDS", version, zeros, bucket number, rows, place of the table, segments, pages, ledgers,
              checksum of table, directory and ends, the first ledger of ends (0: it has all); checksum of these

A segment ends where a span of 5 minutes (from 0 on) ends, and after 5,000 rows. Both are settings. A place is
ledger * 2**32 + entry.

LEFT
    for each bucket a section: magic "STRALEFT", version, zeros, bucket number, size of the set, how many entries are
    pending, then the pending rows: all except those before (time, place), those of places before the floor, and
    those of the set; checksum of this header and the set; the set, in the portable format of 64-bit Roaring bitmaps

MANIFEST
    magic "STRAMANI", version, zeros, bits of the coarsest precision of an entry, next bucket number, size of the
    mark, number of buckets; then a record a bucket:
    its number, size in bytes, number of the left file (0: none), place and size of its section there; then the
    caller's mark; then a checksum of all that.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64
from xxhash import xxh3_64_intdigest

from ..columns import Int64s
from ..errors import TrackerDamaged
from .places import ENTRY_BITS, Rows, books_of, places_of_books, spread_of

VERSION: Final = 2
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
    [
        ("at", "<u8"), ("first_ms", "<i8"), ("last_ms", "<i8"), ("first_place", "<i8"), ("rows", "<u4"),
        ("zero", "<u4"), ("checksum", "<u8"),
    ]
)  # fmt: skip
PAGES: Final = np.dtype(
    [
        ("at", "<u8"), ("first", "<i8"), ("last", "<i8"), ("base_ms", "<i8"), ("rows", "<u4"), ("gap", "u1"),
        ("delta", "u1"), ("zero", "<u2"), ("checksum", "<u8"),
    ]
)  # fmt: skip
WIDTHS: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
LEFT_HEADER: Final = struct.Struct("<8sHHIQQQqqq")
LEFT_MAGIC: Final = b"STRALEFT"
MANIFEST_HEADER: Final = struct.Struct("<8sHHIQII")
MANIFEST_MAGIC: Final = b"STRAMANI"
LISTED: Final = struct.Struct("<QQQQQ")

WIDE: Final = 12
ROW_TYPES: Final = {
    8: np.dtype([("delta", "<u4"), ("book", "<u2"), ("low", "<u2")]),
    10: np.dtype([("delta", "<u4"), ("book", "<u4"), ("low", "<u2")]),
    WIDE: np.dtype([("delta", "<u4"), ("place", "<i8")]),
}


def checksum(data: bytes | memoryview) -> int:
    """The checksum, of 64 bits."""
    return xxh3_64_intdigest(data)


def bucket_name(number: int) -> str:
    """The name of a bucket's file."""
    return f"{number:016x}.bucket"


def left_name(number: int) -> str:
    """The name of a file with the pending entries of some buckets."""
    return f"{number:016x}.left"


def packed_page(places: Int64s, times: Int64s) -> tuple[bytes, int, int, int]:
    """A page of rows whose places ascend: its bytes, the bytes of a place and of a time in it, and its first time."""
    gaps = np.diff(places, prepend=places[0])
    base_ms = int(times.min())
    deltas = times - base_ms
    gap, delta = _width(int(gaps.max())), _width(int(deltas.max()))
    return gaps.astype(WIDTHS[gap]).tobytes() + deltas.astype(WIDTHS[delta]).tobytes(), gap, delta, base_ms


def _width(most: int) -> int:
    return next(width for width in WIDTHS if most < 1 << 8 * width)


def unpacked_page(data: memoryview, record: np.void) -> Rows:
    """The rows of a page."""
    rows = int(record["rows"])
    gap, delta = WIDTHS[int(record["gap"])], WIDTHS[int(record["delta"])]
    places = np.frombuffer(data, gap, rows).astype(np.int64).cumsum() + record["first"]
    return np.frombuffer(data, delta, rows, rows * gap.itemsize).astype(np.int64) + record["base_ms"], places


class Packing(NamedTuple):
    """The packing of a bucket's rows."""

    width: int
    first_ledger: int
    spread: int

    @classmethod
    def of(cls, first_place: int, last_place: int, most_entry: int) -> Packing:
        """The narrowest packing for these ledgers and entries."""
        first_ledger, spread = first_place >> ENTRY_BITS, spread_of(most_entry)
        books = ((last_place >> ENTRY_BITS) - first_ledger + 1) * spread
        return cls(8 if books <= 1 << 16 else 10 if books <= 1 << 32 else WIDE, first_ledger, spread)

    def packed(self, deltas: Int64s, places: Int64s) -> npt.NDArray[np.void]:
        """The rows as they are on disk."""
        rows = np.empty(len(places), ROW_TYPES[self.width])
        rows["delta"] = deltas
        if self.width == WIDE:
            rows["place"] = places
            return rows
        rows["book"], rows["low"] = books_of(places, self.first_ledger, self.spread)
        return rows

    def unpacked(self, data: bytes, segments: npt.NDArray[np.void]) -> Rows:
        """The rows of neighbouring segments."""
        rows = np.frombuffer(data, ROW_TYPES[self.width])
        times = np.repeat(segments["first_ms"], segments["rows"]) + rows["delta"]
        if self.width == WIDE:
            return times, rows["place"].astype(np.int64)
        return times, places_of_books(rows["book"], rows["low"], self.first_ledger, self.spread)


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
    """The error, with what to do."""
    return TrackerDamaged(
        f"{what} is missing or has wrong bytes. No message is lost, they are in the log: remove the tracker's folder "
        "and add what is pending again from the log"
    )


class PendingRows(NamedTuple):
    """The pending rows of a bucket: all except those before the cut, those below the floor, and those of the set.

    Attributes:
        cut: (time, place): rows before it were taken.
        floor: entries at places below it were trimmed.
        dead: the other rows at the cut or after it that are not pending.
        rows: how many are pending.
    """

    cut: tuple[int, int]
    floor: int
    dead: BitMap64
    rows: int

    def section(self, number: int) -> bytes:
        """The section of a left file for the bucket of this number."""
        data = self.dead.serialize()
        head = LEFT_HEADER.pack(
            LEFT_MAGIC, VERSION, 0, 0, number, len(data), self.rows, self.cut[0], self.cut[1], self.floor
        )
        return head + SUM.pack(checksum(head + data)) + data

    @classmethod
    def of_section(cls, section: bytes, number: int, name: str) -> PendingRows:
        """Raises TrackerDamaged."""
        head, data = section[: LEFT_HEADER.size], section[LEFT_HEADER.size + SUM.size :]
        if section[LEFT_HEADER.size :][: SUM.size] != SUM.pack(checksum(head + data)) or len(head) < LEFT_HEADER.size:
            raise damaged(name)
        magic, version, _, _, of_number, size, count, cut_ms, cut_place, floor = LEFT_HEADER.unpack(head)
        if magic != LEFT_MAGIC:
            raise damaged(name)
        check_version(version, name)
        if (of_number, size) != (number, len(data)):
            raise damaged(name)
        return cls((cut_ms, cut_place), floor, BitMap64.deserialize(data), count)


class ListedBucket(NamedTuple):
    """The manifest's entry for one bucket."""

    number: int
    size: int
    left_file: int = 0
    left_at: int = 0
    left_size: int = 0


class Manifest(NamedTuple):
    """The list of the buckets."""

    next_number: int
    buckets: tuple[ListedBucket, ...]
    mark: bytes
    bits: int = 0

    def encoded(self) -> bytes:
        """The file's bytes."""
        header = MANIFEST_HEADER.pack(
            MANIFEST_MAGIC, VERSION, 0, self.bits, self.next_number, len(self.mark), len(self.buckets)
        )
        return with_sum(header + b"".join(LISTED.pack(*listed) for listed in self.buckets) + self.mark)

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """Raises TrackerDamaged."""
        if len(data) < MANIFEST_HEADER.size + SUM.size:
            raise damaged(MANIFEST)
        magic, version, _, bits, next_number, mark_size, count = MANIFEST_HEADER.unpack_from(data)
        if magic != MANIFEST_MAGIC:
            raise damaged(MANIFEST)
        check_version(version, MANIFEST)
        body = without_sum(data, MANIFEST)[MANIFEST_HEADER.size :]
        end = count * LISTED.size
        if len(body) != end + mark_size:
            raise damaged(MANIFEST)
        return cls(
            next_number, tuple(ListedBucket(*fields) for fields in LISTED.iter_unpack(body[:end])), body[end:], bits
        )


def check_version(version: int, what: str) -> None:
    """Raise TrackerDamaged for a file of a later version."""
    if version != VERSION:
        raise TrackerDamaged(f"{what} is of version {version} of the format, and this program knows version {VERSION}")
