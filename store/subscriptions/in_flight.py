"""The messages of a subscription that were given out and are not acknowledged, in columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrays import Indexes, Int64s
from .removed_receipts import RemovedReceipts
from .stories import NO_STORY, UNKNOWN_MS, Stories

FIRST_ROWS = 64
BUSY_ROWS = 1024  # such a table belongs to a busy subscription: dropping its rows releases the interpreter lock
NEVER = 1 << 62
NO_OWNER = 0  # in place of a consumer's number: no consumer has the message
NOTHING = np.empty(0, np.int64)


class RowState:
    """The states of a row. Not an enumeration: a look-up of its names takes as long as a call."""

    GONE: Final = 0  # acknowledged, or given out again with a new receipt: this receipt is stale
    OUT: Final = 1  # a consumer has it, until its deadline
    HELD: Final = 2  # it was given back, and comes again at its deadline
    LATE: Final = 3  # its deadline has passed: it is to be given out again, and may still be acknowledged
    BACK: Final = 4  # it was given back and is to be given out again
    ACKED: Final = 5  # it is acknowledged by a record that is on its way; if that fails, it is OUT again
    RESTING: Final = 6  # it timed out, and becomes LATE at its deadline, by the back-off; it may still be acknowledged


HELD_BY_CONSUMER = RowState.OUT, RowState.LATE, RowState.RESTING
JUST_ACKED = (RowState.ACKED,)
LIVE = RowState.OUT, RowState.HELD, RowState.LATE, RowState.BACK, RowState.ACKED, RowState.RESTING


class Places(NamedTuple):
    """n messages: int64 (n) each of queue ids, offsets, and attempts."""

    queues: Int64s
    offsets: Int64s
    attempts: Int64s

    @property
    def size(self) -> int:
        """The number of messages."""
        return len(self.offsets)

    def take(self, rows: Indexes | npt.NDArray[np.bool_]) -> Places:
        """Some of the messages, by row or mask."""
        return Places(*[column[rows] for column in self])

    def pairs(self) -> list[tuple[int, int]]:
        """The queue id and offset of each message."""
        return list(zip(self.queues.tolist(), self.offsets.tolist(), strict=True))

    def by_queue(self) -> list[tuple[int, Int64s]]:
        """The offsets of each queue, ascending."""
        queues, offsets = self.queues, self.offsets
        if len(queues) and bool((queues == queues[0]).all()):
            return [(int(queues[0]), np.sort(offsets))]
        return [(int(queue_id), np.sort(offsets[queues == queue_id])) for queue_id in np.unique(queues).tolist()]


class InFlight:
    """A table of messages by receipt. One thread at a time.

    Invariants:
        * receipts ascend, and none is given twice;
        * scans visit all rows, so GONE rows are dropped once they are two thirds of the table;
        * `next_ms` is at most the earliest deadline of the rows that are OUT or HELD;
        * an ACKED row has, in place of a deadline, a lower bound of its record's offset in the journal.

    Attributes:
        removed: receipts of messages that were removed while consumers had them.
    """

    def __init__(self, new_receipts: Callable[[int], int]) -> None:
        """`new_receipts(n)` gives the first of n numbers that were never given before."""
        self._new_receipts = new_receipts
        self._columns = np.zeros((7, 0), np.int64)  # receipt, queue, offset, attempt, deadline, given out, first so
        self._states = np.zeros(0, np.uint8)
        self._owners, self._reasons = np.zeros(0, np.uint32), np.zeros(0, np.uint32)
        self.removed = RemovedReceipts()
        self._use(FIRST_ROWS, np.empty(0, np.intp), 0)
        self.next_ms = NEVER

    def _use(self, size: int, kept: Indexes, gone: int) -> None:
        """Go on with the rows `kept`, `gone` of which are GONE, with room for `size` rows.

        Single values are read and written through views: that takes a tenth of numpy's time.
        """
        columns, states, rows = np.zeros((7, size), np.int64), np.zeros(size, np.uint8), len(kept)
        owners, reasons = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
        columns[6] = UNKNOWN_MS
        columns[:, :rows] = self._columns[:, kept]
        states[:rows], owners[:rows], reasons[:rows] = self._states[kept], self._owners[kept], self._reasons[kept]
        views, state_of, owner_of = [column.data for column in columns], states.data, owners.data
        # No call from here on: an interrupt finds all done, or nothing.
        self._columns, self._states, self._rows, self._gone = columns, states, rows, gone
        self._receipts, self._queues, self._offsets, self._attempts, self._deadlines, self._given, _ = views
        self._owners, self._reasons, self._state_of, self._owner_of = owners, reasons, state_of, owner_of

    def __len__(self) -> int:
        """The number of rows that are not GONE."""
        return self._rows - self._gone

    @property
    def size_bytes(self) -> int:
        """The memory of its rows."""
        return self._columns.nbytes + self._states.nbytes + self._owners.nbytes + self._reasons.nbytes

    def have_owners(self, rows: Indexes) -> npt.NDArray[np.bool_]:
        """(n,) whether the consumers that got the messages of some rows are not gone."""
        return np.asarray(self._owners[rows] != NO_OWNER)

    def add(
        self, places: Places, deadline_ms: int, owner: int = NO_OWNER, given_ms: int = UNKNOWN_MS,
        stories: Stories = NO_STORY,
    ) -> Int64s:  # fmt: skip
        """Give messages out to a consumer, at `given_ms`. Returns their receipts (n,), which ascend by one.

        The first ones were given out before: `stories` has what is known of that.
        """
        count = places.size
        self._make_room(count)
        receipts = self._new_receipts(count) + np.arange(count)
        begin, end = self._rows, self._rows + count
        columns = self._columns[:, begin:end]
        columns[0], columns[1], columns[2], columns[3], columns[4] = receipts, *places, deadline_ms
        columns[5] = given_ms
        self._states[begin:end], self._owners[begin:end] = RowState.OUT, owner
        self.next_ms = min(self.next_ms, deadline_ms)
        self._rows = end  # until here the new rows do not exist
        if stories.size:  # after that: an interrupt leaves no story to a row that is not there yet
            self._tell(begin, given_ms, stories)
        return receipts

    def _tell(self, begin: int, given_ms: int, stories: Stories) -> None:
        """Note what is known of messages that were given out before, in the rows from `begin` on."""
        rows = slice(begin, begin + stories.size)
        self._columns[6, rows] = stories.firsts_ms
        self._reasons[rows] = stories.reasons
        if given_ms == UNKNOWN_MS:
            self._columns[5, rows] = stories.lasts_ms

    def add_run(self, queue_id: int, offset: int, count: int, deadline_ms: int, owner: int, given_ms: int) -> int:
        """Give `count` messages of a queue out to a consumer for the first time. Returns the first receipt."""
        self._make_room(count)
        first, begin = self._new_receipts(count), self._rows
        if count == 1:
            self._receipts[begin], self._queues[begin], self._offsets[begin] = first, queue_id, offset
            self._attempts[begin], self._deadlines[begin], self._state_of[begin] = 1, deadline_ms, RowState.OUT
            self._owner_of[begin], self._given[begin] = owner, given_ms
        else:
            columns = self._columns[:, begin : begin + count]
            columns[0], columns[2] = np.arange(first, first + count), np.arange(offset, offset + count)
            columns[1], columns[3], columns[4], columns[5] = queue_id, 1, deadline_ms, given_ms
            self._states[begin : begin + count], self._owners[begin : begin + count] = RowState.OUT, owner
        if deadline_ms < self.next_ms:  # noqa: PLR1730  # a call takes longer, and each message comes here
            self.next_ms = deadline_ms
        self._rows = begin + count  # last: until here the new rows do not exist
        return first

    def _make_room(self, count: int) -> None:
        size, gone = len(self._state_of), self._gone
        is_full = self._rows + count > size
        if not is_full and gone <= BUSY_ROWS:
            return
        if gone > 2 * (self._rows - gone) or (is_full and gone * 2 > self._rows):
            self._compact()
            size = len(self._state_of)
        if self._rows + count > size:
            self._use(max(2 * size, self._rows + count), np.arange(self._rows), self._gone)

    def _compact(self) -> None:
        kept = np.flatnonzero(self._states[: self._rows])
        self._use(max(FIRST_ROWS, 2 * len(kept), min(2 * len(self._states), BUSY_ROWS)), kept, 0)

    def find(self, receipts: Int64s) -> Indexes:
        """(n,) the row of each receipt, -1 where there is none, or its row is GONE."""
        known = self._columns[0, : self._rows]
        if not self._rows:
            return np.full(len(receipts), -1, np.intp)
        rows = np.minimum(known.searchsorted(receipts), self._rows - 1)
        rows[(known[rows] != receipts) | (self._states[rows] == RowState.GONE)] = -1
        return rows

    def row_of(self, receipt: int, states: tuple[int, ...] = HELD_BY_CONSUMER) -> int:
        """The row of one receipt, -1 if it is in none of some states: by default a consumer has it, on time or late."""
        receipts, rows = self._receipts, self._rows
        row = receipt - receipts[0] if rows else 0  # right while no receipt between them is missing
        if not 0 <= row < rows or receipts[row] != receipt:
            row = bisect_left(receipts, receipt, 0, rows)  # numpy's search would release the interpreter lock
        if row >= rows or receipts[row] != receipt or self._state_of[row] not in states:
            return -1
        return row

    def place_of(self, row: int) -> tuple[int, int, int]:
        """The queue id, offset and attempt of a row."""
        return self._queues[row], self._offsets[row], self._attempts[row]

    def acknowledge_one(self, row: int, start: int) -> None:
        """Make a row ACKED: its record's offset is `start` or later."""
        self._state_of[row] = RowState.ACKED  # first: a row that an interrupt leaves OUT has its deadline
        self._deadlines[row] = start

    def acknowledge(self, rows: Indexes, start: int) -> None:
        """`acknowledge_one` for many."""
        self._states[rows] = RowState.ACKED  # first, as above
        self._columns[4, rows] = start

    def first_start(self) -> int:
        """A lower bound of the offsets of the records of ACKED rows."""
        acked = self._states[: self._rows] == RowState.ACKED
        return int(self._columns[4, : self._rows][acked].min(initial=NEVER))

    def remove_each(self, receipts: Sequence[int]) -> None:
        """Make the rows of receipts GONE that are not; some may have none."""
        for receipt in receipts:
            row = self.row_of(receipt, LIVE)
            if row >= 0:
                self._state_of[row] = RowState.GONE
                self._gone += 1

    def unacknowledge_one(self, receipt: int, now_ms: int) -> bool:
        """Make the row of a receipt OUT, and let it time out now; False if it is not ACKED."""
        row = self.row_of(receipt, JUST_ACKED)
        if row >= 0:
            self._deadlines[row] = now_ms
            self.next_ms = min(self.next_ms, now_ms)
            self._state_of[row] = RowState.OUT
        return row >= 0

    def find_back(self, receipts: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which receipts are those of messages that wait to be given out again."""
        rows = self.find(receipts)
        states = self._states[rows]
        found: npt.NDArray[np.bool_] = (rows >= 0) & ((states == RowState.LATE) | (states == RowState.BACK))
        return found

    def states(self, rows: Indexes) -> npt.NDArray[np.uint8]:
        """(n,) the state of each row."""
        return self._states[rows]

    def stories(self, rows: Indexes) -> Stories:
        """When the messages of some rows were given out, first and last, and why they were given back."""
        lasts, firsts = self._columns[5, rows], self._columns[6, rows]
        return Stories(np.where(firsts == UNKNOWN_MS, lasts, firsts), lasts, self._reasons[rows])

    def note_reason(self, rows: Indexes, reason: int) -> None:
        """Note the number of the reason why rows were given back."""
        self._reasons[rows] = reason

    def reasons(self) -> npt.NDArray[np.uint32]:
        """The numbers of the reasons of the rows that are not GONE."""
        return self._reasons[self.live()]

    def places(self, rows: Indexes) -> Places:
        """The messages of some rows."""
        return Places(*self._columns[1:4, rows])

    def deadlines(self, rows: Indexes) -> Int64s:
        """(n,) when each row times out, or comes again."""
        found: Int64s = self._columns[4, rows]
        return found

    def receipts(self, rows: Indexes) -> Int64s:
        """(n,) the receipts of some rows."""
        found: Int64s = self._columns[0, rows]
        return found

    def remove(self, rows: Indexes) -> None:
        """Make rows GONE, each given once."""
        count = len(rows)
        self._states[rows] = RowState.GONE
        self._gone += count  # no call since the step before: an interrupt finds both or none

    def hold(self, rows: Indexes, until_ms: int, state: int = RowState.HELD) -> None:
        """Set rows to HELD, or another state, until another deadline."""
        self._states[rows] = state
        self._columns[4, rows] = until_ms
        self.next_ms = min(self.next_ms, until_ms)

    def hold_each(self, rows: Indexes, until_ms: Int64s) -> None:
        """Set rows to HELD, each until its own deadline (n,)."""
        self._states[rows] = RowState.HELD
        self._columns[4, rows] = until_ms
        self.next_ms = min(self.next_ms, int(until_ms.min(initial=NEVER)))

    def leave(self, owner: int, now_ms: int) -> None:
        """A consumer goes: its messages time out now, without a rest."""
        rows = np.flatnonzero((self._states[: self._rows] == RowState.OUT) & (self._owners[: self._rows] == owner))
        self.hold(rows, now_ms, RowState.OUT)
        self._owners[rows] = NO_OWNER  # last: until here a call that comes again finds them

    def forget_removed(self, receipts: Int64s, now_ms: int) -> None:
        """The messages with these receipts (n,) were removed: acknowledging one of them does nothing from now on."""
        rows = self.find(receipts)
        rows = rows[rows >= 0]
        states = self._states[rows]
        held = rows[np.isin(states, HELD_BY_CONSUMER)]
        if len(held):
            self.removed.add(self.receipts(held), int(self.deadlines(held).max()), now_ms)
        self.remove(rows)

    def find_out(self, receipts: Int64s) -> Indexes:
        """The rows of those receipts that are OUT."""
        rows = self.find(receipts)
        found: Indexes = rows[(rows >= 0) & (self._states[rows] == RowState.OUT)]
        return found

    def undo_receive(self, rows: Indexes, now_ms: int) -> None:
        """OUT rows, whose messages no consumer got, are to be given out again; this attempt does not count."""
        self.next_ms = min(self.next_ms, now_ms)
        # No call from here on: an interrupt finds all done, or nothing.
        self._columns[3, rows] -= 1
        self._columns[4, rows] = now_ms
        self._states[rows] = RowState.HELD

    def expire(
        self, now_ms: int, take: Callable[[Int64s], None], rests_of: Callable[[Int64s], Int64s | None] | None = None
    ) -> None:
        """Make rows whose deadline has come LATE or BACK; `take` gets their receipts (n,), by time and receipt.

        `rests_of` says how long those rest that time out, by their attempts (n,); None: not at all.

        `take` is called first: after an interrupt it gets them once more.
        """
        if now_ms < self.next_ms:
            return
        states, deadlines = self._states[: self._rows], self._columns[4, : self._rows]
        if rests_of is not None:
            self._rest(np.flatnonzero((states == RowState.OUT) & (deadlines <= now_ms)), rests_of)
        waiting = (states == RowState.OUT) | (states == RowState.HELD) | (states == RowState.RESTING)
        due = waiting & (deadlines <= now_ms)
        left = deadlines[waiting & ~due]
        next_ms = int(left.min()) if len(left) else NEVER
        rows = np.flatnonzero(due)
        rows = rows[deadlines[rows].argsort(kind="stable")]
        due_states = np.where(states[rows] == RowState.HELD, RowState.BACK, RowState.LATE)
        take(self.receipts(rows))
        states[rows] = due_states
        self.next_ms = next_ms

    def _rest(self, late: Indexes, rests_of: Callable[[Int64s], Int64s | None]) -> None:
        """Rows that time out, and whose consumers are not gone, become RESTING."""
        late = late[self._owners[late] != NO_OWNER]
        rests = rests_of(self._columns[3, late]) if len(late) else None
        if rests is not None:
            self._columns[4, late] += rests
            self._states[late] = RowState.RESTING

    def held_up_to(self, queue_id: int, offset: int, owner: int) -> Int64s:
        """The receipts of the messages of a queue, up to an offset, that a consumer has, on time or late."""
        queues, offsets = self._columns[1:3, : self._rows]
        mine = np.isin(self._states[: self._rows], HELD_BY_CONSUMER) & (self._owners[: self._rows] == owner)
        found: Int64s = self._columns[0, : self._rows][mine & (queues == queue_id) & (offsets <= offset)]
        return found

    def rows_of(self, queue_ids: Sequence[int]) -> Indexes:
        """The rows of some queues that are not GONE."""
        live = self.live()
        found: Indexes = live[np.isin(self._columns[1, live], queue_ids)]
        return found

    def offsets_of(self, queue_id: int) -> Int64s:
        """The offsets of a queue's rows that are not GONE."""
        found: Int64s = self._columns[2, self.rows_of([queue_id])]
        return found

    def have(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages, by queue id and offset, have a row that is not GONE."""
        found = np.zeros(len(offsets), np.bool_)
        if len(self):
            places = self.places(self.live())
            maybe = np.flatnonzero(np.isin(_mixed(queues, offsets), _mixed(places.queues, places.offsets)))
            known = set(zip(places.queues.tolist(), places.offsets.tolist(), strict=True)) if len(maybe) else set()
            for row in maybe.tolist():
                found[row] = (int(queues[row]), int(offsets[row])) in known
        return found

    def live(self) -> Indexes:
        """The rows that are not GONE."""
        return np.flatnonzero(self._states[: self._rows])

    def clear(self) -> None:
        """Remove all rows but those that are ACKED: all receipts are stale."""
        self.removed = RemovedReceipts()
        kept = np.flatnonzero(self._states[: self._rows] == RowState.ACKED)
        self._use(max(FIRST_ROWS, 2 * len(kept)), kept, 0)
        self.next_ms = NEVER


def _mixed(queues: Int64s, offsets: Int64s) -> Int64s:
    """(n,) a number for each place; two places seldom have the same one."""
    return offsets ^ (queues << 40)
