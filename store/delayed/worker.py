"""The thread of the delayed messages, and the topics that it has to visit: an idle topic costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from ..device.background import Background, Bell
from ..errors import StoreError

PAUSE_S = 0.02  # after a call: messages that come meanwhile are added together, unless somebody asks before
RETRY_S = 0.1  # after an error
SPARE_TIMES = 64  # old entries at most, before the list of times is made again


class Visited(Protocol):
    """A topic, as the list of visits knows it.

    Attributes:
        is_ready: it is whole, and may be visited.
    """

    is_ready: bool


T = TypeVar("T", bound=Visited)


class Worker:
    """Calls `work` after each ring, and when the time that it returned is over; no error ends it.

    Attributes:
        is_started: there is a thread.
        is_closing: the thread ends, or has ended.
    """

    def __init__(self, work: Callable[[], float], failed: Callable[[str], None]) -> None:
        """`work` returns the seconds until the next call; `failed` gets the text of an error."""
        self._work = work
        self._failed = failed
        self._bell = Bell()
        self._threads: list[Background] = []  # one, or more if an interrupt may have kept one from starting
        self._working = threading.Lock()  # held by the thread that works
        self.is_started = self.is_closing = False

    def ring(self) -> None:
        """There is work to do."""
        self._bell.set()

    def start(self) -> None:
        """Start the thread. A second call does no harm."""
        if not self.is_started and not self.is_closing:
            self._threads.append(Background(self._run))
            self._threads[-1].start()
            self.is_started = True

    def _run(self) -> None:
        if self._working.acquire(blocking=False):
            self._work_on()

    def _work_on(self) -> None:
        while not self.is_closing:
            self._bell.clear()
            try:
                wait_s = self._work()
            except (OSError, StoreError) as error:
                self._failed(str(error))
                wait_s = RETRY_S
            except Exception as error:  # also a bug, or no memory: without this thread nobody would be woken
                why = str(error) or type(error).__name__
                self._failed(f"delayed delivery failed, and is tried again: {why}")
                wait_s = RETRY_S
            self._bell.wait(wait_s)
            if wait_s and not self.is_closing:
                time.sleep(PAUSE_S)  # each append rings

    def stop(self) -> None:
        """End the thread. A second call does no harm."""
        self.is_closing = True
        self._bell.set()
        for thread in self._threads:
            thread.join()


class Visits(Generic[T]):
    """Topics in which something has changed, and topics whose next message is due, by the wall clock.

    Any number of threads may `ask`, after their change. One thread at a time visits.

    Invariant: a topic with work to do is asked for, or listed with a time that is not after that of its next message.
    """

    def __init__(self) -> None:
        self._asked: dict[T, None] = {}  # in order; each access is one step of the interpreter
        self._listed: dict[T, int] = {}
        self._times: list[tuple[int, int, T]] = []  # a heap: (ms, number, topic); some are old
        self._numbers = count()  # sorts equal times by the moment of listing
        self._lock = threading.Lock()

    def ask(self, topic: T) -> None:
        """Have a topic visited. This does not wake the thread: it comes by twice a second, or when the log grows."""
        if topic.is_ready:
            self._asked[topic] = None

    def begin(self, topic: T) -> None:
        """A new topic is whole: it is visited from here on. A second call, as after an interrupt, does no harm."""
        self._asked[topic] = None  # first: after an interrupt the topic is not ready, and begins again
        topic.is_ready = True

    def take(self, now_ms: int) -> Generator[T, None, None]:
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

    def list_at(self, topic: T, time_ms: int | None) -> None:
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
