"""The buckets on disk, the manifest that lists them, and the steps from one list to the next.

Each step is: write new files and force them; write the new manifest beside the old one, force it, force the folder,
rename the manifest, force the folder; only then change what is in memory, and remove the files that are not listed any
more. So a crash, or an error, at any point leaves the list before or the list after, and all files of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pyroaring import BitMap64

from ..errors import report
from .bucket_writer import BucketWriter, SegmentRule
from .files import Files
from .format import MANIFEST, MANIFEST_NEW, Manifest, Packing, bucket_name, damaged, live_name
from .merging import merge
from .places import MOST_ENTRY, Rows
from .sealed_bucket import SealedBucket

MERGED_ROWS = 1 << 20  # of all sources together in memory
OURS = re.compile("[0-9a-f]{16}[.](bucket|live)")


class _Merge(NamedTuple):
    """A merge on its way."""

    sources: list[SealedBucket]
    number: int
    steps: Iterator[int]  # rows read by each


class Shelf:
    """Sealed buckets, the oldest first.

    Attributes:
        buckets: all that are listed.
        highest: no place above this one is in a bucket.
        mark: what the caller gave with the last checkpoint.
        most_buckets: with more, some are merged.
        merges: how many were made.
        merged_rows: how many rows they wrote.
    """

    def __init__(self, files: Files, rule: SegmentRule, most_buckets: int) -> None:
        self._files = files
        self._rule = rule
        self.most_buckets = most_buckets
        self.buckets: list[SealedBucket] = []
        self.highest = -1
        self.mark = b""
        self.merges = self.merged_rows = 0
        self._next_number = 1
        self._merge: _Merge | None = None
        self._written_names: set[str] = set()  # of all files that may be there
        self._open()

    def _open(self) -> None:
        """Read the list; remove what it does not list; let the later one of two buckets have what both list."""
        names = set(self._files.names())
        if MANIFEST in names:
            manifest = Manifest.decoded(self._files.read(MANIFEST, 0, self._files.size(MANIFEST)))
            self._next_number, self.mark = manifest.next_number, manifest.mark
            self._files.force_folder()  # the list may be of a step whose last force never was
            self.buckets = [SealedBucket(self._files, listed) for listed in manifest.buckets]
        listed = {MANIFEST, *(name for bucket in self.buckets for name in bucket.names)}
        self._files.remove(MANIFEST_NEW)
        for name in sorted(names - listed):
            if OURS.fullmatch(name):
                self._files.remove(name)  # its number may have been given out by a list that is lost
                self._next_number = max(self._next_number, int(name.partition(".")[0], 16) + 1)
        self._written_names = listed - {MANIFEST}
        newest_first = sorted(self.buckets, key=lambda bucket: -bucket.number)
        for at, newer in enumerate(newest_first):
            for older in newest_first[at + 1 :]:
                if newer.live and older.low <= newer.high and newer.low <= older.high:
                    older.forget_older(newer.live)
        self.buckets = [bucket for bucket in self.buckets if bucket.live]  # the next list leaves the others out
        self._note_highest()

    # the list

    def _publish(self, buckets: list[SealedBucket], mark: bytes | None = None) -> None:
        """The disk has this list, or an error is raised and it may have either."""
        mark = self.mark if mark is None else mark
        manifest = Manifest(self._next_number, tuple(bucket.listed for bucket in buckets), mark)
        self._files.remove(MANIFEST_NEW)
        self._files.append(MANIFEST_NEW, manifest.encoded())
        self._files.force(MANIFEST_NEW)
        self._files.force_folder()  # the names of the new files are durable before they are listed
        self._files.rename(MANIFEST_NEW, MANIFEST)
        self._files.force_folder()
        self.buckets, self.mark = buckets, mark
        self._note_highest()

    def _note_highest(self) -> None:
        self.highest = max((bucket.high for bucket in self.buckets), default=-1)

    def _remove_unlisted(self) -> None:
        """Remove the files that the list, and a merge on its way, do not need."""
        needed = {name for bucket in self.buckets for name in bucket.names}
        if self._merge:
            needed |= {bucket_name(self._merge.number)}
            needed |= {name for source in self._merge.sources for name in source.names}
        for name in sorted(self._written_names - needed):
            try:
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

    def _written(self, rows: Rows, places: BitMap64) -> SealedBucket:
        """A new bucket, durable and not listed."""
        packing = Packing.of(places.min(), places.max(), int((rows[1] & MOST_ENTRY).max()))
        writer = self._writer(self._give_number(), packing)
        writer.append(*rows)
        writer.finish(places)
        return writer.opened()

    def seal(self, rows: Rows, places: BitMap64) -> None:
        """A new bucket of these rows, which are in order and not empty, durable and listed."""
        self._publish([*self.buckets, self._written(rows, places)])
        for bucket in self.buckets[:-1]:
            bucket.forget(places)
        self._remove_unlisted()

    def checkpoint(self, rows: Rows, places: BitMap64, mark: bytes) -> None:
        """The same, and what was taken or cancelled is durably so, and the mark is this one."""
        new = [self._written(rows, places)] if places else []
        if self._merge and not any(source.live for source in self._merge.sources):
            self._merge = None
        merging = self._merge.sources if self._merge else []
        kept = [bucket for bucket in self.buckets if bucket.live or bucket in merging]
        changed = {bucket: bucket.listed for bucket in kept if bucket.has_changed}
        try:
            if changed:
                self._write_live(list(changed))
            self._publish([*kept, *new], mark)
        except BaseException:  # also an interrupt: the list on disk is the old one
            for bucket, listed in changed.items():
                bucket.listed = listed
            raise
        for bucket in changed:
            bucket.checkpointed()
        self._remove_unlisted()

    def _write_live(self, buckets: list[SealedBucket]) -> None:
        """A file of what is pending in these buckets, durable; they say where it is."""
        number, at, sections = self._give_number(), 0, []
        self._written_names.add(live_name(number))
        for bucket in buckets:
            section = bucket.live_section()
            bucket.listed = bucket.listed._replace(live_file=number, live_at=at, live_size=len(section))
            sections.append(section)
            at += len(section)
        self._files.append(live_name(number), b"".join(sections))
        self._files.force(live_name(number))

    def trim(self, before_place: int) -> int:
        """Forget all places below this one, durably; how many were pending."""
        if not any(bucket.low < before_place for bucket in self.buckets):
            return 0
        count = sum(bucket.trim(before_place) for bucket in self.buckets)
        merging = self._merge.sources if self._merge else []
        kept = [bucket for bucket in self.buckets if not bucket.is_over or bucket in merging]
        self._publish(kept)
        self._remove_unlisted()
        return count

    def clear(self) -> None:
        """Forget everything but the mark, durably."""
        self._merge = None
        self._publish([])
        self._remove_unlisted()

    # merging

    @property
    def is_merging(self) -> bool:
        """Whether a merge is on its way."""
        return self._merge is not None

    def merge_some(self, rows: int) -> None:
        """Go on with merging, by about so many rows; more if the buckets would be twice as many as they should be."""
        if self._merge is None and len(self.buckets) > self.most_buckets:
            self._begin_merge()
        if self._merge is None:
            return
        room = 2 * self.most_buckets + 2 - len(self.buckets)
        left = sum(source.rows_to_merge for source in self._merge.sources)
        budget = max(rows, left // room if room > 0 else left)
        try:
            for read in self._merge.steps:
                budget -= read
                if budget <= 0:
                    return
        except BaseException:  # also an interrupt
            self._merge = None  # the sources are as they were; the next call begins anew
            raise

    def _begin_merge(self) -> None:
        """The smaller half of the buckets, at least two, become one: an entry is merged once a doubling or less."""
        by_rows = sorted(self.buckets, key=lambda bucket: (bucket.rows_to_merge, bucket.number))
        sources = by_rows[: max(2, (len(by_rows) + 1) // 2)]
        number = self._give_number()
        self._merge = _Merge(sources, number, self._merging(sources, number))

    def _merging(self, sources: list[SealedBucket], number: int) -> Iterator[int]:
        writer = self._merged_writer(sources, number)
        yield from _copied(sources, writer)
        self._finish_merge(sources, writer)

    def _merged_writer(self, sources: list[SealedBucket], number: int) -> BucketWriter:
        first, last = min(bucket.low for bucket in sources), max(bucket.high for bucket in sources)
        packing = Packing.of(first, last, (max(bucket.packing.spread for bucket in sources) << 16) - 1)
        return self._writer(number, packing)

    def _finish_merge(self, sources: list[SealedBucket], writer: BucketWriter) -> None:
        """Publish the merged bucket in place of its sources, and only then remove these."""
        places = _finished(sources, writer)
        merged = writer.opened()
        merged.take_over(sources)
        rest = [bucket for bucket in self.buckets if bucket not in sources]
        self._publish([*rest, merged] if places else rest)
        self._merge = None
        self.merges += 1
        self.merged_rows += writer.rows
        self._remove_unlisted()

    # the buckets of other trackers

    def join(self, sources: list[SealedBucket], mark: bytes) -> None:
        """What is pending in buckets of other folders becomes one bucket here, durable and listed with this mark."""
        new: list[SealedBucket] = []
        if sources:
            writer = self._merged_writer(sources, self._give_number())
            for _ in _copied(sources, writer):
                pass  # all at once: nobody waits meanwhile
            _finished(sources, writer)
            new = [writer.opened()]
        self._publish([*self.buckets, *new], mark)


def _copied(sources: list[SealedBucket], writer: BucketWriter) -> Iterator[int]:
    """Write the rows of some buckets in order; how many with each step."""
    part = max(1, MERGED_ROWS // len(sources))
    for times, found in merge([bucket.kept_rows(part) for bucket in sources]):
        writer.append(times, found)
        yield len(times)


def _finished(sources: list[SealedBucket], writer: BucketWriter) -> BitMap64:
    """End the file of what was copied: all places that are pending in it."""
    places = BitMap64()
    for source in sources:
        places |= source.places()
    if len(places) > writer.rows:
        raise damaged(f"the list of what is pending in {', '.join(source.names[0] for source in sources)}")
    writer.finish(places)
    return places
