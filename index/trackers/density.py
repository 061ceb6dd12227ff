"""Which form a slot takes: a bitmap where its places are dense, packed rows where they are sparse.

Measured elsewhere, 10 million entries with delays of up to 7 days take 10.7 bytes each as bitmaps; packed, 3 to 5. With
one delay for all, a bitmap takes 0.3 bytes an entry and less. So each slot of a batch is given the smaller one of two
estimates, in bytes:

    bitmap   480 (the object, its place in the table and in the queue), 40 for each 65,536 entries that it touches, and
             the less of 2 a row and 4 a stretch of consecutive entries
    packed   4, and 3 a row

A slot that has a bitmap already pays no 480.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..columns import Int64s
from .bitmaps import CONTAINER_BYTES

SLOT_BYTES: Final = 480
PACKED_SLOT_BYTES: Final = 4
PACKED_ROW_BYTES: Final = 3
CONTAINER_BITS: Final = 16


class Slots(NamedTuple):
    """The slots of ordered rows: their times, and where their rows begin and end."""

    times: Int64s
    begins: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]
    least_bytes: npt.NDArray[np.int64]  # as a bitmap that is there already
    packed_bytes: npt.NDArray[np.int64]


def slots_of(times: Int64s, places: Int64s, *, has_bitmaps: bool) -> Slots | None:
    """The slots of ordered rows, with both estimates for each; None if all of them are to be packed for certain.

    `has_bitmaps`: some slots have a bitmap already.
    """
    is_new = np.ones(len(times), np.bool_)
    np.not_equal(times[1:], times[:-1], out=is_new[1:])
    begins = np.flatnonzero(is_new)
    ends = np.append(begins[1:], len(times))
    rows = ends - begins
    if not has_bitmaps and int(rows.max()) * PACKED_ROW_BYTES <= SLOT_BYTES:
        return None
    breaks, containers = is_new.copy(), is_new
    breaks[1:] |= places[1:] != places[:-1] + 1
    books = places >> CONTAINER_BITS
    containers[1:] |= books[1:] != books[:-1]
    stretches = np.add.reduceat(breaks, begins, dtype=np.int64)
    touched = np.add.reduceat(containers, begins, dtype=np.int64)
    return Slots(
        times[begins], begins, ends,
        CONTAINER_BYTES * touched + np.minimum(2 * rows, 4 * stretches),
        PACKED_SLOT_BYTES + PACKED_ROW_BYTES * rows,
    )  # fmt: skip
