"""The times and optional columns of messages that were found: they stand in the messages' frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.blobs import Blobs, ExtraColumns
from ..format.extras import Extras
from ..format.frame import OptionalColumns, optional_of
from ..format.layout import HAS_EXTRAS, NO_TIME
from ..log.streams import Stream
from ..segment.frame_heads import head_of_table
from ..segment.held import HeldItem
from ..segment.open_table import FEW, OpenTable
from ..segment.run import Run
from ..segment.segment import Segment

Times = Sequence[int] | npt.NDArray[np.int64]


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


def details_of(stream: Stream, run: Run) -> tuple[Times, list[Extras | None] | None]:
    """Times and optional columns of a run's messages; None if no message has any of these. Raises StoreCorrupt."""
    times, found = _places_of(stream, run)
    if found is None:
        return times, None
    return times, [None if frame is None else frame.row(at) for frame, at in zip(*found, strict=True)]


def columns_of(stream: Stream, run: Run) -> tuple[Times, ExtraColumns | None]:
    """As `details_of`, in columns: no object a message."""
    times, found = _places_of(stream, run)
    return times, None if found is None else _columns(found)


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


def _places_of(stream: Stream, run: Run) -> tuple[Times, _Places | None]:
    if isinstance(run.source, OpenTable):
        return _open_places(stream, run, run.source)
    heads = run.heads or []
    times = [head.time_ms for head in heads]
    frames = [head.extras for head in heads]
    if not any(frames):
        return times, None
    return times, _Places(frames, [entry - head.first_entry for head, entry in zip(heads, run.entries, strict=True)])


def _open_places(stream: Stream, run: Run, table: OpenTable) -> tuple[Times, _Places | None]:
    if len(run.entries) <= FEW:
        return _few_open_places(stream, run, table)
    entries = np.asarray(run.entries, np.uint32)
    found, times, flags = table.frames_of(entries)
    has_extras = flags & HAS_EXTRAS != 0
    if not has_extras.any():
        return times, None
    return times, _with_extras(stream, run, table, found.tolist(), entries.tolist(), has_extras.tolist())


def _few_open_places(stream: Stream, run: Run, table: OpenTable) -> tuple[Times, _Places | None]:
    """`_open_places` of few messages without arrays, whose operations cost more than they save here."""
    entries = list(map(int, run.entries))
    numbers, times, flags = table.few_frames(entries)
    has_extras = [bool(one & HAS_EXTRAS) for one in flags]
    if True not in has_extras:
        return times, None
    return times, _with_extras(stream, run, table, numbers, entries, has_extras)


def _with_extras(
    stream: Stream, run: Run, table: OpenTable, numbers: list[int], entries: list[int], has_extras: list[bool]
) -> _Places:
    """Of entries in the frames `numbers`, with the optional columns of those frames that have some."""
    frames: list[OptionalColumns | None] = []
    at: list[int] = []
    at_hand, columns, first = -1, None, 0
    for number, entry, has in zip(numbers, entries, has_extras, strict=True):
        if number != at_hand:
            at_hand, first = number, table.frame_entry[number]
            columns = _frame_extras(stream, run.segment, table, number) if has else None
        frames.append(columns)
        at.append(entry - first)
    return _Places(frames, at)


def _frame_extras(stream: Stream, segment: Segment, table: OpenTable, frame: int) -> OptionalColumns:
    """The optional columns of a frame of an open segment, held for the readers to come."""
    found: HeldColumns | None = table.held.get(frame)
    if found is not None:
        found.used = True
        return found.columns
    columns = optional_of(head_of_table(segment, stream.lane.ring, table, frame))
    if columns is None:
        raise StoreCorrupt("a frame's header is damaged", segment.path, table.frame_position[frame])
    stream.lane.held.frames.keep(table.held, frame, HeldColumns(columns))
    return columns
