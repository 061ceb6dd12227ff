"""Copies of delayed messages that cannot be read: they are held back for a while, and the others come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .dead_letters import RETRY_MS
from .delays import SubscriptionDelays
from .in_flight import NEVER, Places
from .state import State

Int64s = npt.NDArray[np.int64]


class BadCopies:
    """Places, all of them until one time. One thread at a time, but for `until_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.until_ms = NEVER
        self._places: set[tuple[int, int]] = set()
        self._now_ms = now_ms

    def add(self, places: Places) -> None:
        """These could not be read now."""
        if places.size:
            self.until_ms = min(self.until_ms, self._now_ms() + RETRY_MS)
            self._places.update(zip(places.queues.tolist(), places.offsets.tolist(), strict=True))

    def are_in(self, queues: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which messages are held back."""
        pairs = zip(queues.tolist(), offsets.tolist(), strict=True) if self._places else ()
        found = np.zeros(len(offsets), np.bool_)
        for row, place in enumerate(pairs):
            found[row] = place in self._places
        return found

    def look(self, delays: SubscriptionDelays) -> None:
        """Have them looked for again, if it is time."""
        if self._now_ms() >= self.until_ms:
            delays.again = True  # first: behind an interrupt it is done again
            self._places.clear()
            self.until_ms = NEVER


def are_copies(state: State, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages live on as copies alone."""
    bounds = state.parts.reads.queue_bounds
    firsts = [bounds(state.topic, queue_id)[0] for queue_id in places.queues.tolist()]
    return np.asarray(places.offsets < np.array(firsts, np.int64))
