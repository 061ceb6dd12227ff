"""The index of delayed messages: the two forms of a slot, and its buckets on disk."""

from __future__ import annotations

import inspect
import math

import numpy as np

from stratalog.index import BucketTracker
from stratalog.index.trackers.dense import SLOT_BYTES, slots_of

from .svg import AMBER_SOFT, GREY_SOFT, LINE, RED, SOFT, TEAL, TEAL_SOFT, Sheet

MOST_ROWS = 10_000
MINUTE_MS = 60_000


def bytes_an_entry(rows: int, step: int) -> tuple[float, float]:
    """(as a bitmap, packed): what the tracker estimates for one slot of so many entries, each `step` after the last."""
    slots = slots_of(np.zeros(rows, np.int64), np.arange(rows, dtype=np.int64) * step, has_bitmaps=True)
    assert slots is not None
    return (SLOT_BYTES + int(slots.least_bytes[0])) / rows, int(slots.packed_bytes[0]) / rows


def _first_where_a_bitmap_is_smaller(step: int) -> int:
    return next(rows for rows in range(1, MOST_ROWS) if bytes_an_entry(rows, step)[0] <= bytes_an_entry(rows, step)[1])


def forms() -> str:
    """Bytes an entry of both forms, by the number of entries that share a time."""
    sheet = Sheet(560, 350, "Bytes an entry of a slot: as a bitmap, and packed")
    sheet.words(20, 26, "bytes an entry, by how many entries share one time", bold=True)
    left, right, top, bottom, most = 56.0, 520.0, 50.0, 280.0, 512.0
    across = (right - left) / math.log10(MOST_ROWS)
    up = (bottom - top) / math.log10(most / 0.05)

    def place(rows: float, size: float) -> tuple[float, float]:
        return left + across * math.log10(rows), bottom - up * math.log10(min(size, most) / 0.05)

    for power in range(5):
        x, _ = place(10**power, 1)
        sheet.line([(x, top), (x, bottom)], stroke=LINE, width=0.5)
        sheet.words(x, bottom + 18, f"{10**power:,}", size=12, fill=SOFT, at="middle")
    for size in (0.1, 1, 10, 100):
        _, y = place(1, size)
        sheet.line([(left, y), (right, y)], stroke=LINE, width=0.5)
        sheet.words(left - 6, y + 4, f"{size:g}", size=12, fill=SOFT, at="end")
    counts = [round(10 ** (number / 10)) for number in range(41)]
    dense = [place(rows, bytes_an_entry(rows, 1)[0]) for rows in counts]
    apart = [place(rows, bytes_an_entry(rows, 1000)[0]) for rows in counts]
    packed = [place(rows, bytes_an_entry(rows, 1)[1]) for rows in counts]
    sheet.line(packed, stroke=RED, width=2.5)
    sheet.line(apart, stroke=TEAL, width=2, dashed=True)
    sheet.line(dense, stroke=TEAL, width=2.5)
    crossing = _first_where_a_bitmap_is_smaller(1)
    x, y = place(crossing, bytes_an_entry(crossing, 1)[1])
    sheet.dot(x, y)
    sheet.words(x - 8, y + 30, f"a bitmap from {crossing} neighbours on", size=13, at="end")
    sheet.words(288, bottom + 36, "entries of one ledger that share a time", size=12, fill=SOFT, at="middle")
    for x, stroke, dashed, text in (
        (20, TEAL, False, "bitmap, neighbours"),
        (200, TEAL, True, "bitmap, each 1,000th"),
        (400, RED, False, "packed rows"),
    ):  # fmt: skip
        sheet.line([(x, 334), (x + 24, 334)], stroke=stroke, width=2.5, dashed=dashed)
        sheet.words(x + 30, 338, text, size=13)
    return sheet.text()


def buckets() -> str:
    """From memory to disk, with the defaults of `BucketTracker`."""
    default = {name: one.default for name, one in inspect.signature(BucketTracker).parameters.items()}
    segment_minutes, seal_minutes = default["segment_ms"] // MINUTE_MS, default["seal_after_ms"] // MINUTE_MS
    sheet = Sheet(560, 440, "The tracker on disk: a bucket in memory, sealed buckets in files")
    sheet.words(20, 26, "memory", bold=True)
    sheet.words(276, 26, "disk", bold=True)
    sheet.box(20, 38, 200, 66, TEAL_SOFT)
    sheet.words(32, 62, "the mutable bucket", bold=True)
    sheet.words(32, 84, "new entries, by their times", size=13)
    sheet.line([(220, 71), (250, 71), (250, 137)])
    sheet.arrow((250, 137), (274, 137))
    sheet.words(260, 60, "sealed into a new file", size=13)
    sheet.words(260, 80, f"in {seal_minutes} minutes, or with {default['seal_entries']:,} entries", size=12, fill=SOFT)
    sheet.words(260, 98, f"and the end of a ledger, or {default['most_entries']:,}", size=12, fill=SOFT)
    for number, name in enumerate(("bucket 44", "bucket 43", "bucket 42")):
        y = 116 + 66 * number
        sheet.box(276, y, 264, 42, GREY_SOFT)
        sheet.words(284, y + 16, name, size=12, fill=SOFT)
        for part in range(4):
            sheet.box(284 + 62 * part, y + 22, 60, 15, AMBER_SOFT if part == 0 else TEAL_SOFT)
        sheet.box(20, y + 12, 200, 34, AMBER_SOFT)
        sheet.words(32, y + 34, f"next segment of {name.removeprefix('bucket ')}", size=13)
        sheet.arrow((274, y + 30), (222, y + 30))
    notes = (
        "a segment of a file is loaded when its time comes; the others stay on disk",
        f"a segment is {segment_minutes} minutes of entries, and {default['segment_entries']:,} of them at most",
        f"above {default['most_buckets']} buckets the smaller half are merged into one",
        "MANIFEST says which files count, and how far the log was read (the mark)",
    )
    for number, text in enumerate(notes):
        sheet.words(20, 340 + 24 * number, text, size=13)
    return sheet.text()
