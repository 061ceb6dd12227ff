"""The tracker on disk: memory has the next entries, and the directories that find the others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from ..errors import BadEntry, report
from .bucket_writer import MOST_DELTA_MS, SegmentRule
from .files import Files, FolderFiles
from .ordered import NextRows
from .places import ENTRY_BITS, MOST_TIME_MS, NO_ROWS, Rows, bitmap_of, joined, memory_bytes, rows_until
from .sealed_bucket import SealedBucket
from .shelf import MOST_BUCKETS, SEGMENT_ENTRIES, SEGMENT_MS, Shelf
from .time_buckets import TimeBuckets
from .tracker import Tracker

MERGED_A_ROW = 4  # rows merged for each one that is sealed
SHRUNK_ROWS = 1 << 18  # rows merged by one `shrink`
MEMORY_LIMIT_BYTES = 256 << 20


class BucketTracker(Tracker):
    """Delayed entries in a folder of their own: as many as the disk holds, in memory that hardly grows.

    New entries are in the *mutable bucket*, in memory. It is *sealed*, written to disk as a bucket that never changes,
    when it has `seal_entries` and a ledger ends, when it has `most_entries`, or `seal_after_ms` after it was begun. Of
    each sealed bucket, the next *segment* is in memory. More than `most_buckets` are merged, a part with each sealing.

    After a crash the sealed buckets are there; the mutable one is lost, and the caller adds its entries again
    from the end of the log: an entry that exists is not added twice. Taken or cancelled entries are forgotten on disk
    at the next `checkpoint`, and come back after a crash before it. So: call `checkpoint(mark)` when all taken
    entries are safe elsewhere, with a mark of the place in the log; after opening, repeat from `mark` on each
    addition and each cancellation of the log, in its order. `trim` and `clear` are durable when they return.

    One tracker may be open on a folder. Errors of the file system (OSError) leave it usable, and nothing is forgotten;
    TrackerDamaged means that a file has wrong bytes.

    Attributes:
        mark: of the last checkpoint; b"" in a new folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        precision_bits: int = 0,
        *,
        seal_entries: int = 50_000,
        most_entries: int = 500_000,
        seal_after_ms: int = 300_000,
        segment_ms: int = SEGMENT_MS,
        segment_entries: int = SEGMENT_ENTRIES,
        most_buckets: int = MOST_BUCKETS,
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
        self._shelf.bits = max(self._shelf.bits, precision_bits)
        self._mutable = TimeBuckets()
        self._begun_ms: int | None = None  # when the mutable bucket was first seen with entries
        self._last_ledger = -1
        self._due = NextRows()  # of sealed buckets; merged with the mutable one's rows on the way out
        self._again = BitMap64()  # places that were added again, while the disk may have them in an older bucket
        self._heads: tuple[list[SealedBucket], int] = ([], 0)  # no bucket of this list has a row before this time
        self._seals = 0
        self._peeked_sealed = 0  # rows of the last `_peek` that came from `_due`

    @property
    def mark(self) -> bytes:
        """The mark of the last checkpoint."""
        return self._shelf.mark

    @property
    def latest_ms(self) -> int:
        """Entries come later than their own times by less than this; 1: exactly at them."""
        return 1 << self._shelf.bits

    def reset_tick_time(self, ms: int) -> None:
        """Set the precision of entries added from now on, as in all trackers. The files have the coarsest one."""
        super().reset_tick_time(ms)
        self._shelf.bits = max(self._shelf.bits, self._bits)  # listed with the first bucket that has such entries

    def shrink(self) -> None:
        """Free memory that only makes calls fast, and seal the mutable bucket if it is most of the rest.

        If it is not, go on with merging: a bucket of gone entries takes memory for all that it had.

        Raises OSError.
        """
        self._change(self._shrink)

    def _shrink(self) -> None:
        self._shelf.pages.clear()
        if 2 * self._mutable.memory_bytes >= self._memory_bytes():
            self._seal()
        else:
            self._shelf.merge_some(SHRUNK_ROWS)

    # adding

    def _are_sealed(self, places: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which places are pending in sealed buckets, or pulled from them.

        Notes which of the others are still pending on disk: the next sealing corrects that.
        """
        found = np.zeros(len(places), np.bool_)
        known = np.flatnonzero(self._shelf.ends.may_have(places))
        if len(known):
            asked, at = np.unique(places[known], return_inverse=True)
            here, on_disk = np.isin(asked, self._due.rows[1]), np.zeros(len(asked), np.bool_)
            for bucket in self._shelf.buckets:
                if bucket.low <= asked[-1] and asked[0] <= bucket.high:
                    pending, listed = bucket.look(asked)
                    here |= pending
                    on_disk |= listed
            found[known] |= here[at]
            again = on_disk & ~here
            if again.any():
                self._again |= bitmap_of(asked[again])
        return found

    def _add_one(self, place: int, time_ms: int) -> bool:
        self._seal_before(place >> ENTRY_BITS)
        self._last_ledger = place >> ENTRY_BITS
        if self._are_sealed(np.array([place], np.int64))[0]:
            return False
        return self._mutable.add_one(place, time_ms)

    def _put_back(self, place: int, time_ms: int) -> bool:
        """The entry was pending just now, so the disk may have it as pending; no file has to be read for it."""
        try:
            if self._are_sealed(np.array([place], np.int64))[0]:
                return False
        except OSError:
            self._again.add(place)
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
        """Seal at the end of a ledger, or at the bound. An error leaves the bucket as before, and adds nothing."""
        if len(self._mutable) >= (self._seal_entries if ledger != self._last_ledger else self._most_entries):
            self._seal()

    def _add_part(self, times: Int64s, places: Int64s) -> int:
        found = self._are_sealed(places)
        if found.any():
            times, places = times[~found], places[~found]
        return self._mutable.add_rows(times, places) if len(times) else 0

    def _refuse_if_full(self) -> None:
        """Seal the mutable bucket first."""
        if self._is_full():
            self._shelf.pages.clear()
            self._seal()
        super()._refuse_if_full()

    # sealing and merging

    def _seal(self) -> None:
        """Write the mutable bucket to disk. If that fails, its entries stay where they are."""
        rows = self._mutable.rows()
        if not len(rows[0]):
            return
        self._shelf.seal(rows, self._again)
        self._mutable.clear()
        if self._again:
            self._again -= bitmap_of(rows[1])
        self._seals += 1
        self._begun_ms = None
        self._shelf.merge_some(MERGED_A_ROW * len(rows[0]))

    def checkpoint(self, mark: bytes | None = None) -> None:
        """Make durable all additions, and that taken or cancelled entries are forgotten.

        `mark` is kept with it; None keeps the last one. The mutable bucket is sealed, however small it is.
        """
        self._change(self._checkpoint, self._shelf.mark if mark is None else mark)

    def _checkpoint(self, mark: bytes) -> None:
        rows = joined([self._mutable.rows(), self._due.rows])
        self._shelf.checkpoint(rows, mark)
        self._mutable.clear()
        self._due, self._again = NextRows(), BitMap64()
        self._begun_ms = None
        self._shelf.merge_some(MERGED_A_ROW * len(rows[0]))

    def upkeep(self, rows: int = 1 << 20) -> bool:
        """Merge about `rows` rows, if there are too many buckets. True if there is more to do.

        Sealing does so in small parts, too: a caller with idle time may call this, but need not.
        """
        return self._change(self._upkeep, rows)

    def _upkeep(self, rows: int) -> bool:
        self._shelf.merge_some(rows)
        return self._shelf.is_merging or len(self._shelf.buckets) > self._shelf.most_buckets

    # taking

    def _peek(self, now_ms: int, count: int) -> Int64s:
        self._seal_in_time(now_ms)
        rows, self._peeked_sealed = self._peek_rows(now_ms, count)
        return rows[1]

    def _peek_rows(self, now_ms: int, count: int) -> tuple[Rows, int]:
        """The first rows, and how many of them come from `_due`."""
        sealed = self._due.peek(now_ms, count, self._sources(now_ms))
        mutable = self._mutable.peek(now_ms, count)
        if not len(mutable[0]):
            return sealed, len(sealed[0])
        if not len(sealed[0]):
            return mutable, 0
        times, places = joined([sealed, mutable])
        rows = times[:count], places[:count]
        return rows, rows_until(sealed, int(rows[0][-1]), int(rows[1][-1]))

    def _sources(self, now_ms: int) -> list[SealedBucket]:
        """The sealed buckets, if one of them may have due rows; heads are checked once for a while ahead."""
        buckets, head_ms = self._heads
        if buckets is not self._shelf.buckets or head_ms <= now_ms:
            buckets = self._shelf.buckets
            head_ms = min([MOST_TIME_MS, *(head for one in buckets if (head := one.head_ms) is not None)])
            self._heads = buckets, head_ms
        return buckets if head_ms <= now_ms else []

    def _drop(self, count: int) -> None:
        of_sealed = self._peeked_sealed
        if of_sealed:
            self._due.drop(of_sealed)
        if count > of_sealed:
            self._mutable.drop(count - of_sealed)

    def _seal_in_time(self, now_ms: int) -> None:
        if not len(self._mutable):
            self._begun_ms = None
        elif self._begun_ms is None or now_ms < self._begun_ms:
            self._begun_ms = now_ms
        elif now_ms - self._begun_ms >= self._seal_after_ms:
            self._begun_ms = now_ms
            try:
                self._seal()
            except OSError as error:  # a full disk does not hold back due entries
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
        return self._mutable.are_pending(places) | self._are_sealed(places)

    def _pending_places(self) -> BitMap64:
        found = self._mutable.pending_places() | bitmap_of(self._due.rows[1])
        for bucket in self._shelf.buckets:
            for places in bucket.pending_between(0, 1 << 63):
                found |= bitmap_of(places)
        return found

    # leaving

    def _cancel(self, place: int) -> bool:
        if self._mutable.cancel(place):
            return True
        others = self._due.rows[1] != place
        if not others.all():
            self._keep_due(others)
            return True
        places = np.array([place], np.int64)
        if self._shelf.ends.may_have(places)[0]:
            for bucket in self._shelf.buckets:
                if bucket.low <= place <= bucket.high and bucket.look(places)[0][0]:
                    bucket.kill(places)
                    return True
        return False

    def _keep_due(self, kept: Any) -> None:
        self._due.rows = self._due.rows[0][kept], self._due.rows[1][kept]

    def _discard(self, first_place: int, before_place: int) -> BitMap64:
        """As for cancellations: the disk forgets the entries at the next checkpoint."""
        gone = self._discard_in_memory(first_place, before_place)
        for bucket in self._shelf.buckets:
            for places in bucket.pending_between(first_place, before_place):
                bucket.kill(places)
                gone |= bitmap_of(places)
        return gone

    def _discard_in_memory(self, first_place: int, before_place: int) -> BitMap64:
        due = self._due.rows[1]
        others = (due < first_place) | (due >= before_place)
        gone = bitmap_of(due[~others])
        if gone:
            self._keep_due(others)
        return gone | self._mutable.discard(first_place, before_place)

    def _trim(self, before_place: int) -> int:
        return len(self._discard_in_memory(0, before_place)) + self._shelf.trim(before_place)

    def _clear(self) -> None:
        self._shelf.clear()
        self._mutable.clear()
        self._due, self._again = NextRows(), BitMap64()

    def _close(self) -> None:
        self._mutable.clear()
        self._due.rows = NO_ROWS
        self._files.close()

    # figures

    def _count(self) -> int:
        return len(self._mutable) + len(self._due.rows[0]) + sum(one.count for one in self._shelf.buckets)

    def _memory_bytes(self) -> int:
        sealed = sum(one.memory_bytes for one in self._shelf.buckets)
        again = memory_bytes(self._again) if self._again else 0
        return sealed + self._shelf.memory_bytes + self._mutable.memory_bytes + self._due.memory_bytes + again

    def _stats(self) -> dict[str, Any]:
        buckets = self._shelf.buckets
        return {
            "memory_bytes": self._memory_bytes(), "buckets": len(buckets),
            "sealed": sum(one.count for one in buckets),
            "disk_bytes": sum(one.listed.size for one in buckets), "disk_rows": sum(one.rows for one in buckets),
            "not_checkpointed": sum(one.disk.rows - one.count for one in buckets), "ready": len(self._due.rows[0]),
            "seals": self._seals, "merges": self._shelf.merges, "merged_rows": self._shelf.merged_rows,
            "is_merging": self._shelf.is_merging, "mutable": {"pending": len(self._mutable), **self._mutable.stats()},
        }  # fmt: skip
