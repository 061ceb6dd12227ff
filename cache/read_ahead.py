"""The depth of read-ahead after a miss: deeper for a sequential reader, none for a random one."""

from __future__ import annotations

import threading
from collections import OrderedDict

FIRST_FACTOR = 2  # the first miss of a reader reads as much again as was asked for
GROWTH = 2
READERS = 1 << 16  # positions that are remembered
WINDOW_MESSAGES = 4096  # after so many judged messages the limit is looked at
TOO_MUCH_WASTE = 0.5
LITTLE_WASTE = 0.1


class ReadAhead:
    """Adaptive depth, in messages. Any number of threads and readers a stream.

    A reader whose last read-ahead ended at some offset misses next just there. So what is remembered is not the
    reader but that place, (stream, offset) -> depth: any number of readers of a stream are told apart for nothing.
    The depth doubles each time; a miss anywhere else begins small. What is read ahead and thrown away unread lowers
    the limit for everybody, what is used raises it again.

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
        """How many messages to read from `offset` on, for a miss of `wanted` ones; at least those."""
        with self._lock:
            depth = self._places.pop((stream, offset), FIRST_FACTOR * wanted)
        return max(min(depth, self.limit_messages), wanted)

    def reached(self, stream: int, offset: int, depth: int) -> None:
        """A read-ahead of `depth` messages ended before `offset`: who misses there has read all of it."""
        with self._lock:
            self._places[stream, offset] = GROWTH * depth
            if len(self._places) > READERS:
                self._places.popitem(last=False)

    def judge(self, useful: int, wasted: int) -> None:
        """So many messages of a read-ahead were read, or thrown away unread."""
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
