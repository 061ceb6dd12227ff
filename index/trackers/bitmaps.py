"""Sets of places as compressed bitmaps, filled and asked in bulk."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s

BITMAP_BYTES: Final = 224  # of an object with one container, measured
CONTAINER_BYTES: Final = 40  # of each further one
FEW = 8  # with fewer rows a stretch on average, rows are added one by one
SMALL = 64  # with so few rows, looking for stretches takes longer


def stretches(ascending: Int64s) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The starts and ends (exclusive) of stretches of consecutive places in an ascending array that is not empty."""
    cuts = np.flatnonzero(ascending[1:] != ascending[:-1] + 1) + 1
    return np.concatenate(([0], cuts)), np.concatenate((cuts, [len(ascending)]))


def add_places(bitmap: BitMap64, ascending: Int64s) -> None:
    """Add places, which ascend. Stretches stay stretches: a full ledger takes a few bytes."""
    if not len(ascending):
        return
    begins, ends = stretches(ascending)
    if len(begins) * FEW <= len(ascending):
        for first, last in zip(ascending[begins].tolist(), ascending[ends - 1].tolist(), strict=True):
            bitmap.add_range(first, last + 1)
    else:
        bitmap.update(array("Q", ascending.tobytes()))  # three times as fast as from a numpy array


def bitmap_of(places: Int64s) -> BitMap64:
    """The set of these places, in whatever order."""
    if len(places) < SMALL:
        return BitMap64(places.tolist())
    bitmap = BitMap64()
    add_places(bitmap, np.sort(places))
    return bitmap


def places_in(bitmap: BitMap64) -> Int64s:
    """The places of the set, ascending."""
    return np.frombuffer(bitmap.to_array(), np.int64) if bitmap else np.empty(0, np.int64)


def are_in(places: Int64s, bitmap: BitMap64) -> npt.NDArray[np.bool_] | None:
    """(n,) whether the set has each place; None if it has none of them."""
    common = places_in(bitmap_of(places) & bitmap)
    if not len(common):
        return None
    at = np.searchsorted(common, places)
    at[at == len(common)] = 0
    found: npt.NDArray[np.bool_] = common[at] == places
    return found


def those_between(bitmap: BitMap64, first: int, before: int) -> BitMap64:
    """The part of the set from `first` to before `before`."""
    if not bitmap.range_cardinality(first, before):
        return BitMap64()
    part = bitmap.copy()
    part.remove_range(0, first)  # it visits only places that exist
    part.remove_range(before, 1 << 63)
    return part


def memory_bytes(bitmap: BitMap64) -> int:
    """The memory that it takes, about."""
    told = bitmap.get_statistics()
    payload = told["n_bytes_array_containers"] + told["n_bytes_run_containers"] + told["n_bytes_bitset_containers"]
    return BITMAP_BYTES + payload + CONTAINER_BYTES * told["n_containers"]
