"""The list of what became due: each message is on it once, wherever it came from."""

from __future__ import annotations

import numpy as np

from stratalog.store.subscriptions.delays import PlaceList


def listed(places: PlaceList) -> list[tuple[int, int]]:
    queues, offsets = places.first(100)
    return list(zip(queues.tolist(), offsets.tolist(), strict=True))


def test_message_that_is_listed_stays_where_it_is() -> None:
    """A copy that is due is found among the copies, and in what became due: it went out twice in one call."""
    places = PlaceList()
    places.add(np.array([0, 0, 1]), np.array([5, 6, 7]))
    places.add(np.array([1, 0, 0, 1]), np.array([5, 6, 8, 7]))
    assert listed(places) == [(0, 5), (0, 6), (1, 7), (1, 5), (0, 8)]
    places.remove_first(2)
    places.add(np.array([0]), np.array([6]))
    assert listed(places) == [(1, 7), (1, 5), (0, 8), (0, 6)]
