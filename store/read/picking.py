"""Finding messages of a stream that do not follow each other: a run a segment, whatever lies between."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..log.streams import Stream
from ..segment.run import Run

Int64s = npt.NDArray[np.int64]
RUN_MESSAGES = 1024  # a longer run is cut: its places are lists


def picked_runs(stream: Stream, offsets: Int64s) -> list[Run]:
    """The messages with these offsets, which ascend, as far as they can be read: runs in their order.

    Raises StoreCorrupt if the index of a segment that may have some is damaged.
    """
    view, number, low = stream.lane.view, stream.number, stream.low
    left = offsets[offsets >= low]
    runs: list[Run] = []
    for segment, table in reversed(view.open):
        row = table.row(number) if len(left) else None
        if row is not None:
            begin, end = left.searchsorted((row[0], row[0] + len(row[1])))
            for part in reversed(_parts(left[begin:end])):
                entries = np.array(row[1], np.uint32)[part - row[0]]
                runs.append(Run(segment, table, part.tolist(), entries, table.places(entries)))
            left = left[:begin]
    for sealed in reversed(view.sealed):
        if not len(left):
            break
        first, count = sealed.first_of(number)
        if count:
            begin, end = left.searchsorted((first, first + count))
            runs += [sealed.pick(stream.lane.ring, number, part) for part in reversed(_parts(left[begin:end]))]
            left = left[:begin]
    return [run for run in reversed(runs) if len(run)]


def _parts(offsets: Int64s) -> list[Int64s]:
    return [offsets[at : at + RUN_MESSAGES] for at in range(0, len(offsets), RUN_MESSAGES)]
