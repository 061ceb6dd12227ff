"""How often messages were given out, where too many times have a consequence (`max_attempts`): counted in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..format.cursors import pack_attempts
from ..log.request import Request
from .in_flight import Places

if TYPE_CHECKING:
    from .state import State

Int64s = npt.NDArray[np.int64]


class Tries:
    """The attempts of one subscription. Any number of threads may use it.

    Invariant: where attempts are counted, no message is a consumer's before the log says how often it was given out.

    Attributes:
        ends: by queue id: messages that are read below may have been given out before.
    """

    def __init__(self, state: State) -> None:
        self.ends: dict[int, int] = {}
        self._state = state

    @property
    def are_counted(self) -> bool:
        """Whether attempts are counted over restarts: too many have a consequence."""
        settings = self._state.cursor.settings
        return settings is not None and settings.max_attempts is not None

    def of(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, by what the log says. Under the state's lock."""
        counts, cursor = np.zeros(len(offsets), np.int64), self._state.cursor
        for queue_id in np.unique(queues).tolist() if cursor.attempts else ():
            mine = np.flatnonzero(queues == queue_id)
            mine = mine[offsets[mine].argsort(kind="stable")]
            counts[mine] = cursor.tried(queue_id).of(offsets[mine])
        return counts

    def note(self, places: Places) -> Sequence[Request]:
        """Messages are given out, the newest of so many times: the requests that say so to the log.

        Raises as an append does; then nothing was noted.
        """
        groups, state = [], self._state
        try:
            with state.lock:
                life = state.cursor.life
                for queue_id in np.unique(places.queues).tolist():
                    mine = np.flatnonzero(places.queues == queue_id)
                    mine = mine[places.offsets[mine].argsort(kind="stable")]
                    tried = state.cursor.tried(queue_id)
                    tried.note(places.offsets[mine], places.attempts[mine])
                    groups.append((queue_id, tried.era, places.offsets[mine], places.attempts[mine]))
            requests = state.journal.submit(pack_attempts(life, groups, state.limit_bytes))
        except BaseException:  # passed on; an interrupt, too, leaves no attempt that no record has
            with state.lock:
                self._take_back(places)
            raise
        return requests

    def may_be_met(self, is_past: Callable[[int, int], bool]) -> bool:
        """Whether messages that are read next may have been given out before; `is_past` says whether a queue's are read
        up to an offset.
        """
        for queue_id in [queue_id for queue_id, end in self.ends.items() if is_past(queue_id, end)]:
            del self.ends[queue_id]
        return bool(self.ends)

    def wait_for(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the log has what it was told of messages that are given out. Raises StoreError: they come again,
        and this time does not count.
        """
        try:
            for request in noted:
                request.result()
        except StoreError:
            self._state.take_back(receipts)
            raise
        self._state.compact_in_time()

    def take_back(self, places: Places) -> None:
        """The newest time does not count: no consumer has had it. Under the state's lock."""
        if self.are_counted:
            self._take_back(places)

    def _take_back(self, places: Places) -> None:
        self._state.cursor.take_back_tried(zip(*[column.tolist() for column in places], strict=True))

    def expect(self) -> None:
        """All is read again: some of it was given out before."""
        if self.are_counted:
            cursor = self._state.cursor
            cursor.forget_tried()
            self.ends = {queue_id: one.end for queue_id, one in cursor.attempts.items() if one.end}
