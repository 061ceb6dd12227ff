"""Consumers that wait: their sleeps, and who is called to look, one at a time while there may be more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..read.waiting import ANY_QUEUE, WaitingReaders
from .in_flight import NEVER

PATIENCE_MS = 500  # then the called consumer is taken for gone, or its loop for stopped, and another one is called


class Sleeper:
    """One sleep of a consumer.

    Attributes:
        in_loop: a coroutine sleeps, whose loop may have stopped.
        is_awake: the consumer looks by itself from here on, and cannot be called any more.
        is_over: its look has ended.
        called_ms: when it was called.
    """

    __slots__ = ("called_ms", "in_loop", "is_awake", "is_over")

    def __init__(self, *, in_loop: bool = False) -> None:
        self.in_loop = in_loop
        self.is_awake = False
        self.is_over = False
        self.called_ms = 0


class WaitingConsumers:
    """Calls the consumers that wait in one subscription. Any number of threads may use it, without a lock: in a forked
    child a lost thread may hold a lock, and a thread that tells of news may not wait.

    Invariant: no news is lost. A consumer that was called has still to look; or the one that looks finds `_asked` when
    it has ended, and calls the next one; or nobody waits. A consumer that is about to wait compares with `looked_at`
    first. Each side writes its own mark before it reads the other's. So a call may be made twice, but is never lost.

    Attributes:
        name: the (topic, queue id) that they wait for.
        looked_at: the version at which a look has found no more messages.
        wakes_ms: until then one waiting consumer will look for messages that come again; 0 if nobody waits.
    """

    def __init__(
        self, readers: WaitingReaders, topic: str, now_ms: Callable[[], int], notify: Callable[[], None],
        queue_id: int = ANY_QUEUE,
    ) -> None:  # fmt: skip
        """`now_ms` is the clock of deadlines; `notify` is called when there is something to look at."""
        self._readers = readers
        self.name = topic, queue_id
        self._now_ms = now_ms
        self._notify = notify
        self._looker: Sleeper | None = None
        self._asked = False
        self.looked_at: object = None
        self.wakes_ms = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether a consumer waits for messages of the topic."""
        return self._readers.are_waiting(self.name)

    def may_look(self, sleeper: Sleeper) -> bool:
        """Whether this consumer is to look, now that something is new. Called by the thread that tells of it."""
        while self._is_busy(sleeper):
            self._asked = True
            if self._is_busy(sleeper):
                return False
        if not sleeper.is_awake:
            sleeper.called_ms = self._now_ms()
            self._looker = sleeper
            if sleeper.in_loop:
                self._at(sleeper.called_ms + PATIENCE_MS, partial(self._look_after, sleeper))
            if not sleeper.is_awake:
                return True
        self._asked = True  # it looks already, maybe at an older state: it calls the next one
        if sleeper.is_over:
            self.call()
        return False

    def _is_busy(self, sleeper: Sleeper) -> bool:
        looker = self._looker
        if looker is None or looker is sleeper or looker.is_over:
            return False
        return self._now_ms() - looker.called_ms < PATIENCE_MS

    def begins(self) -> None:
        """A consumer that slept begins a look. It finds all news so far, or says that there is more."""
        self._asked = False

    def ended(self, sleeper: Sleeper | None, *, has_more: bool) -> None:
        """A look has ended, of a consumer that slept or not. A second call does no harm."""
        if sleeper is not None:
            sleeper.is_awake = sleeper.is_over = True
        if has_more or self._asked:
            self.call()

    def call(self) -> None:
        """Call the next consumer, if there is something to look at."""
        self._asked = False
        self._readers.look_at([self.name], one_a_group=True)

    def expect(self) -> None:
        """A consumer is about to wait. It calls this before it reads when a message comes again; a thread that gives
        out messages reads `wakes_ms` after it has entered them."""
        self.wakes_ms = self.wakes_ms or NEVER

    def wake_at(self, time_ms: int) -> None:
        """A message comes again at this time: one of the waiting consumers is to look then."""
        now_ms = self._now_ms()
        if now_ms < self.wakes_ms <= time_ms:
            return
        self.wakes_ms = time_ms
        if time_ms >= NEVER:
            return
        try:
            self._at(time_ms, partial(self._time_has_come, time_ms))
        except BaseException:  # an interrupt: there may be no timer, and others may have relied on it
            self.wakes_ms = NEVER
            self._notify()
            raise

    def keep_watch(self, next_ms: int) -> None:
        """A consumer is about to sleep, or sleeps on: others may have given out messages since it read when the next
        one comes again, or that time has come since."""
        if not 0 < self.wakes_ms <= next_ms:
            self.wake_at(next_ms)

    def gives_out(self, deadline_ms: int) -> None:
        """Messages were given out that come again at `deadline_ms`."""
        if self.is_waited_for:
            self.wake_at(deadline_ms)
        else:
            self.wakes_ms = 0

    def _time_has_come(self, time_ms: int) -> None:
        if self.wakes_ms <= time_ms:
            self.wakes_ms = NEVER
        self._notify()  # also if nobody waits yet: a consumer that is about to finds another version

    def _look_after(self, sleeper: Sleeper) -> None:
        if self._looker is sleeper and not sleeper.is_over:
            self._notify()

    def _at(self, time_ms: int, work: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # there are no timers: then waiting consumers look now and then
            self._readers.at(time_ms, work)


class QueueCalls:
    """The consumers that receive from single queues of a topic, by queue. Any number of threads may use it.

    Invariant: the queue of each call that is under way is here, and no other, unless an interrupt came into `end`.
    """

    def __init__(self, readers: WaitingReaders, topic: str, now_ms: Callable[[], int]) -> None:
        self._readers = readers
        self._topic = topic
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._of: dict[int, tuple[WaitingConsumers, set[object]]] = {}  # with the calls

    def __bool__(self) -> bool:
        """Whether a call is under way."""
        return bool(self._of)

    def begin(self, queue_id: int, call: object, notify: Callable[[], None]) -> WaitingConsumers:
        """A call begins. `notify` is called when there is something to look at."""
        with self._lock:
            found, calls = self._of.get(queue_id, (None, set[object]()))
            if found is None:
                found = WaitingConsumers(self._readers, self._topic, self._now_ms, notify, queue_id)
            calls.add(call)
            self._of[queue_id] = found, calls
        return found

    def end(self, queue_id: int, call: object) -> None:
        """A call has ended; an interrupt may have ended it before or in its `begin`."""
        with self._lock:
            _, calls = self._of.get(queue_id, (None, set[object]()))
            calls.discard(call)
            if not calls:
                self._of.pop(queue_id, None)

    def names(self) -> list[tuple[str, int]]:
        """The names under which they may wait."""
        return [(self._topic, queue_id) for queue_id in list(self._of)]

    def gives_out(self, deadline_ms: int) -> None:
        """Messages come again at `deadline_ms`, maybe earlier than was known. Of those that are given out the consumers
        are told before: they look, and see when these come again.
        """
        for calling, _ in list(self._of.values()) if self._of else ():
            if deadline_ms < calling.wakes_ms:
                calling.gives_out(deadline_ms)
