"""A call that receives: it looks and sleeps by turns, as a thread or as a coroutine."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

from ..delayed.due_list import FOREVER_S
from ..format.arrays import Int64s
from .calling import Sleeper, WaitingConsumers
from .delivery import DeliveryBatch
from .dispatcher import Dispatcher
from .in_flight import NEVER
from .parts import Parts
from .state import State

Take: TypeAlias = "Callable[[ReceiveCall], DeliveryBatch | None]"  # makes a look
Aside: TypeAlias = "Callable[[Callable[[], object]], Awaitable[object]]"  # makes a call in a thread


class Look(Protocol):
    """The call that a look is a part of."""

    has_more: bool


class LooksAt(Protocol):
    """Answers a consumer's questions before it sleeps."""

    def has_changed(self, sleeper: Sleeper) -> bool:
        """Whether there is something new, and this consumer is to look at it."""

    @property
    def is_through(self) -> bool:
        """Whether it has looked through all messages."""

    def may_sleep(self) -> bool:
        """Whether there is nothing to do until something new comes, or until a time at which a consumer is called."""


class WaitedFor(Protocol):
    """What a call that receives waits for: mostly the state of one subscription."""

    parts: Parts
    calling: WaitingConsumers

    def undo_receive(self, receipts: Int64s) -> None:
        """Messages taken for a consumer that has gone meanwhile come again at once. It may be repeated."""


class Begun(Protocol):
    """What a call begins first and ends last."""

    def begin(self) -> None:
        """The call begins."""

    def end(self) -> None:
        """The call has ended, also if an interrupt came into `begin`."""


class Looking:
    """Answers a consumer's questions before it sleeps. Any number of threads may use it.

    Attributes:
        calling: calls the consumers that wait for the same.
    """

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self.calling = state.calling
        self._state = state
        self._dispatcher = dispatcher

    def version(self) -> tuple[int, object]:
        """A token: while it is unchanged, another receive finds only what becomes due."""
        return self._state.version, self._dispatcher.newest()

    def look(self, call: Look, seen: object, take: Callable[[], DeliveryBatch | None]) -> DeliveryBatch | None:
        """`take` messages, and note for the other waiting consumers whether there are more. `receiving` is held.

        A consumer that was not called takes nothing if the newest look has left nothing. So a hundred consumers whose
        waits end and begin again do not look at the queues each time.
        """
        batch = None if self._has_nothing(seen) else take()
        self._end(call, seen, found=batch is not None)
        return batch

    def _has_nothing(self, seen: object) -> bool:
        """Whether nothing was told and nothing became due since a look that found no more messages."""
        is_old = seen == self.calling.looked_at
        return is_old and self._state.now_ms() < self._dispatcher.next_ms() and self._dispatcher.is_at_rest

    def _end(self, call: Look, seen: object, *, found: bool) -> None:
        calling = self.calling
        if not found:
            call.has_more = self._is_unfinished
        elif calling.is_waited_for:
            call.has_more = self._has_more()
            calling.wake_at(self._next_ms())
        else:
            call.has_more, calling.wakes_ms = False, 0
            return
        if not call.has_more:
            calling.looked_at = seen

    def has_changed(self, sleeper: Sleeper) -> bool:
        """Whether there is something new, and this consumer is to look at it."""
        calling = self.calling
        if self.version() != calling.looked_at:
            return calling.may_look(sleeper)
        calling.keep_watch(self._again_ms())
        return False

    @property
    def is_through(self) -> bool:
        """Whether it has looked through all messages."""
        return not self._dispatcher.is_unfinished

    @property
    def _is_unfinished(self) -> bool:
        return self._dispatcher.is_unfinished

    def _has_more(self) -> bool:
        return self._dispatcher.has_more()

    def _again_ms(self) -> int:
        """When a message comes again that was given out."""
        return self._dispatcher.next_ms()

    def may_sleep(self) -> bool:
        """Whether there is nothing to do until something new comes, or until a time at which a consumer is called."""
        return self.sleeps_until_ms() > self._state.now_ms()

    def sleeps_until_ms(self) -> int:
        """The time at which a consumer is called, by the clock of deadlines, if nothing new comes; 0 if there is
        something to do now."""
        if self._is_unfinished:
            return 0
        calling = self.calling
        calling.expect()
        next_ms = self._next_ms()
        calling.wake_at(next_ms)
        return next_ms

    def _next_ms(self) -> int:
        """When the next message comes without an append, by the clock of deadlines."""
        now_ms = self._state.now_ms()  # before the time of day: if the clock is moved meanwhile, it is too early
        due_s = self._dispatcher.delays.due_in_s()
        due_ms = NEVER if due_s >= FOREVER_S else now_ms + math.ceil(due_s * 1000)
        return min(self._again_ms(), due_ms)


class ReceiveCall:
    """A call that receives: it looks and sleeps by turns, until it has found messages or its time is over.

    Attributes:
        has_more: there may be more messages for other waiting consumers, by its newest look.
        sleeper: its newest sleep; None before the first one.
    """

    __slots__ = (
        "_begun", "_deadline_ms", "_is_closed", "_looks", "_state", "_take", "has_more", "sleeper",
    )  # fmt: skip

    def __init__(
        self,
        state: WaitedFor,
        looks: LooksAt,
        wait_ms: int,
        take: Take,
        is_closed: Callable[[], bool],
        begun: Begun | None = None,
    ) -> None:
        """`is_closed` says whether the consumer is gone."""
        self._state = state
        self._looks = looks
        self._take = take
        self._is_closed = is_closed
        self._begun = begun
        self._deadline_ms = state.parts.waiting.deadline_after(wait_ms)
        self.sleeper: Sleeper | None = None
        self.has_more = True

    def run(self) -> DeliveryBatch | None:
        """Receive in this thread."""
        try:
            if self._begun is not None:
                self._begun.begin()
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
        finally:
            if self._begun is not None:
                self._begun.end()

    async def run_async(self, aside: Aside) -> DeliveryBatch | None:
        """Receive for a coroutine; `aside` makes a call in a thread."""
        try:
            if self._begun is not None:
                self._begun.begin()
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
        finally:
            if self._begun is not None:
                self._begun.end()

    def _begin_look(self) -> None:
        if self.sleeper is not None:
            self.sleeper.is_awake = True
        self.has_more = True

    def _is_over(self, *, found: bool) -> bool:
        """A look has ended. Returns whether the call ends, too."""
        self._state.calling.ended(self.sleeper, has_more=self.has_more)
        return found or (self._state.parts.waiting.is_over(self._deadline_ms) and self._looks.is_through)

    def _sleep(self, *, in_loop: bool) -> tuple[tuple[str, int], Callable[[], bool], int, WaitingConsumers]:
        """The call sleeps next: the arguments of the wait."""
        self.sleeper = Sleeper(in_loop=in_loop)
        calling = self._state.calling
        return calling.name, partial(self._has_changed, self.sleeper), self._deadline_ms, calling

    def _has_changed(self, sleeper: Sleeper) -> bool:
        return self._is_closed() or self._looks.has_changed(sleeper)

    def _failed(self) -> None:
        """The call raised. It may have been called to look, or have taken the news that others were to look at, or have
        given out messages whose time-out nobody waits for."""
        self._state.calling.ended(self.sleeper, has_more=True)


class ThreadReceive:
    """The messages that a thread takes for a coroutine. If the coroutine ends before it has them, they come again."""

    def __init__(self, state: WaitedFor) -> None:
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
