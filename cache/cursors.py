"""Active cursors: which messages some reader will want soon.

A tail cache is for readers that keep up. A cursor is *active* while its backlog, the messages between it and its
stream's end, is under a threshold; a new message is worth caching only for an active one. What a reader far behind
will want some day would only push out what is wanted now.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from .errors import InvalidCacheConfig

Ints = npt.NDArray[np.int64]
NOBODY = -(1 << 62)  # further behind than any cursor
FIRST_STREAMS = 64


class ActiveCursors:
    """Positions of cursors: the offset that each reads next. Any number of threads may use it.

    Invariant: `_furthest[stream]` is the largest position of the stream's cursors, `NOBODY` without any.
    """

    def __init__(self, backlog_messages: int = 1000) -> None:
        if type(backlog_messages) is not int or backlog_messages <= 0:
            raise InvalidCacheConfig(f"backlog_messages is a positive number of messages, not {backlog_messages!r}")
        self.backlog_messages = backlog_messages
        self._positions: dict[int, dict[object, int]] = {}
        self._furthest = np.full(FIRST_STREAMS, NOBODY, np.int64)
        self._lock = threading.Lock()

    def move(self, stream: int, cursor: object, position: int) -> None:
        """A cursor (any hashable name) of a stream is at a position, for the first time or again."""
        with self._lock:
            if stream >= len(self._furthest):
                more = max(stream + 1, 2 * len(self._furthest)) - len(self._furthest)
                self._furthest = np.append(self._furthest, np.full(more, NOBODY, np.int64))
            cursors = self._positions.setdefault(stream, {})
            cursors[cursor] = position
            self._furthest[stream] = max(cursors.values())

    def remove(self, stream: int, cursor: object) -> None:
        """A cursor is gone."""
        with self._lock:
            cursors = self._positions.get(stream, {})
            if cursors.pop(cursor, None) is not None:
                self._furthest[stream] = max(cursors.values(), default=NOBODY)
            if not cursors:
                self._positions.pop(stream, None)

    def wanted(self, streams: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """(n,) which new messages have an active cursor: its backlog when they came was under the threshold."""
        furthest = self._furthest
        known = streams < len(furthest)
        positions = np.where(known, furthest[np.where(known, streams, 0)], NOBODY)
        return np.asarray(offsets - positions < self.backlog_messages)
