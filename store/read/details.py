"""The times and optional columns of messages that were found: they stand in the messages' frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.extras import Extras
from ..format.frame import OptionalColumns, optional_at
from ..format.layout import HAS_EXTRAS
from ..log.streams import Stream
from ..segment.held import Item
from ..segment.open_table import OpenTable
from ..segment.run import Run
from ..segment.segment import Segment

Times = Sequence[int] | npt.NDArray[np.int64]


class HeldColumns(Item):
    """The optional columns of a frame of an open segment."""

    __slots__ = ("columns",)

    def __init__(self, columns: OptionalColumns) -> None:
        self.columns = columns
        super().__init__(columns.size_bytes)


def details_of(stream: Stream, run: Run) -> tuple[Times, list[Extras | None] | None]:
    """Times and optional columns of a run's messages; None if no message has any of these. Raises StoreCorrupt."""
    if isinstance(run.source, OpenTable):
        return _open_details(stream, run, run.source)
    heads = run.heads or []
    times = [head.time_ms for head in heads]
    if not [head for head in heads if head.extras is not None]:
        return times, None
    return times, [
        None if head.extras is None else head.extras.row(entry - head.first_entry)
        for head, entry in zip(heads, run.entries, strict=True)
    ]


def _open_details(stream: Stream, run: Run, table: OpenTable) -> tuple[Times, list[Extras | None] | None]:
    frames, times, flags = table.frames_of(np.asarray(run.entries, np.uint32))
    with_extras = np.flatnonzero(flags & HAS_EXTRAS).tolist()
    if not with_extras:
        return times, None
    extras: list[Extras | None] = [None] * len(run)
    at_hand, columns = -1, None
    for index in with_extras:
        frame = int(frames[index])
        if columns is None or frame != at_hand:
            at_hand, columns = frame, _frame_extras(stream, run.segment, table, frame)
        extras[index] = columns.row(int(run.entries[index]) - table.frame_entry[frame])
    return times, extras


def _frame_extras(stream: Stream, segment: Segment, table: OpenTable, frame: int) -> OptionalColumns:
    """The optional columns of a frame of an open segment, held for the readers to come."""
    found: HeldColumns | None = table.held.get(frame)
    if found is not None:
        found.used = True
        return found.columns
    position = table.frame_position[frame]
    payload = table.flat[3 * table.frame_entry[frame]]
    raw, _ = segment.fetch(stream.lane.ring, position, payload - position)
    columns = optional_at(raw)
    if columns is None:
        segment.check_open()
        raise StoreCorrupt("a frame's header is damaged", segment.path, position)
    stream.lane.held.frames.keep(table.held, frame, HeldColumns(columns))
    return columns
