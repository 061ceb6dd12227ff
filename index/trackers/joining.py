"""Several trackers on disk become one: each has a part of the entries, made apart from the others."""

from __future__ import annotations

from collections.abc import Sequence

from .bucket_writer import SegmentRule
from .files import Files
from .shelf import Shelf

SEGMENT_MS = 300_000  # as a tracker has them by default
SEGMENT_ENTRIES = 5_000
MOST_BUCKETS = 50


def join_trackers(sources: Sequence[Files], to: Files, mark: bytes) -> int:
    """Write what is pending in the files of some closed trackers as the files of a new one, and return how much.

    The sorted rows of all are merged, a part at a time, and their sets of pending entries joined. An entry is in one of
    the sources at most. A `BucketTracker` that opens `to` has all entries, and this mark. Nothing counts before the
    last step; the sources stay as they are.

    Raises TrackerDamaged if a source has wrong bytes, OSError.
    """
    rule = SegmentRule(SEGMENT_MS, SEGMENT_ENTRIES)
    buckets = [bucket for files in sources for bucket in Shelf(files, rule, MOST_BUCKETS).buckets]
    Shelf(to, rule, MOST_BUCKETS).join(buckets, mark)
    return sum(bucket.count for bucket in buckets)
