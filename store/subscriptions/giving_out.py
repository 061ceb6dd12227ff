"""Entering messages into the table of those that consumers have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..read.message import MessageBatch
from .delivery import DeliveryBatch, queue_ids_of, taken
from .in_flight import NEVER, Places
from .state import State

Int64s = npt.NDArray[np.int64]


def tried(state: State, batch: MessageBatch, counts: Int64s, first: int) -> tuple[MessageBatch, Int64s, bool]:
    """Those of a batch that were not given out too often before, and whether there are others; `first` of them are
    known by the table.
    """
    settings, has_dead = state.cursor.settings, False
    assert settings is not None and settings.max_attempts is not None, "attempts are counted"
    queues = queue_ids_of(batch)
    with state.lock:
        counts[first:] += state.tries.of(queues[first:], batch.offsets[first:])
        is_dead = counts > settings.max_attempts
        is_dead[:first] = False  # they were looked at, maybe by another setting
        dead = np.flatnonzero(is_dead)
        if len(dead):  # the next look finds them in the table, and moves them to the dead letters
            receipts = state.enter(Places(queues[dead], batch.offsets[dead], counts[dead] - 1), NEVER)
            state.table.hold(state.table.find(receipts), state.now_ms())
            has_dead = True
    kept = np.flatnonzero(~is_dead)
    return (batch, counts, has_dead) if not has_dead else (taken(batch, kept), counts[kept], has_dead)


def give_out(
    state: State, batch: MessageBatch, attempts: Int64s, used: Int64s, visibility_ms: int, owner: int
) -> DeliveryBatch | None:
    """Enter messages into the table; `used` are the receipts of those that come again, which are the first ones."""
    with state.lock:
        if len(used):
            rows = state.table.find(used)
            still = np.ones(len(batch), np.bool_)
            still[: len(used)] = rows >= 0  # else acknowledged meanwhile, late
            state.table.remove(rows[rows >= 0])
            if not still.all():
                kept = np.flatnonzero(still)
                batch, attempts = taken(batch, kept), attempts[kept]
        places = Places(queue_ids_of(batch), batch.offsets, attempts)
        receipts = state.enter(places, state.deadline_ms(visibility_ms), owner)
    return DeliveryBatch(batch, receipts, attempts) if len(batch) else None
