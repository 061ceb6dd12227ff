"""Fetching messages by place: those that are given out again, or whose turn has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import OffsetOutOfRange, StoreError
from ..read.message import Message, MessageBatch
from .delivery import batch_of, joined, taken
from .in_flight import Places
from .parts import Reads
from .room import Room

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Copied = Callable[[int, int], Message | None]
FETCHED = 4096  # places at once
MOST_BAD = 8  # messages of a call that are looked for one by one: after a broken device all are bad
_NONE = np.empty(0, np.intp)


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


def fetch_into(room: Room, reads: Reads, topic: str, queues: Int64s, offsets: Int64s, copied: Copied) -> Fetched:
    """The messages at the first of some places (n,), by queue and offset, as far as they fit; the room is less then.

    No message that does not fit is read, but for one copy. `copied` gives a message that lives on outside of its queue,
    or None. Raises StoreCorrupt, StoreUnreadable.
    """
    parts: list[Fetched] = []
    at = 0
    while at < len(offsets) and room.is_open:
        end = at + min(FETCHED, room.messages, len(offsets) - at)
        part = _fetch(room, reads, topic, queues[at:end], offsets[at:end], copied)
        room.take(part.batches)
        parts.append(Fetched(part.batches, part.rows + at, part.gone + at, part.looked))
        at += part.looked
        if at < end:
            room.close()
    return _together(parts)


def fetch_readable(
    room: Room, fetch: Callable[[Room, Places], Fetched], places: Places, failed: list[StoreError]
) -> tuple[Fetched, Rows]:
    """As `fetch` does, past places that cannot be read: what is found, and the places (n,) that were not.

    Their errors are added to `failed`.
    """
    parts: list[Fetched] = []
    bad: list[int] = []
    left = [(0, places.size)]  # halved where one cannot be read
    while left and room.is_open:
        begin, end = left.pop()
        if len(bad) >= MOST_BAD:
            bad += range(begin, end)
            continue
        try:
            part = fetch(room, places.take(np.arange(begin, end)))
        except StoreError as error:
            if end - begin > 1:
                left += [((begin + end) // 2, end), (begin, (begin + end) // 2)]
            else:
                bad.append(begin)
                failed.append(error)
            continue
        parts.append(Fetched(part.batches, part.rows + begin, part.gone + begin, part.looked))
        if part.looked < end - begin:
            break  # there is no room for the next one
    return _together(parts), np.array(bad, np.intp)


def in_turn(found: Fetched) -> Fetched:
    """The messages in the order of the places that asked for them."""
    if len(found.batches) <= 1 and (found.rows[1:] > found.rows[:-1]).all():
        return found
    order = np.argsort(found.rows, kind="stable")
    return found._replace(batches=[taken(joined(found.batches), order)], rows=found.rows[order])


def _together(parts: Sequence[Fetched]) -> Fetched:
    """What was fetched of some places, and of the places after each."""
    rows = np.concatenate([_NONE, *(part.rows for part in parts)])
    gone = np.concatenate([_NONE, *(part.gone for part in parts)])
    return Fetched([batch for part in parts for batch in part.batches], rows, gone, sum(part.looked for part in parts))


def _fetch(room: Room, reads: Reads, topic: str, queues: Int64s, offsets: Int64s, copied: Copied) -> Fetched:
    try:
        picks = reads.read_at(topic, queues, offsets, room.size_bytes, is_first=room.is_empty)
    except OffsetOutOfRange:  # retention was there meanwhile, or a queue is gone
        alone = partial(_alone, reads, topic, copied)
        return _completed(room, Fetched([], _NONE, np.arange(len(offsets)), len(offsets)), queues, offsets, alone)
    missing = np.ones(picks.looked, np.bool_)
    missing[picks.rows] = False
    batches = [picks.batch] if len(picks.rows) else []
    found = Fetched(batches, picks.rows, np.flatnonzero(missing), picks.looked)
    return _completed(room, found, queues, offsets, partial(_copy, copied)) if len(found.gone) else found


def _completed(
    room: Room, found: Fetched, queues: Int64s, offsets: Int64s, find: Callable[[int, int], MessageBatch | None]
) -> Fetched:
    """What is missing is looked for place by place, as long as all fits."""
    lengths, size = np.zeros(found.looked, np.int64), 0
    for batch in found.batches:
        lengths[found.rows] = batch.lengths
    before = lengths.cumsum()
    batches, rows, gone, end = list(found.batches), found.rows.tolist(), list[int](), found.looked
    for row in found.gone.tolist():
        one = find(int(queues[row]), int(offsets[row]))
        if one is None:
            gone.append(row)
            continue
        lengths[row] = len(one.buffer)
        size += len(one.buffer)
        batches.append(one)
        rows.append(row)
        if int(before[row]) + size > room.size_bytes:
            end = row + 1
            break
    count = min(end, int(lengths.cumsum().searchsorted(room.size_bytes, side="right")))
    if room.is_empty and rows:
        count = max(count, min(rows) + 1)
    return _cut(Fetched(batches, np.array(rows, np.intp), np.array(gone, np.intp), found.looked), count)


def _cut(found: Fetched, count: int) -> Fetched:
    """The messages of the first `count` places."""
    if count >= found.looked:
        return found
    batches, at = [], 0
    for batch in found.batches:
        kept = np.flatnonzero(found.rows[at : at + len(batch)] < count)
        at += len(batch)
        if len(kept):
            batches.append(batch if len(kept) == len(batch) else taken(batch, kept))
    return Fetched(batches, found.rows[found.rows < count], found.gone[found.gone < count], count)


def _copy(copied: Copied, queue_id: int, offset: int) -> MessageBatch | None:
    message = copied(queue_id, offset)
    return None if message is None else batch_of(message)


def _alone(reads: Reads, topic: str, copied: Copied, queue_id: int, offset: int) -> MessageBatch | None:
    """One message of a queue, or its copy."""
    try:
        batch = reads.read_batch(topic, queue_id, offset, 1, 1)
    except OffsetOutOfRange:
        return _copy(copied, queue_id, offset)
    return batch if len(batch) and batch.offsets[0] == offset else _copy(copied, queue_id, offset)
