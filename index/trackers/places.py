"""Places in bulk, as numbers and as sets: checks, packing and order.

A *place* is a position (ledger, entry) as one integer, ledger * 2**32 + entry: places sort as positions do. *Rows* are
two arrays of one length, the times in milliseconds and the places; in order means by (time, place). A *set* is a
compressed bitmap. Where the places of a few ledgers are packed, they are *books* and *lows*:

    book    (ledger - first ledger) * spread + entry // 65,536; spread is one more than the greatest quotient
    low     entry % 65,536
"""

from __future__ import annotations

from array import array
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s, as_int64
from ..errors import BadEntry

Rows: TypeAlias = tuple[Int64s, Int64s]

ENTRY_BITS: Final = 32
MOST_ENTRY: Final = (1 << ENTRY_BITS) - 1
MOST_LEDGER: Final = (1 << 31) - 1  # so that a place is an int64
MOST_TIME_MS: Final = (1 << 62) - 1  # 146 million years; a time stays below 2**63 when rounded up
MOST_PRECISION_BITS: Final = 40  # 35 years
KEY_BITS: Final = 63
FEW_ROWS: Final = 512  # for fewer rows, making one number of two takes longer
LOW_BITS: Final = 16
BITMAP_BYTES: Final = 224  # of an object with one container, measured
CONTAINER_BYTES: Final = 40  # of each further one
FEW = 8  # with fewer rows a stretch on average, rows are added to a set one by one
SMALL = 64  # with so few rows, looking for stretches takes longer
NO_ROWS: Final[Rows] = (np.empty(0, np.int64), np.empty(0, np.int64))


def bad_entry(ledger: Any, entry: Any, deliver_at_ms: Any = 0) -> BadEntry:
    """The error for a ledger, entry or time that is out of range."""
    for name, value, most in (
        ("ledger", ledger, MOST_LEDGER), ("entry", entry, MOST_ENTRY), ("deliver_at_ms", deliver_at_ms, MOST_TIME_MS)
    ):  # fmt: skip
        if not isinstance(value, int | np.integer):
            return BadEntry(f"{name} is an integer, not {type(value).__name__}")
        if not 0 <= value <= most:
            return BadEntry(f"{name} is from 0 to {most:,}, not {value:,}")
    return BadEntry("an entry has a ledger, a number in it and a time, all of them integers")


def checked_columns(ledgers: npt.ArrayLike, entries: npt.ArrayLike, deliver_at_ms: npt.ArrayLike) -> Rows:
    """The times and places of a batch. `ledgers` and `deliver_at_ms` may be a single number for all entries.

    Raises BadEntry for arrays of other shapes or types, of different lengths, or with a value out of range.
    """
    try:
        numbers = as_int64(entries, "entries")
        columns = [
            as_int64(np.full(len(numbers), given) if np.ndim(given) == 0 else given, name)
            for name, given in (("ledgers", ledgers), ("deliver_at_ms", deliver_at_ms))
        ]
    except (TypeError, ValueError, OverflowError) as error:
        raise BadEntry(str(error)) from error
    books, times = columns
    if not len(books) == len(numbers) == len(times):
        raise BadEntry(f"{len(books):,} ledgers, {len(numbers):,} entries, {len(times):,} times: not of one length")
    if not len(numbers):
        return NO_ROWS
    for name, column, most in (
        ("ledger", books, MOST_LEDGER), ("entry", numbers, MOST_ENTRY), ("time", times, MOST_TIME_MS)
    ):  # fmt: skip
        low, high = int(column.min()), int(column.max())
        if low < 0 or high > most:
            raise BadEntry(f"each {name} is from 0 to {most:,}, not {low if low < 0 else high:,}")
    return times, (books << ENTRY_BITS) | numbers


def positions_of(places: Int64s) -> tuple[Int64s, Int64s]:
    """(ledgers, entries) of places."""
    return places >> ENTRY_BITS, places & MOST_ENTRY


def spread_of(most_entry: int) -> int:
    """The spread of books for entries up to this one."""
    return (most_entry >> LOW_BITS) + 1


def books_of(places: Int64s, first_ledger: int, spread: int) -> tuple[Int64s, npt.NDArray[np.uint16]]:
    """(books, lows) of places."""
    ledgers, entries = positions_of(places)
    return (ledgers - first_ledger) * spread + (entries >> LOW_BITS), entries.astype(np.uint16)


def places_of_books(books: npt.NDArray[Any], lows: npt.NDArray[np.uint16], first_ledger: int, spread: int) -> Int64s:
    """The places of books and lows."""
    books = books.astype(np.int64)
    if spread == 1:
        places = (books + first_ledger) << ENTRY_BITS
    else:
        ledgers, high = np.divmod(books, spread)
        places = ((ledgers + first_ledger) << ENTRY_BITS) | (high << LOW_BITS)
    places |= lows
    return places


def rounded_up(times: Int64s, bits: int) -> Int64s:
    """The times, rounded up to multiples of 2**bits: so none is early."""
    if not bits:
        return times
    mask = (1 << bits) - 1
    return (times + mask) & ~mask


def is_ascending(values: Int64s) -> bool:
    """Whether each value is greater than the one before it."""
    return bool((values[1:] > values[:-1]).all())


def in_order(times: Int64s, places: Int64s) -> Rows:
    """The rows by (time, place); they are a few ordered parts, one after another.

    Time and place become one number of 63 bits if they fit, as they nearly always do. Then one sort of plain numbers is
    enough, which is four times as fast as a sort by two columns.
    """
    if len(times) < FEW_ROWS:
        order = np.lexsort((places, times))
        return times[order], places[order]
    ledgers, entries = positions_of(places)
    first_time, first_ledger = times.min(), ledgers.min()
    entry_bits = int(entries.max()).bit_length()
    ledger_bits = int(ledgers.max() - first_ledger).bit_length()
    time_bits = int(times.max() - first_time).bit_length()
    if entry_bits + ledger_bits + time_bits > KEY_BITS:
        order = np.lexsort((places, times))
        return times[order], places[order]
    keys = times - first_time
    keys <<= ledger_bits
    keys |= ledgers - first_ledger
    keys <<= entry_bits
    keys |= entries
    keys.sort(kind="stable")  # this sort is quicker for ordered parts
    places = keys & ((1 << entry_bits) - 1)
    keys >>= entry_bits
    places |= ((keys & ((1 << ledger_bits) - 1)) + first_ledger) << ENTRY_BITS
    keys >>= ledger_bits
    keys += first_time
    return keys, places


def joined(parts: list[Rows]) -> Rows:
    """The rows of all parts, each in order, in order."""
    parts = [part for part in parts if len(part[0])]
    if len(parts) < 2:
        return parts[0] if parts else NO_ROWS
    times, places = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    return in_order(times, places)


def rows_until(rows: Rows, time_ms: int, place: int) -> int:
    """The number of these ordered rows that are at or before (time, place)."""
    times, places = rows
    begin, end = np.searchsorted(times, (time_ms, time_ms + 1))
    return int(begin) + int(np.searchsorted(places[begin:end], place, side="right"))


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
