"""Pending entries by their times, in memory: slots as bitmaps where they are dense, packed runs where they are sparse.

New entries wait in an inbox, a dict, until there are enough to be sorted into slots together. A sorted entry is one bit
of `_live`, by its place: so it is known to be pending without a search for its slot. A cancel clears that bit, and the
entry's row is dead: it is skipped when its time comes. An entry that is added again while its dead row is still there
waits among the *moved*, another dict, until that row is gone.

Invariants:
    * An entry is in at most one of: the inbox, the moved, `_live`. It is pending exactly if it is in one of them.
    * Each place of `_live` and each dead place has exactly one row, in a slot, in a run or in `_due`; no other
      rows are there.
    * No place is both live and dead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s, stable_order
from .blocks import BlockRun
from .dense import SLOT_BYTES, DenseSlots, Slots, slots_of
from .ordered import NextRows, OrderedRows, merge
from .places import (
    MOST_TIME_MS,
    NO_ROWS,
    Rows,
    add_places,
    are_in,
    bitmap_of,
    is_ascending,
    joined,
    memory_bytes,
    those_between,
)
from .tracker import Tracker

INBOX_ROWS = 4096
FEW_ROWS = 1024  # a smaller batch goes into the inbox
WAITING_BYTES = 190  # of an entry in a dict
MOST_RUNS = 12  # beside long ones
MOST_MERGED_ROWS = 1 << 20  # a run of more rows is a long one
MOST_MOVED = 1 << 16
DEAD_LEAST = 4096  # dead rows are swept out when there are more than this ..
DEAD_PART = 4  # .. and more than one for so many live ones
CHECKED_CANCELS = 1024
NEVER = MOST_TIME_MS + 1


class TimeBuckets:
    """The rows, and which of them are pending. Times are used as given; the caller rounds them before."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all entries."""
        self._inbox: dict[int, int] = {}  # place -> time
        self._moved: dict[int, int] = {}
        self._inbox_first = self._moved_first = NEVER  # not later than the first time, and exact ..
        self._is_exact = True  # .. unless entries have left
        self._live = BitMap64()
        self._live_count = 0
        self._highest = -1  # the highest place that was ever settled
        self._dense = DenseSlots()
        self._runs: list[BlockRun] = []  # the oldest first
        self._due = NextRows()
        self._cancels = 0
        self._peeked: tuple[Int64s, bool] = (NO_ROWS[1], False)

    def __len__(self) -> int:
        return self._live_count + len(self._inbox) + len(self._moved)

    def __contains__(self, place: int) -> bool:
        return place in self._inbox or place in self._live or place in self._moved

    def are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which places, in any order, are pending."""
        found = are_in(places, self._live) if self._live and len(places) else None
        for waiting in (self._inbox, self._moved):
            if waiting:
                here = np.fromiter(map(waiting.__contains__, places.tolist()), np.bool_, len(places))
                found = here if found is None else found | here
        return np.zeros(len(places), np.bool_) if found is None else found

    def pending_places(self) -> BitMap64:
        """A copy of the set of all pending places."""
        return self._live | BitMap64([*self._inbox, *self._moved])

    # adding

    def add_one(self, place: int, time_ms: int) -> bool:
        """Add an entry. True if it is new."""
        inbox = self._inbox
        if place in inbox or (place <= self._highest and place in self._live) or place in self._moved:
            return False
        inbox[place] = time_ms
        if time_ms < self._inbox_first:  # noqa: PLR1730  # min() takes as long as all the rest
            self._inbox_first = time_ms
        if len(inbox) >= INBOX_ROWS:
            self.settle()
        return True

    def add_rows(self, times: Int64s, places: Int64s) -> int:
        """Add entries. Returns how many are new. If a place is there twice, the first time counts."""
        if len(places) < FEW_ROWS:
            return sum(map(self.add_one, places.tolist(), times.tolist()))
        self.settle()
        if not is_ascending(places):
            order = np.argsort(places, kind="stable")
            places = places[order]
            first = np.append(True, places[1:] != places[:-1])
            places, times = places[first], times[order[first]]
        new = self._not_pending(places)
        if new is not None:
            times, places = times[new], places[new]
        self._settle_rows(times, places)
        return len(places)

    def _not_pending(self, places: Int64s) -> npt.NDArray[np.bool_] | None:
        """(n,) which places are new; None if all are."""
        known = are_in(places, self._live) if len(places) and places[0] <= self._highest else None
        if self._moved:
            moved = np.isin(places, np.fromiter(self._moved, np.int64, len(self._moved)))
            known = moved if known is None else known | moved
        return None if known is None else ~known

    def settle(self) -> None:
        """Sort the inbox into slots."""
        inbox, self._inbox, self._inbox_first = self._inbox, {}, NEVER
        if inbox:
            times, places = (np.fromiter(of, np.int64, len(inbox)) for of in (inbox.values(), inbox))
            if not is_ascending(places):
                order = np.argsort(places)
                times, places = times[order], places[order]
            self._settle_rows(times, places)

    def _settle_rows(self, times: Int64s, places: Int64s) -> None:
        """Settle rows of new places, which ascend."""
        dead = are_in(places, self._due.dead) if self._due.dead and len(places) else None
        if dead is not None:
            self._moved.update(zip(places[dead].tolist(), times[dead].tolist(), strict=True))
            self._moved_first = min(self._moved_first, int(times[dead].min()))
            times, places = times[~dead], places[~dead]
        if len(places):
            self._place(times, places)
        if len(self._moved) > MOST_MOVED:
            self.sweep()

    def _place(self, times: Int64s, places: Int64s) -> None:
        """Sort rows into slots: places ascend, and none of them is there in any form."""
        add_places(self._live, places)
        self._live_count += len(places)
        self._highest = max(self._highest, int(places[-1]))
        # Places ascend, so a stable order by the times alone is the order of rows.
        common = int(np.bitwise_or.reduce(times))
        order = stable_order(times >> (common & -common).bit_length() - 1 if common else times)
        if order is not None:
            times, places = times[order], places[order]
        slots = slots_of(times, places, has_bitmaps=len(self._dense) > 0)
        if slots is not None:
            times, places = self._place_dense(slots, times, places)
        if len(times):
            run = BlockRun()
            run.append(times, places)
            self._runs.append(run)
            self._merge_runs()

    def _place_dense(self, slots: Slots, times: Int64s, places: Int64s) -> Rows:
        """Make bitmaps of the dense slots. Returns the rows of the others."""
        saved = slots.packed_bytes - slots.least_bytes
        is_dense = saved > SLOT_BYTES
        for at in np.flatnonzero((saved > 0) & ~is_dense).tolist() if len(self._dense) else ():
            is_dense[at] = int(slots.times[at]) in self._dense
        for at in np.flatnonzero(is_dense).tolist():
            self._dense.add(int(slots.times[at]), places[slots.begins[at] : slots.ends[at]])
        sparse = np.repeat(~is_dense, slots.ends - slots.begins)
        return times[sparse], places[sparse]

    def _merge_runs(self) -> None:
        """Keep the runs few: merge the newest ones, and each older one that is not twice as long as those.

        A long run is left alone: its merge would delay the caller that adds.
        """
        self._runs = [run for run in self._runs if run.rows]
        least = max((at + 1 for at, run in enumerate(self._runs) if run.rows > MOST_MERGED_ROWS), default=0)
        if len(self._runs) - least <= MOST_RUNS:
            return
        rows, first = self._runs[-1].rows, len(self._runs) - 1
        while first > least and (self._runs[first - 1].rows <= 2 * rows or first - least > MOST_RUNS - 2):
            first -= 1
            rows += self._runs[first].rows
        merged = BlockRun()
        for times, places in merge([run.parts() for run in self._runs[first:]]):
            merged.append(times, places)
        self._runs[first:] = [merged]

    # taking

    def peek(self, now_ms: int, count: int) -> Rows:
        """The first due rows by (time, place), at most `count`. They stay until `drop`."""
        if self._inbox_first <= now_ms:
            self.settle()
        rows = self._due.peek(now_ms, count, [self._dense, *self._runs])
        moved = self._moved_until(now_ms) if self._moved_first <= now_ms else NO_ROWS
        has_moved = len(moved[0]) > 0
        if has_moved:
            times, places = joined([rows, moved])
            rows = times[:count], places[:count]
        self._peeked = rows[1], has_moved
        return rows

    def _moved_until(self, now_ms: int) -> Rows:
        rows = [(time_ms, place) for place, time_ms in self._moved.items() if time_ms <= now_ms]
        self._moved_first = min(self._moved.values(), default=NEVER)
        if not rows:
            return NO_ROWS
        times, places = np.array(sorted(rows), np.int64).T
        return np.ascontiguousarray(times), np.ascontiguousarray(places)

    def drop(self, count: int) -> None:
        """The first `count` rows of the last `peek` were handed out: they are not pending any more."""
        places, has_moved = self._peeked
        places = places[:count]
        if has_moved:
            moved = np.isin(places, np.fromiter(self._moved, np.int64, len(self._moved)))
            for place in places[moved].tolist():
                del self._moved[place]
            self._is_exact = False
            places = places[~moved]
        self._due.drop(len(places))
        if len(places):
            self._live -= bitmap_of(places)
            self._live_count -= len(places)

    @property
    def next_ms(self) -> int | None:
        """The first pending entry's time, exactly; None if none is pending."""
        if not self:
            return None
        if not self._is_exact:
            self._inbox_first = min(self._inbox.values(), default=NEVER)
            self._moved_first = min(self._moved.values(), default=NEVER)
            self._is_exact = True
        sources: list[OrderedRows] = [self._dense, *self._runs]
        if self._due.dead:  # the heads may be dead
            times, _ = self._due.peek(MOST_TIME_MS, 1, sources)
        else:
            times = self._due.rows[0]
        first_ms = int(times[0]) if len(times) else NEVER
        heads = [head for source in sources if (head := source.head_ms) is not None]
        return min(first_ms, self._inbox_first, self._moved_first, *heads)

    def rows(self) -> Rows:
        """All pending rows in order. They stay."""
        self.settle()
        self.sweep()
        parts = [NO_ROWS, *merge([[self._due.rows], self._dense.parts(), *(run.parts() for run in self._runs)])]
        times, places = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        return times, places

    # leaving

    def cancel(self, place: int) -> bool:
        """Cancel an entry. True if it was pending."""
        if self._inbox.pop(place, None) is not None or self._moved.pop(place, None) is not None:
            self._is_exact = False
            return True
        if place not in self._live:
            return False
        self._live.remove(place)
        self._live_count -= 1
        self._due.dead.add(place)
        self._cancels += 1
        if self._cancels % CHECKED_CANCELS == 0:
            self._sweep_if_many()
        return True

    def discard(self, first_place: int, before_place: int) -> BitMap64:
        """Cancel the pending entries at the places `first_place` .. `before_place` - 1. Returns them."""
        self._is_exact = False
        found = BitMap64()
        for waiting in (self._inbox, self._moved):
            mine = [place for place in waiting if first_place <= place < before_place]
            found.update(mine)
            for place in mine:
                del waiting[place]
        gone = those_between(self._live, first_place, before_place)
        self._live -= gone
        self._live_count = len(self._live)
        self._due.dead |= gone
        self._sweep_if_many()
        return found | gone

    def _sweep_if_many(self) -> None:
        if len(self._due.dead) > max(DEAD_LEAST, self._live_count // DEAD_PART):
            self.sweep()

    def sweep(self) -> None:
        """Drop all dead rows; the moved entries take their place."""
        dead = self._due.dead
        if dead:
            self._due.drop_dead()
            self._dense.drop(dead)
            for number, run in enumerate(self._runs):
                self._runs[number] = kept = BlockRun()
                for times, places in run.parts():
                    gone = are_in(places, dead)
                    kept.append(*((times, places) if gone is None else (times[~gone], places[~gone])))
            self._due.dead = BitMap64()
        moved, self._moved, self._moved_first = self._moved, {}, NEVER
        if moved:
            places = np.array(sorted(moved), np.int64)
            self._place(np.array([moved[place] for place in places.tolist()], np.int64), places)

    # figures

    @property
    def memory_bytes(self) -> int:
        """The memory of all this, about."""
        waiting = WAITING_BYTES * (len(self._inbox) + len(self._moved))
        bitmaps = memory_bytes(self._live) + memory_bytes(self._due.dead)
        packed = sum(run.memory_bytes for run in self._runs)
        return waiting + bitmaps + packed + self._dense.memory_bytes + self._due.memory_bytes

    def stats(self) -> dict[str, int]:
        """The number of rows in each form."""
        return {
            "bitmap_slots": len(self._dense), "bitmap_rows": self._dense.rows, "bitmap_bytes": self._dense.memory_bytes,
            "packed_runs": len(self._runs), "packed_rows": sum(run.rows for run in self._runs),
            "packed_bytes": sum(run.memory_bytes for run in self._runs),
            "inbox_rows": len(self._inbox), "moved_rows": len(self._moved), "ready_rows": len(self._due.rows[0]),
            "dead_rows": len(self._due.dead), "membership_bytes": memory_bytes(self._live),
        }  # fmt: skip


class TimeBucketTracker(Tracker):
    """Entries by time buckets of 2**precision_bits ms, each as bitmaps or as packed rows, whichever is smaller.

    Source: the time-bucket algorithm of Apache Pulsar's in-memory tracker, which rounds down and has only bitmaps.
    """

    def __init__(self, precision_bits: int = 10, *, memory_limit_bytes: int | None = None) -> None:
        super().__init__(precision_bits, memory_limit_bytes)
        self._buckets = TimeBuckets()

    def _add_one(self, place: int, time_ms: int) -> bool:
        return self._buckets.add_one(place, time_ms)

    def _add_rows(self, times: Int64s, places: Int64s) -> int:
        return self._buckets.add_rows(times, places)

    def _peek(self, now_ms: int, count: int) -> Int64s:
        return self._buckets.peek(now_ms, count)[1]

    def _drop(self, count: int) -> None:
        self._buckets.drop(count)

    def _next_ms(self) -> int | None:
        return self._buckets.next_ms

    def _are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]:
        return self._buckets.are_pending(places)

    def _pending_places(self) -> BitMap64:
        return self._buckets.pending_places()

    def _count(self) -> int:
        return len(self._buckets)

    def _memory_bytes(self) -> int:
        return self._buckets.memory_bytes

    def _stats(self) -> dict[str, Any]:
        return {"memory_bytes": self._buckets.memory_bytes, **self._buckets.stats()}

    def _cancel(self, place: int) -> bool:
        return self._buckets.cancel(place)

    def _discard(self, first_place: int, before_place: int) -> BitMap64:
        return self._buckets.discard(first_place, before_place)

    def _clear(self) -> None:
        self._buckets.clear()

    def _close(self) -> None:
        self._buckets.clear()
