"""Messages by queue and offset, in the order in which they are to be given out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..format.arrays import Indexes, Int64s


class PlaceList:
    """Places in the order in which they are to be given out, each once. One thread at a time."""

    def __init__(self) -> None:
        self._queues = self._offsets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """The memory that the list takes."""
        return self._queues.nbytes + self._offsets.nbytes

    def add(self, queues: Int64s, offsets: Int64s) -> None:
        """Append places, none of them twice. A place that is listed already stays where it is."""
        if len(self):
            new = np.ones(len(offsets), np.bool_)
            for queue_id in np.unique(queues).tolist():
                mine = queues == queue_id
                new[mine] = ~np.isin(offsets[mine], self._offsets[self._queues == queue_id])
            queues, offsets = queues[new], offsets[new]
        self._queues = np.concatenate([self._queues, queues])
        self._offsets = np.concatenate([self._offsets, offsets])

    def has(self, queue_id: int | None = None) -> bool:
        """Whether a place of a queue is listed; or any."""
        return len(self) > 0 if queue_id is None else bool((self._queues == queue_id).any())

    def first(self, count: int, queue_id: int | None = None) -> tuple[Int64s, Int64s]:
        """(queue ids, offsets) of the first places, or of the first ones of a queue; they stay listed."""
        if queue_id is None:
            return self._queues[:count], self._offsets[:count]
        rows = self._rows(queue_id, count)
        return self._queues[rows], self._offsets[rows]

    def remove_first(self, count: int, queue_id: int | None = None) -> None:
        """Drop the first `count` places, or the first ones of a queue."""
        if queue_id is None:
            self._queues, self._offsets = self._queues[count:], self._offsets[count:]
            return
        rows = self._rows(queue_id, count)
        self._queues, self._offsets = np.delete(self._queues, rows), np.delete(self._offsets, rows)

    def _rows(self, queue_id: int, count: int) -> Indexes:
        return np.flatnonzero(self._queues == queue_id)[:count]

    def drop(self, queue_ids: Sequence[int] | None = None) -> None:
        """Forget the places of some queues, or all; they will be found again."""
        kept = np.zeros(len(self), np.bool_) if queue_ids is None else ~np.isin(self._queues, queue_ids)
        self._queues, self._offsets = self._queues[kept], self._offsets[kept]


def first_of_each(queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
    """(n,) true for the first of each place that occurs several times, and for each place that occurs once."""
    kept = np.ones(len(offsets), np.bool_)
    if len(set((offsets ^ queues << 40).tolist())) == len(offsets):  # true nearly always, and quicker to check
        return kept
    pairs = list(zip(queues.tolist(), offsets.tolist(), strict=True))
    if len(set(pairs)) < len(pairs):
        kept[:] = False
        kept[list({pair: at for at, pair in reversed(list(enumerate(pairs)))}.values())] = True
    return kept
