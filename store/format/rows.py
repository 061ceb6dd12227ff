"""Messages as columns, on their way into frames: the one shape that is cut, picked from and handed on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import Int64s
from .blobs import Blobs, gathered
from .layout import MAX_FRAME_MESSAGES


class Rows(NamedTuple):
    """n messages, checked. The arrays are the store's own; the payload may be a view of a caller's buffer.

    Attributes:
        numbers: int64 (n), of each one's stream, or its place in a table.
        lengths: int64 (n), bytes of each payload.
        payload: the payloads back to back.
        keys, properties: None if no message has one.
        times_ms: int64 (n), delivery times, NO_TIME for none; or None.
    """

    numbers: Int64s
    lengths: Int64s
    payload: memoryview
    keys: Blobs | None
    properties: Blobs | None
    times_ms: Int64s | None

    def sizes(self) -> Int64s:
        """(n,) bytes of each message: payload, key and properties."""
        found = self.lengths
        for column in (self.keys, self.properties):
            if column is not None:
                found = found + np.maximum(column.lengths, 0)
        return found

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """The messages of these numbers: a copy, or a view of the payloads where they lie back to back."""
        ends = self.lengths.cumsum()
        return Rows(
            self.numbers[rows],
            self.lengths[rows],
            memoryview(gathered(self.payload, ends - self.lengths, self.lengths, rows)),
            None if self.keys is None else self.keys.take(rows),
            None if self.properties is None else self.properties.take(rows),
            None if self.times_ms is None else self.times_ms[rows],
        )

    def part(self, begin: int, end: int) -> Rows:
        """The messages begin .. end - 1, without a copy."""
        low = int(self.lengths[:begin].sum())
        return self._part(begin, end, low, low + int(self.lengths[begin:end].sum()))

    def _part(self, begin: int, end: int, low: int, high: int) -> Rows:
        """As `part`; their payloads are the bytes low .. high - 1."""
        return Rows(
            self.numbers[begin:end],
            self.lengths[begin:end],
            self.payload[low:high],
            None if self.keys is None else self.keys.part(begin, end),
            None if self.properties is None else self.properties.part(begin, end),
            None if self.times_ms is None else self.times_ms[begin:end],
        )

    def cut(self, limit_bytes: int) -> list[Rows]:
        """In parts that fit into a frame: up to `limit_bytes` each, and at least one message; without copies."""
        ends = self.sizes().cumsum()
        count, begin, taken = len(ends), 0, 0
        if count <= MAX_FRAME_MESSAGES and (not count or int(ends[-1]) <= limit_bytes):
            return [self] if count else []
        payload_ends = self.lengths.cumsum()
        parts: list[Rows] = []
        low = 0
        while begin < count:
            fitting = int(ends.searchsorted(taken + limit_bytes, side="right"))
            end = min(max(fitting, begin + 1), begin + MAX_FRAME_MESSAGES, count)
            high = int(payload_ends[end - 1])
            parts.append(self._part(begin, end, low, high))
            begin, low, taken = end, high, int(ends[end - 1])
        return parts
