"""Reading messages by their places in many queues of a topic, together: what lies in one segment is one run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s
from ..format.blobs import ExtraColumns
from ..log.lane import Lane
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..segment.run import Run
from .details import columns_of
from .message import MessageBatch
from .sources import Sources

Rows = npt.NDArray[np.intp]


class Picks(NamedTuple):
    """Messages by their places.

    Attributes:
        batch: in the order in which they were asked for.
        rows: (m,) for each the number of the place that asked for it; ascending.
        looked: how many places these are, from the first one on; the messages of later ones do not fit.
    """

    batch: MessageBatch
    rows: Rows
    looked: int


class _Found(NamedTuple):
    """Messages of one segment, in log order. `rows`: the numbers of their places."""

    stream: Stream  # one of the lane
    run: Run
    rows: Rows


def picks_of(
    sources: Sources, streams: Sequence[Stream], which: Int64s, offsets: Int64s, max_bytes: int, *, is_first: bool
) -> Picks:
    """The messages at some places, as far as they can be read, and as far as their payloads fit into `max_bytes`.

    `which` (n,) has the index of each place's stream; streams are of one topic. With `is_first`, the first message may
    be larger than `max_bytes`. Raises StoreCorrupt, OSError, and OffsetOutOfRange if retention takes some meanwhile.
    """
    found = list(_found(sources, streams, which, offsets))
    lengths = np.zeros(len(offsets), np.int64)
    for one in found:
        lengths[one.rows] = one.run.places[1]
    looked = int(lengths.cumsum().searchsorted(max_bytes, side="right"))
    if looked < len(offsets):
        rows = [int(one.rows.min()) for one in found]
        if is_first:
            looked = max(looked, min(rows) + 1)
        found = list(_found(sources, streams, which[:looked], offsets[:looked]))
    return _fetched(sources, found, streams, which, offsets, looked)


def _found(sources: Sources, streams: Sequence[Stream], which: Int64s, offsets: Int64s) -> Iterator[_Found]:
    """Where the messages lie. Caches know messages by their streams: with one, each has runs of its own."""
    lows = np.array([stream.low for stream in streams], np.int64)
    left = np.flatnonzero(offsets >= lows[which]) if len(offsets) else np.empty(0, np.intp)
    keys = [stream.lane.index for stream in streams] if sources.are_log else list(range(len(streams)))
    numbers = np.array([stream.number for stream in streams], np.int64)
    for key in dict.fromkeys(keys):
        mine = [at for at, other in enumerate(keys) if other == key]
        rows = left if len(mine) == len(keys) else left[np.isin(which[left], mine)]
        if len(rows):
            yield from _of_lane(streams[mine[0]], numbers[which[rows]], offsets[rows], rows)


def _of_lane(stream: Stream, numbers: Int64s, offsets: Int64s, rows: Rows) -> Iterator[_Found]:
    """Where messages of a lane lie, by the numbers of their streams; `stream` is one of them."""
    lane = stream.lane
    view = lane.view
    for opened in reversed(view.open):
        if not len(rows):
            return
        run, at = _pick_open(opened, numbers, offsets)
        yield from _by_source(lane, stream, run, rows[at])
        numbers, offsets, rows = _without(at, numbers, offsets, rows)
    left = np.ones(len(rows), np.bool_)
    looked: set[int] = set()  # segments: each gives all that it has at once
    for nth, place in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
        if not left[nth] or (index := lane.groups.where(view.sealed, *place)) in looked or index == len(view.sealed):
            continue
        looked.add(index)
        mine = np.flatnonzero(left)
        run, at = view.sealed[index].pick(lane.ring, numbers[mine], offsets[mine])
        left[mine[at]] = False
        yield from _by_source(lane, stream, run, rows[mine[at]])


def _pick_open(opened: OpenSegment, numbers: Int64s, offsets: Int64s) -> tuple[Run, Rows]:
    """The messages that an open segment has, in log order; and the index of each."""
    segment, table = opened
    table.row(int(numbers[0]))  # what is visible is in the rows then
    rows, found, at = table.rows.by_number, [], []
    for index, (number, offset) in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
        row = rows.get(number)
        if row is not None and 0 <= offset - row[0] < len(row[1]):
            found.append(row[1][offset - row[0]])
            at.append(index)
    entries, picked = np.array(found, np.uint32), np.array(at, np.intp)
    order = entries.argsort()
    entries, picked = entries[order], picked[order]
    return Run(segment, table, offsets[picked].tolist(), entries, table.places(entries)), picked


def _without(at: Rows, numbers: Int64s, offsets: Int64s, rows: Rows) -> tuple[Int64s, Int64s, Rows]:
    if not len(at):
        return numbers, offsets, rows
    kept = np.ones(len(rows), np.bool_)
    kept[at] = False
    return numbers[kept], offsets[kept], rows[kept]


def _by_source(lane: Lane, stream: Stream, run: Run, rows: Rows) -> Iterator[_Found]:
    """A run as one or two: the ring has all of a run or nothing, and the older messages may have left it."""
    base = run.segment.base
    cut = 0 if base is None else bisect_left(run.places[0], lane.ring.low - base)
    for begin, end in ((0, cut), (cut, len(run))) if 0 < cut < len(run) else ((0, len(run)),):
        if begin < end:
            yield _Found(stream, run.part(begin, end), rows[begin:end])


def _payloads(sources: Sources, stream: Stream, run: Run) -> list[bytes]:
    """The bytes of a run's messages: by a mapping, as far as it has them.

    A system call for each message lets go of the interpreter lock, and it takes up to 5 ms to have it again.
    """
    base = run.segment.base
    if not sources.are_log or (base is not None and base + run.places[0][0] >= stream.lane.ring.low):
        return sources.payloads(stream, run)
    flat = np.array(run.places, np.int64).T.reshape(-1).tolist()
    mapped: dict[int, bytes] = {}
    count = run.segment.copied(flat, range(len(run)), mapped)
    found = list(mapped.values())
    if count:
        sources.counters.count_device(run.places[1][:count], min(run.places[1][:count]), sum(map(len, found)), 0)
    return found + sources.payloads(stream, run.part(count, len(run))) if count < len(run) else found


def _fetched(
    sources: Sources, found: Sequence[_Found], streams: Sequence[Stream], which: Int64s, offsets: Int64s, looked: int
) -> Picks:
    datas: list[bytes | None] = [None] * looked
    times = np.zeros(looked, np.int64)
    extras: list[tuple[ExtraColumns | None, int]] = []
    for stream, run, rows in found:
        for row, data in zip(rows.tolist(), _payloads(sources, stream, run), strict=True):
            datas[row] = data
        times[rows], some = columns_of(stream, run)
        extras.append((some, len(rows)))
    whole = [data for data in datas if data is not None]
    sources.counters.messages += len(whole)
    behind_each_other = np.concatenate([np.empty(0, np.intp), *(one.rows for one in found)])
    order = behind_each_other.argsort()
    there = behind_each_other[order]
    lengths = np.fromiter(map(len, whole), np.int64, len(whole))
    ends = lengths.cumsum()
    sources.counters.bytes += int(ends[-1]) if len(ends) else 0
    names = [(stream.topic, stream.queue_id) for stream in streams]
    columns = None
    if any(some is not None for some, _ in extras):
        columns = ExtraColumns.joined(extras).take(order)
    batch = MessageBatch(
        memoryview(b"".join(whole)), ends - lengths, lengths, offsets[there], times[there],
        which[there].astype(np.uint32), names, columns,
    )  # fmt: skip
    return Picks(batch, there, looked)
