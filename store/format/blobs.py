"""Optional columns in bulk: byte strings as lengths over a buffer, and the keys, properties and times of many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from .arrays import Int64s
from .extras import Extras
from .layout import NO_TIME

NONE = -1  # as a length: no byte string, which is not the same as an empty one; as a time: no time

Buffer = bytes | memoryview


class Blobs(NamedTuple):
    """n byte strings: int64 `lengths` (n), -1 for none, and the strings back to back in `data`."""

    lengths: Int64s
    data: Buffer

    def places(self) -> tuple[Int64s, Int64s]:
        """(n,) where each one begins in `data`, and its length there."""
        sizes = np.maximum(self.lengths, 0)
        return sizes.cumsum() - sizes, sizes

    def part(self, begin: int, end: int) -> Blobs:
        """The rows begin .. end - 1, without a copy."""
        first = int(np.maximum(self.lengths[:begin], 0).sum())
        lengths = self.lengths[begin:end]
        return Blobs(lengths, self.data[first : first + int(np.maximum(lengths, 0).sum())])

    def take(self, rows: npt.NDArray[np.intp]) -> Blobs:
        """The rows of these numbers."""
        return Blobs(self.lengths[rows], gathered(self.data, *self.places(), rows))

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Blobs | None:
        """The values; None if all of them are None."""
        lengths = [NONE if value is None else len(value) for value in values]
        if all(length == NONE for length in lengths):
            return None
        return cls(np.array(lengths, np.int64), b"".join([value for value in values if value]))

    @staticmethod
    def joined(parts: Sequence[tuple[Blobs | None, int]]) -> Blobs | None:
        """Some columns one after the other, each given with its number of rows; None if there is none."""
        if all(column is None for column, _ in parts):
            return None
        if len(parts) == 1:
            return parts[0][0]
        lengths = [np.full(count, NONE) if column is None else column.lengths for column, count in parts]
        return Blobs(np.concatenate(lengths), b"".join([column.data for column, _ in parts if column is not None]))


def gathered(data: Buffer, begins: Int64s, lengths: Int64s, rows: npt.NDArray[np.intp]) -> Buffer:
    """The byte strings of some rows, back to back: a copy, or a view where they lie so already."""
    begins, lengths = begins[rows], lengths[rows]
    ends = begins + lengths
    apart = np.flatnonzero(begins[1:] != ends[:-1])  # after these rows there is a gap
    lows = begins[np.concatenate([[0], apart + 1])].tolist() if len(rows) else []
    highs = ends[np.concatenate([apart, [len(rows) - 1]])].tolist() if len(rows) else []
    view = memoryview(data)
    if len(lows) <= 1:
        return view[lows[0] : highs[0]] if lows else b""
    return b"".join([view[low:high] for low, high in zip(lows, highs, strict=True)])


class ExtraColumns(Sequence[Extras]):
    """The delivery times, keys and properties of n messages; as a sequence, an `Extras` a message, made when asked for.

    `times_ms`: int64 (n), NO_TIME for none. A column that no message has is None.
    """

    def __init__(self, count: int, times_ms: Int64s | None, keys: Blobs | None, properties: Blobs | None) -> None:
        self._count = count
        self.times_ms = times_ms
        self.keys = keys
        self.properties = properties
        self._places: list[tuple[list[int], list[int]]] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Extras: ...

    @overload
    def __getitem__(self, at: slice) -> list[Extras]: ...

    def __getitem__(self, at: int | slice) -> Extras | list[Extras]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(self._count))]
        at = range(self._count)[at]
        due = NO_TIME if self.times_ms is None else int(self.times_ms[at])
        return Extras(None if due == NO_TIME else due, self._blob(0, at), self._blob(1, at))

    def __eq__(self, other: object) -> bool:
        return list(self) == other if isinstance(other, list) else self is other

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def _blob(self, which: int, at: int) -> bytes | None:
        column = (self.keys, self.properties)[which]
        if self._places is None:
            self._places = [
                ([], []) if one is None else (one.lengths.tolist(), one.places()[0].tolist())
                for one in (self.keys, self.properties)
            ]
        lengths, begins = self._places[which]
        if column is None or lengths[at] == NONE:
            return None
        return bytes(column.data[begins[at] : begins[at] + lengths[at]])

    def key(self, at: int) -> bytes | None:
        """The key of one message."""
        return self._blob(0, at)

    def take(self, rows: npt.NDArray[np.intp]) -> ExtraColumns:
        """The columns of the messages of these numbers."""
        times = None if self.times_ms is None else self.times_ms[rows]
        keys, properties = (None if one is None else one.take(rows) for one in (self.keys, self.properties))
        return ExtraColumns(len(rows), times, keys, properties)

    @classmethod
    def joined(cls, parts: Sequence[tuple[ExtraColumns | None, int]]) -> ExtraColumns:
        """The columns of some batches one after the other, each given with its number of messages."""
        times = None
        if any(one is not None and one.times_ms is not None for one, _ in parts):
            times = np.concatenate(
                [
                    np.full(count, NO_TIME) if one is None or one.times_ms is None else one.times_ms
                    for one, count in parts
                ]
            )
        keys = Blobs.joined([(None if one is None else one.keys, count) for one, count in parts])
        properties = Blobs.joined([(None if one is None else one.properties, count) for one, count in parts])
        return cls(sum(count for _, count in parts), times, keys, properties)

    @classmethod
    def of(cls, extras: Sequence[Extras | None]) -> ExtraColumns:
        """The columns of an `Extras` a message, or None for one that has nothing."""
        if isinstance(extras, cls):
            return extras
        rows = [extra or _NOTHING for extra in extras]
        times = None
        if any(row.due_ms is not None for row in rows):
            times = np.array([NO_TIME if row.due_ms is None else row.due_ms for row in rows], np.int64)
        return cls(len(rows), times, Blobs.of([row.key for row in rows]), Blobs.of([row.properties for row in rows]))


_NOTHING = Extras(None, None, None)
