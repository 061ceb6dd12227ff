"""Fetching messages by place: those that are given out again, or whose turn has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import OffsetOutOfRange
from ..format.cursors import ranges_of
from ..read.message import Message, MessageBatch
from .delivery import batch_of, joined, part_of, taken
from .parts import Reads
from .room import Room

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
FEW_RANGES = 2
FETCH_BYTES = 16 << 20
FIRST_FETCH = 8  # messages that are fetched at once, as nobody knows how large they are
MOST_FETCH = 128


class Fetched(NamedTuple):
    """Messages that were asked for.

    Attributes:
        batches: the messages, behind each other.
        rows: (n,) for each the number of the place that asked for it.
        gone: (m,) the places whose message is there no more: trimmed, removed by retention, or given up by a repair.
        looked: how many places these are, from the first one on; those behind did not fit.
    """

    batches: list[MessageBatch]
    rows: Rows
    gone: Rows
    looked: int


def fetch(
    reads: Reads, topic: str, queues: Int64s, offsets: Int64s, copied: Callable[[int, int], Message | None]
) -> Fetched:
    """The messages at some places (n,), by queue and offset. Raises StoreCorrupt, StoreUnreadable.

    `copied` gives a message that lives on outside of its queue, or None.
    """
    order = np.lexsort((offsets, queues))
    batches: list[MessageBatch] = []
    rows: list[Rows] = []
    borders = np.flatnonzero(np.diff(queues[order])) + 1
    for part in np.split(order, borders):
        if not len(part):
            continue
        queue_id, wanted = int(queues[part[0]]), offsets[part]
        ranges = ranges_of(wanted)
        if len(ranges) > FEW_RANGES:
            batch = _picked(reads, topic, queue_id, wanted)
            if batch is not None:
                batches.append(batch)
                rows.append(part[wanted.searchsorted(batch.offsets)])
                continue
        for begin, end in ranges.tolist():
            first = int(wanted.searchsorted(begin))
            for batch in _read_range(reads, topic, queue_id, begin, end):
                batches.append(batch)
                rows.append(part[first + (batch.offsets - begin)])
    found = np.concatenate([*rows, np.empty(0, np.intp)])
    missing = np.ones(len(offsets), np.bool_)
    missing[found] = False
    for row in np.flatnonzero(missing).tolist():
        message = copied(int(queues[row]), int(offsets[row]))
        if message is not None:
            batches.append(batch_of(message))
            found = np.append(found, row)
            missing[row] = False
    return Fetched(batches, found, np.flatnonzero(missing), len(offsets))


def fetch_into(
    room: Room, reads: Reads, topic: str, queues: Int64s, offsets: Int64s,
    copied: Callable[[int, int], Message | None],
) -> Fetched:  # fmt: skip
    """As `fetch`, of the first places, as far as the messages fit; the room is less then.

    No more than `MOST_FETCH` messages that do not fit are in memory.
    """
    parts: list[Fetched] = []
    at, step = 0, FIRST_FETCH
    while at < len(offsets) and room.is_open:
        end = min(at + step, at + room.messages, len(offsets))
        part = _cut(fetch(reads, topic, queues[at:end], offsets[at:end], copied), room)
        room.take(part.batches)
        parts.append(Fetched(part.batches, part.rows + at, part.gone + at, part.looked))
        step = min(2 * step, MOST_FETCH)
        if at + part.looked < end:
            room.close()
        at += part.looked
    none = np.empty(0, np.intp)
    rows = np.concatenate([*(part.rows for part in parts), none])
    gone = np.concatenate([*(part.gone for part in parts), none])
    return Fetched([batch for part in parts for batch in part.batches], rows, gone, at)


def _cut(found: Fetched, room: Room) -> Fetched:
    """The first ones, as far as they fit."""
    lengths = np.zeros(found.looked, np.int64)
    lengths[found.rows] = np.concatenate([*(batch.lengths for batch in found.batches), np.empty(0, np.int64)])
    count = int(lengths.cumsum().searchsorted(room.size_bytes, side="right"))
    if count == found.looked:
        return found
    if room.is_empty:
        count = max(count, int(found.rows.min()) + 1)
    kept = np.flatnonzero(found.rows < count)
    batches = [taken(joined(found.batches), kept)] if len(kept) else []
    return Fetched(batches, found.rows[kept], found.gone[found.gone < count], count)


def _picked(reads: Reads, topic: str, queue_id: int, wanted: Int64s) -> MessageBatch | None:
    """The messages that there are of some; None if retention was there meanwhile."""
    try:
        return reads.read_at(topic, queue_id, wanted)
    except OffsetOutOfRange:
        return None


def _read_range(reads: Reads, topic: str, queue_id: int, begin: int, end: int) -> list[MessageBatch]:
    """The messages begin .. end - 1 that there are."""
    found: list[MessageBatch] = []
    while begin < end:
        try:
            batch = reads.read_batch(topic, queue_id, begin, end - begin, FETCH_BYTES)
        except OffsetOutOfRange as error:
            if error.first <= begin:
                break
            begin = error.first  # retention was there
            continue
        count = int(batch.offsets.searchsorted(end))
        if not count:
            break
        found.append(part_of(batch, 0, count))
        begin = int(batch.offsets[count - 1]) + 1
    return found
