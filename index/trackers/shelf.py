"""The buckets on disk, the manifest that lists them, and the steps from one list to the next.

Each step is: write new files and force them; write the new manifest beside the old one, force it, force the folder,
rename the manifest, force the folder; only then change memory, and remove the files that are not listed any more. So a
crash, or an error, at any point leaves the list before or the list after, and all files of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ..columns import Int64s
from ..errors import report
from .bucket_writer import BucketWriter, SegmentRule
from .files import Files
from .format import (
    MANIFEST,
    MANIFEST_NEW,
    ListedBucket,
    Manifest,
    Packing,
    PendingRows,
    bucket_name,
    damaged,
    left_name,
)
from .ordered import merge, merge_places
from .pages import LedgerEnds, PageCache, in_place_order
from .places import MOST_ENTRY, Rows, bitmap_of, places_in
from .sealed_bucket import SealedBucket, merged_left

MERGED_ROWS = 1 << 20  # of all sources together in memory
MANY_DEAD = 1 << 16  # a bucket with so many cancelled rows, and at least ..
DEAD_PART = 4  # .. one in so many of the pending ones, is written again ..
GONE_TIMES = 3  # .. and also one with so many times as many gone entries as pending ones
OURS = re.compile("[0-9a-f]{16}[.](bucket|left)")
SEGMENT_MS = 300_000  # the default of a tracker
SEGMENT_ENTRIES = 5_000
MOST_BUCKETS = 50


class _Merge(NamedTuple):
    """A merge under way."""

    sources: list[SealedBucket]
    starts: list[PendingRows]  # the pending rows of each on disk at the start
    number: int
    steps: Iterator[int]  # each gives the number of rows read


class Shelf:
    """Sealed buckets, the oldest first.

    Attributes:
        buckets: all that are listed.
        mark: of the last checkpoint.
        bits: of the coarsest precision that an entry may have been added with.
        most_buckets: with more, some are merged.
        merges: the number of merges so far.
        merged_rows: the number of rows that they wrote.
    """

    def __init__(self, files: Files, rule: SegmentRule, most_buckets: int) -> None:
        self._files = files
        self._rule = rule
        self.most_buckets = most_buckets
        self.buckets: list[SealedBucket] = []
        self.pages = PageCache()
        self.ends = LedgerEnds()
        self.mark = b""
        self.bits = 0
        self.merges = self.merged_rows = 0
        self._next_number = 1
        self._merge: _Merge | None = None
        self._written_names: set[str] = set()  # of all files that may exist
        self._open()

    def _open(self) -> None:
        """Read the list, and remove files that it does not list."""
        names = set(self._files.names())
        if MANIFEST in names:
            manifest = Manifest.decoded(self._files.read(MANIFEST, 0, self._files.size(MANIFEST)))
            self._next_number, self.mark, self.bits = manifest.next_number, manifest.mark, manifest.bits
            self._files.force_folder()  # the list may come from a step without its last force
            self.buckets = [SealedBucket(self._files, listed, self.pages) for listed in manifest.buckets]
        listed = {MANIFEST, *(name for bucket in self.buckets for name in bucket.names)}
        self._files.remove(MANIFEST_NEW)
        for name in sorted(names - listed):
            if OURS.fullmatch(name):
                self._files.remove(name)  # a list that is lost may have given out its number
                self._next_number = max(self._next_number, int(name.partition(".")[0], 16) + 1)
        self._written_names = listed - {MANIFEST}
        for bucket in self.buckets:
            self.ends.note(*bucket.take_ends())

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes beside the buckets."""
        return self.pages.memory_bytes + self.ends.memory_bytes

    # the list

    def _publish(
        self, buckets: list[SealedBucket], mark: bytes | None = None,
        listed: Mapping[SealedBucket, ListedBucket] | None = None,
    ) -> None:  # fmt: skip
        """Make this list durable, with some new entries. After an error the disk has the old list or the new one."""
        mark, listed = self.mark if mark is None else mark, listed or {}
        entries = tuple(listed.get(bucket, bucket.listed) for bucket in buckets)
        manifest = Manifest(self._next_number, entries, mark, self.bits)
        self._files.remove(MANIFEST_NEW)
        self._files.append(MANIFEST_NEW, manifest.encoded())
        self._files.force(MANIFEST_NEW)
        self._files.force_folder()  # the names of the new files are durable before they are listed
        self._files.rename(MANIFEST_NEW, MANIFEST)
        self._files.force_folder()
        self.buckets, self.mark = buckets, mark

    def _remove_unlisted(self) -> None:
        """Remove files that neither the list nor a merge under way needs."""
        needed = {name for bucket in self.buckets for name in bucket.names}
        if self._merge:
            needed |= {bucket_name(self._merge.number)}
            needed |= {name for source in self._merge.sources for name in source.names}
        for name in sorted(self._written_names - needed):
            try:
                self.pages.forget(name)
                self._files.remove(name)
                self._written_names.remove(name)
            except OSError as error:  # the step itself is done
                report(f"{name} could not be removed; it is tried again", error)

    def _give_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _writer(self, number: int, packing: Packing) -> BucketWriter:
        self._written_names.add(bucket_name(number))
        return BucketWriter(self._files, number, packing, self._rule)

    def _written(self, rows: Rows) -> SealedBucket:
        """A new bucket of rows in order, durable and not listed yet."""
        times, places = in_place_order(rows)
        packing = Packing.of(int(places[0]), int(places[-1]), int((places & MOST_ENTRY).max()))
        writer = self._writer(self._give_number(), packing)
        writer.append(*rows)
        writer.append_places(times, places)
        writer.finish()
        bucket = writer.opened(self.pages)
        self.ends.note(*bucket.take_ends())
        return bucket

    def seal(self, rows: Rows, again: BitMap64) -> None:
        """Write a new bucket of these rows, which are in order and not empty, durable and listed.

        Args:
            again: places that may be pending on disk in an older bucket: they are not pending there any more.
        """
        new = self._written(rows)
        again = again & bitmap_of(rows[1]) if again else again
        lefts = self._without(places_in(again)) if again else {}
        self._say(lefts, [*self.buckets, new])

    def _without(self, places: Int64s) -> dict[SealedBucket, PendingRows]:
        """The pending rows of the buckets whose disk state has some of these places, without them; places ascend."""
        found = {}
        for bucket in self.buckets:
            _, on_disk = bucket.look(places)
            if on_disk.any():
                dead = bucket.disk.dead | bitmap_of(places[on_disk])
                found[bucket] = bucket.disk._replace(dead=dead, rows=bucket.disk.rows - int(on_disk.sum()))
        return found

    def checkpoint(self, rows: Rows, mark: bytes) -> None:
        """Store the rows as a new bucket, durably, with the current pending rows of the others, and this mark."""
        new = [self._written(rows)] if len(rows[0]) else []
        if self._merge and not any(source.count for source in self._merge.sources):
            self._merge = None
        merging = self._merge.sources if self._merge else []
        kept = [bucket for bucket in self.buckets if bucket.count or bucket in merging]
        self._say({bucket: bucket.left for bucket in kept if bucket.has_changed}, [*kept, *new], mark)
        for bucket in kept:
            bucket.disk = bucket.left  # where nothing has changed, the cut is moved to the next row

    def _say(
        self, lefts: dict[SealedBucket, PendingRows], buckets: list[SealedBucket], mark: bytes | None = None
    ) -> None:
        """Make the pending rows of some buckets durable, with this list of all. An error leaves the list as before."""
        listed = self._write_left(lefts) if lefts else {}
        self._publish(buckets, mark, listed)
        for bucket, left in lefts.items():
            bucket.listed, bucket.disk = listed[bucket], left
        self._remove_unlisted()

    def _write_left(self, lefts: dict[SealedBucket, PendingRows]) -> dict[SealedBucket, ListedBucket]:
        """Write a file of the pending rows of these buckets, durable. Returns their entries of the list with it."""
        number, at, sections, listed = self._give_number(), 0, list[bytes](), {}
        self._written_names.add(left_name(number))
        for bucket, left in lefts.items():
            section = left.section(bucket.number)
            listed[bucket] = bucket.listed._replace(left_file=number, left_at=at, left_size=len(section))
            sections.append(section)
            at += len(section)
        self._files.append(left_name(number), b"".join(sections))
        self._files.force(left_name(number))
        return listed

    def trim(self, before_place: int) -> int:
        """Forget all places below `before_place`, durably. Returns how many were pending."""
        found = {bucket: bucket.trim(before_place) for bucket in self.buckets if bucket.low < before_place}
        if not found:
            return 0
        merging = self._merge.sources if self._merge else []
        over = [bucket for bucket, (left, count) in found.items() if not left.rows and not count]
        kept = [bucket for bucket in self.buckets if bucket not in over or bucket in merging]
        before = sum(bucket.count for bucket in found)
        self._say({bucket: left for bucket, (left, _) in found.items() if bucket in kept}, kept)
        for bucket, (_, count) in found.items():
            bucket.trimmed(before_place, count)
        return before - sum(count for _, count in found.values())

    def clear(self) -> None:
        """Forget everything except the mark, durably."""
        self._merge = None
        self._publish([])
        self._remove_unlisted()

    # merging

    @property
    def is_merging(self) -> bool:
        """Whether a merge is under way."""
        return self._merge is not None

    def merge_some(self, rows: int) -> None:
        """Go on with merging, by about `rows` rows; by more if there are twice as many buckets as there should be."""
        merge, self._merge = self._merge or self._new_merge(), None  # after an error the next call begins again
        if merge is None:
            return
        room = 2 * self.most_buckets + 2 - len(self.buckets)
        starts = zip(merge.sources, merge.starts, strict=True)
        left = 2 * sum(source.rows_to_merge(start) for source, start in starts)
        budget = max(rows, left // room if room > 0 else left)
        for read in merge.steps:
            budget -= read
            if budget <= 0:
                self._merge = merge
                return

    def _new_merge(self) -> _Merge | None:
        """Begin to merge the smaller half of the buckets, at least two, into one: an entry is merged once a doubling at
        most. Or begin to write one bucket again, of which many rows were cancelled, or most were taken, without these.
        """
        by_rows = sorted(self.buckets, key=lambda bucket: (bucket.disk.rows, bucket.number))
        sources = by_rows[: max(2, (len(by_rows) + 1) // 2)]
        if len(self.buckets) <= self.most_buckets:
            sources = [one for one in by_rows if _is_mostly_gone(one)][:1]
        if not sources:
            return None
        number, starts = self._give_number(), [source.disk for source in sources]
        return _Merge(sources, starts, number, self._merging(sources, starts, number))

    def _merging(self, sources: list[SealedBucket], starts: list[PendingRows], number: int) -> Iterator[int]:
        writer = self._merged_writer(sources, number)
        yield from _copied(sources, starts, writer)
        self._finish_merge(sources, starts, writer)

    def _merged_writer(self, sources: list[SealedBucket], number: int) -> BucketWriter:
        first, last = min(bucket.low for bucket in sources), max(bucket.high for bucket in sources)
        packing = Packing.of(first, last, (max(bucket.packing.spread for bucket in sources) << 16) - 1)
        return self._writer(number, packing)

    def _finish_merge(self, sources: list[SealedBucket], starts: list[PendingRows], writer: BucketWriter) -> None:
        """Publish the merged bucket in place of its sources, and only then remove these."""
        _finish(sources, starts, writer)
        merged = writer.opened(self.pages)
        merged.take_ends()  # they are known already
        on_disk = merged_left(merged, sources, starts, [source.disk for source in sources])
        now = merged_left(merged, sources, starts, [source.left for source in sources])
        rest = [bucket for bucket in self.buckets if bucket not in sources]
        is_whole = on_disk == merged.disk
        self._say({} if is_whole or not on_disk.rows else {merged: on_disk}, [*rest, merged] if on_disk.rows else rest)
        merged.become(now)
        self.merges += 1
        self.merged_rows += writer.rows

    # the buckets of other trackers

    def join(self, sources: list[SealedBucket], mark: bytes) -> None:
        """Merge the pending rows of other folders' buckets into one bucket here, durable and listed with this mark."""
        new: list[SealedBucket] = []
        if sources:
            writer, starts = self._merged_writer(sources, self._give_number()), [source.disk for source in sources]
            for _ in _copied(sources, starts, writer):
                pass  # all at once: nobody waits meanwhile
            _finish(sources, starts, writer)
            new = [writer.opened(self.pages)]
        self._publish([*self.buckets, *new], mark)


def _is_mostly_gone(bucket: SealedBucket) -> bool:
    """Whether a bucket is worth writing again without rows that are not pending. One without others goes by itself."""
    pending = bucket.disk.rows
    return len(bucket.disk.dead) >= max(MANY_DEAD, pending // DEAD_PART) or (
        bucket.count > 0 and bucket.rows - pending >= GONE_TIMES * pending
    )


def _copied(sources: list[SealedBucket], starts: list[PendingRows], writer: BucketWriter) -> Iterator[int]:
    """Write the rows of some buckets, in both orders. Yields the number of rows of each step."""
    part, both = max(1, MERGED_ROWS // len(sources)), list(zip(sources, starts, strict=True))
    for times, found in merge([bucket.kept_rows(start, part) for bucket, start in both]):
        writer.append(times, found)
        yield len(times)
    for times, found in merge_places([bucket.kept_places(start, part) for bucket, start in both]):
        writer.append_places(times, found)
        yield len(times)


def _finish(sources: list[SealedBucket], starts: list[PendingRows], writer: BucketWriter) -> None:
    """End the file of the copied rows: all that were pending at the start."""
    if not writer.rows == writer.placed == sum(start.rows for start in starts):
        raise damaged(f"a row that is pending in {', '.join(source.names[0] for source in sources)}")
    writer.finish()


def join_trackers(sources: Sequence[Files], to: Files, mark: bytes) -> int:
    """Write the pending entries of some closed trackers as the files of a new one. Returns their number.

    The sorted rows of all are merged, one part at a time, and their sets of pending entries joined. An entry is in at
    most one of the sources. A `BucketTracker` that opens `to` has all entries, and this mark. Nothing counts before the
    last step; the sources stay as they are.

    Raises TrackerDamaged if a source has wrong bytes, OSError.
    """
    rule = SegmentRule(SEGMENT_MS, SEGMENT_ENTRIES)
    buckets = [bucket for files in sources for bucket in Shelf(files, rule, MOST_BUCKETS).buckets]
    Shelf(to, rule, MOST_BUCKETS).join(buckets, mark)
    return sum(bucket.count for bucket in buckets)
