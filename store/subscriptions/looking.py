"""Looking for messages, and telling the other waiting consumers what a look has found."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..delayed.due_list import FOREVER_S
from .calling import Sleeper
from .delivery import DeliveryBatch
from .dispatcher import Dispatcher
from .in_flight import NEVER
from .state import State


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
        return self.version() != calling.looked_at and calling.may_look(sleeper)

    def is_over(self, left_s: float) -> bool:
        """Whether a consumer that found nothing gives up: its time is over, and it has looked through all messages."""
        return left_s <= 0 and not self._dispatcher.is_unfinished

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
        due_s = self._dispatcher.delays.due_in_s()
        due_ms = NEVER if due_s >= FOREVER_S else self._state.now_ms() + math.ceil(due_s * 1000)
        return min(self._dispatcher.next_ms(), due_ms)


class ReceiveCall:
    """A call that receives: it looks and sleeps by turns, until it has found messages or its time is over.

    Attributes:
        has_more: there may be more messages for other waiting consumers, by its newest look.
        sleeper: its newest sleep; None before the first one.
        left_s: the rest of its time at the end of its newest look.
    """

    __slots__ = ("_calling", "_deadline_s", "_looks", "_monotonic_s", "has_more", "left_s", "sleeper")

    def __init__(self, state: State, looks: Looking, wait_s: float) -> None:
        self._looks = looks
        self._calling = state.calling
        self._monotonic_s = state.parts.clock.monotonic_s
        self._deadline_s = self._monotonic_s() + wait_s
        self.sleeper: Sleeper | None = None
        self.left_s = wait_s
        self.has_more = True

    def look_again(self) -> None:
        """The call is awake, and begins a look."""
        if self.sleeper is not None:
            self.sleeper.is_awake = True
        self.has_more = True

    def is_over(self, *, found: bool) -> bool:
        """A look has ended. Returns whether the call ends, too."""
        self._calling.ended(self.sleeper, has_more=self.has_more)
        self.left_s = self._deadline_s - self._monotonic_s()
        return found or self._looks.is_over(self.left_s)

    def falls_asleep(self, *, in_loop: bool = False) -> Sleeper:
        """The call sleeps next. Returns the new sleep."""
        self.sleeper = Sleeper(in_loop=in_loop)
        return self.sleeper

    def failed(self) -> None:
        """The call raised. It may have been called to look, or have taken the news that others were to look at."""
        self._calling.ended(self.sleeper, has_more=self.sleeper is not None)
