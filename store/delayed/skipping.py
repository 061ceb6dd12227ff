"""Passing over messages that are pending, without reading them: what comes next in some queues is often all delayed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .positions import MOST_ENTRY, places_of
from .topic import DelayedTopic

Int64s = npt.NDArray[np.int64]


def first_not_pending(topic: DelayedTopic, queue_ids: Int64s, begins: Int64s, ends: Int64s) -> Int64s:
    """(n,) of each queue the first of the offsets begin .. end - 1 that is not pending; its end if all are.

    What the index does not know, or is being decided about, counts as not pending: `waiting` is to be asked about it.
    Raises OSError.
    """
    counts = ends - begins
    behind = counts.cumsum()
    queues = queue_ids.repeat(counts)
    offsets = (begins - behind + counts).repeat(counts) + np.arange(len(queues))
    topic.catch_up()
    with topic.lock:
        topic.decisions.settle()
        pending = topic.ask(lambda tracker: tracker.are_pending(queues, offsets & MOST_ENTRY))
        if topic.decisions.open:
            pending &= ~np.isin(places_of(queues, offsets), np.fromiter(topic.decisions.open, np.int64))
    stops = np.append(np.flatnonzero(~pending), len(offsets))
    firsts = stops[stops.searchsorted(behind - counts)]
    found: Int64s = np.minimum(firsts, behind) - behind + ends
    return found
