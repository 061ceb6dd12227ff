"""Messages that a trim or retention removed while consumers had them: they count as acknowledged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .delays import SubscriptionDelays
from .in_flight import Places
from .state import State


def forget_removed(state: State, delays: SubscriptionDelays, end: Callable[[Places], None]) -> None:
    """Let go of their rows; `end` has their lines go on. Not under the state's lock. Again is fine."""
    with state.lock:
        rows = state.table.live()
        receipts, places = state.table.receipts(rows), state.table.places(rows)
    gone = np.flatnonzero(_are_gone(state, delays, places))
    if len(gone):
        end(places.take(gone))
        with state.lock:
            state.table.forget_removed(receipts[gone], state.now_ms())


def _are_gone(state: State, delays: SubscriptionDelays, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages are neither in their queues any more nor live on as copies."""
    gone = np.zeros(places.size, np.bool_)
    for queue_id in np.unique(places.queues).tolist():
        first = state.parts.reads.queue_bounds(state.topic, queue_id)[0]
        rows = np.flatnonzero((places.queues == queue_id) & (places.offsets < first))
        if len(rows):
            gone[rows] = ~delays.are_kept(queue_id, places.offsets[rows])
    return gone
