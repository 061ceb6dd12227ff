"""The changed delays of a topic, in memory: which messages are cancelled, and which have another time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..errors import StoreCorrupt
from ..format.delays import CANCELLED, WHOLE, Changes
from .positions import ENTRY_BITS, offsets_of, places_of

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MOVED_BYTES = 120  # of one in a dict
CANCELLED_BYTES = 8  # at the most, about


class ChangedDelays:
    """What the records of a topic say, by place. Not safe for threads.

    A message is cancelled, or moved, or neither.
    """

    def __init__(self) -> None:
        self.cancelled = BitMap64()
        self.moved: dict[int, int] = {}  # place -> time

    def __len__(self) -> int:
        return len(self.cancelled) + len(self.moved)

    @property
    def memory_bytes(self) -> int:
        """What they occupy, about."""
        return CANCELLED_BYTES * len(self.cancelled) + MOVED_BYTES * len(self.moved)

    def note(self, place: int, time_ms: int) -> None:
        """The newest change of a message; CANCELLED as the time."""
        if time_ms == CANCELLED:
            self.cancelled.add(place)
            self.moved.pop(place, None)
        else:
            self.cancelled.discard(place)
            self.moved[place] = time_ms

    def are_cancelled(self, places: Int64s) -> Bools:
        """(n,)"""
        if not self.cancelled:
            return np.zeros(len(places), np.bool_)
        return np.fromiter(map(self.cancelled.__contains__, places.tolist()), np.bool_, len(places))

    def times_of(self, places: Int64s, given_ms: Int64s) -> Int64s:
        """(n,) when messages with these times of their own are due; CANCELLED for never."""
        if not len(self):
            return given_ms
        moved = self.moved
        pairs = zip(places.tolist(), given_ms.tolist(), strict=True)
        times = np.fromiter((moved.get(place, given) for place, given in pairs), np.int64, len(places))
        times[self.are_cancelled(places)] = CANCELLED
        return times

    def forget(self, is_gone: Callable[[int, Int64s], Bools]) -> None:
        """Drop the changes of messages that are no more; asked with a queue id and (n,) entries."""
        for places in (self._places(self.cancelled), self._places(self.moved)):
            queues = places >> ENTRY_BITS
            for queue_id in np.unique(queues).tolist():
                mine = places[queues == queue_id]
                gone = mine[is_gone(queue_id, mine & ((1 << ENTRY_BITS) - 1))]
                self.cancelled -= BitMap64(gone.tolist())
                for place in gone.tolist():
                    self.moved.pop(place, None)

    def rows(self, next_offset: Callable[[int], int]) -> tuple[Int64s, Int64s, Int64s]:
        """(queue ids, offsets, times) of all, in order of the place; `next_offset` is asked with a queue id."""
        places = np.sort(np.concatenate([self._places(self.cancelled), self._places(self.moved)]))
        queues = places >> ENTRY_BITS
        offsets = places & ((1 << ENTRY_BITS) - 1)
        for queue_id in np.unique(queues).tolist():
            mine = queues == queue_id
            offsets[mine] = offsets_of(offsets[mine], next_offset(queue_id))
        times = np.array([self.moved.get(place, CANCELLED) for place in places.tolist()], np.int64)
        return queues, offsets, times

    @staticmethod
    def _places(of: Iterable[int]) -> Int64s:
        return np.sort(np.fromiter(of, np.int64))


class ChangesReader:
    """Builds the changes from the records of a stream, in their order."""

    def __init__(self) -> None:
        self.state = ChangedDelays()
        self._parts: list[Changes] = []

    def add(self, data: bytes | memoryview) -> Int64s:
        """Apply a record; (n,) the places that it may have changed. Raises StoreCorrupt."""
        changes = Changes.unpack(data)
        if changes is None:
            raise StoreCorrupt("a record of changed delays makes no sense", "", 0)
        if changes.kind != WHOLE:
            self._parts = []
            return self._apply(changes)
        self._parts.append(changes)
        if changes.left == 0:
            self.state = ChangedDelays()
            parts, self._parts = self._parts, []
            return np.concatenate([self._apply(part) for part in parts])
        return np.empty(0, np.int64)

    def _apply(self, changes: Changes) -> Int64s:
        places = places_of(changes.queue_ids, changes.offsets)
        for place, time_ms in zip(places.tolist(), changes.times_ms.tolist(), strict=True):
            self.state.note(place, time_ms)
        return places
