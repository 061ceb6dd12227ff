"""Reading messages by their places in many queues of a topic, together: what lies in one segment is found at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s, Uint32s
from ..format.blobs import ExtraColumns
from ..log.streams import Stream
from ..log.write import OpenSegment
from ..segment.part import Part, lengths_of, piece_of
from .details import Entries, Source, columns_of_entries
from .log_bytes import Bytes
from .message import MessageBatch

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
    """Messages of one segment, in log order.

    Attributes:
        stream: one of the lane.
        source, entries: the segment, and the numbers of the messages there.
        part: where they lie. Of several streams its offset is the first message's.
        rows: the numbers of their places.
    """

    stream: Stream
    source: Source
    entries: Entries
    part: Part
    rows: Rows


def picks_of(
    fetch: Bytes, streams: Sequence[Stream], which: Int64s, offsets: Int64s, max_bytes: int, *, is_first: bool
) -> Picks:
    """The messages at some places, as far as they can be read, and as far as their payloads fit into `max_bytes`.

    `which` (n,) has the index of each place's stream; streams are of one topic. With `is_first`, the first message may
    be larger than `max_bytes`. Raises StoreCorrupt, OSError, and OffsetOutOfRange if retention takes some meanwhile.
    """
    found = list(_found(fetch, streams, which, offsets))
    lengths = np.zeros(len(offsets), np.int64)
    for one in found:
        lengths[one.rows] = lengths_of(one.part)
    looked = int(lengths.cumsum().searchsorted(max_bytes, side="right"))
    if looked < len(offsets):
        rows = [int(one.rows.min()) for one in found]
        if is_first:
            looked = max(looked, min(rows) + 1)
        found = list(_found(fetch, streams, which[:looked], offsets[:looked]))
    return _fetched(fetch, found, streams, which, offsets, looked)


def _found(fetch: Bytes, streams: Sequence[Stream], which: Int64s, offsets: Int64s) -> Iterator[_Found]:
    """Where the messages lie. Caches know messages by their streams: with one, each has parts of its own."""
    lows = np.array([stream.low for stream in streams], np.int64)
    left = np.flatnonzero(offsets >= lows[which]) if len(offsets) else np.empty(0, np.intp)
    keys = [stream.lane.index for stream in streams] if fetch.is_log else list(range(len(streams)))
    numbers = np.array([stream.number for stream in streams], np.int64)
    for key in dict.fromkeys(keys):
        mine = [at for at, other in enumerate(keys) if other == key]
        rows = left if len(mine) == len(keys) else left[np.isin(which[left], mine)]
        if len(rows):
            found = _of_lane(streams[mine[0]], numbers[which[rows]], offsets[rows], rows)
            yield from found if fetch.is_log else _without_holes(found, offsets)


def _of_lane(stream: Stream, numbers: Int64s, offsets: Int64s, rows: Rows) -> Iterator[_Found]:
    """Where messages of a lane lie, by the numbers of their streams; `stream` is one of them."""
    lane = stream.lane
    view = lane.view
    for opened in reversed(view.open):
        if not len(rows):
            return
        entries, at = _pick_open(opened, numbers, offsets)
        if len(at):
            places = opened.table.rows_of(entries).reshape(-1).data
            part: Part = opened.segment, places, range(len(at)), False, int(offsets[at[0]])
            yield _Found(stream, opened, entries, part, rows[at])
            numbers, offsets, rows = _without(at, numbers, offsets, rows)
    left = np.ones(len(rows), np.bool_)
    looked: set[int] = set()  # segments: each gives all that it has at once
    for nth, place in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
        if not left[nth] or (index := lane.groups.where(view.sealed, *place)) in looked or index == len(view.sealed):
            continue
        looked.add(index)
        mine, source = np.flatnonzero(left), view.sealed[index]
        picked, flat, at = source.pick(lane.ring, numbers[mine], offsets[mine])
        left[mine[at]] = False
        if len(at):
            part = source.segment, flat, range(len(at)), False, int(offsets[mine[at[0]]])
            yield _Found(stream, source, picked, part, rows[mine[at]])


def _pick_open(opened: OpenSegment, numbers: Int64s, offsets: Int64s) -> tuple[Uint32s, Rows]:
    """The messages that an open segment has, in log order: their entries, and the index of each."""
    rows, found, at = opened.table.rows_now(), [], []
    for index, (number, offset) in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
        row = rows.get(number)
        if row is not None and 0 <= offset - row[0] < len(row[1]):
            found.append(row[1][offset - row[0]])
            at.append(index)
    entries = np.array(found, np.uint32)
    order = entries.argsort()
    return entries[order], np.array(at, np.intp)[order]


def _without(at: Rows, numbers: Int64s, offsets: Int64s, rows: Rows) -> tuple[Int64s, Int64s, Rows]:
    kept = np.ones(len(rows), np.bool_)
    kept[at] = False
    return numbers[kept], offsets[kept], rows[kept]


def _without_holes(found: Iterable[_Found], offsets: Int64s) -> Iterator[_Found]:
    """Messages of single streams, cut where their offsets have a hole."""
    for stream, source, entries, part, rows in found:
        those = offsets[rows]
        cuts = [0, *(np.flatnonzero(np.diff(those) != 1) + 1).tolist(), len(those)]
        for begin, end in pairwise(cuts):
            piece = *piece_of(part, begin, end)[:4], int(those[begin])
            yield _Found(stream, source, entries[begin:end], piece, rows[begin:end])


def _fetched(
    fetch: Bytes, found: Sequence[_Found], streams: Sequence[Stream], which: Int64s, offsets: Int64s, looked: int
) -> Picks:
    datas: list[bytes | None] = [None] * looked
    times = np.zeros(looked, np.int64)
    extras: list[tuple[ExtraColumns | None, int]] = []
    for stream, source, entries, part, rows in found:
        payloads, _ = fetch.fetch(stream, [part])
        for row, data in zip(rows.tolist(), payloads.values(), strict=True):
            datas[row] = data
        times[rows], some = columns_of_entries(stream, source, entries)
        extras.append((some, len(rows)))
    whole = [data for data in datas if data is not None]
    behind_each_other = np.concatenate([np.empty(0, np.intp), *(one.rows for one in found)])
    order = behind_each_other.argsort()
    there = behind_each_other[order]
    lengths = np.fromiter(map(len, whole), np.int64, len(whole))
    ends = lengths.cumsum()
    names = [(stream.topic, stream.queue_id) for stream in streams]
    columns = None
    if any(some is not None for some, _ in extras):
        columns = ExtraColumns.joined(extras).take(order)
    batch = MessageBatch(
        memoryview(b"".join(whole)), ends - lengths, lengths, offsets[there], times[there],
        which[there].astype(np.uint32), names, columns,
    )  # fmt: skip
    return Picks(batch, there, looked)
