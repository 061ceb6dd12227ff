"""Consumers that wait: their looks and sleeps, and who is called to look, one at a time while there may be more."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..delayed.due_list import FOREVER_S
from ..read.waiting import ANY_QUEUE, WaitingReaders
from .delivery import DeliveryBatch
from .in_flight import NEVER

if TYPE_CHECKING:
    from .dispatcher import Dispatcher
    from .state import State

PATIENCE_MS = 500  # then the called consumer is taken for gone, or its loop for stopped, and another one is called
Aside: TypeAlias = "Callable[[Callable[[], object]], Awaitable[object]]"  # makes a call in a thread


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
        looked_at: the version at which a look has found no more messages.
        wakes_ms: until then one waiting consumer will look for messages that come again; 0 if nobody waits.
    """

    def __init__(
        self, readers: WaitingReaders, topic: str, now_ms: Callable[[], int], notify: Callable[[], None]
    ) -> None:
        """`now_ms` is the clock of deadlines; `notify` is called when there is something to look at."""
        self._readers = readers
        self._name = topic, ANY_QUEUE
        self._now_ms = now_ms
        self._notify = notify
        self._looker: Sleeper | None = None
        self._asked = False
        self.looked_at: object = None
        self.wakes_ms = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether a consumer waits for messages of the topic."""
        return self._readers.are_waiting(self._name)

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
        self._readers.look_at([self._name], one_a_group=True)

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


class Looking:
    """Answers a consumer's questions before it sleeps. Any number of threads may use it."""

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher

    def version(self) -> tuple[int, object]:
        """A token: while it is unchanged, another receive finds only what becomes due."""
        return self._state.version, self._dispatcher.newest()

    def look(self, call: ReceiveCall, seen: object, take: Callable[[], DeliveryBatch | None]) -> DeliveryBatch | None:
        """`take` messages, and note for the other waiting consumers whether there are more. `receiving` is held.

        A consumer that was not called takes nothing if the newest look has left nothing. So a hundred consumers whose
        waits end and begin again do not look at the queues each time.
        """
        batch = None if self._has_nothing(seen) else take()
        self._end(call, seen, found=batch is not None)
        return batch

    def _has_nothing(self, seen: object) -> bool:
        """Whether nothing was told and nothing became due since a look that found no more messages."""
        is_old = seen == self._state.calling.looked_at
        return is_old and self._state.now_ms() < self._dispatcher.next_ms() and self._dispatcher.is_at_rest

    def _end(self, call: ReceiveCall, seen: object, *, found: bool) -> None:
        calling, dispatcher = self._state.calling, self._dispatcher
        if not found:
            call.has_more = dispatcher.is_unfinished
        elif calling.is_waited_for:
            call.has_more = dispatcher.has_more()
            calling.wake_at(self._next_ms())
        else:
            call.has_more, calling.wakes_ms = False, 0
            return
        if not call.has_more:
            calling.looked_at = seen

    def has_changed(self, sleeper: Sleeper) -> bool:
        """Whether there is something new, and this consumer is to look at it."""
        calling = self._state.calling
        if self.version() != calling.looked_at:
            return calling.may_look(sleeper)
        calling.keep_watch(self._dispatcher.next_ms())
        return False

    @property
    def is_through(self) -> bool:
        """Whether it has looked through all messages."""
        return not self._dispatcher.is_unfinished

    def may_sleep(self) -> bool:
        """Whether there is nothing to do until something new comes, or until a time at which a consumer is called."""
        if self._dispatcher.is_unfinished:
            return False
        calling = self._state.calling
        calling.expect()
        next_ms = self._next_ms()
        calling.wake_at(next_ms)
        return next_ms > self._state.now_ms()

    def _next_ms(self) -> int:
        """When the next message comes without an append, by the clock of deadlines."""
        now_ms = self._state.now_ms()  # before the time of day: if the clock is moved meanwhile, it is too early
        due_s = self._state.delays.due_in_s()
        due_ms = NEVER if due_s >= FOREVER_S else now_ms + math.ceil(due_s * 1000)
        return min(self._dispatcher.next_ms(), due_ms)


class ReceiveCall:
    """A call that receives: it looks and sleeps by turns, until it has found messages or its time is over.

    Attributes:
        has_more: there may be more messages for other waiting consumers, by its newest look.
        sleeper: its newest sleep; None before the first one.
    """

    __slots__ = (
        "_calling", "_deadline_ms", "_is_closed", "_looks", "_state", "_take", "has_more", "sleeper",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        looks: Looking,
        wait_ms: int,
        take: Callable[[ReceiveCall], DeliveryBatch | None],
        is_closed: Callable[[], bool],
    ) -> None:
        """`take` makes a look; `is_closed` says whether the consumer is gone."""
        self._state = state
        self._calling = state.calling
        self._looks = looks
        self._take = take
        self._is_closed = is_closed
        self._deadline_ms = state.parts.waiting.deadline_after(wait_ms)
        self.sleeper: Sleeper | None = None
        self.has_more = True

    def run(self) -> DeliveryBatch | None:
        """Receive in this thread."""
        try:
            while True:
                self._begin_look()
                batch = self._take(self)
                if self._is_over(found=batch is not None):
                    return batch
                if self._looks.may_sleep():
                    self._state.parts.waiting.wait(*self._sleep(in_loop=False))
        except BaseException:  # passed on
            self._failed()
            raise

    async def run_async(self, aside: Aside) -> DeliveryBatch | None:
        """Receive for a coroutine; `aside` makes a call in a thread."""
        try:
            while True:
                self._begin_look()
                taking = ThreadReceive(self._state)
                try:
                    await aside(partial(taking.take, partial(self._take, self)))
                except BaseException:  # mostly the cancellation of its task, while a thread may still be taking
                    taking.give_up()
                    raise
                if self._is_over(found=taking.batch is not None):
                    return taking.batch
                if await aside(self._looks.may_sleep):  # in a thread: it may wait for one that seals the index
                    await self._state.parts.waiting.wait_async(*self._sleep(in_loop=True))
        except BaseException:  # passed on
            self._failed()
            raise

    def _begin_look(self) -> None:
        if self.sleeper is not None:
            self.sleeper.is_awake = True
        self.has_more = True

    def _is_over(self, *, found: bool) -> bool:
        """A look has ended. Returns whether the call ends, too."""
        self._calling.ended(self.sleeper, has_more=self.has_more)
        return found or (self._state.parts.waiting.is_over(self._deadline_ms) and self._looks.is_through)

    def _sleep(self, *, in_loop: bool) -> tuple[tuple[str, int], Callable[[], bool], int, WaitingConsumers]:
        """The call sleeps next: the arguments of the wait."""
        self.sleeper = Sleeper(in_loop=in_loop)
        name, has_changed = (self._state.topic, ANY_QUEUE), partial(self._has_changed, self.sleeper)
        return name, has_changed, self._deadline_ms, self._calling

    def _has_changed(self, sleeper: Sleeper) -> bool:
        return self._is_closed() or self._looks.has_changed(sleeper)

    def _failed(self) -> None:
        """The call raised. It may have been called to look, or have taken the news that others were to look at, or have
        given out messages whose time-out nobody waits for."""
        self._calling.ended(self.sleeper, has_more=True)


class ThreadReceive:
    """The messages that a thread takes for a coroutine. If the coroutine ends before it has them, they come again."""

    def __init__(self, state: State) -> None:
        self.batch: DeliveryBatch | None = None
        self._state = state
        self._is_over = False

    def take(self, take: Callable[[], DeliveryBatch | None]) -> None:
        """Take messages; called in the thread."""
        if not self._is_over:
            self.batch = take()
            if self._is_over:
                self.give_up()

    def give_up(self) -> None:
        """The coroutine ends. Each side sets its mark before it reads the other's, so at least one gives back."""
        self._is_over = True
        if self.batch is not None:
            self._state.undo_receive(self.batch.receipts)
