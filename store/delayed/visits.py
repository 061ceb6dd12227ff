"""The topics that the thread of the delayed messages has to visit: an idle topic costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Generator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .topic import DelayedTopic

SPARE_TIMES = 64  # old entries at most, before the list of times is made again


class Visits:
    """Topics in which something has changed, and topics whose next message is due, by the wall clock.

    Any number of threads may `ask`, after their change. One thread at a time visits.

    Invariant: a topic with work to do is asked for, or listed with a time that is not after that of its next message.
    """

    def __init__(self) -> None:
        self._asked: dict[DelayedTopic, None] = {}  # in order; each access is one step of the interpreter
        self._listed: dict[DelayedTopic, int] = {}
        self._times: list[tuple[int, int, DelayedTopic]] = []  # a heap: (ms, number, topic); some are old
        self._numbers = count()  # sorts equal times by the moment of listing
        self._lock = threading.Lock()

    def ask(self, topic: DelayedTopic) -> None:
        """Have a topic visited. This does not wake the thread: it comes by twice a second, or when the log grows."""
        if topic.is_ready:
            self._asked[topic] = None

    def begin(self, topic: DelayedTopic) -> None:
        """A new topic is whole: it is visited from here on. A second call, as after an interrupt, does no harm."""
        self._asked[topic] = None  # first: after an interrupt the topic is not ready, and begins again
        topic.is_ready = True

    def take(self, now_ms: int) -> Generator[DelayedTopic, None, None]:
        """Yield the topics to visit now, each once. One that is asked for meanwhile has its turn the next time.

        They are removed one by one: after an error the others are still there.
        """
        with self._lock:
            while self._times and self._times[0][0] <= now_ms:
                time_ms, _, topic = heappop(self._times)
                if self._listed.get(topic) == time_ms:
                    del self._listed[topic]
                    self.ask(topic)
        for topic in list(self._asked):
            self._asked.pop(topic, None)  # before the visit: later changes ask again
            yield topic

    def list_at(self, topic: DelayedTopic, time_ms: int | None) -> None:
        """The next message of a visited topic is due at this time; None: it has none."""
        with self._lock:
            if time_ms == self._listed.get(topic):
                return
            if time_ms is None:
                del self._listed[topic]
                return
            self._listed[topic] = time_ms
            heappush(self._times, (time_ms, next(self._numbers), topic))
            if len(self._times) > 2 * len(self._listed) + SPARE_TIMES:
                self._times = [(listed_ms, next(self._numbers), one) for one, listed_ms in self._listed.items()]
                heapify(self._times)
