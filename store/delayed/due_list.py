"""The list of a topic's due messages, in the order in which they became due, and the pointers into it (R35)."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from ..device.clock import Clock
from ..format.arrays import Bools, Int64s
from .parts import StoreParts, offsets_of

DUE_ROWS = 1 << 20  # rows that wait for the slowest pointer: 17 MB
JOINED_ROWS = 1024  # fewer rows join the chunk before them: a chunk takes 500 bytes beside its rows
TAKEN_ROWS = 1 << 16
STALE_S = 10.0  # a pointer that took nothing for so long, and holds up others, loses rows
FOREVER_S = 1e9
LAGGING_S = 0.02  # between two looks while the index has not read all of the log
HELD_UP_S = 0.02  # .. and while another pointer has not taken so many rows that no more are added


class DueMessages(NamedTuple):
    """Messages of a topic that became due, by (time, queue, offset).

    Attributes:
        queue_ids, offsets: int64 (n).
        cancelled: bool (n): cancelled or trimmed, never delivered.
        missed: rows before these were dropped, because the reader was too slow: it has to scan the queues again.
        is_cut: more messages may be due after these, for which the list had no room.
    """

    queue_ids: Int64s
    offsets: Int64s
    cancelled: Bools
    missed: bool = False
    is_cut: bool = False


_NOTHING = np.empty(0, np.int64)
NOTHING_DUE = DueMessages(_NOTHING, _NOTHING, np.empty(0, np.bool_))


def joined(parts: list[DueMessages]) -> DueMessages:
    """Some parts one after another; the flags are not joined."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NOTHING_DUE
    columns = zip(*[(part.queue_ids, part.offsets, part.cancelled) for part in parts], strict=True)
    queue_ids, offsets, cancelled = map(np.concatenate, columns)
    return DueMessages(queue_ids, offsets, cancelled)


def due_of(parts: StoreParts, topic: str, queue_ids: Int64s, entries: Int64s) -> DueMessages:
    """The messages that left the tracker of a topic, (n,) each; trimmed ones are marked as cancelled."""
    known, index = np.unique(queue_ids, return_inverse=True)
    bounds = [(parts.next_offset(topic, queue_id), parts.low(topic, queue_id)) for queue_id in known.tolist()]
    next_offsets, lows = np.array(bounds, np.int64).reshape(-1, 2)[index].T
    offsets = offsets_of(entries, next_offsets)
    return DueMessages(queue_ids, offsets, offsets < lows)


class ListPointer:
    """The place of one subscription in the list.

    Attributes:
        at: the number of the next row; `missed`: rows before it were dropped; `taken_s`: when it was last used.
            All three are the list's, under the topic's lock.
    """

    def __init__(self, at: int, taken_s: float, on_due: Callable[[], object] | None) -> None:
        self.at = at
        self.missed = False
        self.taken_s = taken_s
        self._on_due = on_due

    def miss(self, at: int) -> None:
        """Go on at the row `at`, without those between."""
        self.at, self.missed = at, True

    def on_due(self) -> None:
        """Tell the subscription that there is a message to take."""
        if self._on_due is not None:
            self._on_due()


class DueList:
    """Rows by a running number, 17 bytes a row, and the open pointers. Used under the topic's lock.

    Rows that all pointers have passed are dropped. Without a pointer nothing is listed.

    Invariants:
        * the rows begin .. end - 1 are here, each in one chunk;
        * rows are added by one step, so an interrupt finds all of them here or none;
        * two neighbouring chunks had more than JOINED_ROWS rows together when they were added.
    """

    def __init__(self, clock: Clock) -> None:
        self.begin = 0
        self.pointers: WeakSet[ListPointer] = (
            WeakSet()
        )  # weak: a pointer whose opening was interrupted holds nothing up
        self._clock = clock
        self._chunks: deque[tuple[int, DueMessages]] = deque()  # each with its first row's number

    @property
    def end(self) -> int:
        """The number of the next row."""
        if not self._chunks:
            return self.begin
        first, chunk = self._chunks[-1]
        return first + len(chunk.offsets)

    def __len__(self) -> int:
        return self.end - self.begin

    def add(self, due: DueMessages) -> None:
        """Append rows."""
        if not len(due.offsets) or not self.pointers:
            return
        if self._chunks and len(self._chunks[-1][1].offsets) + len(due.offsets) <= JOINED_ROWS:
            first, last = self._chunks[-1]
            self._chunks[-1] = first, joined([last, due])
        else:
            self._chunks.append((self.end, due))

    def read(self, at: int, most: int) -> DueMessages:
        """Up to `most` rows from number `at` on; `at` is from begin to end."""
        parts: list[DueMessages] = []
        chunks, number = self._chunks, bisect_right(self._chunks, at, key=_first_row) - 1
        while at < self.end and most > 0:
            first, chunk = chunks[number]
            cut = slice(at - first, at - first + most)
            part = DueMessages(chunk.queue_ids[cut], chunk.offsets[cut], chunk.cancelled[cut])
            parts.append(part)
            at += len(part.offsets)
            most -= len(part.offsets)
            number += 1
        return joined(parts)

    def take(self, pointer: ListPointer, most: int) -> DueMessages:
        """The rows that a pointer has not taken yet, up to `most`."""
        is_cut = self.is_held_up  # before rows are dropped, which makes room
        found = self.read(pointer.at, most)
        pointer.at += len(found.offsets)
        pointer.taken_s = self._clock.monotonic_s()
        missed, pointer.missed = pointer.missed, False
        self.drop_passed()
        return found._replace(missed=missed, is_cut=is_cut)

    @property
    def is_held_up(self) -> bool:
        """Whether some pointer has so many rows to take that no more leave the tracker."""
        return bool(self.pointers) and len(self) >= DUE_ROWS

    def make_room(self) -> int:
        """How many more rows may be listed. Idle pointers that hold the list up lose its rows."""
        if not self.pointers:
            return DUE_ROWS  # nothing is listed
        if self.is_held_up:
            self.drop_passed()
        while self.is_held_up:
            now_s = self._clock.monotonic_s()
            slowest = [pointer for pointer in self.pointers if pointer.at <= self.begin]
            if not all([now_s - pointer.taken_s >= STALE_S for pointer in slowest]):
                return 0
            for pointer in slowest:
                pointer.miss(self.end)
            self.drop_passed()
        return DUE_ROWS - len(self)

    def drop_passed(self) -> None:
        """Drop the rows that all pointers have passed. The memory of a chunk is free once all of its rows are."""
        self.begin = max(self.begin, min((pointer.at for pointer in self.pointers), default=self.end))
        while self._chunks and self._chunks[0][0] + len(self._chunks[0][1].offsets) <= self.begin:
            self._chunks.popleft()


def _first_row(chunk: tuple[int, DueMessages]) -> int:
    return chunk[0]
