"""The columns of the bulk wheel: the rows of a bucket, and the ids of timers, at four bytes each.

An id is a lap and a slot: `lap << 32 | slot`. Slots are given out in ascending order by a hand that goes round the
table and skips those in use; with each round the lap counts up. So ids ascend, an id names one timer, and a slot that
is used again has another lap. After 2**31 laps, of at least 512 timers each, the laps begin again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
LEAST_ROWS = 16
GROWTH = 8  # a new block has an eighth of the rows that are there: little is unused, and no row is copied to grow
SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1
MOST_LAPS = (1 << 31) - 1
LEAST_SLOTS = 4096
WINDOW_SLOTS = 64  # looked at first for a free one ..
MOST_WINDOW_SLOTS = 1 << 16  # .. and at most at once: they stay in the processor's cache
FREE = 0  # no lap has this number


class Rows:
    """The timers of one bucket, in the order of their addition: 16 bytes each.

    Rows are arrays of shape (2, n): a line of deadlines, a line of ids.
    """

    __slots__ = ("_blocks", "_free", "queued", "rows", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.queued = False
        self.rows = 0
        self._blocks: list[Int64s] = []  # all are full but the last one
        self._free = 0  # rows at the end of the last block

    def __len__(self) -> int:
        return self.rows

    @property
    def memory_bytes(self) -> int:
        """The bytes of the columns."""
        return sum(block.nbytes for block in self._blocks)

    def append(self, rows: Int64s) -> None:
        """Append a copy of these rows."""
        count, free = rows.shape[1], self._free
        if free:
            begin = self._blocks[-1].shape[1] - free
            self._blocks[-1][:, begin : begin + count] = rows[:, :free]
        if count > free:
            size = max(LEAST_ROWS, count - free, self.rows // GROWTH)
            block = np.empty((2, size), np.int64)
            block[:, : count - free] = rows[:, free:]
            self._blocks.append(block)
            self._free = size - (count - free)
        else:
            self._free = free - count
        self.rows += count

    def lend(self, rows: Int64s) -> None:
        """Append these rows without a copy: they keep the whole array of which they are a part."""
        if self._free:
            self.append(rows)
        else:
            self._blocks.append(rows)
            self.rows += rows.shape[1]

    def take(self) -> Int64s:
        """Take all rows out of the bucket."""
        blocks, free = self._blocks, self._free
        self._blocks, self._free, self.rows = [], 0, 0
        if not blocks:
            return np.empty((2, 0), np.int64)
        if free:
            blocks[-1] = blocks[-1][:, :-free]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


class TimerIds:
    """The table of slots: the lap of the timer in each, or FREE.

    Invariants: `live` slots are not FREE; at most seven eighths are in use, so that the hand finds a free one soon.
    """

    def __init__(self) -> None:
        self._laps = np.zeros(LEAST_SLOTS, np.uint32)
        self._lap = 1
        self._hand = 0
        self.live = 0

    @property
    def memory_bytes(self) -> int:
        """The bytes of the table."""
        return self._laps.nbytes

    def give(self, count: int) -> Int64s:
        """New ids, ascending, and larger than all that were given before."""
        self._make_room(count)
        ids = np.empty(count, np.int64)
        done, window = 0, max(WINDOW_SLOTS, min(count, MOST_WINDOW_SLOTS))
        while done < count:
            if self._hand == len(self._laps):
                self._next_lap()
            part = self._laps[self._hand : self._hand + window]
            slots = np.flatnonzero(part == FREE)[: count - done]
            part[slots] = self._lap
            found = done + len(slots)
            np.add(slots, self._lap << SLOT_BITS | self._hand, out=ids[done:found])
            self._hand += int(slots[-1]) + 1 if found == count else len(part)
            self.live += len(slots)
            done, window = found, min(window * 2, MOST_WINDOW_SLOTS)  # a stretch in use is crossed in few steps
        return ids

    def _make_room(self, count: int) -> None:
        need = self.live + count
        slots = len(self._laps)
        if need * 8 > slots * 7:
            # In place where the system can move pages: a copy at each growth takes longer than all else in here.
            self._laps.resize(need + need // 6 + LEAST_SLOTS, refcheck=False)
            self._hand = slots  # all slots from here on are free

    def _next_lap(self) -> None:
        self._hand = 0
        self._lap = self._lap + 1 if self._lap < MOST_LAPS else 1

    def known(self, ids: Int64s) -> Int64s:
        """The numbers of these that may be ids: their slots are in the table."""
        inside = (ids > SLOT_MASK) & ((ids & SLOT_MASK) < len(self._laps))
        return ids if inside.all() else ids[inside]

    def are_live(self, ids: Int64s) -> npt.NDArray[np.bool_]:
        """For each of these known ids, whether its timer is pending."""
        live: npt.NDArray[np.bool_] = self._laps[ids & SLOT_MASK] == ids >> SLOT_BITS
        return live

    def release(self, ids: Int64s) -> None:
        """End these timers; all are pending, each is given once."""
        self._laps[ids & SLOT_MASK] = FREE
        self.live -= len(ids)

    def cancel(self, numbers: Int64s) -> int:
        """Cancel these timers. Returns how many different ones were pending."""
        ids = self.known(numbers)
        ids = ids[self.are_live(ids)]
        slots = ids & SLOT_MASK
        # One of the places in which a slot stands is written last: so each slot is counted once, without a sort.
        places = np.arange(len(slots), dtype=np.uint32)
        self._laps[slots] = places
        once = ids[self._laps[slots] == places]
        self.release(once)
        return len(once)

    def shrink(self) -> None:
        """Free the table's memory if no timer is pending. All rows of timers have to be gone."""
        if not self.live and len(self._laps) > LEAST_SLOTS:
            self._laps = np.zeros(LEAST_SLOTS, np.uint32)
            self._hand = LEAST_SLOTS  # the next id begins a lap
