"""Fetching messages by place: those that are given out again, or whose turn has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import OffsetOutOfRange
from ..format.cursors import ranges_of
from ..read.message import Message, MessageBatch
from .delivery import batch_of, part_of
from .parts import Reads

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
FEW_RANGES = 2
FETCH_BYTES = 16 << 20


class Fetched(NamedTuple):
    """Messages that were asked for.

    Attributes:
        batches: the messages, behind each other.
        rows: (n,) for each the number of the place that asked for it.
        gone: (m,) the places whose message is there no more: trimmed, removed by retention, or given up by a repair.
    """

    batches: list[MessageBatch]
    rows: Rows
    gone: Rows


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
    return Fetched(batches, found, np.flatnonzero(missing))


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
