"""The questions of retention to subscriptions: which messages of a queue are acknowledged, and how many are not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..format.arrays import Bools, Int64s
from .cursor import AckedOffsets
from .in_flight import RowState
from .state import State


def unacknowledged(states: Iterable[State | None], queue_id: int, ascending: Int64s, *, without: bool) -> Bools:
    """(n,) which messages of a queue lack a durable acknowledgement of some subscription; `without` one, all or none.

    `states`: of the subscriptions, None for one whose acknowledgements are not known: it may want all.
    """
    found, is_subscribed = np.zeros(len(ascending), np.bool_), False
    for state in states:
        if state is None:
            return np.ones(len(ascending), np.bool_)
        with state.lock:
            state.take_in()
            found |= ~state.cursor.queue(queue_id).are_in(ascending)
        is_subscribed = True
        if found.all():
            break
    return found if is_subscribed or not without else ~found


def count_acknowledged(states: Iterable[State | None], queue_id: int, begin: int, end: int) -> list[int]:
    """For each subscription, how many of the messages begin .. end - 1 of a queue are acknowledged for good: no record
    on its way for them may fail. `states`: as for `unacknowledged`.
    """
    found = []
    for state in states:
        if state is None:
            found.append(0)
            continue
        with state.lock:
            state.take_in()
            acked = state.cursor.queue(queue_id)
            low = min(max(begin, acked.mark), end)
            found.append(low - begin + acked.above.range_cardinality(low, end))
    return found


def count_left(state: State, queue_id: int, begin: int, end: int, spared: Int64s) -> int:
    """How many of the messages begin .. end - 1 of a queue are not acknowledged, without those `spared` (n,), which
    ascend and are in that range. An acknowledgement on its way counts, as in a backlog.
    """
    with state.lock:
        return _left(state, queue_id, begin, end, spared)


def count_lost(state: State, queue_id: int, begin: int, end: int, spared: Int64s) -> int:
    """`count_left` of messages that retention has removed. No receive that still has one of them counts it again."""
    with state.lock:
        count = _left(state, queue_id, begin, end, spared)
        if count:
            state.lost_below[queue_id] = max(end, state.lost_below.get(queue_id, 0))
    return count


def _left(state: State, queue_id: int, begin: int, end: int, spared: Int64s) -> int:
    state.take_in()
    acked = state.cursor.queues.get(queue_id) or AckedOffsets()
    low = max(begin, acked.mark)
    if low >= end or state.cursor.settings is None:
        return 0
    count = end - low - acked.above.range_cardinality(low, end)
    if not count:
        return 0
    rows = state.table.rows_of([queue_id])
    under_way = state.table.places(rows[state.table.states(rows) == RowState.ACKED]).offsets
    under_way = under_way[(under_way >= low) & (under_way < end)]
    out = np.union1d(under_way, spared)
    return int(count - np.count_nonzero(~acked.are_in(out)))
