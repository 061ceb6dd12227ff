"""The times and optional columns of messages that were found: they stand in the messages' frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Uint32s
from ..format.blobs import Blobs, ExtraColumns
from ..format.extras import Extras
from ..format.frame import OptionalColumns, optional_of
from ..format.layout import HAS_EXTRAS, NO_TIME
from ..log.streams import Stream
from ..log.write import OpenSegment, View
from ..segment.frame_heads import head_of_table
from ..segment.held import HeldItem
from ..segment.open_table import FEW
from ..segment.part import Part
from ..segment.sealed import SealedSegment
from .frame_times import source_of

Source = SealedSegment | OpenSegment
Entries = Sequence[int] | Uint32s
Times = Sequence[int] | Int64s


class HeldColumns(HeldItem):
    """The optional columns of a frame of an open segment."""

    __slots__ = ("columns",)

    def __init__(self, columns: OptionalColumns) -> None:
        self.columns = columns
        super().__init__(columns.size_bytes)


class _Places(NamedTuple):
    """Where the optional columns of n messages are: for each those of its frame, or None, and its number there."""

    frames: list[OptionalColumns | None]
    at: list[int]


def details_of(stream: Stream, view: View, part: Part) -> tuple[list[int], list[Extras | None]]:
    """Times and optional columns of a part's messages. Raises StoreCorrupt."""
    times, found = _places_of(stream, *_found_in(stream, view, part))
    listed = times.tolist() if isinstance(times, np.ndarray) else [*times]
    if found is None:
        return listed, [None] * len(listed)
    return listed, [None if frame is None else frame.row(at) for frame, at in zip(*found, strict=True)]


def columns_of(stream: Stream, view: View, part: Part) -> tuple[Times, ExtraColumns | None]:
    """As `details_of`, in columns: no object a message. None if no message has any."""
    return columns_of_entries(stream, *_found_in(stream, view, part))


def columns_of_entries(stream: Stream, source: Source, entries: Entries) -> tuple[Times, ExtraColumns | None]:
    """As `columns_of`, of some messages of a segment, of any streams of the lane."""
    times, found = _places_of(stream, source, entries)
    return times, None if found is None else _columns(found)


def _found_in(stream: Stream, view: View, part: Part) -> tuple[Source, Entries]:
    """The segment of a part and its entries there; those of the part may be of a table that was made for it."""
    source = source_of(view, part[0])
    assert source is not None, "a part is of a view's segment"
    if isinstance(source, OpenSegment):
        return source, part[2]
    return source, source.entries_of(stream.number, part[4], len(part[2]))


def _columns(found: _Places) -> ExtraColumns:
    rows = list(zip(*found, strict=True))
    frames = {frame for frame in found.frames if frame is not None}
    dues = keys = properties = None
    if any(frame.has_dues for frame in frames):
        dues = np.array([NO_TIME if frame is None else frame.due_ms(at) for frame, at in rows], np.int64)
        dues = None if (dues == NO_TIME).all() else dues
    if any(frame.has_blobs for frame in frames):
        extras = [None if frame is None else frame.row(at) for frame, at in rows]
        keys = Blobs.of([None if one is None else one.key for one in extras])
        properties = Blobs.of([None if one is None else one.properties for one in extras])
    return ExtraColumns(len(rows), dues, keys, properties)


def _places_of(stream: Stream, source: Source, entries: Entries) -> tuple[Times, _Places | None]:
    if isinstance(source, OpenSegment):
        return _open_places(stream, source, entries)
    heads = source.heads_of(stream.lane.ring, entries)
    times = [head.time_ms for head in heads]
    frames = [head.extras for head in heads]
    if not any(frames):
        return times, None
    return times, _Places(frames, [entry - head.first_entry for head, entry in zip(heads, entries, strict=True)])


def _open_places(stream: Stream, opened: OpenSegment, entries: Entries) -> tuple[Times, _Places | None]:
    if len(entries) <= FEW:  # the operations of an array cost more than they save
        few = entries.tolist() if isinstance(entries, np.ndarray) else entries
        numbers, times, flags = opened.table.few_frames(few)
    else:
        found, stamps, kinds = opened.table.frames_of(np.asarray(entries, np.uint32))
        if not (kinds & HAS_EXTRAS).any():
            return stamps, None
        numbers, times, flags = found.tolist(), stamps.tolist(), kinds.tolist()
    has_extras = [bool(one & HAS_EXTRAS) for one in flags]
    if True not in has_extras:
        return times, None
    return times, _with_extras(stream, opened, numbers, entries, has_extras)


def _with_extras(
    stream: Stream, opened: OpenSegment, numbers: list[int], entries: Entries, has_extras: list[bool]
) -> _Places:
    """Of entries in the frames `numbers`, with the optional columns of those frames that have some."""
    frames: list[OptionalColumns | None] = []
    at: list[int] = []
    table = opened.table
    at_hand, columns, first = -1, None, 0
    for number, entry, has in zip(numbers, entries, has_extras, strict=True):
        if number != at_hand:
            at_hand, first = number, table.frame_entry[number]
            columns = _frame_extras(stream, opened, number) if has else None
        frames.append(columns)
        at.append(entry - first)
    return _Places(frames, at)


def _frame_extras(stream: Stream, opened: OpenSegment, frame: int) -> OptionalColumns:
    """The optional columns of a frame of an open segment, held for the readers to come."""
    segment, table = opened
    found: HeldColumns | None = table.frame_items.get(frame)
    if found is not None:
        found.used = True
        return found.columns
    columns = optional_of(head_of_table(segment, stream.lane.ring, table, frame))
    if columns is None:
        raise StoreCorrupt("a frame's header is damaged", segment.path, table.frame_position[frame])
    stream.lane.index_memory.frames.keep(table.frame_items, frame, HeldColumns(columns))
    return columns
