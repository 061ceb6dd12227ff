"""Active cursors: which messages some reader will want soon.

A tail cache is for readers that keep up. A stream's cursor is *active* while its backlog, the messages between it and
the stream's end, is under a threshold; a new message is worth caching only for an active cursor. Messages for a reader
with a long backlog would only push out messages that are wanted now.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from .batch import grown

Ints = npt.NDArray[np.int64]
NOBODY = -(1 << 62)  # before any cursor that is active


class ActiveCursors:
    """The cursor of each stream: the offset that is read next. Any number of threads may use it."""

    def __init__(self, backlog_messages: int) -> None:
        self.backlog_messages = backlog_messages
        self._positions = np.full(64, NOBODY, np.int64)  # by stream
        self._moving = threading.Lock()

    def move(self, stream: int, position: int) -> None:
        """Note that a stream was read up to a position."""
        with self._moving:
            self._positions = grown(self._positions, stream, NOBODY)
            self._positions[stream] = position

    def wanted(self, streams: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """(n,) which new messages have an active cursor: its backlog was under the threshold when they came."""
        known = self._positions  # a longer one may replace it
        inside = streams < len(known)
        positions = np.where(inside, known[np.where(inside, streams, 0)], NOBODY)
        return np.asarray(offsets - positions < self.backlog_messages)
