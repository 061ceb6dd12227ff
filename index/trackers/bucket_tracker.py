"""The tracker on disk (R31 to R34): memory holds what comes next, and a set of what is pending."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from ..errors import BadEntry, report
from .bitmaps import are_in, bitmap_of, memory_bytes
from .bucket_writer import MOST_DELTA_MS, SegmentRule
from .due import Due
from .files import Files, FolderFiles
from .places import ENTRY_BITS, MOST_TIME_MS, NO_ROWS, Rows, joined, rows_until
from .sealed_bucket import SealedBucket
from .shelf import Shelf
from .time_buckets import TimeBuckets
from .tracker import Tracker

PORTION_ROWS = 1 << 17  # peeked at a time
MERGED_A_ROW = 4  # rows that are merged for each one that is sealed
MEMORY_LIMIT_BYTES = 256 << 20


class _Pulled:
    """A sealed bucket as a source of `Due`: notes what is pulled."""

    def __init__(self, bucket: SealedBucket, pulled: BitMap64) -> None:
        self._bucket = bucket
        self._pulled = pulled

    @property
    def head_ms(self) -> int | None:
        return self._bucket.head_ms

    def take(self, until_ms: int, count: int) -> Rows:
        rows = self._bucket.take(until_ms, count)
        self._pulled |= self._bucket.last_taken
        return rows


class BucketTracker(Tracker):
    """Delayed entries in a folder of their own: as many as the disk holds, in memory that hardly grows.

    New entries are in the *mutable bucket*, in memory. It is *sealed*, written to disk as a bucket that never changes,
    when it has `seal_entries` and a ledger ends, when it has `most_entries`, or `seal_after_ms` after it was begun. Of
    each sealed bucket, the next *segment* is in memory. More than `most_buckets` are merged, a part with each sealing.

    What survives. A bucket that was sealed survives; the mutable one does not, and the caller adds its entries again
    from the end of the log: what is there already is not added twice. What was taken or cancelled is forgotten on disk
    at the next `checkpoint`, and comes back after a crash before it. So: call `checkpoint(mark)` when everything that
    was taken is safe elsewhere, with a mark of the place in the log; after opening, repeat from `mark` on what the log
    says, in its order: each addition and each cancellation. `trim` and `clear` are durable when they return.

    One tracker may be open on a folder. Errors of the file system (OSError) leave it usable, and nothing is forgotten;
    TrackerDamaged means that a file has wrong bytes.

    Attributes:
        mark: what was given to the last checkpoint; b"" in a new folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        precision_bits: int = 0,
        *,
        seal_entries: int = 50_000,
        most_entries: int = 500_000,
        seal_after_ms: int = 300_000,
        segment_ms: int = 300_000,
        segment_entries: int = 5_000,
        most_buckets: int = 50,
        memory_limit_bytes: int | None = MEMORY_LIMIT_BYTES,
        files: Files | None = None,
    ) -> None:
        super().__init__(precision_bits, memory_limit_bytes)
        for name, value, most in (
            ("seal_entries", seal_entries, most_entries), ("most_entries", most_entries, 1 << 24),
            ("seal_after_ms", seal_after_ms, 1 << 62), ("segment_ms", segment_ms, MOST_DELTA_MS),
            ("segment_entries", segment_entries, 1 << 20), ("most_buckets", most_buckets, 500),
        ):  # fmt: skip
            if type(value) is not int or not 1 <= value <= most:
                raise BadEntry(f"{name} is an integer from 1 to {most:,}, not {value!r}")
        self._seal_entries, self._most_entries, self._seal_after_ms = seal_entries, most_entries, seal_after_ms
        self._files = FolderFiles(folder) if files is None else files
        self._shelf = Shelf(self._files, SegmentRule(segment_ms, segment_entries), most_buckets)
        self._mutable = TimeBuckets()
        self._begun_ms: int | None = None  # when the mutable bucket was first seen with something in it
        self._last_ledger = -1
        self._due = Due()  # of sealed buckets; their order with the mutable one's rows is made on the way out
        self._pulled = BitMap64()  # the places of `_due`
        self._heads: tuple[list[SealedBucket], int] = ([], 0)  # no bucket of this list has a row before this time
        self._seals = 0

    @property
    def mark(self) -> bytes:
        """Of the last checkpoint."""
        return self._shelf.mark

    # adding

    def _overlapping(self, low: int, high: int) -> list[BitMap64]:
        sets = [bucket.live for bucket in self._shelf.buckets if bucket.low <= high and low <= bucket.high]
        return [*sets, self._pulled] if self._pulled else sets

    def _add_one(self, place: int, time_ms: int) -> bool:
        self._seal_before(place >> ENTRY_BITS)
        self._last_ledger = place >> ENTRY_BITS
        return self._put_back(place, time_ms)

    def _put_back(self, place: int, time_ms: int) -> bool:
        if place <= self._shelf.highest and any(place in known for known in self._overlapping(place, place)):
            return False
        return self._mutable.add_one(place, time_ms)

    def _add_rows(self, times: Int64s, places: Int64s) -> int:
        new = 0
        while len(times):
            self._seal_before(int(places[0]) >> ENTRY_BITS)
            count = self._most_entries - len(self._mutable)
            new += self._add_part(times[:count], places[:count])
            self._last_ledger = int(places[:count][-1]) >> ENTRY_BITS
            times, places = times[count:], places[count:]
        return new

    def _seal_before(self, ledger: int) -> None:
        """Seal where a ledger ends, or at the bound. After an error the bucket is as it was, and nothing is added."""
        if len(self._mutable) >= (self._seal_entries if ledger != self._last_ledger else self._most_entries):
            self._seal()

    def _add_part(self, times: Int64s, places: Int64s) -> int:
        if sets := self._overlapping(int(places.min()), int(places.max())):
            known = _common(sets, places)
            if known and (found := are_in(places, known)) is not None:
                times, places = times[~found], places[~found]
        return self._mutable.add_rows(times, places) if len(times) else 0

    def _refuse_if_full(self) -> None:
        """The mutable bucket goes to disk first."""
        if self.should_pause_all_deliveries:
            self._seal()
        super()._refuse_if_full()

    # sealing and merging

    def _seal(self) -> None:
        """The mutable bucket becomes one on disk. If that fails, its entries stay where they are."""
        rows = self._mutable.take_all()
        if not len(rows[0]):
            return
        try:
            self._shelf.seal(rows, bitmap_of(rows[1]))
        except BaseException:  # also an interrupt: no entry is lost
            self._mutable.put_back(*rows)
            raise
        self._seals += 1
        self._begun_ms = None
        self._shelf.merge_some(MERGED_A_ROW * len(rows[0]))

    def checkpoint(self, mark: bytes | None = None) -> None:
        """Everything that was added is durable, and what was taken or cancelled is durably forgotten.

        `mark` is kept with it; None: the last one stays. The mutable bucket is sealed, however small it is.
        """
        with self._open():
            new = self._mutable.take_all()
            rows = joined([new, self._due.rows])
            try:
                self._shelf.checkpoint(rows, bitmap_of(rows[1]), self._shelf.mark if mark is None else mark)
            except BaseException:  # as above
                if len(new[0]):
                    self._mutable.put_back(*new)
                raise
            self._due, self._pulled = Due(), BitMap64()
            self._begun_ms = None
            self._shelf.merge_some(MERGED_A_ROW * len(rows[0]))

    def upkeep(self, rows: int = 1 << 20) -> bool:
        """Merge about so many rows, if there are too many buckets; whether there is more to do.

        Sealing does the same in small parts: a caller who has idle time may call this, nobody has to.
        """
        with self._open():
            self._shelf.merge_some(rows)
            return self._shelf.is_merging or len(self._shelf.buckets) > self._shelf.most_buckets

    # taking

    def _peek(self, now_ms: int, count: int) -> tuple[Rows, int]:
        """The first rows, and how many of them are of `_due`."""
        sealed = self._due.peek(now_ms, count, self._sources(now_ms))
        mutable = self._mutable.peek(now_ms, count)
        if not len(mutable[0]):
            return sealed, len(sealed[0])
        if not len(sealed[0]):
            return mutable, 0
        times, places = joined([sealed, mutable])
        rows = times[:count], places[:count]
        return rows, rows_until(sealed, int(rows[0][-1]), int(rows[1][-1]))

    def _sources(self, now_ms: int) -> list[_Pulled]:
        """The sealed buckets, if one of them may have something: heads are looked at once for what is due soon."""
        buckets, head_ms = self._heads
        if buckets is not self._shelf.buckets or head_ms <= now_ms:
            buckets = self._shelf.buckets
            head_ms = min([MOST_TIME_MS, *(head for one in buckets if (head := one.head_ms) is not None)])
            self._heads = buckets, head_ms
        return [_Pulled(one, self._pulled) for one in buckets] if head_ms <= now_ms else []

    def _take(self, now_ms: int, count: int) -> Int64s:
        self._seal_in_time(now_ms)
        parts: list[Int64s] = []
        is_more = True
        while count and is_more:
            wanted = min(count, PORTION_ROWS)
            (times, places), of_sealed = self._peek(now_ms, wanted)
            is_more = len(times) == wanted
            if of_sealed:
                if of_sealed == len(self._due.rows[0]):
                    self._pulled = BitMap64()
                else:
                    self._pulled -= bitmap_of(self._due.rows[1][:of_sealed])
                self._due.drop(of_sealed)
            if len(times) > of_sealed:
                self._mutable.drop(len(times) - of_sealed)
            parts.append(places)
            count -= len(places)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _seal_in_time(self, now_ms: int) -> None:
        if not len(self._mutable):
            self._begun_ms = None
        elif self._begun_ms is None or now_ms < self._begun_ms:
            self._begun_ms = now_ms
        elif now_ms - self._begun_ms >= self._seal_after_ms:
            self._begun_ms = now_ms
            try:
                self._seal()
            except OSError as error:  # a full disk is no reason to hold back what is due
                report("the mutable bucket could not be sealed; it is tried again", error)

    def _next_ms(self) -> int | None:
        times = self._due.rows[0]
        found = [int(times[0])] if len(times) else []
        if (head := self._mutable.next_ms) is not None:
            found.append(head)
        buckets, head_ms = self._heads
        if buckets is not self._shelf.buckets or not found or min(found) > head_ms:
            found += [head for bucket in self._shelf.buckets if (head := bucket.next_ms) is not None]
        return min(found, default=None)

    def _are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]:
        found = self._mutable.are_pending(places)
        sets = self._overlapping(int(places.min()), int(places.max())) if len(places) else []
        here = are_in(places, _common(sets, places)) if sets else None
        return found if here is None else found | here

    def _pending_places(self) -> BitMap64:
        found = self._mutable.pending_places() | self._pulled
        for bucket in self._shelf.buckets:
            found |= bucket.live
        return found

    # leaving

    def _cancel(self, place: int) -> bool:
        if self._mutable.cancel(place):
            return True
        if place in self._pulled:
            self._pulled.remove(place)
            self._keep_due(self._due.rows[1] != place)
            return True
        return any(one.low <= place <= one.high and one.cancel(place) for one in self._shelf.buckets)

    def _keep_due(self, kept: Any) -> None:
        self._due.rows = self._due.rows[0][kept], self._due.rows[1][kept]

    def _trim(self, before_place: int) -> int:
        count = self._mutable.trim(before_place) + len(self._due.rows[0])
        self._keep_due(self._due.rows[1] >= before_place)
        self._pulled = bitmap_of(self._due.rows[1])
        return count - len(self._due.rows[0]) + self._shelf.trim(before_place)

    def _clear(self) -> None:
        self._shelf.clear()
        self._mutable.clear()
        self._due, self._pulled = Due(), BitMap64()

    def _close(self) -> None:
        self._mutable.clear()
        self._due.rows = NO_ROWS
        self._files.close()

    # what is told

    def _count(self) -> int:
        return len(self._mutable) + len(self._due.rows[0]) + sum(one.count for one in self._shelf.buckets)

    def _memory_bytes(self) -> int:
        sealed = sum(one.memory_bytes for one in self._shelf.buckets)
        return sealed + self._mutable.memory_bytes + self._due.memory_bytes + memory_bytes(self._pulled)

    def _stats(self) -> dict[str, Any]:
        buckets = self._shelf.buckets
        return {
            "memory_bytes": self._memory_bytes(), "buckets": len(buckets),
            "sealed": sum(one.count for one in buckets),
            "disk_bytes": sum(one.listed.size for one in buckets), "disk_rows": sum(one.rows for one in buckets),
            "not_checkpointed": sum(len(one.gone) for one in buckets), "ready": len(self._due.rows[0]),
            "seals": self._seals, "merges": self._shelf.merges, "merged_rows": self._shelf.merged_rows,
            "is_merging": self._shelf.is_merging, "mutable": {"pending": len(self._mutable), **self._mutable.stats()},
        }  # fmt: skip


def _common(sets: list[BitMap64], places: Int64s) -> BitMap64:
    """Those of some places that are in a set."""
    batch, common = bitmap_of(np.unique(places)), BitMap64()
    for one in sets:
        common |= one & batch
    return common
