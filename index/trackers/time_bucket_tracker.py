"""The tracker of time buckets: all in memory, in a byte an entry where delays are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..columns import Int64s
from .time_buckets import TimeBuckets
from .tracker import Tracker


class TimeBucketTracker(Tracker):
    """Entries by time buckets of 2**precision_bits ms, each as bitmaps or as packed rows, whichever is smaller.

    Source: the time-bucket algorithm of Apache Pulsar's in-memory tracker, which rounds down and knows bitmaps alone.
    """

    def __init__(self, precision_bits: int = 10, *, memory_limit_bytes: int | None = None) -> None:
        super().__init__(precision_bits, memory_limit_bytes)
        self._buckets = TimeBuckets()

    def _add_one(self, place: int, time_ms: int) -> bool:
        return self._buckets.add_one(place, time_ms)

    def _add_rows(self, times: Int64s, places: Int64s) -> int:
        return self._buckets.add_rows(times, places)

    def _peek(self, now_ms: int, count: int) -> Int64s:
        return self._buckets.peek(now_ms, count)[1]

    def _drop(self, count: int) -> None:
        self._buckets.drop(count)

    def _next_ms(self) -> int | None:
        return self._buckets.next_ms

    def _are_pending(self, places: Int64s) -> npt.NDArray[np.bool_]:
        return self._buckets.are_pending(places)

    def _pending_places(self) -> BitMap64:
        return self._buckets.pending_places()

    def _count(self) -> int:
        return len(self._buckets)

    def _memory_bytes(self) -> int:
        return self._buckets.memory_bytes

    def _stats(self) -> dict[str, Any]:
        return {"memory_bytes": self._buckets.memory_bytes, **self._buckets.stats()}

    def _cancel(self, place: int) -> bool:
        return self._buckets.cancel(place)

    def _discard(self, first_place: int, before_place: int) -> BitMap64:
        return self._buckets.discard(first_place, before_place)

    def _clear(self) -> None:
        self._buckets.clear()

    def _close(self) -> None:
        self._buckets.clear()
