"""Messages in flight that are gone from the log: their rows go, and their lines go on."""

from __future__ import annotations

import numpy as np

from ..format.arrays import Bools
from .delays import SubscriptionDelays
from .in_flight import Places
from .state import State


def forget_removed(state: State, delays: SubscriptionDelays) -> None:
    """Drop the rows of removed messages, and have their lines go on. It may be repeated."""
    with state.lock:
        rows = state.table.live()
        receipts, places = state.table.receipts(rows), state.table.places(rows)
    gone = np.flatnonzero(_are_gone(state, delays, places))
    if len(gone):
        state.drop(places.take(gone))
        with state.lock:
            state.table.forget_removed(receipts[gone], state.now_ms())


def _are_gone(state: State, delays: SubscriptionDelays, places: Places) -> Bools:
    """(n,) which messages are gone: neither in their queues nor alive as copies."""
    gone = np.zeros(places.size, np.bool_)
    for queue_id in np.unique(places.queues).tolist():
        first = state.parts.reads.queue_bounds(state.topic, queue_id)[0]
        rows = np.flatnonzero((places.queues == queue_id) & (places.offsets < first))
        if len(rows):
            gone[rows] = ~delays.are_kept(queue_id, places.offsets[rows])
    return gone
