"""Readers that wait for a message, each woken for its own queue and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from .lane import Lane
from .streams import Stream, StreamMap
from .write import Shown

Name = tuple[str, int]  # (topic, queue)


class WaitingReaders:
    """Sleeping readers by the queue that they wait for, which need not exist yet.

    Each sleeps on a lock of its own, its *bell*. Invariants:
        * a bell hangs before its reader looks whether there is a message: what is shown after the look rings it;
        * who takes a bell down rings it, or is its reader; so each is rung once at most.

    An interrupt in an unlucky place leaves a bell hanging: it is rung for nobody, once.
    """

    def __init__(self, streams: StreamMap) -> None:
        self._streams = streams
        self._bells: dict[Name, list[threading.Lock]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, list(self._bells.values())))

    def wait(self, name: Name, deadline: float, has_come: Callable[[], bool]) -> bool:
        """Sleep until `has_come` says yes; False when it is later than `deadline` (of `time.monotonic`)."""
        while True:
            bell = threading.Lock()
            bell.acquire()
            try:
                with self._lock:
                    self._bells.setdefault(name, []).append(bell)
                if has_come():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                bell.acquire(timeout=left)
            finally:
                self._take_down(name, bell)

    def tell(self, lane: Lane, shown: Sequence[Shown]) -> None:
        """Readers may see more of a lane now: wake those who wait for a message of these queues.

        A flusher does this after each write, so nothing is looked up unless somebody waits, and then no row is made:
        that is for the reader to do.
        """
        if self._bells:
            came = {number for table, begin, end in shown for number in table.few_numbers(begin, end)}
            with self._lock:
                self._ring(self._due(lane, came))

    def wake_all(self) -> None:
        """Something else has happened that they have to know."""
        with self._lock:
            self._ring(list(self._bells))

    def _due(self, lane: Lane, numbers: set[int]) -> list[Name]:
        """The queues that are waited for and have one of these numbers, by whichever are fewer."""
        bells, streams = self._bells, self._streams
        if len(bells) < len(numbers):
            return [name for name in bells if _is_among(streams.get(*name), lane, numbers)]
        named = [lane.streams[number] for number in numbers]
        return [name for stream in named if (name := (stream.topic, stream.queue_id)) in bells]

    def _ring(self, names: list[Name]) -> None:
        for name in names:
            for bell in self._bells.pop(name):
                bell.release()

    def _take_down(self, name: Name, bell: threading.Lock) -> None:
        with self._lock:
            bells = self._bells.get(name)
            if bells is not None and bell in bells:
                bells.remove(bell)
                if not bells:
                    del self._bells[name]


def _is_among(stream: Stream | None, lane: Lane, numbers: set[int]) -> bool:
    return stream is not None and stream.lane is lane and stream.number in numbers
