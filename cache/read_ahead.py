"""The depth of read-ahead after a miss: deeper for a sequential reader, small for a random one."""

from __future__ import annotations

import threading
from collections import OrderedDict

FIRST_FACTOR = 2  # the first miss of a reader reads twice the messages asked for
GROWTH = 2
READERS = 1 << 16  # remembered positions
WINDOW_MESSAGES = 4096  # after so many judged messages the limit is changed
TOO_MUCH_WASTE = 0.5
LITTLE_WASTE = 0.1


class ReadAhead:
    """Adaptive depth, in messages. Any number of threads and readers a stream.

    A reader whose last read-ahead ended at some offset has its next miss just there. So that place is remembered and
    not the reader, as (stream, offset) -> depth: this tells any number of readers of a stream apart at no cost.
    The depth doubles each time; a miss anywhere else begins small. Messages that were read ahead and thrown away unread
    lower the limit for all readers; messages that were used raise it again.

    Invariants: `least_messages <= limit_messages <= most_messages`; at most `READERS` places are remembered.
    """

    def __init__(self, most_messages: int = 4096, least_messages: int = 32) -> None:
        assert 0 < least_messages <= most_messages
        self.most_messages = most_messages
        self.least_messages = least_messages
        self.limit_messages = most_messages
        self._places: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._useful = self._wasted = 0
        self._lock = threading.Lock()

    def depth(self, stream: int, offset: int, wanted: int) -> int:
        """The number of messages to read from `offset` on, for a miss of `wanted` ones; at least those."""
        with self._lock:
            depth = self._places.pop((stream, offset), FIRST_FACTOR * wanted)
        return max(min(depth, self.limit_messages), wanted)

    def reached(self, stream: int, offset: int, depth: int) -> None:
        """A read-ahead of `depth` messages ended before `offset`: a reader with a miss there has read all of it."""
        with self._lock:
            self._places[stream, offset] = GROWTH * depth
            if len(self._places) > READERS:
                self._places.popitem(last=False)

    def judge(self, useful: int, wasted: int) -> None:
        """Count messages of a read-ahead that were read, or were thrown away unread."""
        with self._lock:
            self._useful += useful
            self._wasted += wasted
            judged = self._useful + self._wasted
            if judged < WINDOW_MESSAGES:
                return
            if self._wasted > TOO_MUCH_WASTE * judged:
                self.limit_messages = max(self.limit_messages // GROWTH, self.least_messages)
            elif self._wasted < LITTLE_WASTE * judged:
                self.limit_messages = min(self.limit_messages * GROWTH, self.most_messages)
            self._useful = self._wasted = 0
