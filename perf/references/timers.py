"""Timers by each way, with one interface: the wheel, and the standard library's heapq and sched."""

from __future__ import annotations

import heapq
import sched
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ...index import Timer, TimingWheel


class Timers(ABC):
    """Timers with integer deadlines. A call gives and takes the handles of the way."""

    NAME: ClassVar[str]
    CANCELS_SLOWLY: ClassVar[bool] = False  # in the time of a search through all

    @abstractmethod
    def add(self, deadlines: list[int]) -> list[Any]:
        """Handles of new timers."""

    @abstractmethod
    def cancel(self, handles: list[Any]) -> int:
        """Cancel timers. Returns how many were pending."""

    @abstractmethod
    def advance(self, now_ms: int) -> int:
        """The number of due timers."""


class Wheel(Timers):
    """`TimingWheel`, which the store uses."""

    NAME = "TimingWheel"

    def __init__(self) -> None:
        self.wheel = TimingWheel()

    def add(self, deadlines: list[int]) -> list[Timer]:
        """Its timers."""
        add = self.wheel.add
        return [add(deadline, None) for deadline in deadlines]

    def cancel(self, handles: list[Timer]) -> int:
        """One by one."""
        return sum([timer.cancel() for timer in handles])

    def advance(self, now_ms: int) -> int:
        """Payloads."""
        return len(self.wheel.advance(now_ms))


class Heap(Timers):
    """`heapq`: a list for each timer. A cancel marks it; it stays in the heap until its time."""

    NAME = "heapq"

    def __init__(self) -> None:
        self.heap: list[list[Any]] = []
        self._added = 0

    def add(self, deadlines: list[int]) -> list[list[Any]]:
        """Items of the heap."""
        heap, push, number = self.heap, heapq.heappush, self._added
        items = []
        for deadline in deadlines:
            number += 1
            items.append(item := [deadline, number, True])
            push(heap, item)
        self._added = number
        return items

    def cancel(self, handles: list[list[Any]]) -> int:
        """Mark them."""
        count = 0
        for item in handles:
            count += item[2]
            item[2] = False
        return count

    def advance(self, now_ms: int) -> int:
        """Pop due timers."""
        heap, pop, count = self.heap, heapq.heappop, 0
        while heap and heap[0][0] <= now_ms:
            count += pop(heap)[2]
        return count


class Scheduler(Timers):
    """`sched.scheduler`, on a clock of its own."""

    NAME = "sched"
    CANCELS_SLOWLY = True

    def __init__(self) -> None:
        self.now_ms = 0
        self.fired = 0
        self.scheduler = sched.scheduler(lambda: self.now_ms, lambda _: None)

    def _fire(self) -> None:
        self.fired += 1

    def add(self, deadlines: list[int]) -> list[sched.Event]:
        """Events."""
        enter, fire = self.scheduler.enterabs, self._fire
        return [enter(deadline, 0, fire) for deadline in deadlines]

    def cancel(self, handles: list[sched.Event]) -> int:
        """One by one."""
        for event in handles:
            self.scheduler.cancel(event)
        return len(handles)

    def advance(self, now_ms: int) -> int:
        """Run due timers."""
        self.now_ms, before = now_ms, self.fired
        self.scheduler.run(blocking=False)
        return self.fired - before


WAYS: tuple[type[Timers], ...] = (Wheel, Heap, Scheduler)
