"""Enters messages into the in-flight table, and drops rows whose messages were removed from the log."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s
from ..read.message import MessageBatch
from .delays import SubscriptionDelays
from .delivery import DeliveryBatch, queue_ids_of, taken
from .in_flight import Places
from .ordering import Line, Order
from .state import State


def give_out(
    state: State, batch: MessageBatch, attempts: Int64s, used: Int64s, visibility_ms: int, owner: int
) -> DeliveryBatch | None:
    """Enter messages into the table; `used` are the receipts of those to redeliver, which are the first ones."""
    with state.lock:
        if len(used):
            still = state.table.find_back(used)  # the others were acknowledged meanwhile, by late consumers
            if state.order is not None and not still.all():
                still = _not_behind_gaps(state.order, batch, still)
            state.table.remove(state.table.find(used[still]))
            if not still.all():
                kept = np.append(np.flatnonzero(still), np.arange(len(used), len(batch)))
                batch, attempts = taken(batch, kept), attempts[kept]
        places = Places(queue_ids_of(batch), batch.offsets, attempts)
        receipts = state.enter(places, state.deadline_ms(visibility_ms), owner)
    return DeliveryBatch(batch, receipts, attempts) if len(batch) else None


def _not_behind_gaps(order: Order, batch: MessageBatch, still: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) which of the first messages go out: none after one of its line whose acknowledgement is on its way. If that
    acknowledgement fails, its message comes before them.
    """
    queues, offsets = queue_ids_of(batch)[: len(still)].tolist(), batch.offsets[: len(still)].tolist()
    gaps, found = set[Line](), still.copy()
    for at, place in enumerate(zip(queues, offsets, strict=True)):
        line = order.line_of(*place)
        if line is None:  # in no line, or acknowledged for good
            continue
        if not still[at]:
            gaps.add(line)
        found[at] &= line not in gaps
    return found


def forget_removed(state: State, delays: SubscriptionDelays, end: Callable[[Places], None]) -> None:
    """Drop the rows of removed messages; `end` has their lines go on. Without the state's lock; may be repeated."""
    with state.lock:
        rows = state.table.live()
        receipts, places = state.table.receipts(rows), state.table.places(rows)
    gone = np.flatnonzero(_are_gone(state, delays, places))
    if len(gone):
        end(places.take(gone))
        with state.lock:
            state.table.forget_removed(receipts[gone], state.now_ms())


def _are_gone(state: State, delays: SubscriptionDelays, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages are gone: neither in their queues nor alive as copies."""
    gone = np.zeros(places.size, np.bool_)
    for queue_id in np.unique(places.queues).tolist():
        first = state.parts.reads.queue_bounds(state.topic, queue_id)[0]
        rows = np.flatnonzero((places.queues == queue_id) & (places.offsets < first))
        if len(rows):
            gone[rows] = ~delays.are_kept(queue_id, places.offsets[rows])
    return gone
