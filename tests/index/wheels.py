"""A wheel whose timers have numbers, and the model that it is held against: a sorted list."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.index import Timer, TimingWheel


class Numbered:
    """A `TimingWheel` whose timers are numbered 0, 1, 2 ... in the order in which they were added."""

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        self.wheel: TimingWheel = TimingWheel(tick_ms, wheel_size, start_ms)
        self.timers: list[Timer] = []

    def __len__(self) -> int:
        return len(self.wheel)

    @property
    def next_deadline_ms(self) -> int | None:
        """As the wheel says it."""
        return self.wheel.next_deadline_ms

    def add(self, deadlines_ms: Sequence[int]) -> list[int]:
        """The numbers of the new timers."""
        first = len(self.timers)
        for number, deadline_ms in enumerate(deadlines_ms, first):
            self.timers.append(self.wheel.add(deadline_ms, number))
        return list(range(first, len(self.timers)))

    def cancel(self, numbers: Sequence[int]) -> int:
        """How many were pending."""
        return sum(self.timers[number].cancel() for number in numbers)

    def advance(self, now_ms: int) -> list[int]:
        """The numbers of those that are due."""
        return self.wheel.advance(now_ms)

    def run_out(self) -> list[tuple[int, int]]:
        """(time, number) of all that fires, the time going from one `next_deadline_ms` to the next one."""
        fired: list[tuple[int, int]] = []
        while (now_ms := self.next_deadline_ms) is not None:
            fired += [(now_ms, number) for number in self.advance(now_ms)]
        return fired


class Model:
    """What a wheel has to do, as a list that is sorted at each look."""

    def __init__(self, tick_ms: int) -> None:
        self.tick_ms = tick_ms
        self.pending: dict[int, int] = {}
        self.now_ms = 0

    def cancel(self, numbers: Sequence[int]) -> int:
        """How many of these are pending; they are not any more."""
        return sum(self.pending.pop(number, None) is not None for number in numbers)

    def advance(self, now_ms: int) -> list[int]:
        """The numbers whose deadline is over at the last tick, by (deadline, number)."""
        self.now_ms = max(self.now_ms, now_ms)
        tick = self.now_ms // self.tick_ms * self.tick_ms
        due = sorted((deadline, number) for number, deadline in self.pending.items() if deadline <= tick)
        for _, number in due:
            del self.pending[number]
        return [number for _, number in due]

    def check_next(self, next_ms: int | None) -> None:
        """A wheel's next deadline is there exactly if something is pending, and not after the first one's tick."""
        assert (next_ms is None) == (not self.pending)
        if next_ms is not None:
            first_tick_ms = -(-min(self.pending.values()) // self.tick_ms) * self.tick_ms
            assert next_ms <= max(first_tick_ms, self.now_ms)
