"""The list of due messages, in the order in which they became due: each pointer has its own place in it (R35)."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

import numpy as np

from ..format.arrays import Bools, Int64s
from .parts import StoreParts, offsets_of

JOINED_ROWS = 1024  # fewer rows join the chunk before them: a chunk takes 500 bytes beside its rows


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
    next_offsets, lows = np.empty(len(known), np.int64), np.zeros(len(known), np.int64)
    for at, queue_id in enumerate(known.tolist()):
        next_offsets[at] = parts.next_offset(topic, queue_id)
        stream = parts.stream(topic, queue_id)
        lows[at] = 0 if stream is None else stream.low
    offsets = offsets_of(entries, next_offsets[index])
    return DueMessages(queue_ids, offsets, offsets < lows[index])


class DueList:
    """Rows by a running number; 17 bytes a row. Not safe for threads.

    Invariants:
        * the rows begin .. end - 1 are here, each in one chunk;
        * rows are added by one step, so an interrupt finds all of them here or none;
        * two neighbouring chunks had more than JOINED_ROWS rows together when they were added.
    """

    def __init__(self) -> None:
        self.begin = 0
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
        if not len(due.offsets):
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

    def drop_before(self, at: int) -> None:
        """Drop the rows before a number. The memory of a chunk is free once all of its rows are dropped."""
        self.begin = max(self.begin, at)
        while self._chunks and self._chunks[0][0] + len(self._chunks[0][1].offsets) <= self.begin:
            self._chunks.popleft()


def _first_row(chunk: tuple[int, DueMessages]) -> int:
    return chunk[0]
