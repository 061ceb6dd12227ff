"""A receive from one queue: what it waits for, and how it knows that it has looked through."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..format.arrays import Int64s
from .dispatcher import Dispatcher
from .in_flight import NEVER, RowState
from .receiving import Look, Looking
from .state import State


class QueueLooking(Looking):
    """Answers the questions of one call that wants messages of one queue; it is also what that call waits for.

    It is told of the queue's messages as a read is, by the queue's name; and of all else that a look alone can find, as
    all consumers are. Others are told of what its looks list and do not take.
    """

    def __init__(self, state: State, dispatcher: Dispatcher, queue_id: int) -> None:
        super().__init__(state, dispatcher)
        self.parts = state.parts
        self._queue_id = queue_id
        self._is_cut = True  # the newest look has stopped before the end

    def begin(self) -> None:
        """See `Begun`."""
        state, queue_id = self._state, self._queue_id
        self.calling = state.queue_calls.begin(queue_id, self, partial(_tell, state, queue_id))

    def end(self) -> None:
        """See `Begun`."""
        self._state.queue_calls.end(self._queue_id, self)

    def undo_receive(self, receipts: Int64s) -> None:
        """See `WaitedFor`."""
        self._state.undo_receive(receipts)

    def _end(self, call: Look, seen: object, *, found: bool) -> None:
        self._is_cut = not found and self._dispatcher.is_unfinished_in(self._queue_id)
        super()._end(call, seen, found=found)

    @property
    def is_through(self) -> bool:
        """Whether it has looked through the queue."""
        return not self._is_cut

    @property
    def _is_unfinished(self) -> bool:
        return self._is_cut

    def _has_more(self) -> bool:
        return self._dispatcher.has_more_in(self._queue_id)

    def _again_ms(self) -> int:
        state = self._state
        with state.lock:
            rows = state.table.rows_of([self._queue_id])
            states = state.table.states(rows)
            waiting = np.isin(states, (RowState.OUT, RowState.HELD, RowState.RESTING))
            again_ms = int(state.table.deadlines(rows[waiting]).min(initial=NEVER))
        return min(again_ms, self._dispatcher.unreadable_until_ms)


def _tell(state: State, queue_id: int) -> None:
    """Have the consumers that wait for a queue look again."""
    state.mark_changed()
    state.parts.waiting.look_at([(state.topic, queue_id)])
