"""Which messages that the index has not read yet were told to be due: they stay so, whatever the clock does then."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Told:
    """Places of messages, as `places_of` gives them. For an index that is behind; empty in all others."""

    def __init__(self) -> None:
        self._due = BitMap64()

    def __contains__(self, place: int) -> bool:
        return place in self._due

    def are_due(self, places: Int64s) -> Bools:
        """(n,) which were told to be due."""
        if not self._due:
            return np.zeros(len(places), np.bool_)
        return np.fromiter(map(self._due.__contains__, places.tolist()), np.bool_, len(places))

    def are_later(self, places: Int64s, unread: Bools, times_ms: Int64s, now_ms: int) -> Bools:
        """(n,) which of the `unread` ones come later. The others of them are due from now on."""
        later = unread & (times_ms > now_ms) & ~self.are_due(places)
        self._due.update(places[unread & ~later].tolist())
        return later

    def clear(self) -> None:
        """The index has read all."""
        self._due.clear()
